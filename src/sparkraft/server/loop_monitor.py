"""How late the event loop is, and which pieces of work make it late.

    lag       every `SAMPLE_MS` a timer notes how late it ran: a histogram, exported at /metrics
    idle      at the same times, the processor time that the loop's thread has used since
    pieces    requests and steps of tasks that take `LONG_PIECE_MS` or more are counted and logged
              with their API, client and size; at most one line in `LOGGED_EACH_MS`

The lag shows every stall; the pieces show only those of requests and named tasks.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from sparkraft.server.recent_values import RecentValues

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock

log = logging.getLogger(__name__)

SAMPLE_MS = 100
LONG_PIECE_MS = 20
"""Twice the bound of a piece: logged, so that an operator can name what delayed the clients."""

LOGGED_EACH_MS = 1_000
LAG_MS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""Upper bounds of the histogram's buckets, ms; the last bucket has none."""


class LoopMonitor:
    """See the module docstring; `run` is one task.

    Attributes:
        lag_counts: samples per bucket of `LAG_MS_BUCKETS`, one more for longer lags.
        lag_ms_total: sum of all samples, ms.
        lag_ms_max: the longest since the start.
        long_pieces: pieces of at least `LONG_PIECE_MS`.
    """

    def __init__(self, clock: "Clock") -> None:
        self.clock = clock
        self.lag_counts = [0] * (len(LAG_MS_BUCKETS) + 1)
        self.lag_ms_total = 0.0
        self.lag_ms_max = 0.0
        self.long_pieces = 0
        self._busy_ms = RecentValues(clock)
        self._logged_ms: int | None = None
        self._unlogged = 0

    async def run(self) -> None:
        """Sample the lag until cancelled."""
        loop = asyncio.get_running_loop()
        used = time.thread_time()
        while True:
            due = loop.time() + SAMPLE_MS / 1000
            await asyncio.sleep(SAMPLE_MS / 1000)
            self.on_lag(max(loop.time() - due, 0.0) * 1000)
            before, used = used, time.thread_time()
            self._busy_ms.add((used - before) * 1000)

    @property
    def idle_ratio(self) -> float:
        """The share of the last half minute in which the loop's thread used no processor time."""
        return max(1.0 - self._busy_ms.rate() / 1000, 0.0)

    def on_lag(self, lag_ms: float) -> None:
        """Count one sample."""
        self.lag_counts[bisect_left(LAG_MS_BUCKETS, lag_ms)] += 1
        self.lag_ms_total += lag_ms
        self.lag_ms_max = max(self.lag_ms_max, lag_ms)

    def on_piece(self, elapsed_ms: int, describe: "Callable[[], str]") -> None:
        """Count a piece of work that ended, and log it if it took too long.

        Args:
            elapsed_ms: how long it kept the loop.
            describe: returns its description for the log.
        """
        if elapsed_ms < LONG_PIECE_MS:
            return
        self.long_pieces += 1
        now_ms = self.clock.mono_ms()
        if self._logged_ms is not None and now_ms - self._logged_ms < LOGGED_EACH_MS:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more since the last line" if self._unlogged else ""
        log.warning("The event loop was busy for %d ms with %s%s", elapsed_ms, describe(), more)
        self._logged_ms = now_ms
        self._unlogged = 0

    def timed(
        self, work: "Coroutine[Any, Any, Any]", what: "Callable[[], str]"
    ) -> "Coroutine[Any, Any, Any]":
        """`work`, whose steps between two awaits are watched as pieces."""
        return _Timed(self, work, what)


class _Timed(Coroutine[Any, Any, Any]):
    """A coroutine that reports how long each of its steps took."""

    __slots__ = ("_monitor", "_what", "_work")

    def __init__(
        self, monitor: LoopMonitor, work: "Coroutine[Any, Any, Any]", what: "Callable[[], str]"
    ) -> None:
        self._monitor = monitor
        self._work = work
        self._what = what

    def send(self, value: Any) -> Any:
        started_ms = self._monitor.clock.mono_ms()
        try:
            return self._work.send(value)
        finally:
            self._monitor.on_piece(self._monitor.clock.mono_ms() - started_ms, self._what)

    def throw(self, *error: Any) -> Any:
        started_ms = self._monitor.clock.mono_ms()
        try:
            return self._work.throw(*error)
        finally:
            self._monitor.on_piece(self._monitor.clock.mono_ms() - started_ms, self._what)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return self._work.__await__()
