"""The limit on repeated log lines."""

import io
import logging

from sparkraft.cli.log_lines import INTERVAL_SECONDS, LINES_PER_INTERVAL, LimitedHandler


class Log:
    """A logger of its own whose handler has a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.out = io.StringIO()
        self.handler = LimitedHandler(self.out, clock=lambda: self.now)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.logger = logging.Logger("under test")
        self.logger.addHandler(self.handler)

    def flood(self, count: int, level: int = logging.WARNING) -> None:
        for number in range(count):
            self.logger.log(level, "Can't create %s", f"t-{number}")

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def test_a_flood_of_one_kind_is_cut_off_and_counted() -> None:
    log = Log()
    log.flood(100_000)
    assert len(log.lines) == LINES_PER_INTERVAL + 1
    assert log.lines[-1].startswith(f"WARNING More than {LINES_PER_INTERVAL} lines like the last")
    log.logger.info("another kind is not limited by it")
    assert log.lines[-1].startswith("INFO another")
    log.now += INTERVAL_SECONDS
    log.logger.info("any later line")
    suppressed = 100_000 - LINES_PER_INTERVAL
    assert log.lines[-2] == f"WARNING Suppressed {suppressed} lines like: Can't create %s"
    log.flood(1)
    assert log.lines[-1] == "WARNING Can't create t-0"


def test_lines_up_to_the_limit_stay_as_they_are() -> None:
    log = Log()
    log.flood(LINES_PER_INTERVAL)
    log.now += INTERVAL_SECONDS
    log.flood(1)
    assert len(log.lines) == LINES_PER_INTERVAL + 1
    assert not any("uppress" in line for line in log.lines)


def test_what_was_suppressed_last_is_counted_at_the_end() -> None:
    log = Log()
    log.flood(LINES_PER_INTERVAL + 3)
    log.handler.close()
    assert log.lines[-1] == "WARNING Suppressed 3 lines like: Can't create %s"


def test_critical_lines_are_never_suppressed() -> None:
    log = Log()
    log.flood(LINES_PER_INTERVAL * 2, logging.CRITICAL)
    assert len(log.lines) == LINES_PER_INTERVAL * 2
