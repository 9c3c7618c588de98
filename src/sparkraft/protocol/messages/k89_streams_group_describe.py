"""StreamsGroupDescribe (key 89): v0, flexible from v0."""

from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int32s,
    int64,
    string,
    strings,
    struct,
    uint16,
)


class StreamsGroupDescribeRequest(Message, key=89, versions="0", flexible="0+"):
    """Asks for streams groups (KIP-1071)."""

    group_ids: list[str] = strings()
    include_authorized_operations: bool = boolean()


class Endpoint(Message):
    """A host and a port: `StreamsGroupDescribeResponse.groups.members.user_endpoint`."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Message):
    """How far a task is: `StreamsGroupDescribeResponse.groups.members.task_offsets`."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Message):
    """Tasks of one subtopology: `StreamsGroupDescribeResponse.Assignment.active_tasks`."""

    subtopology_id: str = string()
    partitions: list[int] = int32s()


class Assignment(Message):
    """The assignment of a member: `StreamsGroupDescribeResponse.groups.members.assignment`."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class KeyValue(Message):
    """A name and a value: `StreamsGroupDescribeResponse.groups.members.client_tags`."""

    key: str = string()
    value: str = string()


class TopicInfo(Message):
    """A topic."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Message):
    """A part of the topology that runs on its own."""

    subtopology_id: str = string()
    source_topics: list[str] = strings()
    repartition_sink_topics: list[str] = strings()
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Message):
    """The topology of the application: `StreamsGroupDescribeResponse.groups.topology`."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable=True, default=None)


class Member(Message):
    """One member: `StreamsGroupDescribeResponse.groups.members`."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable=True, default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


class DescribedGroup(Message):
    """One group: `StreamsGroupDescribeResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable=True, default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x80000000)


class StreamsGroupDescribeResponse(Message, key=89, versions="0", flexible="0+"):
    """Epochs, topology, members with their tasks."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
