"""ShareGroupHeartbeat (key 76): v1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    int16,
    int32,
    int32s,
    string,
    strings,
    struct,
    uuid,
)


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    """Joins, keeps alive and leaves a share group (KIP-932)."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable=True, default=None)
    subscribed_topic_names: list[str] | None = strings(nullable=True, default=None)


class TopicPartitions(Message):
    """Partitions of a topic: `ShareGroupHeartbeatResponse.assignment.topic_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class Assignment(Message):
    """The assignment of a member: `ShareGroupHeartbeatResponse.assignment`."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    """The member's epoch and what to read."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=True, default=None)
