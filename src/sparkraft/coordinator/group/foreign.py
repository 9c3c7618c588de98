"""Groups whose records this core does not interpret (share and streams groups of Kafka).

They are not served, but kept until a broker that serves them leads the partition: they are listed,
their offsets can be fetched, and an empty one can be deleted or converted to a classic group.
Members found in the log cannot send heartbeats to this broker, so they expire one session timeout
after loading.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.describe import describe_as_dead
from sparkraft.coordinator.group.group import EXPIRE_FROM_COMMIT, MEMBER_EPOCH_IN_COMMIT_FROM
from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.records import GroupRecord, RawKey, record_type_of
from sparkraft.coordinator.runtime import Instant
from sparkraft.coordinator.steps import Steps
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup
from sparkraft.protocol.messages.k16_list_groups import ListedGroup

if TYPE_CHECKING:
    from sparkraft.base.ids import Millis


class ForeignGroup:
    """The type of such a group, and the keys of its records.

    Attributes:
        group_type: `consumer`, `share` or `streams`.
        members_expire_at: on the monotonic clock. None until loading has finished.
    """

    def __init__(self, group_id: str, group_type: str) -> None:
        self.group_id = group_id
        self.group_type = group_type
        self.members_expire_at: Millis | None = None
        self._keys: dict[RawKey, None] = {}

    # Replay

    def put(self, key: RawKey) -> None:
        """A record of the group was replayed."""
        self._keys[key] = None

    def discard(self, key: RawKey) -> None:
        """A tombstone was replayed."""
        self._keys.pop(key, None)

    def __bool__(self) -> bool:
        """Whether it still has records."""
        return bool(self._keys)

    # Group

    def is_empty(self, now: Instant) -> bool:
        if self.members_expire_at is not None and now.mono_ms >= self.members_expire_at:
            return True
        return not any(record_type_of(key).is_member for key in self._keys)

    def is_subscribed_to(self, topic: str) -> bool:
        del topic
        return False

    def is_convertible_to_classic(self, now: Instant) -> bool:
        return self.group_type != "share" and self.is_empty(now)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now: Instant,
        *,
        version: int = MEMBER_EPOCH_IN_COMMIT_FROM,
    ) -> None:
        del member_id, instance_id, version
        if generation_id >= 0 or not self.is_empty(now):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_offset_delete(self) -> None:
        """Allowed: its subscriptions are unknown."""

    def check_delete(self, now: Instant) -> None:
        if not self.is_empty(now):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def committing_member(self, member_id: str) -> Member | None:
        del member_id
        return None

    def offset_expiry_base(self, now: Instant) -> int | None:
        return EXPIRE_FROM_COMMIT if self.is_empty(now) else None

    def tombstones(self) -> Sequence[GroupRecord]:
        """Tombstones of its records: members first, the group itself last."""
        keys = sorted(self._keys, key=lambda key: (-key.record_type, key.raw))
        return [GroupRecord(key=key) for key in keys]

    def described(self, version: int) -> Steps[DescribedGroup]:
        yield 1
        problem = f"Group {self.group_id} is not a classic group."
        return describe_as_dead(self.group_id, problem, version)

    def listed(self, now: Instant) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.group_type,
            group_state="Empty" if self.is_empty(now) else "Stable",
            group_type=self.group_type,
        )
