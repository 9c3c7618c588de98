"""ReadShareGroupState (key 84): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int8, int16, int32, int64, string, uuid


class PartitionData(Message):
    """In `ReadShareGroupStateRequest.topics.partitions`."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Message):
    """In `ReadShareGroupStateRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    """Asks for ReadShareGroupState."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Message):
    """In `ReadShareGroupStateResponse.results.partitions.state_batches`."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Message):
    """In `ReadShareGroupStateResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Message):
    """In `ReadShareGroupStateResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    """Answers ReadShareGroupStateRequest."""

    results: list[ReadStateResult] = array(ReadStateResult)
