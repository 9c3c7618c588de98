"""InitializeShareGroupState (key 83): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int64, string, uuid


class PartitionData(Message):
    """One partition: `InitializeShareGroupStateRequest.topics.partitions`."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Message):
    """Partitions to start: `InitializeShareGroupStateRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    """Starts the state of share partitions; sent to the share coordinator (KIP-932)."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Message):
    """Result for a partition: `InitializeShareGroupStateResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class InitializeStateResult(Message):
    """Result for a topic: `InitializeShareGroupStateResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    """An error for each partition."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
