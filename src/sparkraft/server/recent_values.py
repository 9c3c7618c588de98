"""Average, maximum and rate of the values of the last half minute, as Kafka's sampled metrics.

Values are summed per second, so that memory and work are bounded however many there are.
"""

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.base.env import Clock

WINDOW_MS = 30_000
"""Kafka's metrics.sample.window.ms."""

SUM_MS = 1_000
"""Values of this time are one sum."""


class _Sum:
    """The values of a second that began at `start_ms`."""

    __slots__ = ("count", "maximum", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)


class RecentValues:
    """See the module docstring. Values are not negative; without any, everything is 0."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._since_ms = clock.mono_ms()
        self._sums: deque[_Sum] = deque()

    def add(self, value: float) -> None:
        """Note a value of now."""
        now_ms = self._clock.mono_ms()
        sums = self._sums
        if not sums or now_ms - sums[-1].start_ms >= SUM_MS:
            self._expire(now_ms)
            sums.append(_Sum(now_ms))
        sums[-1].add(value)

    def _expire(self, now_ms: int) -> None:
        sums = self._sums
        while sums and now_ms - sums[0].start_ms > WINDOW_MS:
            sums.popleft()

    def _current(self) -> deque[_Sum]:
        self._expire(self._clock.mono_ms())
        return self._sums

    def average(self) -> float:
        """The mean of the values."""
        sums = self._current()
        count = sum(each.count for each in sums)
        return sum(each.total for each in sums) / count if count else 0.0

    def maximum(self) -> float:
        """The largest value."""
        return max((each.maximum for each in self._current()), default=0.0)

    def rate(self) -> float:
        """The sum of the values, per second."""
        passed_ms = self._clock.mono_ms() - self._since_ms
        window_ms = min(max(passed_ms, SUM_MS), WINDOW_MS)
        return sum(each.total for each in self._current()) * 1000 / window_ms
