"""ShareGroupDescribe (key 77): v1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int32s,
    string,
    strings,
    struct,
    uuid,
)


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
    """Asks for share groups (KIP-932)."""

    group_ids: list[str] = strings()
    include_authorized_operations: bool = boolean()


class TopicPartitions(Message):
    """Partitions of a topic: `ShareGroupDescribeResponse.Assignment.topic_partitions`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = int32s()


class Assignment(Message):
    """The assignment of a member: `ShareGroupDescribeResponse.groups.members.assignment`."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Message):
    """One member: `ShareGroupDescribeResponse.groups.members`."""

    member_id: str = string()
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = strings()
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Message):
    """One group: `ShareGroupDescribeResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x80000000)


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
    """Epochs, assignor and members."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
