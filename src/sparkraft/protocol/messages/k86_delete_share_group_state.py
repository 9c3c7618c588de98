"""DeleteShareGroupState (key 86): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, string, uuid


class PartitionData(Message):
    """In `DeleteShareGroupStateRequest.topics.partitions`."""

    partition: int = int32()


class DeleteStateData(Message):
    """In `DeleteShareGroupStateRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    """Asks for DeleteShareGroupState."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Message):
    """In `DeleteShareGroupStateResponse.results.partitions`."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class DeleteStateResult(Message):
    """In `DeleteShareGroupStateResponse.results`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    """Answers DeleteShareGroupStateRequest."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
