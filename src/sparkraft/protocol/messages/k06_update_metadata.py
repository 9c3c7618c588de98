"""UpdateMetadata (key 6): v0-8, flexible from v6. Only in ZooKeeper mode; Kafka 4 removed it."""

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


class UpdateMetadataPartitionState(Message):
    """The state of one partition; v0-4 repeat the topic's name in each."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32s()
    zk_version: int = int32()
    replicas: list[int] = int32s()
    offline_replicas: list[int] = int32s("4+", ignorable=True)


class UpdateMetadataTopicState(Message):
    """Partitions of a topic: `UpdateMetadataRequest.topic_states`."""

    topic_name: str = string("5+")
    topic_id: Uuid = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


class UpdateMetadataEndpoint(Message):
    """One listener: `UpdateMetadataRequest.live_brokers.endpoints`."""

    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Message):
    """One broker: `UpdateMetadataRequest.live_brokers`."""

    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, key=6, versions="0-8", flexible="6+"):
    """The ZooKeeper controller sends all brokers, and partitions that changed.

    Leader -2: the partition is being deleted. v1 listeners (KIP-103), v2 racks (KIP-36), v4
    offline replicas (KIP-112), v5 broker epoch (KIP-380), v7 topic ids (KIP-516), v8 KRaft
    controllers and `type` (1 incremental, 2 full; KIP-866).
    """

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Message, key=6, versions="0-8", flexible="6+"):
    """Whether the broker has applied it."""

    error_code: int = int16()
