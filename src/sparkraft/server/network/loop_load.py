"""How much of its time the event loop spends on clients: high and low, with a gap between them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.base.env import Clock

WINDOW_MS = 100
"""The loop's time is judged over windows of at least this length."""

HIGH, LOW = 0.75, 0.4
"""Shares of a window. Gathering halves the work for the same records, so a share between the two
means that it still helps."""


class LoopLoad:
    """How much of its time the loop spends on iterations in which clients ran.

    Attributes:
        is_high: whether it was too much in the last window.
    """

    def __init__(self, clock: "Clock") -> None:
        self.is_high = False
        self._clock = clock
        self._window_started_ms = clock.mono_ms()
        self._busy_ms = 0

    def on_iteration(self, started_ms: int) -> None:
        """An iteration in which clients ran since `started_ms` has ended."""
        now = self._clock.mono_ms()
        self._busy_ms += now - started_ms
        elapsed_ms = now - self._window_started_ms
        if elapsed_ms < WINDOW_MS:
            return
        share = self._busy_ms / elapsed_ms
        self.is_high = share >= HIGH or (self.is_high and share >= LOW)
        self._window_started_ms = now
        self._busy_ms = 0
