"""Compute the target assignment of a consumer group and the records that change it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkraft.base.ids import Millis, Uuid
from sparkraft.coordinator.group.consumer_assignors import ASSIGNORS, MemberSpec
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import ConsumerMember, Partitions
from sparkraft.coordinator.group.consumer_records import target_epoch_record, target_record
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, fast, pieces, sorted_in_steps
from sparkraft.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTarget:
    """A target assignment.

    Attributes:
        assignor: that computed it.
        of_member: the target of the member whose heartbeat caused the computation.
        records: those of changed members, then the epoch.
        moves: (topic id, partition, from member, to member), sorted; an empty id for none.
    """

    assignor: str
    of_member: Partitions
    records: list[GroupRecord]
    moves: list[tuple[Uuid, int, str, str]]


def preferred_assignor(members: Iterable[ConsumerMember], configured: tuple[str, ...]) -> str:
    """The assignor that most members name; the first configured one if they name none.

    Kafka resolves a tie in hash-map order, we by the order of the configuration.
    """
    votes = dict.fromkeys(configured, 0)
    for member in members:
        if member.server_assignor in votes:
            votes[member.server_assignor] += 1
    return max(configured, key=lambda one: votes[one])


def new_target(
    group: ConsumerGroup,
    changed: ConsumerMember,
    epoch: int,
    image: ClusterImage,
    configured: tuple[str, ...],
    at_ms: Millis,
) -> Steps[NewTarget]:
    """The target assignment of `epoch`, as if `changed` had been replayed.

    Args:
        group: the group before the heartbeat.
        changed: the member after it; may be new, or replace a static member.
        epoch: the group epoch.
        image: the newest one, for the topics that exist.
        configured: names of assignors, in order of preference.
        at_ms: wall clock.
    """
    members = _members(group, changed)
    assignor = preferred_assignor(members.values(), configured)
    yield fast(len(members)) * 2
    topic_ids = _TopicIds(image)
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        specs[member_id] = MemberSpec(
            instance_id=member.instance_id,
            topics=(yield from topic_ids.of(group.topics_of(member))),
            target=group.target_of(member),
        )
        yield 1
    targets = yield from ASSIGNORS[assignor](specs, (yield from topic_ids.partition_counts()))
    records = []
    for member_id in sorted(targets):
        yield fast(len(targets[member_id]))
        if group.targets.get(member_id) != targets[member_id]:
            records.append(
                (yield from target_record(group.group_id, member_id, targets[member_id]))
            )
    records.append(target_epoch_record(group.group_id, epoch, at_ms))
    before = yield from _owners({one: spec.target for one, spec in specs.items()})
    return NewTarget(
        assignor=assignor,
        of_member=targets[changed.member_id],
        records=records,
        moves=(yield from _moves(before, (yield from _owners(targets)))),
    )


def _members(group: ConsumerGroup, changed: ConsumerMember) -> Mapping[str, ConsumerMember]:
    members = {one.member_id: one for one in group.members()}
    replaced = group.static_member(changed.instance_id)
    if replaced is not None:
        members.pop(replaced.member_id, None)
    members[changed.member_id] = changed
    return members


_Owners = dict[Uuid, dict[int, str]]


def _owners(targets: Mapping[str, Partitions]) -> Steps[_Owners]:
    """Topic → partition → member."""
    owners: _Owners = {}
    units = 0
    for member_id, target in targets.items():
        for topic_id, partitions in target.items():
            owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))
            units += 1 + fast(len(partitions))
            if units >= PIECE_UNITS:
                yield units >> 1
                units = 0
    yield units >> 1
    return owners


def _moves(before: _Owners, after: _Owners) -> Steps[list[tuple[Uuid, int, str, str]]]:
    moves = []
    units = 0
    nobody: dict[int, str] = {}
    for topic_id in (yield from sorted_in_steps(after)):
        owners, previous = after[topic_id], before.get(topic_id, nobody)
        if owners != previous:
            for partition in sorted(owners):
                source, to = previous.get(partition, ""), owners[partition]
                if source != to:
                    moves.append((topic_id, partition, source, to))
            units += len(owners)
        units += 1 + fast(len(owners))
        if units >= PIECE_UNITS:
            yield units >> 1
            units = 0
    yield units >> 1
    return moves


class _TopicIds:
    """Ids of subscribed topics; members often share a subscription."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._known: dict[frozenset[str], frozenset[Uuid]] = {}

    def of(self, topics: frozenset[str]) -> Steps[frozenset[Uuid]]:
        """The ids of those that exist."""
        yield fast(len(topics))
        known = self._known.get(topics)
        if known is None:
            known = self._known[topics] = yield from subscribed_ids(topics, self._image)
        return known

    def partition_counts(self) -> Steps[dict[Uuid, int]]:
        """Of every topic returned so far."""
        ids = {topic_id for topics in self._known.values() for topic_id in topics}
        yield fast(sum(map(len, self._known.values())))
        counts: dict[Uuid, int] = {}
        for piece in pieces((yield from sorted_in_steps(ids))):
            counts.update((one, len(self._image.topics_by_id[one].partitions)) for one in piece)
            yield len(piece) >> 2
        return counts


def subscribed_ids(topics: Iterable[str], image: ClusterImage) -> Steps[frozenset[Uuid]]:
    """The ids of those topics that exist."""
    names = image.topics_by_name
    found: set[Uuid] = set()
    for piece in pieces(topics):
        found.update(known for name in piece if (known := names.get(name)) is not None)
        yield len(piece) >> 2
    return frozenset(found)
