"""ListOffsets (key 2): v1-11, flexible from v6.

KIP-79; v6 flexible; v10 a timeout for the lookup in a tiered store (KIP-1075).
"""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Message):
    """Which offset of a partition: `ListOffsetsRequest.topics.partitions`."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Message):
    """Partitions asked for: `ListOffsetsRequest.topics`."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    """Asks for the offset of a timestamp, or of the log's ends.

    Special timestamps: -1 latest, -2 earliest, -3 largest timestamp (v7), -4 earliest local (v8),
    -5 latest tiered (v9), -6 earliest pending upload (v11).
    """

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Message):
    """An offset of a partition: `ListOffsetsResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Message):
    """Partitions: `ListOffsetsResponse.topics`."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    """One offset for each partition, -1 if there is none."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
