"""Metadata (key 3): v0-13, flexible from v9."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int32s, string, uuid


class MetadataRequestTopic(Message):
    """A topic by name or id: `MetadataRequest.topics`."""

    topic_id: Uuid = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    """Asks for topics' partitions, leaders and replicas, and for the brokers.

    No topics mean none of them, null all; v0 has no null and means all by none.
    """

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Message):
    """A broker: `MetadataResponse.brokers`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable=True, default=None, ignorable=True)


class MetadataResponsePartition(Message):
    """A partition: leader, replicas, ISR: `MetadataResponse.topics.partitions`."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = int32s()
    isr_nodes: list[int] = int32s()
    offline_replicas: list[int] = int32s("5+", ignorable=True)


class MetadataResponseTopic(Message):
    """A topic: `MetadataResponse.topics`."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: Uuid = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-0x80000000)


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    """The cluster as this broker sees it.

    v10 topic ids (KIP-516); v13 may fail as a whole and send the client back to its bootstrap
    servers (KIP-1102).
    """

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable=True, default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-0x80000000)
    error_code: int = int16("13+", ignorable=True)
