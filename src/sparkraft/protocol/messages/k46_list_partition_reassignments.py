"""ListPartitionReassignments (key 46): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, array, int16, int32, int32s, string


class ListPartitionReassignmentsTopics(Message):
    """Partitions asked for: `ListPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partition_indexes: list[int] = int32s()


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    """Asks which partitions are moving (KIP-455)."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=True, default=None
    )


class OngoingPartitionReassignment(Message):
    """A partition that moves: `ListPartitionReassignmentsResponse.topics.partitions`."""

    partition_index: int = int32()
    replicas: list[int] = int32s()
    adding_replicas: list[int] = int32s()
    removing_replicas: list[int] = int32s()


class OngoingTopicReassignment(Message):
    """Partitions that move: `ListPartitionReassignmentsResponse.topics`."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    """Replicas there, coming and going."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
