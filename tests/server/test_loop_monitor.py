"""The lag of the event loop, and the pieces of work that make it late."""

import asyncio
import logging

import pytest

from sparkraft.server.loop_monitor import (
    LAG_MS_BUCKETS,
    LOGGED_EACH_MS,
    LONG_PIECE_MS,
    LoopMonitor,
)
from tests.server.test_loop_turns import Clock


def test_lags_are_counted_in_buckets_with_inclusive_upper_bounds() -> None:
    monitor = LoopMonitor(Clock())
    for lag_ms in (0.0, 1.0, 1.5, 10.0, 10_000.0):
        monitor.on_lag(lag_ms)
    assert monitor.lag_counts[0] == 2
    assert monitor.lag_counts[1] == 1
    assert monitor.lag_counts[LAG_MS_BUCKETS.index(10)] == 1
    assert monitor.lag_counts[-1] == 1
    assert monitor.lag_ms_max == 10_000.0


def test_a_blocked_loop_shows_as_lag() -> None:
    async def run() -> LoopMonitor:
        monitor = LoopMonitor(Clock())
        task = asyncio.ensure_future(monitor.run())
        await asyncio.sleep(0)
        late = asyncio.get_running_loop().time() + 0.15
        while asyncio.get_running_loop().time() < late:
            pass
        while not sum(monitor.lag_counts):  # noqa: ASYNC110 (until it has sampled once)
            await asyncio.sleep(0.01)
        task.cancel()
        return monitor

    assert asyncio.run(run()).lag_ms_max >= 40


def test_long_pieces_are_logged_at_most_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    monitor = LoopMonitor(clock)
    with caplog.at_level(logging.WARNING):
        monitor.on_piece(LONG_PIECE_MS - 1, lambda: "a short one")
        monitor.on_piece(LONG_PIECE_MS, lambda: "METADATA v12 of 30 bytes from a client")
        monitor.on_piece(30, lambda: "another")
        clock.now = LOGGED_EACH_MS
        monitor.on_piece(40, lambda: "a third")
    assert caplog.messages == [
        "The event loop was busy for 20 ms with METADATA v12 of 30 bytes from a client",
        "The event loop was busy for 40 ms with a third; 1 more since the last line",
    ]
    assert monitor.long_pieces == 3


def test_every_step_of_a_timed_coroutine_is_a_piece() -> None:
    clock = Clock()
    monitor = LoopMonitor(clock)

    async def work() -> str:
        clock.now += 25
        await asyncio.sleep(0)
        clock.now += 5
        await asyncio.sleep(0)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            clock.now += 30
            raise
        return "never"

    async def run() -> None:
        task = asyncio.ensure_future(monitor.timed(work(), lambda: "work"))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert monitor.long_pieces == 2
