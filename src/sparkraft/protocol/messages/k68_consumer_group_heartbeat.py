"""ConsumerGroupHeartbeat (key 68): v0-1, flexible from v0."""

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


class TopicPartitions(Message):
    """Partitions of a topic: `ConsumerGroupHeartbeatRequest.topic_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    """Joins, keeps alive and leaves a consumer group of the new protocol (KIP-848).

    v1 subscriptions by pattern and ids made by the client.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = strings(nullable=True, default=None)
    subscribed_topic_regex: str | None = string("1+", nullable=True, default=None)
    server_assignor: str | None = string(nullable=True, default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable=True, default=None
    )


class Assignment(Message):
    """The assignment of a member: `ConsumerGroupHeartbeatResponse.assignment`."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    """The member's epoch, when to beat again, and what to read if that changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=True, default=None)
