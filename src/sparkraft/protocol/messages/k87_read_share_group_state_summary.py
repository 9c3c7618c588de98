"""ReadShareGroupStateSummary (key 87): v0-1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int64, string, uuid


class PartitionData(Message):
    """In `ReadShareGroupStateSummaryRequest.topics.partitions`."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Message):
    """In `ReadShareGroupStateSummaryRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    """Asks for ReadShareGroupStateSummary."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Message):
    """In `ReadShareGroupStateSummaryResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Message):
    """In `ReadShareGroupStateSummaryResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    """Answers ReadShareGroupStateSummaryRequest."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
