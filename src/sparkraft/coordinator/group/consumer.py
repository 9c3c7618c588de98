"""Handle ConsumerGroupHeartbeat: members of consumer groups join, converge and leave (KIP-848).

Not here: checks of the request's form (`consumer_requests.py`), the steps of an update
(`consumer_update.py`), members of consumer groups that use the classic protocol.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from sparkraft.coordinator.group.consumer_migration import (
    downgraded,
    remaining_after,
    upgraded,
)
from sparkraft.coordinator.group.consumer_notes import noted
from sparkraft.coordinator.group.consumer_records import (
    current_record,
    member_record,
    member_tombstones,
    regex_tombstone,
    target_record,
)
from sparkraft.coordinator.group.consumer_regex import (
    MatchingTopics,
    ResolveRegexes,
)
from sparkraft.coordinator.group.consumer_requests import (
    check_epoch,
    checked_holder,
    is_full,
    owned_partitions,
    updated_member,
)
from sparkraft.coordinator.group.consumer_update import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    MemberUpdate,
    MemberUpdates,
)
from sparkraft.coordinator.group.decision import (
    NOTHING,
    GroupCreated,
    GroupDecision,
    GroupNoted,
    MemberFenced,
    Peer,
    noting,
)
from sparkraft.coordinator.group.groups import Groups
from sparkraft.coordinator.group.journal import JournalEntry, Kind
from sparkraft.coordinator.group.rebalance import Rebalancer, group_metadata_record
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.runtime import Decision, Instant, MetadataDelta
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, fast, pieces, sorted_in_steps
from sparkraft.coordinator.timers import TimerKey
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_LATE = {
    SESSION: "it sent no heartbeat within its session timeout",
    REBALANCE: "it did not give up its partitions within its rebalance timeout",
    JOIN: "it did not rejoin within its rebalance timeout",
    SYNC: "it did not send SyncGroup within its rebalance timeout",
}

HeartbeatDecision = GroupDecision[ConsumerGroupHeartbeatResponse]


class ConsumerProtocol:
    """The consumer protocol for all groups of a shard."""

    def __init__(
        self,
        config: GroupConfig,
        entropy: Entropy,
        updates: MemberUpdates,
        rebalancer: Rebalancer,
        groups: Groups,
    ) -> None:
        """Share `groups` with the shard that owns them."""
        self._config = config.consumer
        self._classic_max_size = config.max_size
        self._rebalancer = rebalancer
        self._entropy = entropy
        self._groups = groups
        self._updates = updates

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self._updates.image

    # Loading and metadata

    def loaded(self, image: ClusterImage, now: Instant) -> Steps[None]:
        """Start a session for every member that was loaded."""
        self._updates.loaded(image)
        for group in self._groups.all_consumer():
            yield from self.resume(group, now)
            yield 1

    def on_image(self, delta: MetadataDelta) -> Steps[None]:
        """Check subscribed topics again at the next heartbeat of their groups."""
        topics = yield from delta.topics()
        self._updates.on_image(delta.image, has_new_topics=topics.has_new)
        every = delta.changed is None or delta.image.brokers is not delta.before.brokers
        if not every and not topics.names:
            return
        for piece in pieces(self._groups.all_consumer()):
            for group in piece:
                if every or (yield from group.is_subscribed_to_any(topics.names)):
                    group.refresh_epoch = None
            yield len(piece) >> 2

    # Heartbeat

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        peer: Peer,
        may_describe: Callable[[str], bool],
        now: Instant,
    ) -> Steps[HeartbeatDecision]:
        """Decide about a heartbeat that `check_heartbeat` has accepted.

        `may_describe` selects the topics that the member's regular expression may find.

        Raises:
            KafkaError: see KIP-848, "ConsumerGroupHeartbeat API".
        """
        if request.member_epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}:
            return (yield from self._leave(request, now))
        if not request.member_id:
            request.member_id = self.new_member_id()
        records: list[GroupRecord] = []
        group = yield from self._group_for(request, records, now)
        self.check_room(group, request.member_id)
        member = yield from self._member_for(group, request, records)
        updated = updated_member(member, request, peer)
        yield fast(len(request.subscribed_topic_names or ()))
        update = MemberUpdate(
            group=group,
            member=member,
            updated=updated,
            owned=(yield from owned_partitions(request)),
            epoch=group.group_epoch,
            records=records,
        )
        if len(group) and self._groups.classic(group.group_id) is not None:
            reason = "to the consumer protocol: a consumer member joined"
            self._updates.note(update, "converted", reason, now)
        yield from self._updates.advance(update, now)
        return Decision(
            response=(yield from self._response(request, update)),
            records=tuple(records),
            append_callback=noting(update.notes) if records else None,
            effects=self._updates.resolve_regexes(update, may_describe, now),
        )

    def _group_for(
        self, request: ConsumerGroupHeartbeatRequest, records: list[GroupRecord], now: Instant
    ) -> Steps[ConsumerGroup]:
        """The group; a new one, not stored yet, if the member joins and the id is free."""
        group_id = request.group_id
        found = self._groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        joins = request.member_epoch == JOIN_EPOCH
        if found is None and not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if found is None:
            return ConsumerGroup(group_id)
        if joins and isinstance(found, ClassicGroup):
            if found.is_empty(now):
                records += found.tombstones()
                return ConsumerGroup(group_id)
            return (yield from self._upgrade(found, records, now))
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def _upgrade(
        self, group: ClassicGroup, records: list[GroupRecord], now: Instant
    ) -> Steps[ConsumerGroup]:
        """Convert a classic group; its members are asked to rejoin.

        As in Kafka, parked requests fail before the subscriptions are read, so an upgrade that is
        refused for a malformed one disturbs the group once.
        """
        problem = None
        if not self._config.allows_upgrade:
            problem = "online upgrade is disabled"
        elif not group.uses_consumer_protocol:
            problem = "it does not use the consumer embedded protocol"
        elif len(group) > self._config.max_size:
            problem = "its size exceeds the maximum size of consumer groups"
        if problem is not None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to a consumer group because "
                f"{problem}.",
            )
        yield from self._rebalancer.fail_parked(group, ErrorCode.REBALANCE_IN_PROGRESS)
        converted, written = yield from upgraded(group, self.image, self._updates.hashes)
        records += written
        for piece in pieces(converted.members()):
            for member in piece:
                self._updates.schedule_session(converted, member, now)
            yield len(piece)
        return converted

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        if len(group) >= self._config.max_size and member_id not in group:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of "
                f"{self._config.max_size} members.",
            )

    def _member_for(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        records: list[GroupRecord],
    ) -> Steps[ConsumerMember]:
        """The member, which may be new or replace a static one."""
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.get(request.member_id)
            if member is None and not joins:
                return group.member(request.member_id)  # raises
            member = member or ConsumerMember(member_id=request.member_id)
        else:
            member = yield from self._static_member_for(group, request, records)
        if not joins:
            yield from check_epoch(member, request)
        return member

    def _static_member_for(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        records: list[GroupRecord],
    ) -> Steps[ConsumerMember]:
        holder = group.static_member(request.instance_id)
        if request.member_epoch != JOIN_EPOCH:
            return checked_holder(holder, request)
        if holder is None:
            known = group.get(request.member_id)
            return known or ConsumerMember(member_id=request.member_id)
        if holder.member_id == request.member_id:
            return holder
        if not holder.uses_classic_protocol and holder.member_epoch != LEAVE_STATIC_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} was "
                f"fenced because the instance id is still used by member {holder.member_id}.",
            )
        return (yield from self.replace_static(group, holder, request.member_id, records))

    def replace_static(
        self,
        group: ConsumerGroup,
        holder: ConsumerMember,
        member_id: str,
        records: list[GroupRecord],
    ) -> Steps[ConsumerMember]:
        """A static member rejoins under a new id and keeps its assignment."""
        member = replace(holder, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        records += member_tombstones(group.group_id, holder.member_id)
        target = group.target_of(holder)
        records.append((yield from member_record(group.group_id, member)))
        records.append((yield from target_record(group.group_id, member_id, target)))
        records.append((yield from current_record(group.group_id, member)))
        return member

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, update: MemberUpdate
    ) -> Steps[ConsumerGroupHeartbeatResponse]:
        updated = update.updated
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self._config.heartbeat_interval_ms.of(
                self._updates.overrides(update.group.group_id), "consumer.heartbeat.interval.ms"
            ),
        )
        if (
            request.member_epoch == JOIN_EPOCH
            or is_full(request)
            or (yield from _has_other_partitions(update))
        ):
            found = []
            units = 0
            for topic_id in (yield from sorted_in_steps(updated.assigned)):
                partitions = sorted(updated.assigned[topic_id])
                found.append(TopicPartitions(topic_id=topic_id, partitions=partitions))
                units += len(partitions)
                if units >= PIECE_UNITS:
                    yield units
                    units = 0
            yield units
            response.assignment = Assignment(topic_partitions=found)
        return response

    # Leaving

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: Instant
    ) -> Steps[HeartbeatDecision]:
        group = self._groups.consumer(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            holder = group.static_member(request.instance_id)
            member = checked_holder(holder, request)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                left = yield from self._leave_for_a_while(group, member, now)
                return left.with_response(response)
        removed = yield from self.remove(group, [member.member_id], "left", "by a heartbeat", now)
        return removed.with_response(response)

    def _leave_for_a_while(
        self, group: ConsumerGroup, member: ConsumerMember, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """A static member leaves and keeps its assignment until its session expires.

        Its successor has the partitions from epoch 0 on, so that it may commit in any of its epochs
        (Kafka's resetAssignedPartitionsEpochsToZero).
        """
        assigned: dict[Uuid, dict[int, int]] = {}
        for piece in pieces(member.assigned.items()):
            assigned.update((topic_id, dict.fromkeys(epochs, 0)) for topic_id, epochs in piece)
            yield len(piece) >> 2
        left = replace(
            member, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation={}
        )
        reason = "for a while: it keeps its partitions for its session timeout"
        entry = noted(
            group.group_id, group.group_epoch, "left", reason, now.wall_ms, member.member_id
        )
        return Decision(
            response=None,
            records=((yield from current_record(group.group_id, left)),),
            append_callback=noting([entry]),
        )

    def remove(
        self, group: ConsumerGroup, member_ids: Iterable[str], kind: Kind, reason: str, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Remove members and raise the group epoch; the next heartbeat computes a new target."""
        ids = dict.fromkeys(member_ids)
        remaining = yield from remaining_after(group, ids)
        if remaining is not None and self.may_downgrade(remaining):
            notes = [
                noted(group.group_id, group.group_epoch, kind, reason, now.wall_ms, member_id)
                for member_id in ids
            ]
            return (yield from self.downgrade(group, remaining, now, rebalance=True, entries=notes))
        records: list[GroupRecord] = []
        for member_id in ids:
            records += member_tombstones(group.group_id, member_id)
        records += [regex_tombstone(group.group_id, one) for one in _unused_regexes(group, ids)]
        topics = yield from group.subscribed_topics(removed=ids)
        metadata_hash = yield from self._updates.hashes.of_group(topics)
        records += self._updates.epoch_records(group, group.group_epoch + 1, metadata_hash)
        entries = [
            noted(group.group_id, group.group_epoch + 1, kind, reason, now.wall_ms, member_id)
            for member_id in ids
        ]
        return Decision(response=None, records=tuple(records), append_callback=noting(entries))

    # Downgrade

    def may_downgrade(self, members: Sequence[ConsumerMember]) -> bool:
        """Whether these members, all classic, may form a classic group."""
        return self._config.allows_downgrade and len(members) <= self._classic_max_size

    def downgrade(
        self,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        now: Instant,
        *,
        rebalance: bool,
        entries: Sequence[JournalEntry] = (),
    ) -> Steps[GroupDecision[None]]:
        """Replace the group by a classic one; `rebalance`: its members must rejoin.

        The classic group is live at once, and `GroupCreated` restores the old one if the append
        fails.
        """
        classic = yield from downgraded(group, members, self.image, now.wall_ms)
        assignment = yield from classic.assignments()
        record = yield from group_metadata_record(classic, assignment)
        records = (*group.tombstones(), record)
        self._updates.forget(group)
        self._groups[group.group_id] = classic
        yield from self._rebalancer.schedule_heartbeats(classic, now)
        if rebalance:
            yield from self._rebalancer.prepare(classic, now)
        reason = "to the classic protocol: no member uses the consumer protocol"
        entry = noted(group.group_id, classic.generation_id, "converted", reason, now.wall_ms)
        return Decision(
            response=None,
            records=records,
            replay=False,
            append_callback=GroupCreated(
                group_id=group.group_id, replaced=group, entries=(*entries, entry)
            ),
        )

    def resume(self, group: ConsumerGroup, now: Instant) -> Steps[None]:
        """Start the sessions of a group that was loaded, or whose conversion failed."""
        for piece in pieces(group.members()):
            for member in piece:
                self._updates.schedule_session(group, member, now)
                if member.state is MemberState.UNREVOKED:
                    self._updates.schedule_revocation(group, member, now)
            yield len(piece)

    # Timers

    def on_regexes_resolved(
        self, effect: ResolveRegexes, found: MatchingTopics | KafkaError, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Store the topics of regular expressions."""
        group = self._groups.consumer(effect.group_id)
        return (yield from self._updates.on_regexes_resolved(effect, group, found, now))

    def on_timer(
        self, group: ConsumerGroup, key: TimerKey, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Fence a member that sent no heartbeat, or did not revoke its partitions in time.

        Kafka's CoordinatorTimerImpl repeats the timer if the records cannot be appended.
        """
        kind, member_id = key[0], key[-1]
        if kind not in _LATE or member_id not in group:
            return NOTHING
        if kind == REBALANCE and not self._updates.is_revocation_late(group, member_id):
            return NOTHING
        decision = yield from self.remove(group, [member_id], "fenced", _LATE[kind], now)
        if not isinstance(decision.append_callback, GroupNoted):
            return decision  # A downgrade: its callback resumes the group.
        entries = decision.append_callback.entries
        return replace(decision, append_callback=MemberFenced(timer=key, entries=entries))

    def on_fence_appended(
        self, fenced: MemberFenced, error: ErrorCode | None, now: Instant
    ) -> None:
        """If the member could not be fenced, try again soon."""
        if error is None:
            return
        key = fenced.timer
        group = self._groups.consumer(key[1])
        member = None if group is None else group.get(key[-1])
        if member is not None:
            self._updates.repeat_timer(key, member, now)

    def forget_member(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel the timers of a removed member."""
        self._updates.cancel(group, member_id)

    def forget(self, group: ConsumerGroup) -> None:
        """Cancel the timers of a group."""
        self._updates.forget(group)

    def new_member_id(self) -> str:
        """A random UUID as Kafka prints it: only clients of v0 leave it to the coordinator."""
        return str(Uuid(self._entropy.random_bytes(16)))


def _has_other_partitions(update: MemberUpdate) -> Steps[bool]:
    """Whether the update changes which partitions the member has."""
    before, after = update.member.assigned, update.updated.assigned
    if before is after:
        return False
    if len(before) != len(after):
        return True
    for piece in pieces(before.items()):
        for topic_id, epochs in piece:
            if topic_id not in after or epochs.keys() != after[topic_id].keys():
                return True
        yield len(piece) >> 2
    return False


def _unused_regexes(group: ConsumerGroup, removed: Iterable[str]) -> list[str]:
    """Resolved regular expressions that only the removed members use."""
    users: dict[str, int] = {}
    for member_id in removed:
        member = group.get(member_id)
        if member is not None and member.subscribed_regex:
            users[member.subscribed_regex] = users.get(member.subscribed_regex, 0) + 1
    return [
        pattern
        for pattern in sorted(users)
        if group.regex_subscribers(pattern) == users[pattern] and pattern in group.regexes
    ]
