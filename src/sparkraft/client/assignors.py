"""How the leader of a classic group shares out partitions: range, roundrobin, sticky.

Pure functions of the members' subscriptions; two leaders given the same input answer the same.

    range       per topic, neighbouring partitions to each member; the first get one more
    roundrobin  all partitions of all topics in turn
    sticky      balanced within one, and as few partitions move as can be (KIP-54)

Invariant: every partition of a subscribed topic is assigned to exactly one of its subscribers.
Not done: cooperative-sticky (KIP-429), racks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

from sparkraft.base.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Assignment = dict[str, list[TopicPartition]]
"""Member id → its partitions, in order."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it."""

    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """Partitions it owned before (sticky)."""
    generation: int = -1
    """When it had that; the newest claim to a partition counts."""


@dataclass(slots=True)
class _Readers:
    """Subscriptions in a fixed order: static members by instance id, then others by id."""

    members: Mapping[str, Subscriber]
    order: list[str] = field(init=False)

    def __post_init__(self) -> None:
        def rank(member: str) -> tuple[bool, str]:
            instance = self.members[member].instance_id
            return (instance is None, instance or member)

        self.order = sorted(self.members, key=rank)

    def of(self, topic: str) -> list[str]:
        return [m for m in self.order if topic in self.members[m].topics]


def assign_range(members: Mapping[str, Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Range; `counts` is topic → number of partitions."""
    readers = _Readers(members)
    shares: Assignment = {member: [] for member in readers.order}
    for topic in sorted(counts):
        reading = readers.of(topic)
        if not reading:
            continue
        each, more = divmod(counts[topic], len(reading))
        first = 0
        for place, member in enumerate(reading):
            last = first + each + (place < more)
            shares[member].extend((topic, index) for index in range(first, last))
            first = last
    return shares


def assign_round_robin(members: Mapping[str, Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Round robin; a member that does not read a topic is passed over."""
    readers = _Readers(members)
    shares: Assignment = {member: [] for member in readers.order}
    place = 0
    for topic in sorted(counts):
        if not readers.of(topic):
            continue
        for index in range(counts[topic]):
            while topic not in members[readers.order[place % len(readers.order)]].topics:
                place += 1
            shares[readers.order[place % len(readers.order)]].append((topic, index))
            place += 1
    return shares


def assign_sticky(members: Mapping[str, Subscriber], counts: Mapping[str, int]) -> Assignment:
    """Sticky: keep what members have, give out the rest, then even out."""
    readers = _Readers(members)
    shares = _kept(readers, counts)
    taken = {tp for share in shares.values() for tp in share}
    for topic in sorted(counts):
        reading = readers.of(topic)
        for index in range(counts[topic]):
            if reading and (topic, index) not in taken:
                least = min(reading, key=lambda m: (len(shares[m]), readers.order.index(m)))
                shares[least].append((topic, index))
    _even_out(readers, shares)
    return {member: sorted(share) for member, share in shares.items()}


def _kept(readers: _Readers, counts: Mapping[str, int]) -> Assignment:
    """Return the subscribed partitions each member keeps: none has a newer claim."""
    owner: dict[TopicPartition, tuple[int, str]] = {}
    for member in readers.order:
        subscriber = readers.members[member]
        for tp in subscriber.owned:
            exists = tp[1] < counts.get(tp[0], 0) and tp[0] in subscriber.topics
            if exists and owner.get(tp, (-2, ""))[0] < subscriber.generation:
                owner[tp] = (subscriber.generation, member)
    shares: Assignment = {member: [] for member in readers.order}
    for tp in sorted(owner):
        shares[owner[tp][1]].append(tp)
    return shares


def _even_out(readers: _Readers, shares: Assignment) -> None:
    """Move single partitions from fuller to emptier members while that brings them closer.

    Each move lowers the sum of squares of the shares, so it ends.
    """
    while True:
        move = _best_move(readers, shares)
        if move is None:
            return
        giver, taker, tp = move
        shares[giver].remove(tp)
        shares[taker].append(tp)


def _best_move(readers: _Readers, shares: Assignment) -> tuple[str, str, TopicPartition] | None:
    by_size = sorted(readers.order, key=lambda m: len(shares[m]))
    for giver in reversed(by_size):
        for taker in by_size:
            if len(shares[giver]) - len(shares[taker]) <= 1:
                break
            for tp in reversed(shares[giver]):
                if tp[0] in readers.members[taker].topics:
                    return giver, taker, tp
    return None


ASSIGNORS: dict[str, Callable[[Mapping[str, Subscriber], Mapping[str, int]], Assignment]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
}
"""By the name that members vote on."""


def encode_sticky_user_data(owned: Mapping[str, list[int]], generation: int) -> bytes:
    """Encode the previous assignment that a sticky member sends to the leader, in Java's layout.

    ``count i32 { topic: i16 length, text | count i32 { partition i32 }* }* | generation i32``
    """
    out = bytearray(_INT32.pack(len(owned)))
    for topic in sorted(owned):
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + _INT32.pack(len(owned[topic]))
        for index in owned[topic]:
            out += _INT32.pack(index)
    return bytes(out + _INT32.pack(generation))


def decode_sticky_user_data(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """The same read back: partitions and generation; nothing and -1 if it makes no sense."""
    if not data:
        return (), -1
    try:
        return _decode_sticky(data)
    except (ValueError, IndexError):
        return (), -1


def _decode_sticky(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    def number(at: int, size: int) -> int:
        if at + size > len(data):
            raise ValueError("cut short")
        return int.from_bytes(data[at : at + size], "big", signed=True)

    owned: list[TopicPartition] = []
    at = 4
    for _ in range(number(0, 4)):
        length = number(at, 2)
        topic = data[at + 2 : at + 2 + length].decode()
        at += 2 + length
        count = number(at, 4)
        at += 4
        for _ in range(count):
            owned.append((topic, number(at, 4)))
            at += 4
    generation = number(at, 4) if at + 4 <= len(data) else -1
    return tuple(owned), generation
