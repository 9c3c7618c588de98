"""Memory for requests that are arriving: queued.max.request.bytes, Kafka's SimpleMemoryPool.

    length known, bytes missing → take: all of the request's bytes, while any are left
    handled                     → give back → whoever waited longest takes

A request that arrives whole in one piece is handled at once and takes nothing. Who takes gets all
of what its request needs, though less may be left: it can then always go on to its end, and the
bound is exceeded by at most one request. Who gets nothing isn't read meanwhile, and waits in the
kernel.
"""

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.server.network.connection import Connection


class RequestMemory:
    """The bytes that a node's broker listeners share."""

    def __init__(self, bytes_max: int) -> None:
        """Nothing is taken.

        Args:
            bytes_max: `queued.max.request.bytes`; 0 or less: no bound.
        """
        self.taken = 0
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[Connection, int]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for bytes."""
        return len(self._waiting)

    def take(self, connection: "Connection", count: int) -> bool:
        """Whether `connection` has `count` bytes now; else `on_memory` tells it when."""
        if self._bytes_max > 0 and (self._waiting or self.taken >= self._bytes_max):
            self._waiting.append((connection, count))
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were taken; they go to who waits."""
        self.taken -= count
        while self._waiting and self.taken < self._bytes_max:
            connection, wanted = self._waiting.popleft()
            if connection.on_memory(wanted):
                self.taken += wanted
