"""Named deadlines of a shard; its runtime needs the earliest one only.

Moving a deadline later costs one dictionary write: the early heap entry is replaced when it reaches
the top. So a member costs one heap operation per session timeout instead of one per heartbeat.

After a rebalance the entries of all members of a group are obsolete together. So each call drops or
replaces at most `SETTLED_AT_ONCE`, and is repeated at `wake_at`, which is then in the past.
"""

import heapq

from sparkraft.base.ids import Millis
from sparkraft.base.loop_work import LoopBound

SETTLED_AT_ONCE: LoopBound = 1_000
"""Obsolete heap entries that one call drops or replaces: 2 ms."""

TimerKey = tuple[str, ...]
"""The kind, then its owner, such as `("heartbeat", group_id, member_id)`."""


class Timers:
    """Deadlines on the monotonic clock, at most one per key."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, Millis] = {}
        """Use: the deadlines that are set."""
        self._heap: list[tuple[Millis, TimerKey]] = []
        """Invariant: has an entry for every deadline, at that time or earlier."""
        self._queued_at: dict[TimerKey, Millis] = {}
        """The time of a key's valid heap entry; entries with another time are obsolete."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: TimerKey, deadline: Millis) -> None:
        """Set or move the deadline of `key`."""
        self._deadlines[key] = deadline
        queued_at = self._queued_at.get(key)
        if queued_at is None or deadline < queued_at:
            self._push(key, deadline)

    def is_scheduled(self, key: TimerKey) -> bool:
        """Whether `key` has a deadline."""
        return key in self._deadlines

    def cancel(self, key: TimerKey) -> None:
        """Remove the deadline of `key`, if it is set."""
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
        self._queued_at.clear()

    @property
    def wake_at(self) -> Millis | None:
        """When to call `due` next: the earliest deadline, or before it; None if there is none."""
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def due(self, now: Millis) -> TimerKey | None:
        """Remove and return the earliest deadline that has passed.

        None if there is none, or if it is below too many obsolete entries: see `wake_at`.
        """
        if not self._settle_top() or self._heap[0][0] > now:
            return None
        _, key = heapq.heappop(self._heap)
        del self._queued_at[key]
        del self._deadlines[key]
        return key

    def _settle_top(self) -> bool:
        """Drop or replace heap entries; return whether the top is a current deadline."""
        for _ in range(SETTLED_AT_ONCE):
            if not self._heap:
                return False
            queued_at, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if deadline == queued_at == self._queued_at.get(key):
                return True
            heapq.heappop(self._heap)
            if self._queued_at.get(key) != queued_at:
                continue  # Obsolete: the key was queued again with an earlier time.
            del self._queued_at[key]
            if deadline is not None:
                self._push(key, deadline)
        return False

    def _push(self, key: TimerKey, deadline: Millis) -> None:
        heapq.heappush(self._heap, (deadline, key))
        self._queued_at[key] = deadline
