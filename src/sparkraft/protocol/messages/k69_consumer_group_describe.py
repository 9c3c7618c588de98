"""ConsumerGroupDescribe (key 69): v0-1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32s,
    string,
    strings,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    """Asks for consumer groups of the new protocol (KIP-848)."""

    group_ids: list[str] = strings()
    include_authorized_operations: bool = boolean()


class TopicPartitions(Message):
    """Partitions of a topic: `ConsumerGroupDescribeResponse.Assignment.topic_partitions`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = int32s()


class Assignment(Message):
    """The assignment of a member: `ConsumerGroupDescribeResponse.groups.members.assignment`."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Message):
    """One member: `ConsumerGroupDescribeResponse.groups.members`."""

    member_id: str = string()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = strings()
    subscribed_topic_regex: str | None = string(nullable=True, default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


class DescribedGroup(Message):
    """One group: `ConsumerGroupDescribeResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x80000000)


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    """Epochs, assignor, members with current and target assignment. v1 the members' type."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
