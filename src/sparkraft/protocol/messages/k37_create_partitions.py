"""CreatePartitions (key 37): v0-3, flexible from v2."""

from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int32s, string


class CreatePartitionsAssignment(Message):
    """Replicas of one new partition: `CreatePartitionsRequest.topics.assignments`."""

    broker_ids: list[int] = int32s()


class CreatePartitionsTopic(Message):
    """A topic and its new number of partitions: `CreatePartitionsRequest.topics`."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable=True
    )


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    """Raises topics' number of partitions (KIP-195)."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Message):
    """Result for a topic: `CreatePartitionsResponse.results`."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    """An error for each topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
