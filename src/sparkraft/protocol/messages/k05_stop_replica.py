"""StopReplica (key 5): v0-4, flexible from v2. Only in ZooKeeper mode; Kafka 4 removed it."""

from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int32s,
    int64,
    string,
)


class StopReplicaPartitionV0(Message):
    """One partition: `StopReplicaRequest.ungrouped_partitions`."""

    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Message):
    """Partitions of a topic: `StopReplicaRequest.topics`."""

    name: str = string("1-2")
    partition_indexes: list[int] = int32s("1-2")


class StopReplicaPartitionState(Message):
    """One partition: `StopReplicaRequest.topic_states.partition_states`."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


class StopReplicaTopicState(Message):
    """Partitions of a topic: `StopReplicaRequest.topic_states`."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, key=5, versions="0-4", flexible="2+"):
    """The ZooKeeper controller makes a broker stop replicas, and delete those it marks.

    v1 broker epoch (KIP-380), v3 leader epochs and `delete_partition` of each (KIP-570), v4 KRaft
    controllers (KIP-866). Leader epoch -2: the topic is being deleted; -1: unknown.
    """

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Message):
    """The result of one partition: `StopReplicaResponse.partition_errors`."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, key=5, versions="0-4", flexible="2+"):
    """An error for all, or one for each partition."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
