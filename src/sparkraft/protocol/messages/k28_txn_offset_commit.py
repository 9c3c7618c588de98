"""TxnOffsetCommit (key 28): v0-5, flexible from v3."""

from sparkraft.protocol.declare import Message, array, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Message):
    """The offset of a partition: `TxnOffsetCommitRequest.topics.partitions`."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=True)


class TxnOffsetCommitRequestTopic(Message):
    """Partitions: `TxnOffsetCommitRequest.topics`."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, key=28, versions="0-5", flexible="3+"):
    """Stores a group's offsets as part of a transaction, visible when it commits (KIP-98).

    v3 checks the member (KIP-447).
    """

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Message):
    """Result for a partition: `TxnOffsetCommitResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Message):
    """Partitions: `TxnOffsetCommitResponse.topics`."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, key=28, versions="0-5", flexible="3+"):
    """An error code for each partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
