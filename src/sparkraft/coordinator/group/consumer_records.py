"""Records of consumer groups: built from and read into members and assignments.

    3   group            {group epoch, hash of the subscribed topics}
    5   group, member    its subscription
    6   group            {epoch, time} of the target assignment
    7   group, member    its target
    8   group, member    its epoch and current assignment
    16  group, regex     the topics that match, and as of which image

Type 4, the subscribed topics themselves, was written before Kafka 4.1. It is read, and deleted by
the next record 3. Lists are sorted, so equal values have equal bytes.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sparkraft.base.ids import Millis, Uuid
from sparkraft.coordinator.group.consumer_member import (
    AssignedPartitions,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    Partitions,
)
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, sorted_in_steps
from sparkraft.protocol.messages import consumer_group_records as wire

NO_TIMESTAMP = 0


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matches.

    Attributes:
        version: offset of the image in which they were found.
        resolved_at_ms: wall clock.
    """

    topics: frozenset[str]
    version: int
    resolved_at_ms: int


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """Type 3; `metadata_hash` is unsigned."""
    signed = metadata_hash - (1 << 64) if metadata_hash >> 63 else metadata_hash
    return GroupRecord(
        key=wire.ConsumerGroupMetadataKey(group_id=group_id),
        value=wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=signed),
    )


def legacy_metadata_tombstone(group_id: str) -> GroupRecord:
    """Deletes a record of type 4."""
    return GroupRecord(key=wire.ConsumerGroupPartitionMetadataKey(group_id=group_id))


def member_record(group_id: str, member: ConsumerMember) -> Steps[GroupRecord]:
    """Type 5: the subscription of a member."""
    classic = member.classic
    names = yield from sorted_in_steps(member.subscribed_topics)
    return GroupRecord(
        key=wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value=wire.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=names,
            subscribed_topic_regex=member.subscribed_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None if classic is None else _classic_value(classic),
        ),
    )


def _classic_value(classic: ClassicMetadata) -> wire.ClassicMemberMetadata:
    return wire.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            wire.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in classic.protocols
        ],
    )


def target_epoch_record(group_id: str, epoch: int, at_ms: int) -> GroupRecord:
    """Type 6: the target assignment of `epoch` was computed at `at_ms`, wall clock."""
    return GroupRecord(
        key=wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        value=wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=at_ms
        ),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> Steps[GroupRecord]:
    """Type 7: the target assignment of a member."""
    found = []
    units = 0
    for topic_id in (yield from sorted_in_steps(target)):
        partitions = sorted(target[topic_id])
        found.append(wire.TopicPartition(topic_id=topic_id, partitions=partitions))
        units += len(partitions)
        if units >= PIECE_UNITS:
            yield units
            units = 0
    yield units
    return GroupRecord(
        key=wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value=wire.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=found),
    )


def current_record(group_id: str, member: ConsumerMember) -> Steps[GroupRecord]:
    """Type 8: the epoch and the current assignment of a member."""
    return GroupRecord(
        key=wire.ConsumerGroupCurrentMemberAssignmentKey(
            group_id=group_id, member_id=member.member_id
        ),
        value=wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=(yield from _with_epochs(member.assigned)),
            partitions_pending_revocation=(yield from _with_epochs(member.pending_revocation)),
        ),
    )


def _with_epochs(assigned: AssignedPartitions) -> Steps[list[wire.TopicPartitions]]:
    found = []
    units = 0
    for topic_id in (yield from sorted_in_steps(assigned)):
        partitions = sorted(assigned[topic_id])
        epochs = [assigned[topic_id][one] for one in partitions]
        found.append(
            wire.TopicPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs)
        )
        units += len(partitions)
        if units >= PIECE_UNITS:
            yield units
            units = 0
    yield units
    return found


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Steps[GroupRecord]:
    """Type 16: the topics that a regular expression matches."""
    topics = yield from sorted_in_steps(resolved.topics)
    return GroupRecord(
        key=wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        value=wire.ConsumerGroupRegularExpressionValue(
            topics=topics,
            version=resolved.version,
            timestamp=resolved.resolved_at_ms,
        ),
    )


# Tombstones


def current_tombstone(group_id: str, member_id: str) -> GroupRecord:
    return GroupRecord(
        key=wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    )


def target_tombstone(group_id: str, member_id: str) -> GroupRecord:
    return GroupRecord(
        key=wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    )


def member_tombstone(group_id: str, member_id: str) -> GroupRecord:
    return GroupRecord(
        key=wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    )


def target_epoch_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(key=wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def group_epoch_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(key=wire.ConsumerGroupMetadataKey(group_id=group_id))


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    return GroupRecord(
        key=wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    )


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """Delete a member: its subscription last, so that no prefix leaves an orphan."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


# Reading


def subscription_of(member_id: str, value: wire.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """The member of a record of type 5, without an assignment.

    Empty classic metadata counts as none: earlier versions of ours left out the null.
    """
    classic = value.classic_member_metadata
    if classic == wire.ClassicMemberMetadata():
        classic = None
    return ConsumerMember(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        subscribed_topics=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex or "",
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols),
        ),
    )


def with_current(
    member: ConsumerMember, value: wire.ConsumerGroupCurrentMemberAssignmentValue
) -> Steps[ConsumerMember]:
    """The member with the assignment of a record of type 8."""
    state = MemberState(value.state) if value.state in _KNOWN_STATES else MemberState.UNKNOWN
    epoch = value.member_epoch
    return member.with_assignment_of(
        ConsumerMember(
            member_id=member.member_id,
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=state,
            assigned=(yield from _read_epochs(value.assigned_partitions, epoch)),
            pending_revocation=(
                yield from _read_epochs(value.partitions_pending_revocation, epoch)
            ),
        )
    )


_KNOWN_STATES = frozenset(int(one) for one in MemberState)


def _read_epochs(
    topics: Iterable[wire.TopicPartitions], member_epoch: int
) -> Steps[Mapping[Uuid, Mapping[int, int]]]:
    """Versions before 4.3 wrote no assignment epochs: the member's epoch counts as such."""
    found: dict[Uuid, Mapping[int, int]] = {}
    units = 0
    for topic in topics:
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        if topic.partitions:
            found[Uuid(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=False))
        units += len(epochs)
        if units >= PIECE_UNITS:
            yield units
            units = 0
    yield units
    return found


def target_of(value: wire.ConsumerGroupTargetAssignmentMemberValue) -> Steps[Partitions]:
    """The target in a record of type 7."""
    found: dict[Uuid, frozenset[int]] = {}
    units = 0
    for topic in value.topic_partitions:
        if topic.partitions:
            found[Uuid(topic.topic_id)] = frozenset(topic.partitions)
        units += len(topic.partitions)
        if units >= PIECE_UNITS:
            yield units
            units = 0
    yield units
    return found


def resolved_of(value: wire.ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    """The topics in a record of type 16."""
    return ResolvedRegex(frozenset(value.topics), value.version, Millis(value.timestamp))
