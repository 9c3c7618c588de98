"""Records of `__share_group_state`: the state of each share partition (KIP-932)."""

from typing import Final

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Message, key=0, versions="0"):
    """A share partition whose whole state follows."""

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class StateBatch(Message):
    """Consecutive offsets in one delivery state: `ShareSnapshotValue.state_batches`."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, key=1, versions="0"):
    """A share partition whose change follows."""

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    """Changes of a share partition since its snapshot."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)


SHARE_RECORDS: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
"""Type in the record key to the classes of key and value."""
