"""CreateTopics (key 19): v2-7, flexible from v5."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32s,
    string,
    uuid,
)


class CreatableReplicaAssignment(Message):
    """Replicas of one partition, chosen by hand: `CreateTopicsRequest.topics.assignments`."""

    partition_index: int = int32()
    broker_ids: list[int] = int32s()


class CreatableTopicConfig(Message):
    """A configuration value: `CreateTopicsRequest.topics.configs`."""

    name: str = string()
    value: str | None = string(nullable=True)


class CreatableTopic(Message):
    """A topic to create: `CreateTopicsRequest.topics`."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, key=19, versions="2-7", flexible="5+"):
    """Creates topics, with a number of replicas or an assignment by hand.

    v4 broker defaults by -1 (KIP-464).
    """

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Message):
    """A configuration value that was set: `CreateTopicsResponse.topics.configs`."""

    name: str = string("5+")
    value: str | None = string("5+", nullable=True)
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Message):
    """Result for a topic: `CreateTopicsResponse.topics`."""

    name: str = string()
    topic_id: Uuid = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable=True, ignorable=True
    )


class CreateTopicsResponse(Message, key=19, versions="2-7", flexible="5+"):
    """Error, and from v5 the configuration made (KIP-525); v7 the topic's id (KIP-516)."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
