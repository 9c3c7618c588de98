"""Compute the target assignment of a consumer group and the records that change it."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparkraft.base.ids import Millis, Uuid
from sparkraft.coordinator.group.consumer_assignors import ASSIGNORS, MemberSpec
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import ConsumerMember, Partitions
from sparkraft.coordinator.group.consumer_records import target_epoch_record, target_record
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTarget:
    """A target assignment.

    Attributes:
        assignor: that computed it.
        of_member: the target of the member whose heartbeat caused the computation.
        records: those of changed members, then the epoch.
        moves: (topic id, partition, from member, to member); an empty id for none.
    """

    assignor: str
    of_member: Partitions
    records: list[GroupRecord]
    moves: list[tuple[Uuid, int, str, str]]


def preferred_assignor(
    group: ConsumerGroup, changed: ConsumerMember | None, configured: tuple[str, ...]
) -> str:
    """The assignor that most members name; the first configured one if they name none.

    Kafka resolves a tie in hash-map order, we by the order of the configuration.
    """
    votes = dict.fromkeys(configured, 0)
    for member in _members(group, changed).values():
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
) -> NewTarget:
    """The target assignment of `epoch`, as if `changed` had been replayed.

    Args:
        group: the group before the heartbeat.
        changed: the member after it; may be new, or replace a static member.
        epoch: the group epoch.
        image: the newest one, for the topics that exist.
        configured: names of assignors, in order of preference.
        at_ms: wall clock.
    """
    assignor = preferred_assignor(group, changed, configured)
    members = _members(group, changed)
    topic_ids = _TopicIds(image)
    specs = {
        member_id: MemberSpec(
            instance_id=member.instance_id,
            topics=topic_ids.of(group.topics_of(member)),
            target=group.target_of(member),
        )
        for member_id, member in members.items()
    }
    targets = ASSIGNORS[assignor](specs, topic_ids.partition_counts())
    records = [
        target_record(group.group_id, member_id, targets[member_id])
        for member_id in sorted(targets)
        if group.targets.get(member_id) != targets[member_id]
    ]
    records.append(target_epoch_record(group.group_id, epoch, at_ms))
    return NewTarget(
        assignor=assignor,
        of_member=targets[changed.member_id],
        records=records,
        moves=_moves({one: spec.target for one, spec in specs.items()}, targets),
    )


def _members(group: ConsumerGroup, changed: ConsumerMember | None) -> Mapping[str, ConsumerMember]:
    members = {one.member_id: one for one in group.members()}
    if changed is not None:
        replaced = group.static_member(changed.instance_id)
        if replaced is not None:
            members.pop(replaced.member_id, None)
        members[changed.member_id] = changed
    return members


def _moves(
    before: Mapping[str, Partitions], after: Mapping[str, Partitions]
) -> list[tuple[Uuid, int, str, str]]:
    owner: dict[tuple[Uuid, int], str] = {}
    for member_id in before:
        for topic_id, partitions in before[member_id].items():
            owner.update(((topic_id, one), member_id) for one in partitions)
    moves = []
    for member_id in sorted(after):
        for topic_id, partitions in after[member_id].items():
            for partition in sorted(partitions):
                previous = owner.get((topic_id, partition), "")
                if previous != member_id:
                    moves.append((topic_id, partition, previous, member_id))
    return sorted(moves)


class _TopicIds:
    """Ids of subscribed topics; members often share a subscription."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._known: dict[frozenset[str], frozenset[Uuid]] = {}

    def of(self, topics: frozenset[str]) -> frozenset[Uuid]:
        """The ids of those that exist."""
        known = self._known.get(topics)
        if known is None:
            known = self._known[topics] = subscribed_ids(topics, self._image)
        return known

    def partition_counts(self) -> dict[Uuid, int]:
        """Of every topic returned so far."""
        ids = {topic_id for topics in self._known.values() for topic_id in topics}
        return {
            topic_id: len(self._image.topics_by_id[topic_id].partitions) for topic_id in sorted(ids)
        }


def subscribed_ids(topics: frozenset[str], image: ClusterImage) -> frozenset[Uuid]:
    """The ids of those topics that exist."""
    names = image.topics_by_name
    return frozenset(names[name] for name in topics if name in names)
