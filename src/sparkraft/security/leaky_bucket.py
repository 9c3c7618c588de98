"""A leaky bucket: the amounts of a client that its quota does not cover yet.

    amounts ──▶ │       │ above `burst`: the client waits until that has drained
                │ level │
                └───────┘ ──▶ drains by the quota

An idle client may take the burst at once and its quota from then on, so that at any time it has had
at most the burst more than the quota.

Kafka's Rate allows the same burst, ten seconds of the quota, but again each time when the window
that contains the last one expires, and little in between: of a client that takes as much as it
can get, 30 seconds have between 27 % less and 10 % more than its quota.
"""

import math

from sparkraft.security.windowed_rate import THROTTLE_MS_MAX, whole_ms


class LeakyBucket:
    """See the module docstring."""

    __slots__ = ("_last_ms", "_level", "_per_second")

    def __init__(self) -> None:
        self._level = 0.0
        self._last_ms = 0
        self._per_second = 0.0

    def add(self, amount: float, per_second: float, burst: float, now: int) -> int:
        """Add an amount, and return how long the client must wait, in ms; 0: not.

        After a change of its quota a client has nothing to wait for.

        Args:
            amount: bytes, percent of a second, or connections; negative: taken back.
            per_second: its quota. Infinity, a negative number and NaN limit nothing.
            burst: the amount that an idle client may take at once.
            now: monotonic ms.
        """
        if not 0 < per_second < math.inf:
            return THROTTLE_MS_MAX if per_second == 0 and amount > 0 else 0
        drained = self._per_second * (now - self._last_ms) / 1000
        level = max(0.0, self._level - drained)
        if per_second != self._per_second:
            self._per_second = per_second
            level = min(level, burst)
        self._last_ms = now
        self._level = max(0.0, level + amount)
        return whole_ms((self._level - burst) / per_second * 1000)

    def forgive(self, level_max: float) -> None:
        """Forget what is above `level_max`."""
        self._level = min(self._level, level_max)
