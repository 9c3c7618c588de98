"""AlterPartitionReassignments (key 45): v0-1, flexible from v0."""

from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int32s, string


class ReassignablePartition(Message):
    """In `AlterPartitionReassignmentsRequest.topics.partitions`."""

    partition_index: int = int32()
    replicas: list[int] | None = int32s(nullable=True, default=None)


class ReassignableTopic(Message):
    """In `AlterPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    """Asks for AlterPartitionReassignments."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Message):
    """In `AlterPartitionReassignmentsResponse.responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class ReassignableTopicResponse(Message):
    """In `AlterPartitionReassignmentsResponse.responses`."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    """Answers AlterPartitionReassignmentsRequest."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
