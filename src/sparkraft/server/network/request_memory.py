"""Memory for requests that are arriving: queued.max.request.bytes, Kafka's SimpleMemoryPool.

    length known, bytes missing → take: all of the request's bytes, while any are left
    handled                     → give back → the one that waited longest takes

A request that arrives whole in one piece is handled at once and takes nothing. A reader that takes
gets everything its request needs, even if less is left, so it can always finish; the bound is
exceeded by at most one request. A reader that gets nothing is not read from, and its bytes wait in
the kernel.

Differences from Kafka:
    * There is a bound by default (`bound_of`).
    * An eighth more is kept for small requests, so that they do not wait for large ones.
    * While others wait, a request that makes no progress gives way: its connection is closed. In
      Kafka one client that stops in the middle of its request keeps the others waiting.
    * Requests of other nodes have memory of their own (`of_nodes`): neither the quorum nor
      replication waits for clients. Controller listeners use only that.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.ids import Millis
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.network.dispatch import HEADER

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig

DEFAULT_BYTES = 100 << 20
"""The bound if queued.max.request.bytes is not set: as much as one request of the largest size has
by default. Two dozen clients could otherwise make a node keep gigabytes."""

SMALL_DIVISOR = 100
"""Requests of at most this fraction of the bound, 1 MiB by default, count as small."""

RESERVE_DIVISOR = 8
"""The fraction of the bound that small requests have beyond it."""

CHECK_MS = 1_000
"""Interval of the search for requests without progress."""

PROGRESS_BYTES_MIN = 16 * 1024
"""A request that received less in a whole interval makes no progress: slower than any network over
which Kafka is used."""

_KEY_OFFSET = 4
"""Of the header in a frame, after the length prefix."""

_NODE_KEYS = frozenset({ApiKey.WRITE_TXN_MARKERS, ApiKey.ADD_PARTITIONS_TO_TXN})
_FOLLOWER_KEYS = frozenset({ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH})
_BROKER_CLIENT_ID = b"broker-"
"""The start of the client ids of followers, Kafka's and ours. Forging it only changes the pool."""


class MemoryWaiter(Protocol):
    """A connection's reader that needs memory for a request."""

    @property
    def received(self) -> int | None:
        """Bytes of its request so far; None once it is complete."""
        ...

    def on_memory(self, count: int) -> bool:
        """There are `count` bytes now; whether they are still wanted."""
        ...

    def give_way(self) -> None:
        """Drop the request, which others have waited for."""
        ...


@dataclass(slots=True)
class _Holding:
    """Bytes that a reader has taken; `seen`: those received at the last check, None before it."""

    count: int
    is_small: bool
    seen: int | None = None

    def look(self, received: int | None) -> int | None:
        """Remember what was received; return that of the check before."""
        before, self.seen = self.seen, received
        return before


class RequestMemory:
    """The bytes that a node's broker listeners share.

    Args:
        bytes_max: the bound; 0 or less: none.
        of_nodes: the memory for requests of other nodes; None: the same.
    """

    def __init__(self, bytes_max: int, of_nodes: "RequestMemory | None" = None) -> None:
        self.taken = 0
        self.gave_way = 0
        """Requests that were dropped because they made no progress."""
        self._bytes_max = bytes_max
        self._small_max = bytes_max // SMALL_DIVISOR
        self._reserve = bytes_max // RESERVE_DIVISOR
        self._of_nodes = of_nodes or self
        self._holdings: dict[MemoryWaiter, _Holding] = {}
        self._waiting: deque[tuple[MemoryWaiter, int]] = deque()
        self._checked_ms = Millis(0)

    @property
    def waiting(self) -> int:
        """How many wait for bytes."""
        return len(self._waiting)

    def part_for(self, start: bytes) -> "RequestMemory":
        """The memory for the request that starts with these bytes, length prefix included."""
        return self._of_nodes if _is_of_a_node(start) else self

    def take(self, waiter: MemoryWaiter, count: int) -> bool:
        """Whether `waiter` has `count` bytes now; else its `on_memory` is called when it has.

        It has nothing else at the same time.
        """
        if count <= self._small_max and self._reserve >= count:
            self._reserve -= count
            self._holdings[waiter] = _Holding(count, is_small=True)
            return True
        if self._bytes_max > 0 and (self._waiting or self.taken >= self._bytes_max):
            self._waiting.append((waiter, count))
            return False
        self._hold(waiter, count)
        return True

    def _hold(self, waiter: MemoryWaiter, count: int) -> None:
        self.taken += count
        self._holdings[waiter] = _Holding(count, is_small=False)

    def give_back(self, waiter: MemoryWaiter) -> None:
        """Return what `waiter` has taken; those that wait get it."""
        holding = self._holdings.pop(waiter, None)
        if holding is None:
            return  # It still waits; its `on_memory` refuses the bytes.
        if holding.is_small:
            self._reserve += holding.count
        else:
            self.taken -= holding.count
        while self._waiting and self.taken < self._bytes_max:
            other, wanted = self._waiting.popleft()
            if other.on_memory(wanted):
                self._hold(other, wanted)

    def check_progress(self, now: Millis) -> None:
        """Let requests that make no progress give way if others wait; at most once a `CHECK_MS`."""
        if now - self._checked_ms < CHECK_MS:
            return
        self._checked_ms = now
        wanted = bool(self._waiting) or self._reserve < self._small_max
        for waiter, holding in list(self._holdings.items()):
            received = waiter.received
            seen = holding.look(received)
            if not wanted or received is None or seen is None:
                continue
            if received - seen < PROGRESS_BYTES_MIN:
                self.gave_way += 1
                waiter.give_way()
        if self._of_nodes is not self:
            self._of_nodes.check_progress(now)


def _is_of_a_node(start: bytes) -> bool:
    if len(start) < _KEY_OFFSET + HEADER.size:
        return False
    key, _, _, id_size = HEADER.unpack_from(start, _KEY_OFFSET)
    if key not in _FOLLOWER_KEYS:
        return key in _NODE_KEYS
    at = _KEY_OFFSET + HEADER.size
    return start[at : at + max(0, id_size)].startswith(_BROKER_CLIENT_ID)


def bound_of(config: "NodeConfig") -> int:
    """`queued.max.request.bytes` if it is set, -1 for no bound; else ours.

    It is never below socket.request.max.bytes, so that a request of that size can be received.
    """
    if "queued.max.request.bytes" in config.properties:
        return config.number("queued.max.request.bytes")
    return max(DEFAULT_BYTES, config.number("socket.request.max.bytes"))
