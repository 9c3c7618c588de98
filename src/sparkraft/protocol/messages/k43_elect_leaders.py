"""ElectLeaders (key 43): v0-2, flexible from v2."""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, int32s, string


class TopicPartitions(Message):
    """In `ElectLeadersRequest.topic_partitions`."""

    topic: str = string()
    partitions: list[int] = int32s()


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    """Asks for ElectLeaders."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=True)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Message):
    """In `ElectLeadersResponse.replica_election_results.partition_result`."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class ReplicaElectionResult(Message):
    """In `ElectLeadersResponse.replica_election_results`."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    """Answers ElectLeadersRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
