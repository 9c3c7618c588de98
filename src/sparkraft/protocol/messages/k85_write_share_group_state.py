"""WriteShareGroupState (key 85): v0-1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int8, int16, int32, int64, string, uuid


class StateBatch(Message):
    """Consecutive offsets in one delivery state."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Message):
    """One partition: `WriteShareGroupStateRequest.topics.partitions`."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Message):
    """Partitions to write: `WriteShareGroupStateRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    """Writes changes to the state of share partitions (KIP-932).

    v1 counts what was delivered (KIP-1226).
    """

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Message):
    """Result for a partition: `WriteShareGroupStateResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class WriteStateResult(Message):
    """Result for a topic: `WriteShareGroupStateResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    """An error for each partition."""

    results: list[WriteStateResult] = array(WriteStateResult)
