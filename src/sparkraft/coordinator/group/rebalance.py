"""The rebalance of a classic group: collect joins, choose leader and protocol, distribute both.

    Empty → PreparingRebalance → CompletingRebalance → Stable → PreparingRebalance …

An empty group waits `group.initial.rebalance.delay.ms` for more members, and again while members
keep joining, up to the rebalance timeout. Any other group waits until all members have rejoined or
the longest rebalance timeout passes. Dynamic members that have not rejoined are then removed,
static ones stay. Timer keys: ("heartbeat", group, member), ("join", group), ("sync", group).

A group may have any number of members, so whatever concerns all of them is done in steps.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sparkraft.base.errors import DecodeError, ErrorCode
from sparkraft.base.ids import Millis
from sparkraft.base.loop_work import LoopBound
from sparkraft.coordinator.group.classic_group import ClassicGroup, InitialDelay
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.consumer_protocol_data import read_assignment
from sparkraft.coordinator.group.decision import NOTHING, GroupDecision
from sparkraft.coordinator.group.election import Choice
from sparkraft.coordinator.group.journal import MOVES_MAX, Journal, JournalEntry, Kind, Move
from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.records import GROUP_METADATA_VALUE_VERSION, GroupRecord
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.runtime import Decision, Instant, ReplyTo
from sparkraft.coordinator.steps import Steps, fast, in_pieces, pieces
from sparkraft.coordinator.timers import Timers
from sparkraft.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from sparkraft.protocol.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from sparkraft.protocol.messages.k14_sync_group import SyncGroupResponse

OWNERS_AT_ONCE: LoopBound = 1_024
"""Partitions of a member that are noted at once: 0.2 ms."""

_MOVES_SORTED = 10 * MOVES_MAX
"""Moves of which the first `MOVES_MAX` are kept: 0.2 ms."""

REMOVAL_UNITS = 10
"""Units of work of a member that is removed: 15 µs, and 25 µs more if it led."""

_NO_HEARTBEAT = "it sent no heartbeat within its session timeout"
_NO_REJOIN = "it did not rejoin within the rebalance timeout"
_NO_SYNC = "it did not send SyncGroup within the rebalance timeout"


class Rebalancer:
    """Moves groups from one generation to the next; owns their timers and the replies."""

    def __init__(self, config: GroupConfig, timers: Timers, journal: Journal) -> None:
        """Share `timers` and `journal` with the shard."""
        self._config = config
        self._timers = timers
        self._journal = journal
        self._replies: list[tuple[ReplyTo, Any]] = []

    # Replies

    def reply(self, reply_to: ReplyTo, response: Any) -> None:
        """Add the response to a parked request, or to one that need not be parked."""
        self._replies.append((reply_to, response))

    def take_replies(self) -> list[tuple[ReplyTo, Any]]:
        """Replies since the last call, in order."""
        taken, self._replies = self._replies, []
        return taken

    def complete_join(self, group: ClassicGroup, member: Member, response: Any) -> None:
        """Reply to a member's parked JoinGroup, if there is one."""
        parked = group.take_awaiting_join(member)
        if parked is not None:
            self.reply(parked, response)

    def complete_sync(self, member: Member, response: Any) -> bool:
        """Reply to a member's parked SyncGroup; returns whether there was one."""
        parked, member.awaiting_sync = member.awaiting_sync, None
        if parked is None:
            return False
        self.reply(parked, response)
        return True

    def fail_parked(self, group: ClassicGroup, error: ErrorCode) -> Steps[None]:
        """Fail all parked requests of a group."""
        for piece in pieces(group.members()):
            for member in piece:
                join = JoinGroupResponse(member_id=member.member_id, error_code=error)
                self.complete_join(group, member, join)
                self.complete_sync(member, SyncGroupResponse(error_code=error))
            yield len(piece)

    # Members

    def add_member(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Add a member, journal a new leader, and limit the time until it must rejoin."""
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.initial_delay is not None:
            group.new_member_added = True
        client = f"client {member.client_id or '-'} at {member.client_host}"
        instance = f", instance {member.group_instance_id}" if member.is_static else ""
        self.note_member(group, "joined", member.member_id, client + instance, now)
        self.note_leader(group, group.add(member), now)
        self.schedule_heartbeat(
            group, member, now, timeout_ms=self._config.new_member_join_timeout_ms
        )

    def remove_member(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Remove a member, pending or not, with its timer."""
        self._timers.cancel(("heartbeat", group.group_id, member_id))
        self.note_leader(group, group.remove(member_id), now)

    def schedule_heartbeat(
        self, group: ClassicGroup, member: Member, now: Instant, *, timeout_ms: int | None = None
    ) -> None:
        """Restart the member's session."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        self.schedule_session(group.group_id, member.member_id, now, timeout_ms)

    def schedule_session(
        self, group_id: str, member_id: str, now: Instant, timeout_ms: int
    ) -> None:
        """Restart a session by ids; a pending member has one too."""
        self._timers.schedule(("heartbeat", group_id, member_id), Millis(now.mono_ms + timeout_ms))

    def schedule_heartbeats(self, group: ClassicGroup, now: Instant) -> Steps[None]:
        """Restart the sessions of all members."""
        for piece in pieces(group.members()):
            for member in piece:
                self.schedule_heartbeat(group, member, now)
            yield len(piece)

    def forget_timers(self, group: ClassicGroup) -> Steps[None]:
        """Cancel all timers of a removed group."""
        self._timers.cancel(("join", group.group_id))
        self._timers.cancel(("sync", group.group_id))
        member_ids = (member.member_id for member in group.members())
        for ids in (member_ids, group.pending_join):
            for piece in pieces(ids):
                for member_id in piece:
                    self._timers.cancel(("heartbeat", group.group_id, member_id))
                yield fast(len(piece))

    # Rebalance

    def prepare_or_complete(self, group: ClassicGroup, now: Instant) -> Steps[GroupDecision[None]]:
        """After a change: start a rebalance, or complete the running one if possible."""
        if group.can_rebalance:
            return self.prepare(group, now)
        return self.complete_if_all_joined(group, now)

    def prepare(self, group: ClassicGroup, now: Instant) -> Steps[GroupDecision[None]]:
        """Start a rebalance."""
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            yield from self.fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_sync.clear()
        self._timers.cancel(("sync", group.group_id))
        group.rebalancing_since_ms = now.wall_ms
        initial = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if initial:
            group.new_member_added = False
            delay_ms = self._config.initial_rebalance_delay_ms
            remaining_ms = max((yield from group.rebalance_timeout_ms()) - delay_ms, 0)
            self._start_initial_delay(group, InitialDelay(delay_ms, remaining_ms), now)
            return NOTHING
        if group.has_all_members_joined:
            return (yield from self.complete(group, now))
        yield from self._wait_for_rejoins(group, now)
        return NOTHING

    def complete_if_all_joined(
        self, group: ClassicGroup, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Complete a rebalance once all members have rejoined; never during the initial delay."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return NOTHING
        if group.previous_state is GroupState.EMPTY or not group.has_all_members_joined:
            return NOTHING
        return (yield from self.complete(group, now))

    def complete(self, group: ClassicGroup, now: Instant) -> Steps[GroupDecision[None]]:
        """Remove members that did not rejoin, choose leader and protocol, complete the joins."""
        self._timers.cancel(("join", group.group_id))
        group.initial_delay = None
        choice = yield from group.replace_missing_leader()
        self.note_leader(group, choice, now)
        yield from self._remove_missing(group, now)
        if choice is not None and choice.chosen is None and len(group):
            # Only static members are left, and none has rejoined.
            yield from self._wait_for_rejoins(group, now)
            return NOTHING
        vote = yield from group.start_next_generation(now.wall_ms)
        if vote is None:
            # No request waits for this record, and the group's next one replaces a lost one.
            record = yield from group_metadata_record(group, {})
            return Decision(response=None, records=(record,), replay=False)
        self._note(group, "assignor", vote, now)
        yield from self._complete_joins(group, now)
        timeout_ms = yield from group.rebalance_timeout_ms()
        self._timers.schedule(("sync", group.group_id), Millis(now.mono_ms + timeout_ms))
        return NOTHING

    def _remove_missing(self, group: ClassicGroup, now: Instant) -> Steps[None]:
        missing: list[str] = []
        for piece in pieces(group.members()):
            missing += [
                one.member_id for one in piece if one.awaiting_join is None and not one.is_static
            ]
            yield fast(len(piece))
        for member_id in missing:
            self.note_member(group, "fenced", member_id, _NO_REJOIN, now)
            self.remove_member(group, member_id, now)
            yield REMOVAL_UNITS

    def _complete_joins(self, group: ClassicGroup, now: Instant) -> Steps[None]:
        everyone = yield from joined_members(group)
        for piece in pieces(group.members()):
            for member in piece:
                self.complete_join(group, member, join_response(group, member, everyone))
                self.schedule_heartbeat(group, member, now)
                member.is_new = False
                group.pending_sync[member.member_id] = None
            yield len(piece)

    def _start_initial_delay(self, group: ClassicGroup, delay: InitialDelay, now: Instant) -> None:
        group.initial_delay = delay
        self._timers.schedule(("join", group.group_id), Millis(now.mono_ms + delay.delay_ms))

    def _wait_for_rejoins(self, group: ClassicGroup, now: Instant) -> Steps[None]:
        group.initial_delay = None
        timeout_ms = yield from group.rebalance_timeout_ms()
        self._timers.schedule(("join", group.group_id), Millis(now.mono_ms + timeout_ms))

    # Assignments

    def set_assignment(
        self, group: ClassicGroup, assignment: dict[str, bytes], now: Instant
    ) -> Steps[None]:
        """Complete the parked SyncGroups with an assignment that is committed."""
        moves, move_count = yield from assignment_moves(group, assignment)
        for piece in pieces(group.members()):
            for member in piece:
                member.assignment = assignment.get(member.member_id, b"")
                if self.complete_sync(member, sync_response(group, member)):
                    # The session may have expired while the request was parked.
                    self.schedule_heartbeat(group, member, now)
            yield len(piece)
        took_ms = now.wall_ms - (group.rebalancing_since_ms or now.wall_ms)
        group.transition_to(GroupState.STABLE, now.wall_ms)
        reason = f"{len(group)} members, protocol {group.protocol_name}"
        entry = self._entry(group, "generation", reason, now)
        self._journal.add(replace(entry, moves=moves, move_count=move_count, took_ms=took_ms))

    def fail_sync(self, group: ClassicGroup, error: ErrorCode, now: Instant) -> Steps[None]:
        """Fail the parked SyncGroups: this generation gets no assignment."""
        for piece in pieces(group.members()):
            for member in piece:
                member.assignment = b""
                if self.complete_sync(member, SyncGroupResponse(error_code=error)):
                    self.schedule_heartbeat(group, member, now)
            yield len(piece)

    def sync_received(self, group: ClassicGroup, member_id: str) -> None:
        """Note that a member sent SyncGroup."""
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self._timers.cancel(("sync", group.group_id))

    # Timers

    def on_join_timer(self, group: ClassicGroup, now: Instant) -> Steps[GroupDecision[None]]:
        """Complete the rebalance, or extend the initial delay if members joined meanwhile."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return NOTHING
        delay = group.initial_delay
        if delay is None or not group.new_member_added or delay.remaining_ms == 0:
            return (yield from self.complete(group, now))
        group.new_member_added = False
        extended = InitialDelay(
            min(self._config.initial_rebalance_delay_ms, delay.remaining_ms),
            max(delay.remaining_ms - delay.delay_ms, 0),
        )
        self._start_initial_delay(group, extended, now)
        return NOTHING

    def on_sync_timer(self, group: ClassicGroup, now: Instant) -> Steps[GroupDecision[None]]:
        """Remove members that have not sent SyncGroup within the rebalance timeout.

        The youngest first: the group chooses at most one other leader.
        """
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return NOTHING
        if not group.pending_sync:
            return NOTHING
        late = list(group.pending_sync)
        yield fast(len(late))
        for member_id in reversed(late):
            self.note_member(group, "fenced", member_id, _NO_SYNC, now)
            self.remove_member(group, member_id, now)
            yield REMOVAL_UNITS
        return (yield from self.prepare(group, now))

    def on_heartbeat_timer(
        self, group: ClassicGroup, member_id: str, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Remove a member whose session expired."""
        if member_id in group.pending_join:
            self.remove_member(group, member_id, now)
            return (yield from self._complete_without(group, now))
        if member_id not in group or group.member(member_id).has_satisfied_heartbeat():
            return NOTHING
        self.note_member(group, "fenced", member_id, _NO_HEARTBEAT, now)
        self.expel(group, member_id, now)
        yield REMOVAL_UNITS
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return (yield from self.prepare_or_complete(group, now))
        return (yield from self._complete_without(group, now))

    def expel(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Remove a member; its parked requests fail with UNKNOWN_MEMBER_ID."""
        member = group.member(member_id)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        self.complete_join(group, member, JoinGroupResponse(error_code=unknown))
        self.complete_sync(member, SyncGroupResponse(error_code=unknown))
        self.remove_member(group, member_id, now)

    def _complete_without(self, group: ClassicGroup, now: Instant) -> Steps[GroupDecision[None]]:
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.has_all_members_joined:
            return (yield from self.complete(group, now))
        return NOTHING

    # Journal

    def note_member(
        self, group: ClassicGroup, kind: Kind, member_id: str, reason: str, now: Instant
    ) -> None:
        """Journal that a member joined, left or was fenced."""
        self._journal.add(self._entry(group, kind, reason, now, member_id))

    @staticmethod
    def _entry(
        group: ClassicGroup, kind: Kind, reason: str, now: Instant, member_id: str = ""
    ) -> JournalEntry:
        return JournalEntry(
            at_ms=now.wall_ms,
            group_id=group.group_id,
            generation=group.generation_id,
            kind=kind,
            reason=reason,
            member_id=member_id,
        )

    def note_leader(self, group: ClassicGroup, choice: Choice | None, now: Instant) -> None:
        """Journal a choice of leader, if there was one."""
        if choice is not None:
            self._note(group, "leader", choice, now)

    def _note(self, group: ClassicGroup, kind: Any, choice: Choice, now: Instant) -> None:
        self._journal.add(
            JournalEntry(
                at_ms=now.wall_ms,
                group_id=group.group_id,
                generation=group.generation_id,
                kind=kind,
                chosen=choice.chosen,
                candidates=choice.candidates,
                reason=choice.reason,
                votes=choice.votes,
                ruled_out=choice.ruled_out,
            )
        )


def assignment_moves(
    group: ClassicGroup, assignment: Mapping[str, bytes]
) -> Steps[tuple[tuple[Move, ...], int]]:
    """The first `MOVES_MAX` partitions that get another owner, and the number of all of them.

    None if an assignment cannot be read.
    """
    try:
        before = yield from _owners((one.member_id, one.assignment) for one in group.members())
        after = yield from _owners(assignment.items())
    except DecodeError:
        return (), 0
    first: list[Move] = []
    count = 0
    for piece in pieces(after.items()):
        moved = [
            Move(topic, partition, before.get((topic, partition), ""), owner)
            for (topic, partition), owner in piece
            if before.get((topic, partition), "") != owner
        ]
        first += moved
        count += len(moved)
        if len(first) > _MOVES_SORTED:
            first = heapq.nsmallest(MOVES_MAX, first)
        yield len(piece)
    return tuple(heapq.nsmallest(MOVES_MAX, first)), count


def _owners(
    assignment: Iterable[tuple[str, bytes]],
) -> Steps[dict[tuple[str, int], str]]:
    """Raises DecodeError for a custom assignment."""
    owners: dict[tuple[str, int], str] = {}
    for member_id, data in assignment:
        for topic in read_assignment(data).assigned_partitions if data else ():
            for at in range(0, len(topic.partitions), OWNERS_AT_ONCE):
                for partition in topic.partitions[at : at + OWNERS_AT_ONCE]:
                    owners[topic.topic, partition] = member_id
                yield fast(min(len(topic.partitions) - at, OWNERS_AT_ONCE))
        yield 1 + fast(len(data))
    return owners


def join_response(
    group: ClassicGroup, member: Member, everyone: list[JoinGroupResponseMember]
) -> JoinGroupResponse:
    """The response with the current generation; only the leader gets all members."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=everyone if group.leader_id == member.member_id else [],
    )


def join_response_of(group: ClassicGroup, member: Member) -> Steps[JoinGroupResponse]:
    """The same for a single member."""
    leads = group.leader_id == member.member_id
    return join_response(group, member, (yield from joined_members(group)) if leads else [])


def joined_members(group: ClassicGroup) -> Steps[list[JoinGroupResponseMember]]:
    """All members with their metadata of the chosen protocol."""
    return in_pieces(
        group.members(),
        lambda one: JoinGroupResponseMember(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            metadata=one.metadata(group.protocol_name),
        ),
    )


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The response with a member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def group_metadata_record(group: ClassicGroup, assignment: dict[str, bytes]) -> Steps[GroupRecord]:
    """The group's current record, with `assignment` instead of the members' assignments."""
    members = yield from in_pieces(
        group.members(),
        lambda one: MemberMetadata(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout=one.rebalance_timeout_ms,
            session_timeout=one.session_timeout_ms,
            subscription=one.metadata(group.protocol_name),
            assignment=assignment[one.member_id],
        ),
    )
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=members,
    )
    return GroupRecord(
        key=GroupMetadataKey(group=group.group_id),
        value=value,
        value_version=GROUP_METADATA_VALUE_VERSION,
    )


def new_group_record(group: ClassicGroup) -> GroupRecord:
    """The first record of a group: empty, although it has members in memory."""
    value = GroupMetadataValue(
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        protocol=None,
        leader=None,
    )
    return GroupRecord(
        key=GroupMetadataKey(group=group.group_id),
        value=value,
        value_version=GROUP_METADATA_VALUE_VERSION,
    )
