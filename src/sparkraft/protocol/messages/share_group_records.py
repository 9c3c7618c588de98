"""Records of `__consumer_offsets` that share groups write (KIP-932)."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    int8,
    int32,
    int32s,
    int64,
    string,
    strings,
    uuid,
)


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    """A member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    """The data a share group member sent about itself."""

    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = strings()


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    """A share group."""

    group_id: str = string()


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    """The epoch of a share group."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    """The target assignment of a share group."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    """The group epoch for which the target was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    """The target assignment of one member of a share group."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Message):
    """Partitions of a topic: `ShareGroupTargetAssignmentMemberValue.topic_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    """The current assignment of one member of a share group."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Message):
    """Partitions of a topic: `ShareGroupCurrentMemberAssignmentValue.assigned_partitions`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    """Partitions the member owns and must revoke, and its epoch."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    """The share partitions of a group in the share coordinator."""

    group_id: str = string()


class TopicPartitionsInfo(Message):
    """Partitions of a topic: `ShareGroupStatePartitionMetadataValue.initializing_topics`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = int32s()


class TopicInfo(Message):
    """A topic: `ShareGroupStatePartitionMetadataValue.deleting_topics`."""

    topic_id: Uuid = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    """Which of them are started, starting and being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
