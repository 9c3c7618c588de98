"""Records of `__consumer_offsets` that streams groups write (KIP-1071)."""

from sparkraft.protocol.declare import (
    Message,
    array,
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


class StreamsGroupMetadataKey(Message, key=17, versions="0"):
    """A streams group."""

    group_id: str = string()


class LastAssignmentConfig(Message):
    """A setting the last assignment was made with."""

    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(Message, key=17, versions="0", flexible="0+"):
    """The epoch of a streams group."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, nullable=True, default=None, tag=1
    )


class StreamsGroupMemberMetadataKey(Message, key=19, versions="0"):
    """A member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class Endpoint(Message):
    """A host and a port: `StreamsGroupMemberMetadataValue.user_endpoint`."""

    host: str = string()
    port: int = uint16()


class KeyValue(Message):
    """A name and a value: `StreamsGroupMemberMetadataValue.client_tags`."""

    key: str = string()
    value: str = string()


class StreamsGroupMemberMetadataValue(Message, key=19, versions="0", flexible="0+"):
    """The data a streams group member sent about itself."""

    instance_id: str | None = string(nullable=True)
    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable=True, default=None)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0"):
    """The target assignment of a streams group."""

    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+"):
    """The group epoch for which the target was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0"):
    """The target assignment of one member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class TargetTaskIds(Message):
    """Tasks of one subtopology: `StreamsGroupTargetAssignmentMemberValue.active_tasks`."""

    subtopology_id: str = string()
    partitions: list[int] = int32s()


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+"):
    """The target assignment of a member."""

    active_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    standby_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    warmup_tasks: list[TargetTaskIds] = array(TargetTaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0"):
    """The current assignment of one member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class CurrentTaskIds(Message):
    """Tasks of one subtopology: `StreamsGroupCurrentMemberAssignmentValue.active_tasks`."""

    subtopology_id: str = string()
    partitions: list[int] = int32s()
    assignment_epochs: list[int] | None = int32s(nullable=True, default=None, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+"):
    """Partitions the member owns and must revoke, and its epoch."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)


class StreamsGroupTopologyKey(Message, key=23, versions="0"):
    """The topology of a streams group."""

    group_id: str = string()


class TopicConfig(Message):
    """A setting of an internal topic: `StreamsGroupTopologyValue.TopicInfo.topic_configs`."""

    key: str = string()
    value: str = string()


class TopicInfo(Message):
    """A topic: `StreamsGroupTopologyValue.subtopologies.state_changelog_topics`."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


class CopartitionGroup(Message):
    """Topics that must have as many partitions as each other."""

    source_topics: list[int] = int16s()
    source_topic_regex: list[int] = int16s()
    repartition_source_topics: list[int] = int16s()


class Subtopology(Message):
    """A part of the topology that runs on its own: `StreamsGroupTopologyValue.subtopologies`."""

    subtopology_id: str = string()
    source_topics: list[str] = strings()
    source_topic_regex: list[str] = strings()
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = strings()
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(Message, key=23, versions="0", flexible="0+"):
    """Subtopologies with their topics."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
