"""What a group core hands to its driver."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.foreign import ForeignGroup
from sparkraft.coordinator.group.records import GroupRecord

ReplyTo = int
"""Names a parked request; the driver's own number, handed back with the answer."""


class Instant(NamedTuple):
    """Now, on both clocks: the monotonic one for timers, the wall one for records."""

    mono_ms: Millis
    wall_ms: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who sent a request: `client_host` as Kafka prints it, such as `/127.0.0.1`."""

    client_id: str
    client_host: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCreated:
    """The first record of a new group; `replaced` is what had its id before."""

    group_id: str
    replaced: ForeignGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEmptied:
    """The last member is gone."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentDecided:
    """The leader's SyncGroup: members learn their assignment once it is committed."""

    group_id: str
    generation: int
    leader_id: str
    assignment: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced:
    """A static member came back to a stable group under a new member id."""

    group_id: str
    instance_id: str
    old_member_id: str
    new_member_id: str
    leader_before: str | None
    protocols_before: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms_before: int
    session_timeout_ms_before: int
    version: int


Stored = GroupCreated | GroupEmptied | AssignmentDecided | StaticMemberReplaced
"""What `Shard.on_stored` must be told about once the records are committed, or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Work for the driver, in the order of the fields.

    `records`: append as one batch; none means there is nothing to write.
    `replay`: hand each record to `Shard.replay` as soon as it is appended; False where the live
        group is ahead of its record already.
    `stored`: hand to `Shard.on_stored` when the records are committed, or have failed.
    `response`: leaves when the records are committed or, without records, when everything
        written before is; None where the answer comes from `Shard.take_replies`.
    """

    records: tuple[GroupRecord, ...] = ()
    replay: bool = True
    stored: Stored | None = None
    response: Any = None


NOTHING = Outcome()
