"""The group coordinator of one `__consumer_offsets` partition, without I/O.

Use: `replay` every record of the log, `loaded` once, then `handle_…` requests and `on_timers`
at `wake_at`, doing what each `Outcome` says and sending `take_replies`; `unload` at the end.

Invariants:
    * Committed offsets and groups of other protocols change by replay alone (D7).
    * Who is in a classic group, and parked requests, are soft: after loading, members have one
      session to be heard of again.
    * `replay` of a log from empty gives the durable state of the shard that wrote it.

Not here: which partition a group belongs to, and waiting for commits (`server.coordinator`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.coordinator.group.classic import ClassicProtocol, Group
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.commits import Commits
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.describe import described_group, is_listed, listed_group
from sparkraft.coordinator.group.foreign import ForeignGroup, foreign_type
from sparkraft.coordinator.group.journal import Journal
from sparkraft.coordinator.group.loading import group_from_record
from sparkraft.coordinator.group.offsets import NO_PRODUCER_ID, OffsetStore
from sparkraft.coordinator.group.outcome import (
    NOTHING,
    AssignmentDecided,
    GroupCreated,
    GroupEmptied,
    Instant,
    Outcome,
    Peer,
    ReplyTo,
    StaticMemberReplaced,
    Stored,
)
from sparkraft.coordinator.group.rebalance import Rebalancer
from sparkraft.coordinator.group.records import ForeignKey, GroupRecord
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.group.timers import TimerKey, Timers
from sparkraft.protocol.messages.classic_group_records import GroupMetadataKey, OffsetCommitKey
from sparkraft.protocol.messages.k08_offset_commit import OffsetCommitRequest
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup
from sparkraft.protocol.messages.k16_list_groups import ListedGroup, ListGroupsRequest
from sparkraft.protocol.messages.k42_delete_groups import DeletableGroupResult
from sparkraft.protocol.messages.k47_offset_delete import OffsetDeleteRequest

RECORDS_MAX = 10_000
"""Records in one batch (D7): an expiry run stops there and goes on at the next."""

_EXPIRY: TimerKey = ("expiry",)


class Shard:
    """All groups whose ids hash to one partition."""

    def __init__(self, config: GroupConfig, entropy: Entropy) -> None:
        """Start empty; see the module's text for the order of calls."""
        self._config = config
        self._timers = Timers()
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore()
        self.journal = Journal(config.journal_entries_max)
        self._rebalancer = Rebalancer(config, self._timers, self.journal)
        self._classic = ClassicProtocol(config, entropy, self._rebalancer, self._groups)
        self._commits = Commits(config, self._rebalancer, self._groups, self._offsets)

    # The log

    def replay(
        self, offset: Offset, record: GroupRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log; `producer_id` where it is part of a transaction."""
        key = record.key
        match key:
            case OffsetCommitKey():
                if record.value is not None:
                    self._groups.setdefault(key.group, ClassicGroup(key.group, now_ms=None))
                self._offsets.replay(offset, key, record.value, producer_id)
            case GroupMetadataKey():
                self._forget(key.group)
                if record.value is not None:
                    self._groups[key.group] = group_from_record(key.group, record.value)
            case ForeignKey():
                self._replay_foreign(key, alive=record.value is not None)
            case _:
                assert_never(key)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction marker of the log."""
        self._offsets.replay_end_of_transaction(producer_id, committed=committed)

    def _replay_foreign(self, key: ForeignKey, *, alive: bool) -> None:
        group = self._groups.get(key.group_id)
        if group is None or (isinstance(group, ClassicGroup) and group.is_simple):
            if not alive:
                return
            group = self._groups[key.group_id] = ForeignGroup(key.group_id, foreign_type(key))
        if isinstance(group, ClassicGroup):
            return  # Left over from before the group became a classic one.
        if alive:
            group.put(key)
            return
        group.discard(key)
        if not group:
            del self._groups[key.group_id]

    def _forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            self._rebalancer.forget_timers(group)

    def loaded(self, now: Instant) -> Outcome:
        """The log is read: members found in it get one session to be heard of."""
        for group in list(self._groups.values()):
            if isinstance(group, ForeignGroup):
                expire_at = now.mono_ms + self._config.foreign_session_timeout_ms
                group.members_expire_at = Millis(expire_at)
                continue
            for member in group.members():
                self._rebalancer.schedule_heartbeat(group, member, now)
            if len(group) > self._config.max_size:
                self._rebalancer.prepare(group, now)
        self._schedule_expiry(now)
        return NOTHING

    def unload(self, now: Instant) -> None:
        """Another broker coordinates these groups now: parked requests must go there."""
        error = ErrorCode.NOT_COORDINATOR
        for group in self._groups.values():
            if isinstance(group, ForeignGroup):
                continue
            group.transition_to(GroupState.DEAD, now.wall_ms)
            for member in group.members():
                join = JoinGroupResponse(member_id=member.member_id, error_code=error)
                self._rebalancer.answer_join(group, member, join)
                self._rebalancer.answer_sync(member, SyncGroupResponse(error_code=error))
        self._timers.clear()

    # Timers and answers

    @property
    def wake_at(self) -> Millis | None:
        """When `on_timers` must be called next, on the monotonic clock; None for never."""
        return self._timers.wake_at

    def on_timers(self, now: Instant) -> Iterable[Outcome]:
        """Fire what is due, one outcome at a time: carry out each before asking for the next."""
        while (key := self._timers.due(now.mono_ms)) is not None:
            yield self._on_timer(key, now)

    def take_replies(self) -> list[tuple[ReplyTo, Any]]:
        """Answers to parked requests since the last call; send them in order."""
        return self._rebalancer.take_replies()

    def _on_timer(self, key: TimerKey, now: Instant) -> Outcome:
        if key == _EXPIRY:
            self._schedule_expiry(now)
            return self._expire(now)
        group = self._groups.get(key[1])
        if not isinstance(group, ClassicGroup):
            return NOTHING
        match key[0]:
            case "heartbeat":
                return self._rebalancer.on_heartbeat_timer(group, key[2], now)
            case "join":
                return self._rebalancer.on_join_timer(group, now)
            case "sync":
                return self._rebalancer.on_sync_timer(group, now)
            case _:
                raise AssertionError(f"no timer is called {key[0]}")

    def _schedule_expiry(self, now: Instant) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(_EXPIRY, Millis(now.mono_ms + interval_ms))

    def _expire(self, now: Instant) -> Outcome:
        """Drop offsets whose time is over, and groups that have neither members nor offsets."""
        records: list[GroupRecord] = []
        for group in list(self._groups.values()):
            expired, empty = self._commits.expire(group, now)
            records += expired
            if empty and self._is_empty(group, now):
                records += self._tombstones(group)
            if len(records) >= RECORDS_MAX:
                break
        return Outcome(records=tuple(records[:RECORDS_MAX]))

    # Requests

    def handle_join_group(
        self, request: JoinGroupRequest, peer: Peer, reply_to: ReplyTo, now: Instant
    ) -> Outcome:
        """Always answered through `take_replies`, perhaps much later."""
        return self._classic.join(request, peer, reply_to, now)

    def handle_sync_group(
        self, request: SyncGroupRequest, reply_to: ReplyTo, now: Instant
    ) -> Outcome:
        """Always answered through `take_replies`, at the latest when the leader has spoken."""
        return self._classic.sync(request, reply_to, now)

    def handle_heartbeat(self, request: HeartbeatRequest, now: Instant) -> Outcome:
        """Raises KafkaError where the member is unknown, fenced or of another generation."""
        return self._classic.heartbeat(request, now)

    def handle_leave_group(self, request: LeaveGroupRequest, now: Instant) -> Outcome:
        """Raises KafkaError where there is no such group; members have errors of their own."""
        return self._classic.leave(request, now)

    def handle_offset_commit(
        self, request: OffsetCommitRequest, peer: Peer, now: Instant
    ) -> Outcome:
        """Raises KafkaError where the whole commit is refused; topics carry their names."""
        return self._commits.commit(request, peer, now)

    def handle_offset_delete(self, request: OffsetDeleteRequest) -> Outcome:
        """Raises KafkaError where the group is not found or must be empty first."""
        return self._commits.delete(request)

    def handle_delete_group(self, group_id: str, now: Instant) -> Outcome:
        """The response is a DeletableGroupResult."""
        records: list[GroupRecord] = []
        error = ErrorCode.NONE
        group = self._groups.get(group_id)
        if group is None or (isinstance(group, ClassicGroup) and group.is_in(GroupState.DEAD)):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not self._is_empty(group, now):
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            records += self._commits.delete_all(group_id)
            records += self._tombstones(group)
        result = DeletableGroupResult(group_id=group_id, error_code=error)
        return Outcome(records=tuple(records), response=result)

    def handle_topics_deleted(self, topics: Iterable[str]) -> Outcome:
        """Forget the offsets of topics that are gone."""
        records: list[GroupRecord] = []
        for topic in sorted(topics):
            records += self._commits.delete_topic(topic)
        return Outcome(records=tuple(records))

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """What a group has committed; its answer waits like any that read state."""
        return self._commits.fetch(request, require_stable=require_stable)

    def describe_groups(self, group_ids: Sequence[str], version: int) -> list[DescribedGroup]:
        """In the order asked; v6 has an error for a group that is not found."""
        return [described_group(one, self._groups.get(one), version) for one in group_ids]

    def list_groups(self, request: ListGroupsRequest, now: Instant) -> list[ListedGroup]:
        """Groups that pass both filters, by id."""
        listed = [listed_group(self._groups[one], now) for one in sorted(self._groups)]
        return [one for one in listed if is_listed(one, request)]

    def _is_empty(self, group: Group, now: Instant) -> bool:
        if isinstance(group, ForeignGroup):
            return not group.has_members(now.mono_ms)
        return group.is_in(GroupState.EMPTY)

    @staticmethod
    def _tombstones(group: Group) -> Iterable[GroupRecord]:
        if isinstance(group, ForeignGroup):
            return group.tombstones()
        return [GroupRecord(key=GroupMetadataKey(group=group.group_id))]

    # After storing

    def on_stored(self, stored: Stored, error: ErrorCode | None, now: Instant) -> Outcome:
        """The records of an outcome are committed or, with `error`, lost."""
        if error is not None:
            error = as_group_error(error)
        match stored:
            case AssignmentDecided():
                return self._classic.assignment_stored(stored, error, now)
            case GroupCreated():
                self._classic.group_created(stored, error)
            case StaticMemberReplaced():
                self._classic.static_member_stored(stored, error, now)
            case GroupEmptied():
                pass  # Nobody waits; the next record of the group makes it good.
            case _:
                assert_never(stored)
        return NOTHING

    # State, for tests and tools

    def group(self, group_id: str) -> Group:
        """The live group; KafkaError where there is none."""
        if group_id not in self._groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self._groups[group_id]

    def group_ids(self) -> list[str]:
        """Sorted."""
        return sorted(self._groups)

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets; read only."""
        return self._offsets


def as_group_error(error: ErrorCode) -> ErrorCode:
    """What a failed append means to a member: where to go, rather than what broke."""
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
