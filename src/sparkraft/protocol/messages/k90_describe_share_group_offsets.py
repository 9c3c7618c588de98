"""DescribeShareGroupOffsets (key 90): v0-1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int32s, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Message):
    """Partitions asked for: `DescribeShareGroupOffsetsRequest.groups.topics`."""

    topic_name: str = string()
    partitions: list[int] = int32s()


class DescribeShareGroupOffsetsRequestGroup(Message):
    """A group and the requested partitions: `DescribeShareGroupOffsetsRequest.groups`."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable=True
    )


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    """Requests the start offsets of share groups (KIP-932). v1 includes their lag (KIP-1226)."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


class DescribeShareGroupOffsetsResponsePartition(Message):
    """A start offset: `DescribeShareGroupOffsetsResponse.groups.topics.partitions`."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class DescribeShareGroupOffsetsResponseTopic(Message):
    """Partitions: `DescribeShareGroupOffsetsResponse.groups.topics`."""

    topic_name: str = string()
    topic_id: Uuid = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    """A group: `DescribeShareGroupOffsetsResponse.groups`."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    """Start offsets by topic and partition."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )
