"""Convert groups online between the classic and the consumer protocol (KIP-848, "Migration").

    classic → consumer   when the first consumer member joins: every member becomes a consumer
                         member of epoch = generation, with its assignment, and keeps its protocols
    consumer → classic   when the last consumer member leaves or is fenced: generation = group
                         epoch, and every member keeps its target assignment

Both write the tombstones of the old group and the records of the new one as one batch. A classic
group is converted only if all its subscriptions and assignments can be read and no assignment has
user data, which would be lost.
"""

from collections.abc import Container, Sequence

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    as_partitions,
)
from sparkraft.coordinator.group.consumer_protocol_data import (
    by_topic_id,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from sparkraft.coordinator.group.consumer_records import (
    NO_TIMESTAMP,
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from sparkraft.coordinator.group.consumer_replay import replay_value
from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.records import GroupRecord, RawKey
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.group.topic_hash import TopicHashes
from sparkraft.coordinator.steps import Steps, fast, pieces
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages.classic_group_records import GroupMetadataKey, OffsetCommitKey

_CONSUMER = "consumer"


def upgraded(
    group: ClassicGroup, image: ClusterImage, hashes: TopicHashes
) -> Steps[tuple[ConsumerGroup, list[GroupRecord]]]:
    """The consumer group that replaces `group`, and the records that replace it.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND if a member's data cannot be converted.
    """
    protocol = group.protocol_name or (yield from group.vote()).chosen
    epoch = group.generation_id
    members: list[ConsumerMember] = []
    try:
        for one in group.members():
            members.append(_consumer_member(one, protocol, epoch, image))
            yield 1 + fast(len(one.assignment)) + fast(len(one.metadata(protocol)))
    except DecodeError as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to a consumer group: {error}.",
        ) from error
    group_id = group.group_id
    records: list[GroupRecord] = []
    topics: set[str] = set()
    for member in members:
        records.append((yield from member_record(group_id, member)))
        topics |= member.subscribed_topics
    metadata_hash = yield from hashes.of_group(topics)
    records.append(group_epoch_record(group_id, epoch, metadata_hash))
    for member in members:
        target = yield from as_partitions(member.assigned)
        records.append((yield from target_record(group_id, member.member_id, target)))
    records.append(target_epoch_record(group_id, epoch, NO_TIMESTAMP))
    for member in members:
        record = yield from current_record(group_id, member)
        records.append(record)
    converted = ConsumerGroup(group_id)
    for record in records:
        assert not isinstance(record.key, OffsetCommitKey | GroupMetadataKey | RawKey)
        yield from replay_value(converted, record.key, record.value)
    return converted, [*group.tombstones(), *records]


def _consumer_member(
    member: Member, protocol: str | None, epoch: int, image: ClusterImage
) -> ConsumerMember:
    subscription = read_subscription(member.metadata(protocol))
    assigned: dict[str, list[int]] = {}
    if member.assignment:  # Empty if it has just joined and never synced (KAFKA-17733).
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise DecodeError(f"the assignment of member {member.member_id} has user data")
        assigned = {one.topic: list(one.partitions) for one in assignment.assigned_partitions}
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        classic=ClassicMetadata(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
        member_epoch=epoch,
        previous_member_epoch=epoch,
        state=MemberState.STABLE,
        assigned={
            topic_id: dict.fromkeys(sorted(partitions), epoch)
            for topic_id, partitions in by_topic_id(assigned, image).items()
        },
    )


def remaining_after(
    group: ConsumerGroup, leaving: Container[str], joining: ConsumerMember | None = None
) -> Steps[list[ConsumerMember] | None]:
    """The members of the classic group that replaces `group`; None if it stays.

    It stays while a member uses the consumer protocol, and if it becomes empty.
    """
    remaining: list[ConsumerMember] = []
    for piece in pieces(group.members()):
        staying = [one for one in piece if one.member_id not in leaving]
        if not all(one.uses_classic_protocol for one in staying):
            return None
        remaining += staying
        yield fast(len(piece))
    if joining is not None:
        if not joining.uses_classic_protocol:
            return None
        remaining.append(joining)
    return remaining or None


def downgraded(
    group: ConsumerGroup, members: Sequence[ConsumerMember], image: ClusterImage, now_ms: Millis
) -> Steps[ClassicGroup]:
    """The stable classic group with these members and their assignments."""
    classic = ClassicGroup(group.group_id, now_ms=now_ms)
    for member in members:
        assert member.classic is not None
        classic.add(
            Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocol_type=_CONSUMER,
                protocols=member.classic.protocols,
            )
        )
        yield 1
    classic.generation_id = group.group_epoch
    classic.protocol_name = (yield from classic.vote()).chosen
    classic.state = GroupState.STABLE
    classic.subscribed_topics = yield from classic.read_subscribed_topics()
    for member in members:
        copied = classic.member(member.member_id)
        version = version_of(copied.metadata(classic.protocol_name))
        target = group.target_of(member)
        copied.assignment = write_assignment(
            {topic_id: dict.fromkeys(target[topic_id], 0) for topic_id in target},
            image,
            version,
        )
        yield 1 + len(target) + fast(len(copied.assignment))
    return classic
