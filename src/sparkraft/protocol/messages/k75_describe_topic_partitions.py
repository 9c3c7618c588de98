"""DescribeTopicPartitions (key 75): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int32s,
    string,
    struct,
    uuid,
)


class TopicRequest(Message):
    """A topic by name: `DescribeTopicPartitionsRequest.topics`."""

    name: str = string()


class Cursor(Message):
    """The start of a page: `DescribeTopicPartitionsRequest.cursor`."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    """Asks for partitions of topics page by page (KIP-966)."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable=True, default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    """A partition: leader, replicas, ISR, ELR."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = int32s()
    isr_nodes: list[int] = int32s()
    eligible_leader_replicas: list[int] | None = int32s(nullable=True, default=None)
    last_known_elr: list[int] | None = int32s(nullable=True, default=None)
    offline_replicas: list[int] = int32s(ignorable=True)


class DescribeTopicPartitionsResponseTopic(Message):
    """A topic: `DescribeTopicPartitionsResponse.topics`."""

    error_code: int = int16()
    name: str | None = string(nullable=True)
    topic_id: Uuid = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-0x80000000)


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    """Partitions with ELR, and where the next page begins."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable=True, default=None)
