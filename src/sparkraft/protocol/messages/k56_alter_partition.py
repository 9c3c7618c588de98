"""AlterPartition (key 56): v0-3, flexible from v0. Kafka 4 removed v0-1.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    int8,
    int16,
    int32,
    int32s,
    int64,
    string,
    uuid,
)


class BrokerState(Message):
    """A broker of the ISR with its epoch."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class AlterPartitionRequestPartitionData(Message):
    """One partition: `AlterPartitionRequest.topics.partitions`."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = int32s("0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class AlterPartitionRequestTopicData(Message):
    """Partitions of a topic: `AlterPartitionRequest.topics`."""

    topic_name: str = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = array(AlterPartitionRequestPartitionData)


class AlterPartitionRequest(Message, key=56, versions="0-3", flexible="0+"):
    """A partition leader asks the controller to change the ISR (KIP-497).

    v1 recovery state (KIP-704), v2 topic ids, v3 broker epochs of the members (KIP-903).
    """

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopicData] = array(AlterPartitionRequestTopicData)


class AlterPartitionResponsePartitionData(Message):
    """One partition: `AlterPartitionResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32s()
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


class AlterPartitionResponseTopicData(Message):
    """Partitions of a topic: `AlterPartitionResponse.topics`."""

    topic_name: str = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = array(
        AlterPartitionResponsePartitionData
    )


class AlterPartitionResponse(Message, key=56, versions="0-3", flexible="0+"):
    """The partition's state after the change."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopicData] = array(AlterPartitionResponseTopicData)
