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
    """The record ConsumerGroupMetadataKey."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    """The record ConsumerGroupMetadataValue."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    """The record ConsumerGroupPartitionMetadataKey."""

    group_id: str = string()


class PartitionMetadata(Message):
    """In `ConsumerGroupPartitionMetadataValue.topics.partition_metadata`."""

    partition: int = int32()
    racks: list[str] = strings()


class TopicMetadata(Message):
    """In `ConsumerGroupPartitionMetadataValue.topics`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    """The record ConsumerGroupPartitionMetadataValue."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    """The record ConsumerGroupMemberMetadataKey."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Message):
    """In `ConsumerGroupMemberMetadataValue.classic_member_metadata.supported_protocols`."""

    name: str = string()
    metadata: bytes = blob()


class ClassicMemberMetadata(Message):
    """In `ConsumerGroupMemberMetadataValue.classic_member_metadata`."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    """The record ConsumerGroupMemberMetadataValue."""

    instance_id: str | None = string(nullable=True)
    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = strings()
    subscribed_topic_regex: str | None = string(nullable=True)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=True)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable=True, default=None, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    """The record ConsumerGroupTargetAssignmentMetadataKey."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    """The record ConsumerGroupTargetAssignmentMetadataValue."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    """The record ConsumerGroupTargetAssignmentMemberKey."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Message):
    """In `ConsumerGroupTargetAssignmentMemberValue.topic_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    """The record ConsumerGroupTargetAssignmentMemberValue."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    """The record ConsumerGroupCurrentMemberAssignmentKey."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Message):
    """In `ConsumerGroupCurrentMemberAssignmentValue.assigned_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()
    assignment_epochs: list[int] | None = int32s(nullable=True, default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    """The record ConsumerGroupCurrentMemberAssignmentValue."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    """The record ConsumerGroupRegularExpressionKey."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    """The record ConsumerGroupRegularExpressionValue."""

    topics: list[str] = strings()
    version: int = int64()
    timestamp: int = int64()
