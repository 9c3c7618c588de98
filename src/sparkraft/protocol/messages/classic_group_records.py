"""Records of `__consumer_offsets` that classic groups write: offsets and group metadata."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, blob, int32, int64, string, uuid


class LegacyOffsetCommitKey(Message, key=0, versions="0"):
    """Whose offset for which partition, as written before 0.9 (type 0)."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message, key=0, versions="0"):
    """A committed offset under the legacy key type 0."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message, key=1, versions="0"):
    """Whose offset for which partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    """The committed offset with leader epoch and metadata. v4 topic id."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, key=2, versions="0"):
    """A classic group."""

    group: str = string()


class MemberMetadata(Message):
    """One member: `GroupMetadataValue.members`."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=True, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    """A classic group after a completed rebalance.

    Generation, leader, members with their assignments. v3 static members (KIP-345).
    """

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=True)
    leader: str | None = string(nullable=True)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
