"""The group coordinator's shard: all groups of one `__consumer_offsets` partition, without I/O.

Implements `CoordinatorShard[GroupRecord]`; see `coordinator.runtime` for the order of calls.

Invariants:
    * Committed offsets, consumer groups and groups of other protocols change by replay alone.
    * The members of a classic group and parked requests are soft state: after loading, every member
      has one session timeout to send a heartbeat.
    * `replay` of a whole log gives the durable state of the shard that wrote it.

Not here: the partition of a group, and waiting for commits (`server.coordinator`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.classic import ClassicProtocol
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.classic_members import ClassicMembers
from sparkraft.coordinator.group.commits import Commits
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.consumer import ConsumerProtocol
from sparkraft.coordinator.group.consumer_describe import describe_consumer_group
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_regex import ResolveRegexes
from sparkraft.coordinator.group.consumer_replay import replay_tombstone, replay_value
from sparkraft.coordinator.group.consumer_update import CONSUMER_TIMERS, MemberUpdates
from sparkraft.coordinator.group.decision import (
    NOTHING,
    AssignmentDecided,
    ClassicJoined,
    GroupAppendCallback,
    GroupCreated,
    GroupDecision,
    GroupNoted,
    HandOver,
    MemberFenced,
    Peer,
    StaticMemberReplaced,
)
from sparkraft.coordinator.group.describe import ListFilter, describe_as_dead
from sparkraft.coordinator.group.foreign import ForeignGroup
from sparkraft.coordinator.group.group import Group
from sparkraft.coordinator.group.groups import Groups
from sparkraft.coordinator.group.journal import Journal, JournalEntry
from sparkraft.coordinator.group.loading import group_from_record
from sparkraft.coordinator.group.offsets import OffsetStore
from sparkraft.coordinator.group.rebalance import Rebalancer
from sparkraft.coordinator.group.records import (
    ConsumerGroupKey,
    GroupRecord,
    RawKey,
    record_type_of,
)
from sparkraft.coordinator.group.transactional_commits import commit_in_transaction
from sparkraft.coordinator.runtime import (
    NO_PRODUCER_ID,
    AppendCallback,
    Decision,
    Effect,
    Instant,
    MetadataDelta,
    ReplyTo,
)
from sparkraft.coordinator.steps import PIECE_UNITS, Deciding, Steps, begun
from sparkraft.coordinator.timers import TimerKey, Timers
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages.classic_group_records import GroupMetadataKey, OffsetCommitKey
from sparkraft.protocol.messages.consumer_group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
)
from sparkraft.protocol.messages.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup
from sparkraft.protocol.messages.k16_list_groups import ListedGroup
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from sparkraft.protocol.messages.k42_delete_groups import DeletableGroupResult
from sparkraft.protocol.messages.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparkraft.protocol.messages.k69_consumer_group_describe import (
    DescribedGroup as ConsumerGroupDescription,
)

RECORDS_MAX = 10_000
"""An expiry run ends with the group that reaches it; the rest expires in the next run."""

COUNT_INTERVAL_MS = 60_000
"""Groups are counted by type and state once a minute, as in Kafka (updateGroupSizeCounter)."""

_EXPIRY: TimerKey = ("expiry",)
_COUNT: TimerKey = ("count",)


class GroupShard:
    """All groups whose ids hash to one partition.

    Attributes:
        journal: the recent decisions, with their reasons.
        counts: groups by (type, state) as ListGroups names them, at the last count.
        offset_count: committed offsets then.
    """

    def __init__(
        self, config: GroupConfig, entropy: Entropy, journal: Journal | None = None
    ) -> None:
        """Start without groups; shards of a broker may share a `journal`."""
        self._config = config
        self._timers = Timers()
        self._groups = Groups()
        self._offsets = OffsetStore()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.offset_count = 0
        self.journal = Journal(config.journal_entries_max) if journal is None else journal
        self._rebalancer = Rebalancer(config, self._timers, self.journal)
        self._classic = ClassicProtocol(config, entropy, self._rebalancer, self._groups)
        updates = MemberUpdates(config.consumer, self._timers, self.journal)
        self._consumer = ConsumerProtocol(config, entropy, updates, self._rebalancer, self._groups)
        self._classic_members = ClassicMembers(
            config.consumer, self._consumer, updates, self._rebalancer
        )
        self._commits = Commits(config, self._rebalancer, self._groups, self._offsets)

    @property
    def member_bytes(self) -> int:
        """Memory of what members of all groups have sent: metadata, assignments, subscriptions."""
        classic = sum(group.bytes for group in self._groups.all_classic())
        return classic + sum(group.bytes for group in self._groups.all_consumer())

    # The log

    def replay(
        self, offset: Offset, record: GroupRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log; `producer_id` if it belongs to a transaction."""
        complete(self.replay_in_steps(offset, record, producer_id))

    def replay_in_steps(
        self, offset: Offset, record: GroupRecord, producer_id: int = NO_PRODUCER_ID
    ) -> Steps[None]:
        """The same in pieces."""
        key = record.key
        match key:
            case OffsetCommitKey():
                if record.value is not None:
                    self._groups.setdefault(key.group, ClassicGroup(key.group, now_ms=None))
                self._offsets.replay(offset, key, record.value, producer_id)
                if record.value is None and self._config.needs_offsets:
                    yield from self._remove_without_offsets(key.group)
            case GroupMetadataKey():
                yield from self._remove(key.group)
                if record.value is not None:
                    group = yield from group_from_record(key.group, record.value)
                    self._groups[key.group] = group
            case RawKey():
                self._replay_raw(key, is_tombstone=record.value is None)
            case _:
                yield from self._replay_consumer(key, record.value)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        """Apply a transaction marker of the log."""
        return self._offsets.replay_end_of_transaction(producer_id, committed=committed)

    def _replay_consumer(self, key: ConsumerGroupKey, value: Any) -> Steps[None]:
        """Later records win: a value replaces a group of another protocol."""
        group = self._groups.consumer(key.group_id)
        if value is None:
            if group is None:
                return
            yield from replay_tombstone(group, key)
            if isinstance(key, ConsumerGroupMemberMetadataKey):
                self._consumer.forget_member(group, key.member_id)
            elif isinstance(key, ConsumerGroupMetadataKey):
                self._consumer.forget(group)
                del self._groups[key.group_id]
            return
        if group is None:
            yield from self._remove(key.group_id)
            group = self._groups[key.group_id] = ConsumerGroup(key.group_id)
        yield from replay_value(group, key, value)

    def _replay_raw(self, key: RawKey, *, is_tombstone: bool) -> None:
        classic = self._groups.classic(key.group_id)
        if classic is not None and not classic.is_simple:
            return  # Written before the group was converted to a classic one.
        group = self._groups.foreign(key.group_id)
        if group is None:
            if is_tombstone:
                return
            group = ForeignGroup(key.group_id, record_type_of(key).group_type)
            self._groups[key.group_id] = group
        if not is_tombstone:
            group.put(key)
            return
        group.discard(key)
        if not group:
            del self._groups[key.group_id]

    def _remove_without_offsets(self, group_id: str) -> Steps[None]:
        """Remove a group whose offsets were its only records."""
        group = self._groups.classic(group_id)
        if (
            group is not None
            and group.is_simple
            and group.state_since_ms is None  # a group with a record of its own has a time
            and not self._offsets.committed(group_id)
            and not self._offsets.has_pending(group_id)
        ):
            yield from self._remove(group_id)

    def _remove(self, group_id: str) -> Steps[None]:
        group = self._groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            yield from self._rebalancer.forget_timers(group)
        elif isinstance(group, ConsumerGroup):
            self._consumer.forget(group)

    def loaded(self, image: ClusterImage, now: Instant) -> Deciding[GroupDecision[None]]:
        """Start serving: members found in the log get one session timeout to send a heartbeat.

        Groups of types that are not served here belong to a broker that serves them.
        """
        return begun(self._loaded(image, now))

    def _loaded(self, image: ClusterImage, now: Instant) -> Steps[GroupDecision[None]]:
        expire_at = Millis(now.mono_ms + self._config.foreign_session_timeout_ms)
        foreign: list[str] = []
        for group in self._groups.all_foreign():
            group.members_expire_at = expire_at
            foreign.append(group.group_id)
            yield 1
        yield from self._classic.loaded(now)
        yield from self._consumer.loaded(image, now)
        self._schedule_expiry(now)
        self._timers.schedule(_COUNT, Millis(now.mono_ms + COUNT_INTERVAL_MS))
        if not foreign:
            return NOTHING
        return Decision(response=None, effects=(HandOver(group_id=min(foreign)),))

    def unload(self, now: Instant) -> Deciding[None]:
        """Stop serving: parked requests fail with NOT_COORDINATOR."""
        self._timers.clear()
        return begun(self._classic.unload(now))

    # Events

    def on_image(self, delta: MetadataDelta, now: Instant) -> Steps[GroupDecision[None]]:
        """Delete the offsets of deleted topics, and note changes of subscribed ones."""
        del now
        yield from self._consumer.on_image(delta)
        deleted = (yield from delta.topics()).deleted
        return (yield from self.handle_topics_deleted(deleted)) if deleted else NOTHING

    def on_append_completed(
        self, callback: AppendCallback, error: ErrorCode | None, now: Instant
    ) -> Deciding[GroupDecision[None]]:
        """Complete what waited for an append, or revert it if it failed with `error`."""
        assert isinstance(callback, GroupAppendCallback)
        return begun(
            self._appended(callback, None if error is None else as_group_error(error), now)
        )

    def _appended(
        self, callback: GroupAppendCallback, error: ErrorCode | None, now: Instant
    ) -> Steps[GroupDecision[None]]:
        match callback:
            case AssignmentDecided():
                return (yield from self._classic.on_assignment_appended(callback, error, now))
            case GroupCreated():
                yield from self._classic.on_group_appended(callback, error)
                if error is not None and isinstance(callback.replaced, ConsumerGroup):
                    yield from self._consumer.resume(callback.replaced, now)
            case ClassicJoined():
                self._classic_members.on_joined(callback, error, now)
            case StaticMemberReplaced():
                yield from self._classic.on_replacement_appended(callback, error, now)
            case MemberFenced():
                self._consumer.on_fence_appended(callback, error, now)
            case GroupNoted():
                pass
            case _:
                assert_never(callback)
        if error is None and not isinstance(callback, StaticMemberReplaced):
            self._note(callback.entries)
        return NOTHING

    def _note(self, entries: Iterable[JournalEntry]) -> None:
        for entry in entries:
            self.journal.add(entry)

    def on_effect_completed(
        self, effect: Effect, result: Any, now: Instant
    ) -> Steps[GroupDecision[None]]:
        """Store the topics of regular expressions."""
        if isinstance(effect, HandOver):
            return NOTHING
        assert isinstance(effect, ResolveRegexes)
        return (yield from self._consumer.on_regexes_resolved(effect, result, now))

    # Timers and replies

    @property
    def wake_at(self) -> Millis | None:
        """When to call `on_timers` next, on the monotonic clock; None for never."""
        return self._timers.wake_at

    def on_timers(self, now: Instant) -> Iterable[Deciding[GroupDecision[None]]]:
        """Fire the timers that are due. Execute each decision before requesting the next."""
        while (key := self._timers.due(now.mono_ms)) is not None:
            yield self._on_timer(key, now)

    def take_replies(self) -> list[tuple[ReplyTo, Any]]:
        """Responses to parked requests since the last call, to be sent in order."""
        return self._rebalancer.take_replies()

    def _on_timer(self, key: TimerKey, now: Instant) -> Deciding[GroupDecision[None]]:
        if key == _EXPIRY:
            self._schedule_expiry(now)
            return self._expire(now)
        if key == _COUNT:
            return self._count(now)
        return self._on_group_timer(key, now)

    def _on_group_timer(self, key: TimerKey, now: Instant) -> Deciding[GroupDecision[None]]:
        consumer = self._groups.consumer(key[1])
        if consumer is not None:
            return self._consumer.on_timer(consumer, key, now)
        group = self._groups.classic(key[1])
        if group is None or key[0] in CONSUMER_TIMERS:
            return NOTHING
        match key[0]:
            case "heartbeat":
                return begun(self._rebalancer.on_heartbeat_timer(group, key[2], now))
            case "join":
                return begun(self._rebalancer.on_join_timer(group, now))
            case "sync":
                return begun(self._rebalancer.on_sync_timer(group, now))
            case _:
                raise AssertionError(f"unknown timer {key[0]}")

    def _schedule_expiry(self, now: Instant) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(_EXPIRY, Millis(now.mono_ms + interval_ms))

    def _count(self, now: Instant) -> Steps[GroupDecision[None]]:
        """Count the groups and offsets, for metrics."""
        counts: Counter[tuple[str, str]] = Counter()
        offsets = 0
        for group in list(self._groups.values()):
            listed = group.listed(now)
            counts[listed.group_type, listed.group_state] += 1
            offsets += len(self._offsets.committed(group.group_id))
            yield 1
        self.counts, self.offset_count = counts, offsets
        self._timers.schedule(_COUNT, Millis(now.mono_ms + COUNT_INTERVAL_MS))
        return NOTHING

    def _expire(self, now: Instant) -> Steps[GroupDecision[None]]:
        """Delete expired offsets, and groups without members and offsets."""
        records: list[GroupRecord] = []
        for group in list(self._groups.values()):
            expired, empty = yield from self._commits.expire(group, now)
            records += expired
            if empty and group.is_empty(now):
                records += group.tombstones()
            if len(records) >= RECORDS_MAX:
                break
            yield 1
        return Decision(response=None, records=tuple(records), is_atomic=False)

    # Requests

    def handle_join_group(
        self, request: JoinGroupRequest, peer: Peer, reply_to: ReplyTo, now: Instant
    ) -> Deciding[GroupDecision[None]]:
        """Always replies through `take_replies`, possibly much later."""
        group = self._groups.consumer(request.group_id)
        if group is not None and len(group):
            return self._classic_members.join(group, request, peer, reply_to, now)
        return begun(self._classic.join(request, peer, reply_to, now))

    def handle_sync_group(
        self, request: SyncGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> Deciding[GroupDecision[None]]:
        """Always replies through `take_replies`, at the latest with the leader's assignment."""
        group = self._groups.consumer(request.group_id)
        if group is not None:
            return self._classic_members.sync(group, request, reply_to, now)
        return begun(self._classic.sync(request, reply_to, now))

    def handle_heartbeat(
        self, request: HeartbeatRequest, now: Instant
    ) -> GroupDecision[HeartbeatResponse]:
        """Raises KafkaError if the member is unknown, fenced or of another generation."""
        group = self._groups.consumer(request.group_id)
        if group is not None:
            return self._classic_members.heartbeat(group, request, now)
        return self._classic.heartbeat(request, now)

    def handle_leave_group(
        self, request: LeaveGroupRequest, now: Instant
    ) -> Deciding[GroupDecision[LeaveGroupResponse]]:
        """Raises KafkaError if the group is unknown; every member has its own error."""
        group = self._groups.consumer(request.group_id)
        if group is not None:
            return self._classic_members.leave(group, request, now)
        return begun(self._classic.leave(request, now))

    def handle_consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        peer: Peer,
        may_describe: Callable[[str], bool],
        now: Instant,
    ) -> Steps[GroupDecision[ConsumerGroupHeartbeatResponse]]:
        """Raises KafkaError by the rules of KIP-848; `check_heartbeat` comes first."""
        return self._consumer.heartbeat(request, peer, may_describe, now)

    def handle_offset_commit(
        self, request: OffsetCommitRequest, peer: Peer, now: Instant
    ) -> Deciding[GroupDecision[OffsetCommitResponse]]:
        """Topics must have names. Raises KafkaError if the whole commit is rejected."""
        steps = self._commits.commit(request, peer, now)
        count = sum(len(topic.partitions) for topic in request.topics)
        return steps if count > PIECE_UNITS else complete(steps)

    def handle_txn_offset_commit(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, Uuid], now: Instant
    ) -> Deciding[GroupDecision[TxnOffsetCommitResponse]]:
        """Topics must exist, with these ids. Raises KafkaError if the whole commit is rejected."""
        steps = commit_in_transaction(request, topic_ids, self._groups, self._config, now)
        count = sum(len(topic.partitions) for topic in request.topics)
        return steps if count > PIECE_UNITS else complete(steps)

    def handle_offset_delete(
        self, request: OffsetDeleteRequest
    ) -> Steps[GroupDecision[OffsetDeleteResponse]]:
        """Raises KafkaError if the group is unknown or must be empty first."""
        return self._commits.delete(request)

    def handle_delete_group(
        self, group_id: str, now: Instant
    ) -> Steps[GroupDecision[DeletableGroupResult]]:
        """Delete a group without members and its offsets."""
        result = DeletableGroupResult(group_id=group_id)
        try:
            group = self.group(group_id)
            group.check_delete(now)
        except KafkaError as error:
            result.error_code = error.code
            return Decision(response=result)
        records = yield from self._commits.delete_all(group_id)
        records += group.tombstones()
        return Decision(records=tuple(records), is_atomic=False, response=result)

    def handle_topics_deleted(self, topics: Iterable[str]) -> Steps[GroupDecision[None]]:
        """Delete the offsets of deleted topics."""
        records = yield from self._commits.delete_topics(frozenset(topics))
        return Decision(response=None, records=tuple(records), is_atomic=False)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The committed offsets of a group."""
        return self._commits.fetch(request, require_stable=require_stable)

    def describe_group(self, group_id: str, version: int) -> Steps[DescribedGroup]:
        """For DescribeGroups; from v6 with an error for an unknown group."""
        group = self._groups.get(group_id)
        if group is None:
            return describe_as_dead(group_id, f"Group {group_id} not found.", version)
        return (yield from group.described(version))

    def describe_consumer_group(self, group_id: str) -> Steps[ConsumerGroupDescription]:
        """With an error for an unknown group, or one of another protocol."""
        return describe_consumer_group(
            group_id,
            self._groups.get(group_id),
            self._consumer.image,
            self._config.consumer.assignors,
        )

    def list_groups(
        self, group_ids: Iterable[str], wanted: ListFilter, now: Instant
    ) -> list[ListedGroup]:
        """Those of the groups that exist and pass the filter."""
        known = (self._groups.get(one) for one in group_ids)
        listed = (group.listed(now) for group in known if group is not None)
        return [one for one in listed if wanted.permits(one)]

    # State, for tests and tools

    def group(self, group_id: str) -> Group:
        """The live group; KafkaError if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    @property
    def foreign_types(self) -> frozenset[str]:
        """Types of its groups that are not served here."""
        return self._groups.foreign_types()

    @property
    def groups(self) -> Mapping[str, Group]:
        """By id; read only."""
        return self._groups

    def group_ids(self) -> list[str]:
        """Sorted."""
        return sorted(self._groups)

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets; read only."""
        return self._offsets


def as_group_error(error: ErrorCode) -> ErrorCode:
    """Translate the error of a failed append to one that clients of a group handle."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case (
            ErrorCode.MESSAGE_TOO_LARGE
            | ErrorCode.RECORD_LIST_TOO_LARGE
            | ErrorCode.INVALID_FETCH_SIZE
        ):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
