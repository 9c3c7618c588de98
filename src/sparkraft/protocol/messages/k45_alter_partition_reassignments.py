"""AlterPartitionReassignments (key 45): v0-1, flexible from v0."""

from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int32s, string


class ReassignablePartition(Message):
    """The replicas a partition shall have."""

    partition_index: int = int32()
    replicas: list[int] | None = int32s(nullable=True, default=None)


class ReassignableTopic(Message):
    """Partitions to move: `AlterPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    """Moves partitions to other replicas, or with null stops that (KIP-455).

    v1 may forbid another number of replicas (KIP-860).
    """

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Message):
    """Result for a partition: `AlterPartitionReassignmentsResponse.responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class ReassignableTopicResponse(Message):
    """Partitions: `AlterPartitionReassignmentsResponse.responses`."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    """An error for each partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
