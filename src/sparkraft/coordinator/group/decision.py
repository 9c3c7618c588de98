"""Decisions of a group shard: their append callbacks, and the client a request came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sparkraft.coordinator.group.journal import JournalEntry
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.runtime import AppendCallback, Decision, Effect, ReplyTo
from sparkraft.coordinator.timers import TimerKey
from sparkraft.protocol.messages.k11_join_group import JoinGroupResponse

if TYPE_CHECKING:
    from sparkraft.coordinator.group.group import Group

T = TypeVar("T")

GroupDecision = Decision[GroupRecord, T]

NOTHING: GroupDecision[None] = Decision(response=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The sender of a request; `client_host` as Kafka prints it, such as `/127.0.0.1`."""

    client_id: str
    client_host: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCreated(AppendCallback):
    """The first record of a new group; `replaced` had its id before."""

    group_id: str
    replaced: "Group | None" = None
    entries: tuple[JournalEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentDecided(AppendCallback):
    """The leader's SyncGroup: members receive their assignment once it is committed."""

    group_id: str
    generation: int
    assignment: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced(AppendCallback):
    """A static member rejoined a stable group under a new member id.

    `*_before` restore the old member if the append fails.
    """

    group_id: str
    instance_id: str
    old_member_id: str
    new_member_id: str
    leader_before: str | None
    protocols_before: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms_before: int
    session_timeout_ms_before: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNoted(AppendCallback):
    """Journal entries of a decision, added once it is committed."""

    entries: tuple[JournalEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver(Effect):
    """The partition has groups of types that are not served here: let another broker lead it.

    Attributes:
        group_id: one of them, which names the partition.
    """

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFenced(AppendCallback):
    """A member of a consumer group is removed because `timer` fired, which a failure repeats."""

    timer: TimerKey
    entries: tuple[JournalEntry, ...]


def noting(entries: Sequence[JournalEntry]) -> GroupNoted | None:
    """The callback that adds these entries; None if there are none."""
    return GroupNoted(entries=tuple(entries)) if entries else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicJoined(AppendCallback):
    """A classic member joined a consumer group: it gets `response` once that is committed."""

    group_id: str
    member_id: str
    rebalance_timeout_ms: int
    reply_to: ReplyTo
    response: JoinGroupResponse
    entries: tuple[JournalEntry, ...]


GroupAppendCallback = (
    GroupCreated
    | AssignmentDecided
    | StaticMemberReplaced
    | GroupNoted
    | ClassicJoined
    | MemberFenced
)
