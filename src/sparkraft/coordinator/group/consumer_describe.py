"""Describe a consumer group for ConsumerGroupDescribe (KIP-848)."""

from collections.abc import Iterable, Mapping

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import (
    ConsumerMember,
    union,
)
from sparkraft.coordinator.group.consumer_targets import preferred_assignor
from sparkraft.coordinator.group.group import Group
from sparkraft.coordinator.steps import Steps, pieces, sorted_in_steps
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages.k69_consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def describe_consumer_group(
    group_id: str, group: Group | None, image: ClusterImage, assignors: tuple[str, ...]
) -> Steps[DescribedGroup]:
    """Epochs, members, current and target assignments; GROUP_ID_NOT_FOUND for other groups."""
    if not isinstance(group, ConsumerGroup):
        problem = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {problem}.",
        )
    members: list[Member] = []
    for member in group.members():
        members.append((yield from _member(group, member, image)))
        yield 1
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.members(), assignors),
        members=members,
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> Steps[Member]:
    # It is responsible for partitions until it has revoked them.
    held = yield from union(member.assigned, member.pending_revocation)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=(yield from sorted_in_steps(member.subscribed_topics)),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=(yield from _assignment(held, image)),
        target_assignment=(yield from _assignment(group.target_of(member), image)),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(partitions: Mapping[Uuid, Iterable[int]], image: ClusterImage) -> Steps[Assignment]:
    """Deleted topics are left out: they have no name."""
    found: list[TopicPartitions] = []
    for piece in pieces((yield from sorted_in_steps(partitions))):
        found += [
            TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics_by_id[topic_id].name,
                partitions=sorted(partitions[topic_id]),
            )
            for topic_id in piece
            if topic_id in image.topics_by_id
        ]
        yield len(piece)
    return Assignment(topic_partitions=found)
