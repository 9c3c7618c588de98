"""DeleteShareGroupState (key 86): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, string, uuid


class PartitionData(Message):
    """One partition: `DeleteShareGroupStateRequest.topics.partitions`."""

    partition: int = int32()


class DeleteStateData(Message):
    """Partitions to delete: `DeleteShareGroupStateRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    """Deletes the state of share partitions (KIP-932)."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Message):
    """Result for a partition: `DeleteShareGroupStateResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class DeleteStateResult(Message):
    """Result for a topic: `DeleteShareGroupStateResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    """An error for each partition."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
