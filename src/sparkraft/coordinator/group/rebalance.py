"""The rebalance of a classic group: gather joins, choose leader and protocol, hand out the result.

    Empty → PreparingRebalance → CompletingRebalance → Stable → PreparingRebalance …

An empty group waits `group.initial.rebalance.delay.ms` for company, and again as long as someone
came meanwhile, up to the rebalance timeout. Any other waits until all known members have rejoined
or the longest rebalance timeout passes; dynamic members who have not are removed, static ones
stay. Timer keys: ("heartbeat", group, member), ("join", group), ("sync", group).
"""

from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.classic_group import ClassicGroup, InitialDelay
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.election import Choice
from sparkraft.coordinator.group.journal import Decision, Journal
from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.outcome import (
    NOTHING,
    GroupEmptied,
    Instant,
    Outcome,
    ReplyTo,
)
from sparkraft.coordinator.group.records import GROUP_METADATA_VALUE_VERSION, GroupRecord
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.group.timers import Timers
from sparkraft.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from sparkraft.protocol.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from sparkraft.protocol.messages.k14_sync_group import SyncGroupResponse


class Rebalancer:
    """Moves groups from one generation to the next; owns their timers and parked answers."""

    def __init__(self, config: GroupConfig, timers: Timers, journal: Journal) -> None:
        """Share `timers` and `journal` with the shard."""
        self._config = config
        self._timers = timers
        self._journal = journal
        self._replies: list[tuple[ReplyTo, Any]] = []

    # Answers

    def reply(self, reply_to: ReplyTo, response: Any) -> None:
        """Answer a request that was parked, or need not be."""
        self._replies.append((reply_to, response))

    def take_replies(self) -> list[tuple[ReplyTo, Any]]:
        """Answers since the last call, in order."""
        taken, self._replies = self._replies, []
        return taken

    def answer_join(self, group: ClassicGroup, member: Member, response: Any) -> None:
        """Answer a member's parked JoinGroup, if there is one."""
        parked = group.take_awaiting_join(member)
        if parked is not None:
            self.reply(parked, response)

    def answer_sync(self, member: Member, response: Any) -> bool:
        """Answer a member's parked SyncGroup; whether there was one."""
        parked, member.awaiting_sync = member.awaiting_sync, None
        if parked is None:
            return False
        self.reply(parked, response)
        return True

    # Members

    def add_member(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Add, remember who leads and why, and bound the new member's wait."""
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.initial_delay is not None:
            group.new_member_added = True
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
        """A sign of life: the member's session starts anew."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        self.schedule_session(group.group_id, member.member_id, now, timeout_ms)

    def schedule_session(
        self, group_id: str, member_id: str, now: Instant, timeout_ms: int
    ) -> None:
        """The same for an id that is not a member yet."""
        self._timers.schedule(("heartbeat", group_id, member_id), Millis(now.mono_ms + timeout_ms))

    def forget_timers(self, group: ClassicGroup) -> None:
        """The group is gone."""
        self._timers.cancel(("join", group.group_id))
        self._timers.cancel(("sync", group.group_id))
        for member in group.members():
            self._timers.cancel(("heartbeat", group.group_id, member.member_id))
        for member_id in group.pending_join:
            self._timers.cancel(("heartbeat", group.group_id, member_id))

    # Rebalance

    def prepare_or_complete(self, group: ClassicGroup, now: Instant) -> Outcome:
        """Something changed: start a rebalance, or see whether the running one can go on."""
        if group.can_rebalance:
            return self.prepare(group, now)
        return self.complete_if_all_joined(group, now)

    def prepare(self, group: ClassicGroup, now: Instant) -> Outcome:
        """Start gathering joins."""
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_sync.clear()
        self._timers.cancel(("sync", group.group_id))
        initial = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if initial:
            group.new_member_added = False
            delay_ms = self._config.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_company(group, InitialDelay(delay_ms, remaining_ms), now)
            return NOTHING
        if group.has_all_members_joined:
            return self.complete(group, now)
        self._wait_for_rejoins(group, now)
        return NOTHING

    def complete_if_all_joined(self, group: ClassicGroup, now: Instant) -> Outcome:
        """Go on with a running rebalance when nobody is missing; an initial one waits its time."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return NOTHING
        if group.previous_state is GroupState.EMPTY or not group.has_all_members_joined:
            return NOTHING
        return self.complete(group, now)

    def complete(self, group: ClassicGroup, now: Instant) -> Outcome:
        """End the gathering: drop who is missing, choose leader and protocol, answer the joins."""
        self._timers.cancel(("join", group.group_id))
        group.initial_delay = None
        choice = group.replace_missing_leader()
        self.note_leader(group, choice, now)
        missing = [
            one.member_id
            for one in group.members()
            if one.awaiting_join is None and not one.is_static
        ]
        for member_id in missing:
            self.remove_member(group, member_id, now)
        if choice is not None and choice.chosen is None and len(group):
            self._wait_for_rejoins(group, now)  # Only static members are left, and none is here.
            return NOTHING
        vote = group.start_next_generation(now.wall_ms)
        if vote is None:
            return Outcome(
                records=(group_metadata_record(group, {}),),
                replay=False,
                stored=GroupEmptied(group_id=group.group_id),
            )
        self._note(group, "assignor", vote, now)
        for member in group.members():
            self.answer_join(group, member, join_response(group, member))
            self.schedule_heartbeat(group, member, now)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self._timers.schedule(
            ("sync", group.group_id), Millis(now.mono_ms + group.rebalance_timeout_ms)
        )
        return NOTHING

    def _wait_for_company(self, group: ClassicGroup, delay: InitialDelay, now: Instant) -> None:
        group.initial_delay = delay
        self._timers.schedule(("join", group.group_id), Millis(now.mono_ms + delay.delay_ms))

    def _wait_for_rejoins(self, group: ClassicGroup, now: Instant) -> None:
        group.initial_delay = None
        self._timers.schedule(
            ("join", group.group_id), Millis(now.mono_ms + group.rebalance_timeout_ms)
        )

    # Assignments

    def set_assignment(
        self, group: ClassicGroup, assignment: dict[str, bytes], now: Instant
    ) -> None:
        """The assignment is stored: tell every member that waits."""
        for member in group.members():
            member.assignment = assignment.get(member.member_id, b"")
            if self.answer_sync(member, sync_response(group, member)):
                # A session may have lapsed unheeded while the request was parked.
                self.schedule_heartbeat(group, member, now)
        group.transition_to(GroupState.STABLE, now.wall_ms)

    def fail_sync(self, group: ClassicGroup, error: ErrorCode, now: Instant) -> None:
        """No assignment in this generation: tell every member that waits."""
        for member in group.members():
            member.assignment = b""
            if self.answer_sync(member, SyncGroupResponse(error_code=error)):
                self.schedule_heartbeat(group, member, now)

    def sync_received(self, group: ClassicGroup, member_id: str) -> None:
        """A member sent its SyncGroup."""
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self._timers.cancel(("sync", group.group_id))

    # Timers

    def on_join_timer(self, group: ClassicGroup, now: Instant) -> Outcome:
        """The wait for joins is over, or for an empty group goes on if someone came."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return NOTHING
        delay = group.initial_delay
        if delay is None or not group.new_member_added or delay.remaining_ms == 0:
            return self.complete(group, now)
        group.new_member_added = False
        longer = InitialDelay(
            min(self._config.initial_rebalance_delay_ms, delay.remaining_ms),
            max(delay.remaining_ms - delay.delay_ms, 0),
        )
        self._wait_for_company(group, longer, now)
        return NOTHING

    def on_sync_timer(self, group: ClassicGroup, now: Instant) -> Outcome:
        """Who has not sent SyncGroup within the rebalance timeout is removed."""
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return NOTHING
        if not group.pending_sync:
            return NOTHING
        for member_id in list(group.pending_sync):
            self.remove_member(group, member_id, now)
        return self.prepare(group, now)

    def on_heartbeat_timer(self, group: ClassicGroup, member_id: str, now: Instant) -> Outcome:
        """A session ended without a sign of life."""
        if member_id in group.pending_join:
            self.remove_member(group, member_id, now)
            return self._complete_without(group, now)
        if member_id not in group or group.member(member_id).has_satisfied_heartbeat():
            return NOTHING
        self.expel(group, member_id, now)
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare_or_complete(group, now)
        return self._complete_without(group, now)

    def expel(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Remove a member; its parked requests are told to come back without an id."""
        member = group.member(member_id)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(group, member, JoinGroupResponse(error_code=unknown))
        self.answer_sync(member, SyncGroupResponse(error_code=unknown))
        self.remove_member(group, member_id, now)

    def _complete_without(self, group: ClassicGroup, now: Instant) -> Outcome:
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.has_all_members_joined:
            return self.complete(group, now)
        return NOTHING

    # Journal

    def note_leader(self, group: ClassicGroup, choice: Choice | None, now: Instant) -> None:
        """Write down a choice of leader, where there was one."""
        if choice is not None:
            self._note(group, "leader", choice, now)

    def _note(self, group: ClassicGroup, kind: Any, choice: Choice, now: Instant) -> None:
        self._journal.add(
            Decision(
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


def join_response(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """The answer that carries the current generation; only the leader learns the members."""
    leads = group.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=joined_members(group) if leads else [],
    )


def joined_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """All members with the metadata of the chosen protocol, as the leader needs them."""
    return [
        JoinGroupResponseMember(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            metadata=one.metadata(group.protocol_name),
        )
        for one in group.members()
    ]


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The answer that carries a member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def group_metadata_record(group: ClassicGroup, assignment: dict[str, bytes]) -> GroupRecord:
    """The group's record as of now, with `assignment` in place of what members have."""
    members = [
        MemberMetadata(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout=one.rebalance_timeout_ms,
            session_timeout=one.session_timeout_ms,
            subscription=one.metadata(group.protocol_name),
            assignment=assignment[one.member_id],
        )
        for one in group.members()
    ]
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
    """The first record of a group, whatever its members already agree on in memory."""
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
