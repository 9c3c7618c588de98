"""Records of `__consumer_offsets` that consumer groups write (KIP-848)."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    blob,
    int8,
    int32,
    int32s,
    int64,
    string,
    strings,
    struct,
    uuid,
)


class ConsumerGroupMetadataKey(Message, key=3, versions="0"):
    """A consumer group."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    """The epoch of a consumer group."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    """The topics a consumer group read; written before 4.1."""

    group_id: str = string()


class PartitionMetadata(Message):
    """A partition and its racks."""

    partition: int = int32()
    racks: list[str] = strings()


class TopicMetadata(Message):
    """A topic: `ConsumerGroupPartitionMetadataValue.topics`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    """Partitions and racks of the topics, for noticing changes."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    """A member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Message):
    """A protocol and the metadata of the member."""

    name: str = string()
    metadata: bytes = blob()


class ClassicMemberMetadata(Message):
    """The data of a member that uses the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    """The data a consumer group member sent about itself.

    `classic_member_metadata` is an empty struct if its tag is missing, so that null is written.
    """

    instance_id: str | None = string(nullable=True)
    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = strings()
    subscribed_topic_regex: str | None = string(nullable=True)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=True)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable=True, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    """The target assignment of a consumer group."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    """The group epoch for which the target was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    """The target assignment of one member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Message):
    """Partitions of a topic: `ConsumerGroupTargetAssignmentMemberValue.topic_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    """The current assignment of one member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Message):
    """Partitions of a topic: `ConsumerGroupCurrentMemberAssignmentValue.assigned_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()
    assignment_epochs: list[int] | None = int32s(nullable=True, default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    """Partitions the member owns and must revoke, and its epoch."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    """A pattern that members subscribe to."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    """The topics the pattern matched, and when."""

    topics: list[str] = strings()
    version: int = int64()
    timestamp: int = int64()
