"""Handle JoinGroup, SyncGroup, Heartbeat and LeaveGroup for classic groups.

KIPs: 62 (rebalance timeout), 134 (initial delay), 345 (static members), 394 (a member id before
joining), 559 (protocol type and name in SyncGroup), 814 (skip_assignment).

Not here: the rebalance itself (`rebalance.py`), authorization (the API files).
"""

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.decision import (
    NOTHING,
    AssignmentDecided,
    GroupCreated,
    GroupDecision,
    Peer,
    StaticMemberReplaced,
)
from sparkraft.coordinator.group.group import Group
from sparkraft.coordinator.group.groups import Groups
from sparkraft.coordinator.group.member import Member, Protocols, as_protocols
from sparkraft.coordinator.group.rebalance import (
    REMOVAL_UNITS,
    Rebalancer,
    group_metadata_record,
    join_response_of,
    new_group_record,
    sync_response,
)
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.runtime import Decision, Instant, ReplyTo
from sparkraft.coordinator.steps import Steps, in_pieces, pieces
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from sparkraft.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9


class ClassicProtocol:
    """The classic protocol for all groups of a shard."""

    def __init__(
        self,
        config: GroupConfig,
        entropy: Entropy,
        rebalancer: Rebalancer,
        groups: Groups,
    ) -> None:
        """Share `groups` with the shard that owns them."""
        self._config = config
        self._entropy = entropy
        self._rebalancer = rebalancer
        self._groups = groups

    # Loading

    def loaded(self, now: Instant) -> Steps[None]:
        """Start a session for every member that was loaded."""
        for group in self._groups.all_classic():
            yield from self._rebalancer.schedule_heartbeats(group, now)
            if len(group) > self._config.max_size:
                yield from self._rebalancer.prepare(group, now)
            yield 1

    def unload(self, now: Instant) -> Steps[None]:
        """Fail all parked requests with NOT_COORDINATOR."""
        error = ErrorCode.NOT_COORDINATOR
        for group in self._groups.all_classic():
            group.transition_to(GroupState.DEAD, now.wall_ms)
            yield from self._rebalancer.fail_parked(group, error)
            yield 1

    # JoinGroup

    def join(
        self, request: JoinGroupRequest, peer: Peer, reply_to: ReplyTo, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Always replies through the rebalancer."""
        group = self._groups.classic(request.group_id)
        if group is not None:
            return (yield from self._join_group(group, request, peer, reply_to, now))
        replaced = self._groups.get(request.group_id)
        if replaced is not None and not replaced.is_convertible_to_classic(now):
            return self._refuse(reply_to, "", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            return self._refuse(reply_to, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return (yield from self._create(replaced, request, peer, reply_to, now))

    def _create(
        self,
        replaced: Group | None,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        group = ClassicGroup(request.group_id, now_ms=now.wall_ms)
        self._groups[request.group_id] = group
        decision = yield from self._join_group(group, request, peer, reply_to, now)
        assert decision is NOTHING, "the first join of a group cannot end its rebalance"
        tombstones = () if replaced is None else tuple(replaced.tombstones())
        return Decision(
            response=None,
            records=(*tombstones, new_group_record(group)),
            replay=False,
            append_callback=GroupCreated(group_id=group.group_id, replaced=replaced),
        )

    def _join_group(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        member_id = request.member_id
        if not self._has_room(group, member_id):
            self._rebalancer.remove_member(group, member_id, now)
            return self._refuse(reply_to, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        error = _join_error(group, request)
        if error is not None:
            return self._refuse(reply_to, member_id, error)
        if not member_id:
            return (yield from self._join_unknown(group, request, peer, reply_to, now))
        if member_id in group.pending_join:
            return (yield from self._add(group, member_id, request, peer, reply_to, now))
        return (yield from self._rejoin(group, request, reply_to, now))

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """During a rebalance the first to rejoin stay, otherwise existing members do."""
        if group.is_in(GroupState.EMPTY, GroupState.DEAD):
            return True
        if group.is_in(GroupState.PREPARING_REBALANCE):
            if member_id in group and group.member(member_id).awaiting_join is not None:
                return True
            return group.awaiting_join_count < self._config.max_size
        return member_id in group or len(group) < self._config.max_size

    def _join_unknown(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        instance_id = request.group_instance_id
        member_id = f"{peer.client_id if instance_id is None else instance_id}-{self._uuid()}"
        if group.static_member_id(instance_id) is not None:
            return (yield from self._replace_static(group, member_id, request, peer, reply_to, now))
        if instance_id is not None or peer.version < _MEMBER_ID_REQUIRED_FROM:
            return (yield from self._add(group, member_id, request, peer, reply_to, now))
        group.pending_join[member_id] = None
        self._rebalancer.schedule_session(
            group.group_id, member_id, now, request.session_timeout_ms
        )
        return self._refuse(reply_to, member_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=peer.client_id,
            client_host=peer.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
            awaiting_join=reply_to,
            is_new=True,
        )
        self._rebalancer.add_member(group, member, now)
        return (yield from self._rebalancer.prepare_or_complete(group, now))

    def _rejoin(
        self, group: ClassicGroup, request: JoinGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> Steps[GroupDecision[None]]:
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return self._refuse(reply_to, request.member_id, error.code)
        member = group.member(request.member_id)
        same = member.protocols == _protocols(request)
        leads = group.leader_id == member.member_id
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                changed = True
            case GroupState.COMPLETING_REBALANCE:
                changed = not same
            case GroupState.STABLE:
                # The leader may rejoin for its own reasons, such as new partitions.
                changed = leads or not same
            case _:
                return self._refuse(reply_to, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if not changed:
            # It may have missed the response; the generation is still current.
            self._rebalancer.reply(reply_to, (yield from join_response_of(group, member)))
            return NOTHING
        self._update(group, member, request, reply_to)
        return (yield from self._rebalancer.prepare_or_complete(group, now))

    def _update(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, reply_to: ReplyTo
    ) -> None:
        group.update(
            member,
            _protocols(request),
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            awaiting_join=reply_to,
        )

    def _replace_static(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        """Replace a static member that rejoined without its member id, and fence the old one."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        leader_before = group.leader_id
        old = self._fence(group, instance_id)
        member, choice = yield from group.replace_static(instance_id, member_id)
        self._rebalancer.note_leader(group, choice, now)
        self._rebalancer.schedule_heartbeat(group, member, now)
        self._update(group, member, request, reply_to)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            # The leader may be computing an assignment for the old id.
            return (yield from self._rebalancer.prepare(group, now))
        if not group.is_in(GroupState.STABLE):
            return (yield from self._rebalancer.complete_if_all_joined(group, now))
        vote = yield from group.vote()
        if vote.chosen != group.protocol_name:
            return (yield from self._rebalancer.prepare_or_complete(group, now))
        assignment = yield from group.assignments()
        return Decision(
            response=None,
            records=((yield from group_metadata_record(group, assignment)),),
            replay=False,
            append_callback=StaticMemberReplaced(
                group_id=group.group_id,
                instance_id=instance_id,
                old_member_id=old.member_id,
                new_member_id=member_id,
                leader_before=leader_before,
                protocols_before=old.protocols,
                rebalance_timeout_ms_before=old.rebalance_timeout_ms,
                session_timeout_ms_before=old.session_timeout_ms,
                version=peer.version,
            ),
        )

    def _fence(self, group: ClassicGroup, instance_id: str) -> Member:
        """Fail the parked requests of the current holder of an instance id."""
        member_id = group.static_member_id(instance_id)
        assert member_id is not None
        member = group.member(member_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalancer.complete_join(
            group, member, JoinGroupResponse(member_id=member_id, error_code=fenced)
        )
        self._rebalancer.complete_sync(member, SyncGroupResponse(error_code=fenced))
        return member

    def _refuse(self, reply_to: ReplyTo, member_id: str, error: ErrorCode) -> GroupDecision[None]:
        self._rebalancer.reply(reply_to, JoinGroupResponse(member_id=member_id, error_code=error))
        return NOTHING

    def _uuid(self) -> str:
        """A random UUID in the text form of Java, for member ids."""
        raw = bytearray(self._entropy.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    # SyncGroup

    def sync(
        self, request: SyncGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Always replies through the rebalancer."""
        try:
            group = self._classic_group(request.group_id)
            _check_sync(group, request)
        except KafkaError as error:
            self._rebalancer.reply(reply_to, SyncGroupResponse(error_code=error.code))
            return NOTHING
        member = group.member(request.member_id)
        if group.is_in(GroupState.STABLE):
            self._rebalancer.sync_received(group, member.member_id)
            self._rebalancer.reply(reply_to, sync_response(group, member))
            return NOTHING
        if member.awaiting_sync is not None:  # Sent twice: only the later one gets the assignment.
            self._rebalancer.complete_sync(
                member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            )
        member.awaiting_sync = reply_to
        self._rebalancer.sync_received(group, member.member_id)
        if group.leader_id != member.member_id:
            return NOTHING
        assignment = yield from _assignment_of(group, request)
        return Decision(
            response=None,
            records=((yield from group_metadata_record(group, assignment)),),
            replay=False,
            append_callback=AssignmentDecided(
                group_id=group.group_id,
                generation=group.generation_id,
                assignment=assignment,
            ),
        )

    # Heartbeat

    def heartbeat(
        self, request: HeartbeatRequest, now: Instant
    ) -> GroupDecision[HeartbeatResponse]:
        """Renew a session; KafkaError if the member is unknown, fenced or of another generation."""
        group = self._classic_group(request.group_id)
        if group.is_in(GroupState.DEAD):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalancer.schedule_heartbeat(group, group.member(request.member_id), now)
        rebalancing = group.is_in(GroupState.PREPARING_REBALANCE)
        error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        return Decision(response=HeartbeatResponse(error_code=error))

    # LeaveGroup

    def leave(
        self, request: LeaveGroupRequest, now: Instant
    ) -> Steps[GroupDecision[LeaveGroupResponse]]:
        """Remove members, each with its own error."""
        group = self._classic_group(request.group_id)
        if group.is_in(GroupState.DEAD):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        members: list[MemberResponse] = []
        for one in request.members:
            members.append(self._leave_one(group, one, now))
            yield REMOVAL_UNITS
        decision = NOTHING
        if any(one.error_code == ErrorCode.NONE for one in members):
            if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                decision = yield from self._rebalancer.prepare_or_complete(group, now)
            else:
                decision = yield from self._rebalancer.complete_if_all_joined(group, now)
        return decision.with_response(LeaveGroupResponse(members=members))

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, now: Instant
    ) -> MemberResponse:
        member_id = identity.member_id
        error = ErrorCode.NONE
        try:
            if not member_id:  # An admin tool removes a static member by its instance id.
                member_id = group.static_member_id(identity.group_instance_id) or ""
                group.check_member(member_id, None)
            elif member_id not in group.pending_join:
                group.check_member(member_id, identity.group_instance_id)
            if member_id in group:
                self._rebalancer.note_member(group, "left", member_id, "by LeaveGroup", now)
                self._rebalancer.expel(group, member_id, now)
            else:
                self._rebalancer.remove_member(group, member_id, now)
        except KafkaError as refused:
            error = refused.code
        return MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=error,
        )

    def _classic_group(self, group_id: str) -> ClassicGroup:
        group = self._groups.classic(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group

    # After the append

    def on_assignment_appended(
        self, decided: AssignmentDecided, error: ErrorCode | None, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Give the members their assignment, unless another rebalance has started."""
        group = self._groups.classic(decided.group_id)
        if group is None or decided.generation != group.generation_id:
            return NOTHING
        if not group.is_in(GroupState.COMPLETING_REBALANCE):
            return NOTHING
        if error is None:
            yield from self._rebalancer.set_assignment(group, decided.assignment, now)
            return NOTHING
        yield from self._rebalancer.fail_sync(group, error, now)
        return (yield from self._rebalancer.prepare_or_complete(group, now))

    def on_group_appended(self, created: GroupCreated, error: ErrorCode | None) -> Steps[None]:
        """Discard a new group if its first record was not committed."""
        group = self._groups.classic(created.group_id)
        if error is None or group is None:
            return
        for piece in pieces(group.members()):
            for member in piece:
                self._rebalancer.complete_join(group, member, JoinGroupResponse(error_code=error))
            yield len(piece)
        yield from self._rebalancer.forget_timers(group)
        del self._groups[created.group_id]
        if created.replaced is not None:
            self._groups[created.group_id] = created.replaced

    def on_replacement_appended(
        self, replaced: StaticMemberReplaced, error: ErrorCode | None, now: Instant
    ) -> Steps[None]:
        """Complete the join of a replaced static member; restore the old one on error."""
        group = self._groups.classic(replaced.group_id)
        if group is None or replaced.new_member_id not in group:
            return
        member = group.member(replaced.new_member_id)
        if error is not None:
            yield from self._undo_replacement(group, member, replaced, error, now)
            return
        if group.is_in(GroupState.PREPARING_REBALANCE, GroupState.DEAD):
            return  # A rebalance has started; the join is part of it.
        response = yield from join_response_of(group, member)
        if replaced.version < _SKIP_ASSIGNMENT_FROM:
            # Old clients would compute a new assignment: send the previous leader and no members.
            response.members = []
            response.leader = replaced.leader_before or ""
        else:
            response.skip_assignment = group.leader_id == member.member_id
        self._rebalancer.complete_join(group, member, response)

    def _undo_replacement(
        self,
        group: ClassicGroup,
        member: Member,
        replaced: StaticMemberReplaced,
        error: ErrorCode,
        now: Instant,
    ) -> Steps[None]:
        response = JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=replaced.leader_before or "",
            error_code=error,
        )
        self._rebalancer.complete_join(group, member, response)
        group.update(
            member,
            replaced.protocols_before,
            rebalance_timeout_ms=replaced.rebalance_timeout_ms_before,
            session_timeout_ms=replaced.session_timeout_ms_before,
            awaiting_join=None,
        )
        old, choice = yield from group.replace_static(replaced.instance_id, replaced.old_member_id)
        self._rebalancer.note_leader(group, choice, now)
        self._rebalancer.schedule_heartbeat(group, old, now)


def _assignment_of(group: ClassicGroup, request: SyncGroupRequest) -> Steps[dict[str, bytes]]:
    """The assignment of each member by the leader, empty for those that it leaves out."""
    given = yield from in_pieces(
        request.assignments, lambda one: (one.member_id, bytes(one.assignment))
    )
    by_member = dict(given)
    found = yield from in_pieces(
        group.members(), lambda one: (one.member_id, by_member.get(one.member_id, b""))
    )
    return dict(found)


def _join_error(group: ClassicGroup, request: JoinGroupRequest) -> ErrorCode | None:
    """The error of a join that no member may send in the group's current state."""
    if group.is_in(GroupState.DEAD):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(request.protocol_type, [one.name for one in request.protocols]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id in group.pending_join and request.group_instance_id is not None:
        return ErrorCode.UNKNOWN_MEMBER_ID  # Only dynamic members join with an id assigned before.
    return None


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Raise KafkaError for a SyncGroup that does not belong to the current generation."""
    if group.is_in(GroupState.DEAD):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    for named, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if named is not None and ours is not None and named != ours:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.is_in(GroupState.PREPARING_REBALANCE):
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return as_protocols([(one.name, one.metadata) for one in request.protocols])
