"""ReadShareGroupStateSummary (key 87): v0-1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int64, string, uuid


class PartitionData(Message):
    """One partition: `ReadShareGroupStateSummaryRequest.topics.partitions`."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Message):
    """Partitions asked for: `ReadShareGroupStateSummaryRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    """Reads start offset and epochs of share partitions, without their batches (KIP-932)."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Message):
    """Result for a partition: `ReadShareGroupStateSummaryResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Message):
    """Partitions: `ReadShareGroupStateSummaryResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    """The summary of each partition."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
