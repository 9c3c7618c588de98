"""The server-side assignors `uniform` and `range` (KIP-848).

    uniform  spreads all partitions evenly and moves as few as possible
    range    gives each member contiguous ranges, the same of all topics with equal subscribers

Pure, and deterministic: members are visited by id, topics by id. Racks are ignored, as in Kafka
since 4.0. Kafka visits members in hash-map order, so an assignment may differ from Kafka's in which
members get the larger shares.

Neither may fail: a topic that does not exist is skipped, a member without topics gets nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group.consumer_member import Partitions

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


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], dict[str, Partitions]]
"""(members by id, partition count by topic) → the target of every member."""

_Shares = dict[str, dict[Uuid, set[int]]]


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """Spread all partitions evenly, and move as few as that allows."""
    if not members:
        return {}
    first = next(iter(members.values())).topics
    if all(one.topics == first for one in members.values()):
        topics = [one for one in sorted(first) if one in partition_counts]
        return _frozen(_uniform_same(members, topics, partition_counts))
    return _frozen(_UniformMixed(members, partition_counts).assign())


def _uniform_same(
    members: Mapping[str, MemberSpec], topics: Sequence[Uuid], counts: Mapping[Uuid, int]
) -> _Shares:
    """All members have the same subscription."""
    order = sorted(members)
    quota, extras = divmod(sum(counts[topic] for topic in topics), len(order))
    pool = {topic: set(range(counts[topic])) for topic in topics}
    shares: _Shares = {}
    missing: dict[str, int] = {}
    for at, member_id in enumerate(order):
        limit = quota + (extras > 0)
        kept, size = _kept(members[member_id].target, pool, limit)
        shares[member_id] = kept
        # One that cannot fill its larger share leaves it to a later member, unless as many larger
        # shares are left as members (KAFKA-18688).
        is_larger = extras > 0 and (size == limit or len(order) - at <= extras)
        extras -= is_larger
        missing[member_id] = quota + is_larger - size
    rest = iter([(topic, one) for topic in topics for one in sorted(pool[topic])])
    for member_id, count in missing.items():
        for _ in range(count):
            topic, partition = next(rest)
            shares[member_id].setdefault(topic, set()).add(partition)
    return shares


def _kept(
    target: Partitions, pool: dict[Uuid, set[int]], limit: int
) -> tuple[dict[Uuid, set[int]], int]:
    """Take up to `limit` partitions of a previous target out of the pool."""
    kept: dict[Uuid, set[int]] = {}
    size = 0
    for topic in sorted(target):
        for partition in sorted(target[topic]):
            if size == limit:
                return kept, size
            if partition in pool.get(topic, ()):
                pool[topic].discard(partition)
                kept.setdefault(topic, set()).add(partition)
                size += 1
    return kept, size


class _UniformMixed:
    """`uniform` for members with different subscriptions: balance wins over stickiness."""

    def __init__(self, members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> None:
        self._counts = counts
        self._members = members
        self._shares: _Shares = {one: {} for one in sorted(members)}
        self._sizes = dict.fromkeys(sorted(members), 0)
        self._subscribers: dict[Uuid, list[str]] = {}
        for member_id in sorted(members):
            for topic in members[member_id].topics:
                if topic in counts:
                    self._subscribers.setdefault(topic, []).append(member_id)
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -counts[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )
        self._owner: dict[tuple[Uuid, int], str] = {}

    def assign(self) -> _Shares:
        for member_id in self._shares:
            self._keep(member_id)
        for topic in self._topics:
            for partition in range(self._counts[topic]):
                if (topic, partition) not in self._owner:
                    self._give(self._least_loaded(topic), topic, partition)
        self._balance()
        return self._shares

    def _keep(self, member_id: str) -> None:
        spec = self._members[member_id]
        for topic in sorted(spec.target):
            if topic in spec.topics and topic in self._counts:
                for partition in sorted(spec.target[topic]):
                    free = (topic, partition) not in self._owner
                    if free and partition < self._counts[topic]:
                        self._give(member_id, topic, partition)

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

    def _balance(self) -> None:
        """Move partitions to the least loaded subscriber until no move narrows a difference."""
        for _ in range(BALANCE_PASSES_MAX):
            moved = False
            for topic in self._topics:
                moved = self._balance_topic(topic) or moved
            if not moved:
                return

    def _balance_topic(self, topic: Uuid) -> bool:
        moved = False
        for partition in range(self._counts[topic]):
            owner = self._owner[topic, partition]
            least = self._least_loaded(topic)
            if self._sizes[owner] - self._sizes[least] > 1:
                self._take(owner, topic, partition)
                self._give(least, topic, partition)
                moved = True
        return moved


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """Give each member contiguous ranges; static members come first, by instance id."""
    order = sorted(
        members,
        key=lambda one: (members[one].instance_id is None, members[one].instance_id or "", one),
    )
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in order:
        for topic in members[member_id].topics:
            if topic in partition_counts:
                subscribers.setdefault(topic, []).append(member_id)
    shares: _Shares = {member_id: {} for member_id in sorted(members)}
    for topic in sorted(subscribers):
        quota, extras = divmod(partition_counts[topic], len(subscribers[topic]))
        start = 0
        for at, member_id in enumerate(subscribers[topic]):
            end = start + quota + (at < extras)
            if end > start:
                shares[member_id][topic] = set(range(start, end))
            start = end
    return _frozen(shares)


def _frozen(shares: _Shares) -> dict[str, Partitions]:
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in topics.items()}
        for member_id, topics in shares.items()
    }


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the name in `group.consumer.assignors`."""
