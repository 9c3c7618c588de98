"""ReadShareGroupState (key 84): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int8, int16, int32, int64, string, uuid


class PartitionData(Message):
    """One partition: `ReadShareGroupStateRequest.topics.partitions`."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Message):
    """Partitions asked for: `ReadShareGroupStateRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    """Reads the state of share partitions (KIP-932)."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Message):
    """Consecutive offsets in one delivery state."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Message):
    """Result for a partition: `ReadShareGroupStateResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Message):
    """Partitions: `ReadShareGroupStateResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    """Start offset, epochs and delivery state of batches."""

    results: list[ReadStateResult] = array(ReadStateResult)
