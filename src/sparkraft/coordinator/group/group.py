"""The interface of a group to its shard, independent of the group's protocol."""

from collections.abc import Sequence
from typing import Protocol

from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.runtime import Instant
from sparkraft.coordinator.steps import Steps
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup
from sparkraft.protocol.messages.k16_list_groups import ListedGroup

MEMBER_EPOCH_IN_COMMIT_FROM = 9
"""The first version of OffsetCommit that members of consumer groups may use."""

EXPIRE_FROM_COMMIT = 0
"""Result of `offset_expiry_base`: retention counts from each offset's commit."""


class Group(Protocol):
    """A group of any protocol."""

    group_id: str

    def is_empty(self, now: Instant) -> bool:
        """Whether it has no members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may own partitions of `topic`; True if that cannot be determined."""

    def is_convertible_to_classic(self, now: Instant) -> bool:
        """Whether a classic member may take over the group id."""

    # Checks

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now: Instant,
        *,
        version: int = MEMBER_EPOCH_IN_COMMIT_FROM,
    ) -> None:
        """Raise KafkaError unless the commit comes from a current member, or from no member.

        `version` is that of OffsetCommit.
        """

    def check_offset_delete(self) -> None:
        """Raise KafkaError unless offsets of topics without subscribers may be deleted."""

    def check_delete(self, now: Instant) -> None:
        """Raise KafkaError (GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP) unless it may be deleted."""

    # Offsets and records

    def committing_member(self, member_id: str) -> Member | None:
        """The member whose session an accepted commit renews."""

    def offset_expiry_base(self, now: Instant) -> int | None:
        """When retention starts: `EXPIRE_FROM_COMMIT`, a wall-clock time in ms, or None (never)."""

    def tombstones(self) -> Sequence[GroupRecord]:
        """Records that delete the group; its offsets have tombstones of their own."""

    # Admin

    def described(self, version: int) -> Steps[DescribedGroup]:
        """For DescribeGroups `version`."""

    def listed(self, now: Instant) -> ListedGroup:
        """For ListGroups."""
