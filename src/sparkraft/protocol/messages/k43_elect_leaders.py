"""ElectLeaders (key 43): v0-2, flexible from v2."""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, int32s, string


class TopicPartitions(Message):
    """Partitions of a topic: `ElectLeadersRequest.topic_partitions`."""

    topic: str = string()
    partitions: list[int] = int32s()


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    """Has leaders elected: the preferred ones (KIP-183), or from v1 any live replica (KIP-460)."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=True)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Message):
    """Result for a partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class ReplicaElectionResult(Message):
    """Partitions of a topic: `ElectLeadersResponse.replica_election_results`."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    """An error for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
