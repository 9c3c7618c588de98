"""Members of a consumer group that use the classic protocol (KIP-848, "Migration").

No member leads: JoinGroup gets its response at once with the member's epoch as its generation, and
SyncGroup with the member's assignment. Heartbeat asks the member to rejoin if it can make progress,
and each rejoin takes one step of reconciliation. A member that was asked must rejoin, and then send
SyncGroup, within its rebalance timeout.
"""

from dataclasses import replace

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.coordinator.group.config import ConsumerConfig
from sparkraft.coordinator.group.consumer import ConsumerProtocol
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from sparkraft.coordinator.group.consumer_migration import remaining_after
from sparkraft.coordinator.group.consumer_protocol_data import (
    by_topic_id,
    read_subscription,
    version_of,
    write_assignment,
)
from sparkraft.coordinator.group.consumer_update import MemberUpdate, MemberUpdates
from sparkraft.coordinator.group.decision import NOTHING, ClassicJoined, GroupDecision, Peer
from sparkraft.coordinator.group.member import as_protocols
from sparkraft.coordinator.group.rebalance import Rebalancer
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.runtime import Decision, Instant, ReplyTo
from sparkraft.coordinator.steps import Steps, fast, pieces
from sparkraft.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from sparkraft.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_TYPE = "consumer"
_MEMBER_ID_REQUIRED_FROM = 4


class ClassicMembers:
    """The classic protocol in the consumer groups of a shard."""

    def __init__(
        self,
        config: ConsumerConfig,
        consumer: ConsumerProtocol,
        updates: MemberUpdates,
        rebalancer: Rebalancer,
    ) -> None:
        """Reply through `rebalancer`."""
        self._config = config
        self._consumer = consumer
        self._updates = updates
        self._rebalancer = rebalancer

    # JoinGroup

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        """Take one step of reconciliation; replies once it is committed."""
        try:
            return (yield from self._join(group, request, peer, reply_to, now))
        except KafkaError as error:
            # Without the member id, as Kafka's GroupCoordinatorService.joinGroup responds.
            self._rebalancer.reply(reply_to, JoinGroupResponse(error_code=error.code))
            return NOTHING

    def _join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        peer: Peer,
        reply_to: ReplyTo,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        if not self._config.allows_upgrade and not self._config.allows_downgrade:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_new = not request.member_id
        member_id = request.member_id or self._consumer.new_member_id()
        self._consumer.check_room(group, member_id)
        yield from _check_protocols(group, request)
        if is_new and request.group_instance_id is None and _requires_id(peer):
            response = JoinGroupResponse(
                member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED
            )
            self._rebalancer.reply(reply_to, response)
            return NOTHING
        subscription = _subscription_of(request)
        records: list[GroupRecord] = []
        yield fast(sum(len(one.metadata) for one in request.protocols[:1]))
        member = yield from self._member_for(group, request, member_id, records)
        update = MemberUpdate(
            group=group,
            member=member,
            updated=_updated(member, request, subscription, peer),
            owned=by_topic_id(
                {one.topic: list(one.partitions) for one in subscription.owned_partitions},
                self._consumer.image,
            ),
            epoch=group.group_epoch,
            records=records,
        )
        return (yield from self._advance(update, request, reply_to, now))

    def _member_for(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        member_id: str,
        records: list[GroupRecord],
    ) -> Steps[ConsumerMember]:
        """The member, which may be new or replace a static one of either protocol."""
        if request.group_instance_id is None:
            return group.get(member_id) or ConsumerMember(member_id=member_id)
        holder = group.static_member(request.group_instance_id)
        if request.member_id:
            return _checked(holder, request.member_id)
        if holder is None:
            return ConsumerMember(member_id=member_id)
        return (yield from self._consumer.replace_static(group, holder, member_id, records))

    def _advance(
        self, update: MemberUpdate, request: JoinGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """A static member may replace the last one of the consumer protocol: that downgrades."""
        group = update.group
        replaced = group.static_member(request.group_instance_id)
        yield from self._updates.update_subscription(update, now)
        yield from self._updates.update_epoch(update, now)
        remaining = None
        if replaced is not None:
            remaining = yield from remaining_after(group, {replaced.member_id}, update.updated)
        if remaining is None or not self._consumer.may_downgrade(remaining):
            yield from self._reconcile(update, now)
            self._updates.schedule_session(group, update.updated, now)
            return self._reply_later(update, request, reply_to, now)
        stale = group.target_epoch < update.epoch
        if not stale:
            yield from self._reconcile(update, now)
        response = _join_response(update.updated)
        decision = yield from self._consumer.downgrade(group, remaining, now, rebalance=stale)
        self._rebalancer.reply(reply_to, response)
        return decision

    def _reconcile(self, update: MemberUpdate, now: Instant) -> Steps[None]:
        target = yield from self._updates.update_target(update, now)
        yield from self._updates.reconcile(update, target, now)

    def _reply_later(
        self, update: MemberUpdate, request: JoinGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> GroupDecision[None]:
        joined = ClassicJoined(
            group_id=update.group.group_id,
            member_id=update.updated.member_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            reply_to=reply_to,
            response=_join_response(update.updated),
            entries=tuple(update.notes),
        )
        if update.records:
            records = tuple(update.records)
            return Decision(response=None, records=records, append_callback=joined)
        self._updates.on_classic_joined(
            joined.group_id, joined.member_id, joined.rebalance_timeout_ms, now
        )
        self._rebalancer.reply(reply_to, joined.response)
        return NOTHING

    def on_joined(self, joined: ClassicJoined, error: ErrorCode | None, now: Instant) -> None:
        """The step is committed, or failed: reply, and wait for SyncGroup."""
        response = joined.response
        if error is None:
            self._updates.on_classic_joined(
                joined.group_id, joined.member_id, joined.rebalance_timeout_ms, now
            )
        else:
            response = JoinGroupResponse(error_code=error)
        self._rebalancer.reply(joined.reply_to, response)

    # SyncGroup, Heartbeat

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> GroupDecision[None]:
        """Reply with the member's assignment; REBALANCE_IN_PROGRESS if it must rejoin first."""
        try:
            member = self._current(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
            response = self._synced(group, member, request, now)
        except KafkaError as error:
            response = SyncGroupResponse(error_code=error.code)
        self._rebalancer.reply(reply_to, response)
        return NOTHING

    def _synced(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        request: SyncGroupRequest,
        now: Instant,
    ) -> SyncGroupResponse:
        assert member.classic is not None
        name, metadata = member.classic.protocols[0]
        if request.protocol_type not in {None, PROTOCOL_TYPE} or (
            request.protocol_name not in {None, name}
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED:
            self._updates.expect_rejoin(group, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._updates.on_classic_synced(group, member, now)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(
                member.assigned, self._consumer.image, version_of(metadata)
            ),
        )

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now: Instant
    ) -> GroupDecision[HeartbeatResponse]:
        """Renew the session; REBALANCE_IN_PROGRESS if rejoining brings the member further."""
        member = self._current(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        self._updates.schedule_session(group, member, now)
        if not _can_progress(group, member):
            return Decision(response=HeartbeatResponse())
        self._updates.expect_rejoin(group, member, now)
        return Decision(response=HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    @staticmethod
    def _current(
        group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ConsumerMember:
        """The classic member of that generation; KafkaError if there is none."""
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = _checked(group.static_member(instance_id), member_id)
        if not member.uses_classic_protocol:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    # LeaveGroup

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, now: Instant
    ) -> Steps[GroupDecision[LeaveGroupResponse]]:
        """Remove members of either protocol, each with its own error (KAFKA-18188)."""
        leaving: dict[str, None] = {}
        members: list[MemberResponse] = []
        for one in request.members:
            members.append(_leave_one(group, one, leaving))
            yield 1
        response = LeaveGroupResponse(members=members)
        if not leaving:
            return Decision(response=response)
        removed = yield from self._consumer.remove(group, leaving, "left", "by LeaveGroup", now)
        return removed.with_response(response)


def _requires_id(peer: Peer) -> bool:
    return peer.version >= _MEMBER_ID_REQUIRED_FROM


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> Steps[None]:
    """Raise INCONSISTENT_GROUP_PROTOCOL unless all classic members share a protocol with it."""
    shared = {one.name for one in request.protocols}
    for piece in pieces(group.members()):
        for one in piece:
            if one.classic is not None:
                shared.intersection_update(name for name, _ in one.classic.protocols)
        yield fast(len(piece))
    if request.protocol_type != PROTOCOL_TYPE or not shared:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription_of(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription of its first protocol."""
    try:
        return read_subscription(bytes(request.protocols[0].metadata))
    except DecodeError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed subscription: {error}"
        ) from error


def _updated(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    peer: Peer,
) -> ConsumerMember:
    instance_id = request.group_instance_id
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        subscribed_regex="",
        client_id=peer.client_id,
        client_host=peer.client_host,
        classic=ClassicMetadata(
            session_timeout_ms=request.session_timeout_ms,
            protocols=as_protocols([(one.name, one.metadata) for one in request.protocols]),
        ),
    )


def _join_response(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
    )


def _can_progress(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the target moved on, the member must revoke, or its missing partitions are free."""
    if member.member_epoch < group.target_epoch or member.state is MemberState.UNREVOKED:
        return True
    return member.state is MemberState.UNRELEASED and all(
        group.is_free(topic_id, partition)
        for topic_id, partitions in group.target_of(member).items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _checked(holder: ConsumerMember | None, member_id: str) -> ConsumerMember:
    """The holder of an instance id, which must be that member."""
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if holder.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    return holder


def _leave_one(
    group: ConsumerGroup, identity: MemberIdentity, leaving: dict[str, None]
) -> MemberResponse:
    response = MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id
    )
    try:
        if identity.group_instance_id is None:
            member = group.member(identity.member_id)
        else:
            holder = group.static_member(identity.group_instance_id)
            # An administrator removes a static member by its instance id alone.
            named = identity.member_id or (holder.member_id if holder is not None else "")
            member = _checked(holder, named)
        leaving[member.member_id] = None
    except KafkaError as error:
        response.error_code = error.code
    return response
