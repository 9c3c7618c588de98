"""StreamsGroupHeartbeat (key 88): v0, flexible from v0."""

from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int16s,
    int32,
    int32s,
    int64,
    string,
    strings,
    struct,
    uint16,
)


class KeyValue(Message):
    """A name and a value: `StreamsGroupHeartbeatRequest.client_tags`."""

    key: str = string()
    value: str = string()


class TopicInfo(Message):
    """A topic: `StreamsGroupHeartbeatRequest.topology.subtopologies.state_changelog_topics`."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Endpoint(Message):
    """A host and a port: `StreamsGroupHeartbeatRequest.user_endpoint`."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Message):
    """How far a task is: `StreamsGroupHeartbeatRequest.task_offsets`."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Message):
    """Tasks of one subtopology: `StreamsGroupHeartbeatRequest.active_tasks`."""

    subtopology_id: str = string()
    partitions: list[int] = int32s()


class CopartitionGroup(Message):
    """Topics that must have as many partitions as each other."""

    source_topics: list[int] = int16s()
    source_topic_regex: list[int] = int16s()
    repartition_source_topics: list[int] = int16s()


class Subtopology(Message):
    """A part of the topology that runs on its own."""

    subtopology_id: str = string()
    source_topics: list[str] = strings()
    source_topic_regex: list[str] = strings()
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = strings()
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Message):
    """The topology of the application: `StreamsGroupHeartbeatRequest.topology`."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0", flexible="0+"):
    """Joins, keeps alive and leaves a streams group, and sends its topology (KIP-1071)."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, nullable=True, default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    process_id: str | None = string(nullable=True, default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable=True, default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable=True, default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable=True, default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable=True, default=None)
    shutdown_application: bool = boolean()


class Status(Message):
    """Something the member should know: `StreamsGroupHeartbeatResponse.status`."""

    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Message):
    """Partitions of a topic."""

    topic: str = string()
    partitions: list[int] = int32s()


class EndpointToPartitions(Message):
    """The partitions of an endpoint."""

    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0", flexible="0+"):
    """The member's epoch, its tasks, and what is wrong with the topology."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable=True)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable=True, default=None
    )
