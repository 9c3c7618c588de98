"""The rate of replication: windows of time, and when they let the next bytes pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.replication.quota import ReplicationQuota


def quota(limit: int = 1000, windows: int = 11) -> ReplicationQuota:
    made = ReplicationQuota(windows=windows, window_ms=1000)
    made.bytes_per_second = limit
    return made


def test_nothing_is_exceeded_without_a_limit():
    made = ReplicationQuota(windows=11, window_ms=1000)
    made.record(1 << 40, 0)
    assert not made.is_exceeded(0)
    assert made.wait_ms(0) == 0


def test_the_first_bytes_count_over_a_whole_window():
    made = quota()
    made.record(900, 5_000)
    assert made.rate(5_000) == 900
    assert not made.is_exceeded(5_000)
    made.record(200, 5_100)
    assert made.is_exceeded(5_100)


def test_a_burst_is_paid_for_by_waiting():
    made = quota()
    made.record(5_000, 0)
    assert made.is_exceeded(4_000)
    assert not made.is_exceeded(5_000)
    assert made.wait_ms(0) == 5_000
    assert made.wait_ms(5_000) == 0


def test_old_windows_are_forgotten():
    made = quota(windows=3)
    made.record(1_000_000, 0)
    assert made.wait_ms(0) == 3_000
    assert made.is_exceeded(2_999)
    assert not made.is_exceeded(3_000)


def test_a_steady_stream_at_the_limit_passes():
    made = quota(limit=10_000)
    for tick in range(200):
        made.record(990, tick * 100)
        if tick > 10:
            assert not made.is_exceeded(tick * 100 + 99)


def test_a_stream_that_waits_when_told_stays_within_its_rate():
    """As a throttled follower does: fetch, count, wait."""
    made = quota(limit=100_000)
    now = sent = 0
    while now < 60_000:
        if made.is_exceeded(now):
            now += made.wait_ms(now)
            continue
        made.record(16_384, now)
        sent += 16_384
        now += 1
    assert sent * 1000 / now == pytest.approx(100_000, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 50_000)), min_size=1))
def test_the_wait_is_enough_and_not_more_than_needed(steps):
    made = quota(windows=5)
    now = 0
    for pause, count in steps:
        now += pause
        made.record(count, now)
    wait = made.wait_ms(now)
    if wait:
        assert made.is_exceeded(now + wait - 1)
    assert not made.is_exceeded(now + wait)
