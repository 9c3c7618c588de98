"""Average, maximum and rate over the last half minute."""

from sparkraft.server.recent_values import SUM_MS, WINDOW_MS, RecentValues
from tests.server.test_loop_turns import Clock


def test_without_values_everything_is_zero() -> None:
    recent = RecentValues(Clock())
    assert (recent.average(), recent.maximum(), recent.rate()) == (0, 0, 0)


def test_values_count_until_the_window_has_passed() -> None:
    clock = Clock()
    recent = RecentValues(clock)
    recent.add(10)
    clock.now += SUM_MS
    recent.add(20)
    assert (recent.average(), recent.maximum()) == (15, 20)
    clock.now += WINDOW_MS
    assert (recent.average(), recent.maximum()) == (20, 20)
    clock.now += 1
    assert (recent.average(), recent.maximum()) == (0, 0)


def test_the_rate_is_per_second_of_the_time_that_has_passed() -> None:
    clock = Clock()
    recent = RecentValues(clock)
    for _ in range(10):
        clock.now += SUM_MS
        recent.add(50)
    assert recent.rate() == 50
    for _ in range(100):
        clock.now += SUM_MS
        recent.add(30)
    assert 29 < recent.rate() < 32
    assert len(recent._sums) <= WINDOW_MS // SUM_MS + 1
