"""What a starting node says of its logs: how far it is every few seconds, and that it is done."""

import logging
from threading import Lock
from typing import TYPE_CHECKING

from sparkraft.storage.loading import LoadOptions, LoadProgress

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env

log = logging.getLogger(__name__)

REPORT_MS = 3_000
"""Between two sentences; a start that takes less says one a directory."""


def load_options(config: "NodeConfig", env: "Env") -> LoadOptions:
    """As `num.recovery.threads.per.data.dir` says, with progress in the log."""
    return LoadOptions(
        threads=config.number("num.recovery.threads.per.data.dir"),
        run_all=env.run_all_and_wait,
        progress=LoadReports(env).tell,
    )


class LoadReports:
    """Turns progress into few sentences; told from several threads."""

    def __init__(self, env: "Env") -> None:
        """The start begins now."""
        self._clock = env.clock
        self._started_ms = self._said_ms = env.clock.mono_ms()
        self._mutex = Lock()

    def tell(self, progress: LoadProgress) -> None:
        """A log has been recovered."""
        with self._mutex:
            now_ms = self._clock.mono_ms()
            is_last = progress.done == progress.total
            if not is_last and now_ms - self._said_ms < REPORT_MS:
                return
            self._said_ms = now_ms
        log.info(
            "%s %d of %d logs in %s, after %d ms; the last one, %s, took %d ms",
            "Loaded" if progress.clean else "Recovered",
            progress.done,
            progress.total,
            progress.log_dir,
            now_ms - self._started_ms,
            progress.name,
            progress.took_ms,
        )
