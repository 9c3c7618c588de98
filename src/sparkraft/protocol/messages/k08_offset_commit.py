"""OffsetCommit (key 8): v2-10, flexible from v8."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Message):
    """The offset of a partition: `OffsetCommitRequest.topics.partitions`."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=True)


class OffsetCommitRequestTopic(Message):
    """Partitions: `OffsetCommitRequest.topics`."""

    name: str = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, key=8, versions="2-10", flexible="8+"):
    """Stores how far a group has read.

    v7 static members (KIP-345); v9 member epochs (KIP-848); v10 topics by id.
    """

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1, ignorable=True)
    member_id: str = string(ignorable=True)
    group_instance_id: str | None = string("7+", nullable=True, default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Message):
    """Result for a partition: `OffsetCommitResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Message):
    """Partitions: `OffsetCommitResponse.topics`."""

    name: str = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    """An error code for each partition."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
