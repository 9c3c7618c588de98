"""Groups of other protocols (consumer, share, streams) that another broker left in the log.

They are not served, but they stay: their ids are listed, their offsets can be fetched, their
records are kept, and an empty one can be deleted or taken over by classic members. The members
found in the log can't heartbeat here, so they count as gone one session timeout after loading.
"""

from collections.abc import Iterable

from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.records import ForeignKey, GroupRecord

_TYPES = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), "consumer"),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15), "share"),
    **dict.fromkeys((17, 18, 19, 20, 21, 22, 23), "streams"),
}
_MEMBER_TYPES = frozenset({5, 10, 19})


class ForeignGroup:
    """What is known of such a group: its type, and the keys of its records."""

    def __init__(self, group_id: str, group_type: str) -> None:
        """Make a group without records."""
        self.group_id = group_id
        self.group_type = group_type
        self.members_expire_at: Millis | None = None
        self._keys: dict[ForeignKey, None] = {}

    def put(self, key: ForeignKey) -> None:
        """A record of the group was read."""
        self._keys[key] = None

    def discard(self, key: ForeignKey) -> None:
        """A tombstone was read."""
        self._keys.pop(key, None)

    def __bool__(self) -> bool:
        """Whether records of it remain."""
        return bool(self._keys)

    def has_members(self, now_ms: Millis) -> bool:
        """Whether members may still be alive at `now_ms` on the monotonic clock."""
        if self.members_expire_at is not None and now_ms >= self.members_expire_at:
            return False
        return any(key.record_type in _MEMBER_TYPES for key in self._keys)

    def tombstones(self) -> Iterable[GroupRecord]:
        """Records that remove it; members first, the group itself last."""
        keys = sorted(self._keys, key=lambda key: (-key.record_type, key.raw))
        return [GroupRecord(key=key) for key in keys]


def foreign_type(key: ForeignKey) -> str:
    """Which kind of group a record belongs to."""
    return _TYPES[key.record_type]
