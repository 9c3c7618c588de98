"""LeaderAndIsr (key 4): v0-7, flexible from v4. Only in ZooKeeper mode; Kafka 4 removed it."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32s,
    int64,
    string,
    uuid,
)


class LeaderAndIsrPartitionState(Message):
    """The leader and ISR of one partition; v0-1 repeat the topic's name in each."""

    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32s()
    partition_epoch: int = int32()
    replicas: list[int] = int32s()
    adding_replicas: list[int] = int32s("3+", ignorable=True)
    removing_replicas: list[int] = int32s("3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")


class LeaderAndIsrTopicState(Message):
    """Partitions of a topic: `LeaderAndIsrRequest.topic_states`."""

    topic_name: str = string("2+")
    topic_id: Uuid = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


class LeaderAndIsrLiveLeader(Message):
    """How to reach a leader: `LeaderAndIsrRequest.live_leaders`."""

    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Message, key=4, versions="0-7", flexible="4+"):
    """The ZooKeeper controller makes a broker the leader or a follower of partitions.

    v1 `is_new`, v2 broker epoch (KIP-380), v3 reassignments (KIP-455), v5 topic ids and `type`
    (1 incremental, 2 full), v6 recovery state (KIP-704), v7 KRaft controllers (KIP-866).
    """

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(
        LeaderAndIsrPartitionState, "0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Message):
    """The result of one partition; v0-4 repeat the topic's name in each."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicError(Message):
    """The results of a topic: `LeaderAndIsrResponse.topics`."""

    topic_id: Uuid = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


class LeaderAndIsrResponse(Message, key=4, versions="0-7", flexible="4+"):
    """An error for all, or one for each partition; a repeated leader epoch is error 11."""

    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
