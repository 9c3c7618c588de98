"""Describe a consumer group for ConsumerGroupDescribe (KIP-848)."""

from collections.abc import Set

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import (
    ConsumerMember,
    Partitions,
    as_partitions,
    union,
)
from sparkraft.coordinator.group.consumer_targets import preferred_assignor
from sparkraft.coordinator.group.group import Group
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
) -> DescribedGroup:
    """Epochs, members, current and target assignments; GROUP_ID_NOT_FOUND for other groups."""
    if not isinstance(group, ConsumerGroup):
        problem = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {problem}.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group, None, assignors),
        members=[_member(group, one, image) for one in group.members()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        # It is responsible for partitions until it has revoked them.
        assignment=_assignment(
            as_partitions(union(member.assigned, member.pending_revocation)), image
        ),
        target_assignment=_assignment(group.target_of(member), image),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(partitions: Partitions, image: ClusterImage) -> Assignment:
    """Deleted topics are left out: they have no name."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics_by_id[topic_id].name,
                partitions=sorted(partitions[topic_id]),
            )
            for topic_id in sorted(partitions)
            if topic_id in image.topics_by_id
        ]
    )


def described_topics(group: DescribedGroup) -> Set[str]:
    """Names of all topics that a description names."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
