"""Named deadlines of one core; the driver only ever asks for the earliest.

Moving a deadline later costs one dictionary write: the heap entry that lies too early is put
back when it surfaces. A heartbeat does that once a session interval instead of once a beat.
"""

import heapq

from sparkraft.base.ids import Millis

TimerKey = tuple[str, ...]
"""Kind first, then what it belongs to, such as `("heartbeat", group_id, member_id)`."""


class Timers:
    """A set of deadlines on the monotonic clock, at most one for each key."""

    def __init__(self) -> None:
        """No deadline."""
        self._deadlines: dict[TimerKey, Millis] = {}
        self._heap: list[tuple[Millis, TimerKey]] = []
        self._queued_at: dict[TimerKey, Millis] = {}

    def __len__(self) -> int:
        """How many deadlines stand."""
        return len(self._deadlines)

    def schedule(self, key: TimerKey, deadline: Millis) -> None:
        """Set or move the deadline of `key`."""
        self._deadlines[key] = deadline
        queued_at = self._queued_at.get(key)
        if queued_at is None or deadline < queued_at:
            self._push(key, deadline)

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`; nothing happens where it is not set."""
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._deadlines.clear()
        self._heap.clear()
        self._queued_at.clear()

    @property
    def wake_at(self) -> Millis | None:
        """When the driver must call `due` next: never late, perhaps early; None for never."""
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def due(self, now: Millis) -> TimerKey | None:
        """Take out one deadline that has passed, the earliest; None where there is none."""
        self._settle_top()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, key = heapq.heappop(self._heap)
        del self._queued_at[key]
        del self._deadlines[key]
        return key

    def _settle_top(self) -> None:
        """Make the heap's top a deadline that stands as it is."""
        while self._heap:
            queued_at, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if deadline == queued_at == self._queued_at.get(key):
                return
            heapq.heappop(self._heap)
            if self._queued_at.get(key) != queued_at:
                continue  # An older entry of a key that was queued again, earlier.
            del self._queued_at[key]
            if deadline is not None:
                self._push(key, deadline)

    def _push(self, key: TimerKey, deadline: Millis) -> None:
        heapq.heappush(self._heap, (deadline, key))
        self._queued_at[key] = deadline
