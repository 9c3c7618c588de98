"""Records of `__consumer_offsets` that classic groups write: offsets and group metadata."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, blob, int32, int64, string, uuid


class LegacyOffsetCommitKey(Message, key=0, versions="0"):
    """The record LegacyOffsetCommitKey."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message, key=0, versions="0"):
    """The record LegacyOffsetCommitValue."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message, key=1, versions="0"):
    """The record OffsetCommitKey."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    """The record OffsetCommitValue."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, key=2, versions="0"):
    """The record GroupMetadataKey."""

    group: str = string()


class MemberMetadata(Message):
    """In `GroupMetadataValue.members`."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=True, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    """The record GroupMetadataValue."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=True)
    leader: str | None = string(nullable=True)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
