"""Memory for requests that are arriving: queued.max.request.bytes, Kafka's SimpleMemoryPool.

    length known, bytes missing → take: all of the request's bytes, while any are left
    handled                     → give back → the one that waited longest takes

A request that arrives whole in one piece is handled at once and takes nothing. A reader that takes
gets everything its request needs, even if less is left, so it can always finish; the bound is
exceeded by at most one request. A reader that gets nothing is not read from, and its bytes wait in
the kernel.
"""

from collections import deque
from typing import Protocol


class MemoryWaiter(Protocol):
    """A connection's reader that needs memory for a request."""

    def on_memory(self, count: int) -> bool:
        """There are `count` bytes now; whether they are still wanted."""
        ...


class RequestMemory:
    """The bytes that a node's broker listeners share.

    Args:
        bytes_max: `queued.max.request.bytes`; 0 or less: no bound.
    """

    def __init__(self, bytes_max: int) -> None:
        self.taken = 0
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[MemoryWaiter, int]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for bytes."""
        return len(self._waiting)

    def take(self, waiter: MemoryWaiter, count: int) -> bool:
        """Whether `waiter` has `count` bytes now; else its `on_memory` is called when it has."""
        if self._bytes_max > 0 and (self._waiting or self.taken >= self._bytes_max):
            self._waiting.append((waiter, count))
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were taken; those that wait get them."""
        self.taken -= count
        while self._waiting and self.taken < self._bytes_max:
            waiter, wanted = self._waiting.popleft()
            if waiter.on_memory(wanted):
                self.taken += wanted
