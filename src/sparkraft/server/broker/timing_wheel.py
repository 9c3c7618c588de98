"""Deadlines of parked requests: thousands, nearly all of which are cancelled before they expire.

A wheel of slots instead of a heap of timers: adding and cancelling cost the same however many there
are, and the event loop has one timer for all. Slots widen with the distance, as in Kafka's
hierarchical `TimingWheel`: a deadline expires up to 1/16 of its wait late, never early.

    wait 40 ms   → slots of 1 ms        wait 500 ms  → slots of 16 ms      wait 30 s → 1 s
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.base.env import Clock

_FINE_MS = 64
"""Waits up to this are exact to the millisecond."""

_LATE_SHIFT = 5
"""A slot is at most 1/16 of the wait wide (rounding to powers of two costs a factor of two)."""

Callback = Callable[[], None]


class Deadline:
    """One entry of the wheel."""

    __slots__ = ("_callback", "_slot")

    def __init__(self, slot: "dict[Deadline, None]", callback: Callback) -> None:
        """Only `TimingWheel.add` makes these."""
        self._slot: dict[Deadline, None] | None = slot
        self._callback: Callback | None = callback

    def cancel(self) -> None:
        """Do not call back; harmless after expiry and if repeated."""
        if self._slot is not None:
            self._slot.pop(self, None)
            self._slot = self._callback = None

    def _fire(self) -> None:
        callback, self._slot, self._callback = self._callback, None, None
        if callback is not None:
            callback()


class TimingWheel:
    """See the module docstring; belongs to one event loop.

    Attributes:
        parked: fetches that wait.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self.parked = 0
        self._slots: dict[int, dict[Deadline, None]] = {}
        self._due: list[int] = []
        """The slots' times as a heap."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0

    def park(self) -> None:
        """Count a fetch that waits."""
        self.parked += 1

    def unpark(self) -> None:
        """It waits no more."""
        self.parked -= 1

    def add(self, wait_ms: int, callback: Callback) -> Deadline:
        """Call `callback` once `wait_ms` have passed, unless it is cancelled."""
        wait_ms = max(wait_ms, 0)
        at = self._clock.mono_ms() + wait_ms
        if wait_ms > _FINE_MS:
            width = 1 << (wait_ms.bit_length() - _LATE_SHIFT)
            at = -(-at // width) * width
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = {}
            heappush(self._due, at)
            if self._timer is None or at < self._timer_at:
                self._arm(at)
        deadline = Deadline(slot, callback)
        slot[deadline] = None
        return deadline

    def _arm(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay_ms = max(at - self._clock.mono_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.mono_ms()
        while self._due and self._due[0] <= now:
            slot = self._slots.pop(heappop(self._due))
            for deadline in list(slot):
                deadline._fire()  # noqa: SLF001 (one idea in two classes)
        # Emptied slots stay until their time; they are few, because deadlines share them.
        if self._due and self._timer is None:
            self._arm(self._due[0])
