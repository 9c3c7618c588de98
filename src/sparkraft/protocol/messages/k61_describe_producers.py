"""DescribeProducers (key 61): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, array, int16, int32, int32s, int64, string


class TopicRequest(Message):
    """A topic by name: `DescribeProducersRequest.topics`."""

    name: str = string()
    partition_indexes: list[int] = int32s()


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    """Asks which producers a partition's leader knows (KIP-664)."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Message):
    """One producer: `DescribeProducersResponse.topics.partitions.active_producers`."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Message):
    """Result for a partition: `DescribeProducersResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Message):
    """Partitions: `DescribeProducersResponse.topics`."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    """Sequence, epoch and open transaction of each producer."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
