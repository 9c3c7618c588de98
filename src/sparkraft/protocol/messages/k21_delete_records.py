"""DeleteRecords (key 21): v0-2, flexible from v2."""

from sparkraft.protocol.declare import Message, array, int16, int32, int64, string


class DeleteRecordsPartition(Message):
    """The new start offset of a log: `DeleteRecordsRequest.topics.partitions`."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Message):
    """Partitions to shorten: `DeleteRecordsRequest.topics`."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    """Moves the start of logs forward, up to -1 for the high watermark (KIP-107)."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Message):
    """The start offset of a log: `DeleteRecordsResponse.topics.partitions`."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Message):
    """Partitions shortened: `DeleteRecordsResponse.topics`."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    """The new start of each log."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
