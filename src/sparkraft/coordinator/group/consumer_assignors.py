"""The server-side assignors `uniform` and `range` (KIP-848).

    uniform  spreads all partitions evenly and moves as few as possible
    range    gives each member contiguous ranges, the same of all topics with equal subscribers

Pure, and deterministic: members are visited by id, topics by id. Racks are ignored, as in Kafka
since 4.0. Kafka visits members in hash-map order, so an assignment may differ from Kafka's in which
members get the larger shares.

Neither may fail: a topic that does not exist is skipped, a member without topics gets nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group.consumer_member import Partitions
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, fast, pieces, sorted_in_steps

BALANCE_PASSES_MAX = 16
"""Passes over the topics by which `uniform` balances mixed subscriptions, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """The input of an assignor for one member.

    Attributes:
        topics: ids of the existing topics it subscribes to.
        target: its previous target.
    """

    instance_id: str | None = None
    topics: frozenset[Uuid] = frozenset()
    target: Partitions


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], Steps[dict[str, Partitions]]]
"""(members by id, partition count by topic) → the target of every member."""

_Shares = dict[str, dict[Uuid, set[int]]]


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> Steps[dict[str, Partitions]]:
    """Spread all partitions evenly, and move as few as that allows."""
    if not members:
        return {}
    first = next(iter(members.values())).topics
    if (yield from _have_same_topics(members.values(), first)):
        topics = [one for one in (yield from sorted_in_steps(first)) if one in partition_counts]
        yield fast(len(first))
        shares = yield from _uniform_same(members, topics, partition_counts)
    else:
        shares = yield from _UniformMixed(members, partition_counts).assign()
    return (yield from _frozen(shares))


def _have_same_topics(members: Iterable[MemberSpec], topics: frozenset[Uuid]) -> Steps[bool]:
    for member in members:
        if member.topics is not topics:
            yield fast(len(topics))
            if member.topics != topics:
                return False
        yield 0
    return True


def _uniform_same(
    members: Mapping[str, MemberSpec], topics: Sequence[Uuid], counts: Mapping[Uuid, int]
) -> Steps[_Shares]:
    """All members have the same subscription."""
    order = sorted(members)
    quota, extras = divmod(sum(counts[topic] for topic in topics), len(order))
    pool: dict[Uuid, set[int]] = {}
    for piece in pieces(topics):
        pool.update((topic, set(range(counts[topic]))) for topic in piece)
        yield len(piece) >> 2
    shares: _Shares = {}
    missing: dict[str, int] = {}
    for at, member_id in enumerate(order):
        limit = quota + (extras > 0)
        kept, size = yield from _kept(members[member_id].target, pool, limit)
        shares[member_id] = kept
        # One that cannot fill its larger share leaves it to a later member, unless as many larger
        # shares are left as members (KAFKA-18688).
        is_larger = extras > 0 and (size == limit or len(order) - at <= extras)
        extras -= is_larger
        missing[member_id] = quota + is_larger - size
        yield 1
    rest = ((topic, one) for topic in topics for one in sorted(pool[topic]))
    for member_id, count in missing.items():
        share = shares[member_id]
        for given in pieces(islice(rest, count)):
            for topic, partition in given:
                share.setdefault(topic, set()).add(partition)
            yield len(given) >> 1
    return shares


def _kept(
    target: Partitions, pool: dict[Uuid, set[int]], limit: int
) -> Steps[tuple[dict[Uuid, set[int]], int]]:
    """Take up to `limit` partitions of a previous target out of the pool."""
    kept: dict[Uuid, set[int]] = {}
    size = units = 0
    for topic in (yield from sorted_in_steps(target)):
        left = pool.get(topic)
        if left is None:
            continue
        taken = sorted(target[topic] & left)[: limit - size]
        if taken:
            left.difference_update(taken)
            kept[topic] = set(taken)
            size += len(taken)
        if size == limit:
            break
        units += len(target[topic])
        if units >= PIECE_UNITS:
            yield units >> 1
            units = 0
    yield units >> 1
    return kept, size


class _UniformMixed:
    """`uniform` for members with different subscriptions: balance wins over stickiness."""

    def __init__(self, members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> None:
        self._counts = counts
        self._members = members
        self._shares: _Shares = {one: {} for one in sorted(members)}
        self._sizes = dict.fromkeys(sorted(members), 0)
        self._subscribers: dict[Uuid, list[str]] = {}
        self._topics: list[Uuid] = []
        self._owner: dict[tuple[Uuid, int], str] = {}

    def assign(self) -> Steps[_Shares]:
        yield from self._find_subscribers()
        for member_id in self._shares:
            yield from self._keep(member_id)
        for topic in self._topics:
            for partition in range(self._counts[topic]):
                if (topic, partition) not in self._owner:
                    self._give(self._least_loaded(topic), topic, partition)
                    yield self._search_units(topic)
            yield 1
        yield from self._balance()
        return self._shares

    def _find_subscribers(self) -> Steps[None]:
        for member_id in self._shares:
            for piece in pieces(self._members[member_id].topics):
                for topic in piece:
                    if topic in self._counts:
                        self._subscribers.setdefault(topic, []).append(member_id)
                yield len(piece) >> 2
        counts = self._counts
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -counts[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )
        yield len(self._topics) >> 2

    def _search_units(self, topic: Uuid) -> int:
        """Units of `_least_loaded`."""
        return 1 + fast(len(self._subscribers[topic]))

    def _keep(self, member_id: str) -> Steps[None]:
        spec = self._members[member_id]
        units = 0
        for topic in (yield from sorted_in_steps(spec.target)):
            if topic in spec.topics and topic in self._counts:
                for partition in sorted(spec.target[topic]):
                    free = (topic, partition) not in self._owner
                    if free and partition < self._counts[topic]:
                        self._give(member_id, topic, partition)
                units += len(spec.target[topic])
                if units >= PIECE_UNITS:
                    yield units
                    units = 0
        yield units

    def _give(self, member_id: str, topic: Uuid, partition: int) -> None:
        self._owner[topic, partition] = member_id
        self._shares[member_id].setdefault(topic, set()).add(partition)
        self._sizes[member_id] += 1

    def _take(self, member_id: str, topic: Uuid, partition: int) -> None:
        partitions = self._shares[member_id][topic]
        partitions.discard(partition)
        if not partitions:
            del self._shares[member_id][topic]
        self._sizes[member_id] -= 1

    def _least_loaded(self, topic: Uuid) -> str:
        return min(self._subscribers[topic], key=lambda one: (self._sizes[one], one))

    def _balance(self) -> Steps[None]:
        """Move partitions to the least loaded subscriber until no move narrows a difference."""
        for _ in range(BALANCE_PASSES_MAX):
            moved = False
            for topic in self._topics:
                moved = (yield from self._balance_topic(topic)) or moved
            if not moved:
                return

    def _balance_topic(self, topic: Uuid) -> Steps[bool]:
        moved = False
        for partition in range(self._counts[topic]):
            owner = self._owner[topic, partition]
            least = self._least_loaded(topic)
            if self._sizes[owner] - self._sizes[least] > 1:
                self._take(owner, topic, partition)
                self._give(least, topic, partition)
                moved = True
            yield self._search_units(topic)
        return moved


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> Steps[dict[str, Partitions]]:
    """Give each member contiguous ranges; static members come first, by instance id."""
    order = sorted(
        members,
        key=lambda one: (members[one].instance_id is None, members[one].instance_id or "", one),
    )
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in order:
        for piece in pieces(members[member_id].topics):
            for topic in piece:
                if topic in partition_counts:
                    subscribers.setdefault(topic, []).append(member_id)
            yield len(piece) >> 2
    shares: _Shares = {member_id: {} for member_id in sorted(members)}
    for topic in (yield from sorted_in_steps(subscribers)):
        quota, extras = divmod(partition_counts[topic], len(subscribers[topic]))
        start = 0
        for at, member_id in enumerate(subscribers[topic]):
            end = start + quota + (at < extras)
            if end > start:
                shares[member_id][topic] = set(range(start, end))
            start = end
        yield len(subscribers[topic])
    return (yield from _frozen(shares))


def _frozen(shares: _Shares) -> Steps[dict[str, Partitions]]:
    found: dict[str, Partitions] = {}
    for member_id, topics in shares.items():
        frozen: dict[Uuid, frozenset[int]] = {}
        for piece in pieces(topics.items()):
            frozen.update((topic, frozenset(partitions)) for topic, partitions in piece)
            yield len(piece) >> 3
        found[member_id] = frozen
    return found


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the name in `group.consumer.assignors`."""
