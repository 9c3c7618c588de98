"""OffsetDelete (key 47): v0, never flexible."""

from sparkraft.protocol.declare import Message, array, int16, int32, string


class OffsetDeleteRequestPartition(Message):
    """A partition to forget: `OffsetDeleteRequest.topics.partitions`."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Message):
    """Partitions: `OffsetDeleteRequest.topics`."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, key=47, versions="0"):
    """Deletes committed offsets of a group that no longer reads the topic (KIP-496)."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Message):
    """Result for a partition: `OffsetDeleteResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Message):
    """Partitions: `OffsetDeleteResponse.topics`."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, key=47, versions="0"):
    """An error code for each partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
