"""OffsetForLeaderEpoch (key 23): v2-4, flexible from v4."""

from sparkraft.protocol.declare import Message, array, int16, int32, int64, string


class OffsetForLeaderPartition(Message):
    """An epoch of a partition: `OffsetForLeaderEpochRequest.topics.partitions`."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Message):
    """Partitions asked for: `OffsetForLeaderEpochRequest.topics`."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    """Requests the end offset of a leader epoch.

    How replicas and consumers find a divergence (KIP-101, KIP-320). v3 replica id; v4 flexible.
    """

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Message):
    """An epoch and where it ends: `OffsetForLeaderEpochResponse.topics.partitions`."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Message):
    """Partitions: `OffsetForLeaderEpochResponse.topics`."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    """The end of the largest epoch not above the asked one."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
