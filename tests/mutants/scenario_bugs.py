"""Planted bugs of coordinators that a scenario reports: a test of one interleaving or state.

The simulator does not reach these: they need a producer epoch near its end, a principal without
rights, a record of a newer version, or they only delay or refuse what clients then repeat.
"""

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group import (
    classic_members,
    commits,
    consumer,
    consumer_reconciliation,
    consumer_regex,
    consumer_update,
    records,
)
from sparkraft.coordinator.group.consumer import ConsumerProtocol
from sparkraft.coordinator.group.consumer_group import ConsumerGroup, ConsumerGroupState
from sparkraft.coordinator.group.consumer_member import ConsumerMember, MemberState
from sparkraft.coordinator.group.consumer_reconciliation import reconcile as reconcile_member
from sparkraft.coordinator.group.consumer_requests import check_epoch as check_member_epoch
from sparkraft.coordinator.group.offsets import OffsetStore
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.group.topic_hash import TopicHashes
from sparkraft.coordinator.group.transactional_commits import commit_in_transaction
from sparkraft.coordinator.runtime import NO_PRODUCER_ID
from sparkraft.coordinator.steps import Steps
from sparkraft.coordinator.transaction import completion
from sparkraft.coordinator.transaction import shard as transaction_shard
from sparkraft.coordinator.transaction.metadata import EPOCH_MAX
from sparkraft.coordinator.transaction.shard import TransactionShard
from sparkraft.protocol import framing
from sparkraft.records.batch import iter_batches
from sparkraft.server.broker.client_telemetry import Instance
from sparkraft.server.broker.producer_ids import ProducerIds
from sparkraft.server.coordinator.guarded_appends import GuardedAppends
from sparkraft.server.coordinator.shard_log import ShardLog
from sparkraft.server.coordinator.shard_runtime import ShardRuntime
from sparkraft.storage.producers import Producers
from tests.mutants.mutant import Patches


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioBug:
    """A planted bug.

    Attributes:
        about: the bug in one sentence.
        test: the test that reports it, as `path::name` below `tests`.
        patches: builds the replacements.
        arguments: of the test.
    """

    about: str
    test: str
    patches: Callable[[], Patches]
    arguments: dict[str, Any] = field(default_factory=dict)

    def scenario(self, **fixtures: object) -> Callable[[], None]:
        """The test, with its arguments and those of `fixtures` that it uses."""
        path, _, name = self.test.partition("::")
        module = importlib.import_module(f"tests.{path.removesuffix('.py').replace('/', '.')}")
        found: Callable[..., None] = getattr(module, name)
        used = inspect.signature(found).parameters
        given = {name: value for name, value in fixtures.items() if name in used}
        return lambda: found(**self.arguments, **given)


SCENARIO_BUGS: dict[str, ScenarioBug] = {}

_Register = Callable[[Callable[[], Patches]], Callable[[], Patches]]


def _plant(about: str, test: str, **arguments: Any) -> _Register:
    def register(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        name = patches.__name__.strip("_").replace("_", "-")
        SCENARIO_BUGS[name] = ScenarioBug(
            about=about, test=test, patches=patches, arguments=arguments
        )
        return patches

    return register


_TRANSACTIONS = "coordinator/transaction/test_shard.py::"
_GROUPS = "coordinator/test_consumer_groups.py::"
_RACES = "coordinator/test_group_races.py::"
_MIGRATION = "coordinator/test_group_migration.py::"
_OFFSETS = "coordinator/test_offsets.py::"
_RUNTIME = "server/coordinator/test_shard_runtime.py::"


# ---- transactions


@_plant(
    "producer id and epoch are checked before the pending transition",
    _TRANSACTIONS + "test_requests_wait_while_a_transition_is_not_committed",
    version=2,
)
def _kafka_18660_the_producer_is_checked_first() -> Patches:
    original = TransactionShard.handle_add_partitions

    def add(
        self: TransactionShard, name: str, producer_id: int, epoch: int, *given: Any, **more: Any
    ) -> Any:
        transaction_shard._check_producer(self._get(name), producer_id, epoch)
        return original(self, name, producer_id, epoch, *given, **more)

    return [(TransactionShard, "handle_add_partitions", add)]


@_plant(
    "an abort whose append fails has raised the epoch already",
    _TRANSACTIONS + "test_a_rejected_append_changes_nothing",
)
def _kafka_9666_failed_aborts_raise_the_epoch() -> Patches:
    original = TransactionShard._abort

    def abort(self: TransactionShard, known: Any, *given: Any) -> Any:
        decision = original(self, known, *given)
        raised = min(known.producer_epoch + 1, EPOCH_MAX)
        self._known[known.transactional_id] = known._replace(producer_epoch=raised)
        return decision

    return [(TransactionShard, "_abort", abort)]


@_plant(
    "an abort of the coordinator keeps the producer id when its epochs are used up",
    _TRANSACTIONS + "test_fencing_an_exhausted_id_rotates_it",
)
def _kafka_20090_exhausted_ids_are_not_rotated() -> Patches:
    def abort(known: Any, *, transaction_version: int, new_producer_id: Any, now: Any) -> Any:
        del new_producer_id
        return known.prepared(
            commit=False,
            client_version=transaction_version,
            epoch=min(known.producer_epoch + 1, EPOCH_MAX),
            last_epoch=known.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=now.wall_ms,
        )

    return [(completion, "abort", abort)]


@_plant(
    "a broker does not wait for the completion of the previous transaction",
    "server/coordinator/test_guarded_appends.py::test_a_completion_in_progress_is_asked_about_again",
)
def _kafka_18654_completions_are_not_waited_for() -> Patches:
    return [(GuardedAppends, "is_concurrent", False)]


@_plant(
    "a repeated marker is refused",
    "storage/test_transactions.py::"
    "test_a_repeated_marker_of_version_2_finds_no_transaction_and_is_accepted",
)
def _kafka_19999_repeated_markers_are_refused() -> Patches:
    original = Producers.check_marker

    def check_marker(self: Producers, producer_id: int, epoch: int, end: Any, **more: Any) -> None:
        state = self.get(producer_id)
        if state is not None and state.epoch == epoch and state.txn_first_offset < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        original(self, producer_id, epoch, end, **more)

    return [(Producers, "check_marker", check_marker)]


@_plant(
    "the guard of a verification is not checked again at the append",
    "server/coordinator/test_guarded_appends.py::"
    "test_a_guard_that_is_lost_again_and_again_rejects_the_batch",
)
def _kafka_14402_guards_are_not_checked_at_the_append() -> Patches:
    return [(Producers, "is_verified", lambda _self, _producer_id, guard: guard is not None)]


@_plant(
    "the state of a producer expires while its transaction is open",
    "storage/test_producers.py::test_a_producer_with_an_open_transaction_does_not_expire",
)
def _kafka_9144_open_transactions_expire() -> Patches:
    original = Producers.expire

    def expire(self: Producers, now_ms: int, expiration_ms: int) -> None:
        original(self, now_ms, expiration_ms)
        self._states = {
            key: state
            for key, state in self._states.items()
            if now_ms - state.last_timestamp < expiration_ms
        }

    return [(Producers, "expire", expire)]


@_plant(
    "InitProducerId waits for a block of producer ids without end",
    "server/broker/test_producer_ids.py::test_a_block_that_is_not_allocated_is_an_error",
)
def _kafka_14694_a_new_block_is_waited_for() -> Patches:
    original = ProducerIds._fetch

    async def fetch(self: ProducerIds) -> None:
        while True:
            try:
                await original(self)
            except KafkaError:
                continue
            return

    return [(ProducerIds, "_fetch", fetch)]


# ---- offsets


@_plant(
    "an offset that is refused for its metadata stays pending",
    _OFFSETS + "test_a_refused_offset_of_a_transaction_is_not_pending",
)
def _kafka_16371_refused_offsets_stay_pending() -> Patches:
    def commit(self: GroupShard, request: Any, topic_ids: Any, now: Any) -> Any:
        for topic in request.topics:
            for one in topic.partitions:
                opened = self._offsets._open.setdefault(request.group_id, {})
                at = (topic.name, one.partition_index)
                opened.setdefault(at, set()).add(request.producer_id)
        return commit_in_transaction(request, topic_ids, self._groups, self._config, now)

    return [(GroupShard, "handle_txn_offset_commit", commit)]


@_plant(
    "offsets expire while a transaction holds a commit for their partition",
    _OFFSETS + "test_an_offset_with_a_pending_one_does_not_expire",
)
def _kafka_19163_offsets_expire_under_pending_ones() -> Patches:
    return [
        (OffsetStore, "is_pending", lambda *_: False),
        (OffsetStore, "has_pending", lambda *_: False),
    ]


@_plant(
    "the offset of a deleted topic is given for another one of its name",
    _OFFSETS + "test_an_offset_of_an_earlier_topic_of_that_name_is_not_given",
)
def _kafka_19154_offsets_of_earlier_topics() -> Patches:
    return [(commits, "_is_other_topic", lambda *_: False)]


# ---- consumer groups


@_plant(
    "a consumer member cannot replace the static member of the classic protocol",
    _MIGRATION + "test_a_consumer_member_replaces_a_static_classic_one",
)
def _kafka_17228_classic_holders_stay() -> Patches:
    original = ConsumerProtocol.replace_static

    def replace_static(self: Any, group: Any, holder: Any, *given: Any) -> Steps[Any]:
        if holder.uses_classic_protocol:
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID)
        return (yield from original(self, group, holder, *given))

    return [(ConsumerProtocol, "replace_static", replace_static)]


@_plant(
    "LeaveGroup does not remove a member of the consumer protocol",
    _MIGRATION + "test_a_tool_removes_a_consumer_member_by_its_id",
)
def _kafka_18188_consumer_members_cannot_be_removed() -> Patches:
    original = classic_members._leave_one

    def leave_one(group: ConsumerGroup, identity: Any, leaving: Any) -> Any:
        response = original(group, identity, leaving)
        member = group.get(identity.member_id)
        if member is not None and not member.uses_classic_protocol:
            leaving.pop(member.member_id)
            response.error_code = ErrorCode.UNKNOWN_MEMBER_ID
        return response

    return [(classic_members, "_leave_one", leave_one)]


@_plant(
    "an expression finds topics that its member may not describe",
    _GROUPS + "test_a_regular_expression_finds_topics_of_today_and_of_tomorrow",
)
def _kafka_18813_hidden_topics_are_found() -> Patches:
    original = GroupShard.handle_consumer_heartbeat

    def heartbeat(self: GroupShard, request: Any, peer: Any, _may: Any, now: Any) -> Any:
        return original(self, request, peer, lambda _topic: True, now)

    return [(GroupShard, "handle_consumer_heartbeat", heartbeat)]


@_plant(
    "new partitions of a topic that an expression has found are not seen",
    _GROUPS + "test_a_topic_that_an_expression_has_found_grows",
)
def _kafka_18916_expressions_are_not_in_the_index() -> Patches:
    def is_subscribed_to_any(self: Any, topics: frozenset[str]) -> Steps[bool]:
        yield 1
        return not topics.isdisjoint(self._subscribers)

    return [(ConsumerGroup, "is_subscribed_to_any", is_subscribed_to_any)]


@_plant(
    "a known member that joins again in epoch 0 is refused",
    _GROUPS + "test_a_known_member_may_join_again_at_epoch_zero",
)
def _kafka_19233_known_members_cannot_join() -> Patches:
    original = ConsumerProtocol._member_for

    def member_for(self: Any, group: Any, request: Any, records: Any) -> Steps[Any]:
        if request.member_epoch == 0 and request.member_id in group:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH)
        return (yield from original(self, group, request, records))

    return [(ConsumerProtocol, "_member_for", member_for)]


@_plant(
    "a downgrade rebalances though no subscription has changed",
    _MIGRATION + "test_a_static_classic_member_replaces_the_last_consumer_member",
)
def _kafka_19546_every_downgrade_rebalances() -> Patches:
    original = ConsumerProtocol.downgrade

    def downgrade(self: Any, *given: Any, rebalance: bool, **more: Any) -> Any:
        del rebalance
        return original(self, *given, rebalance=True, **more)

    return [(ConsumerProtocol, "downgrade", downgrade)]


@_plant(
    "a member that has yet to revoke partitions is in the target's epoch already",
    _GROUPS + "test_a_partition_moves_only_after_its_owner_confirmed",
)
def _members_that_revoke_are_in_the_next_epoch() -> Patches:
    def reconcile(member: ConsumerMember, target: Any, **more: Any) -> Steps[ConsumerMember]:
        after = yield from reconcile_member(member, target, **more)
        if after is not member and after.state is MemberState.UNREVOKED:
            return replace(after, member_epoch=target.epoch)
        return after

    return [(consumer_update, "reconcile", reconcile)]


@_plant(
    "a partition that a member gets again has the epoch of its first assignment",
    _GROUPS + "test_a_partition_that_a_member_gets_again_has_a_new_epoch",
)
def _partitions_keep_their_first_epoch() -> Patches:
    original = ConsumerMember.at_epoch

    def at_epoch(self: ConsumerMember, epoch: int, state: Any, assigned: Any, pending: Any) -> Any:
        first = {topic: dict.fromkeys(epochs, 2) for topic, epochs in assigned.items()}
        return original(self, epoch, state, first, pending)

    return [(ConsumerMember, "at_epoch", at_epoch)]


@_plant(
    "the previous epoch of a member is accepted whatever it still owns",
    _RACES + "test_a_repeated_epoch_after_the_next_owner_has_the_partition_is_fenced",
)
def _previous_epochs_with_any_partitions() -> Patches:

    def check_epoch(member: ConsumerMember, request: Any) -> Steps[None]:
        if request.member_epoch != member.previous_member_epoch:
            yield from check_member_epoch(member, request)

    return [(consumer, "check_epoch", check_epoch)]


@_plant(
    "a partition that the member itself has just given up is not free for it",
    "coordinator/test_consumer_parts.py::test_a_member_may_take_what_it_has_just_given_up",
)
def _own_revocations_are_not_free() -> Patches:
    def may_take(_member: Any, target: Any, topic_id: Any, partition: int) -> bool:
        found: bool = target.is_free(topic_id, partition)
        return found

    return [(consumer_reconciliation, "_may_take", may_take)]


@_plant(
    "an engine that backtracks matches regular expressions",
    _GROUPS + "test_an_expression_that_is_not_re2_is_refused",
)
def _expressions_that_backtrack() -> Patches:
    def compiled(pattern: str) -> Any:
        try:
            return re.compile(pattern)
        except re.error as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION) from error

    return [
        (consumer_regex, "compiled_regex", compiled),
        (consumer_update, "compiled_regex", compiled),
    ]


@_plant(
    "topics that do not exist are part of a group's hash",
    "coordinator/test_consumer_parts.py::"
    "test_the_hash_covers_partitions_and_ids_but_no_missing_topic",
)
def _missing_topics_are_hashed() -> Patches:
    original = TopicHashes.of_group

    def of_group(self: TopicHashes, topics: Any) -> Steps[int]:
        names = sorted(topics)
        missing = sum(self.image.topic(name) is None for name in names)
        return (yield from original(self, names)) + missing

    return [(TopicHashes, "of_group", of_group)]


@_plant(
    "a group without members is being assigned while its target is of an earlier epoch",
    _GROUPS + "test_a_group_without_members_is_empty_although_its_target_is_of_an_earlier_epoch",
)
def _kafka_20442_emptied_groups_are_being_assigned() -> Patches:
    original = ConsumerGroup.__dict__["state"].fget

    def state(self: ConsumerGroup) -> ConsumerGroupState:
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        found: ConsumerGroupState = original(self)
        return found

    return [(ConsumerGroup, "state", property(state))]


@_plant(
    "the tombstone of a group comes before those of its members",
    _GROUPS + "test_an_empty_group_can_be_deleted_and_leaves_no_record",
)
def _groups_go_before_their_members() -> Patches:
    original = ConsumerGroup.tombstones

    def tombstones(self: ConsumerGroup) -> Any:
        return list(reversed(original(self)))

    return [(ConsumerGroup, "tombstones", tombstones)]


@_plant(
    "a late EndTxn of a fenced producer is taken for repeated",
    _TRANSACTIONS + "test_a_fenced_producer_does_not_get_the_epoch_of_its_successor",
)
def _late_ends_of_fenced_producers_count_as_repeated() -> Patches:
    original = completion._is_repeated

    def is_repeated(known: Any, request: Any) -> bool:
        return original(known._replace(client_version=2), request)

    return [(completion, "_is_repeated", is_repeated)]


@_plant(
    "a transaction of a fast clock is open as long as the clocks differ",
    "coordinator/transaction/test_races.py::"
    "test_a_transaction_of_a_fast_clock_times_out_after_the_coordinator_has_moved",
)
def _transactions_of_fast_clocks_stay_open() -> Patches:
    return [(TransactionShard, "_is_overdue", lambda *_: False)]


# ---- the runtime


@_plant(
    "the result of an effect reaches a shard that was unloaded",
    _RUNTIME + "test_the_next_leader_repeats_an_effect_whose_result_was_lost",
)
def _kafka_19857_effects_outlive_their_shard() -> Patches:
    def on_effect(self: Any, effect: Any, result: Any) -> None:
        self._execute_or_log(self._shard.on_effect_completed(effect, result, self._now()))

    return [(ShardRuntime, "_on_effect", on_effect)]


@_plant(
    "a coordinator that resigns while it loads serves afterwards",
    _RUNTIME + "test_a_shard_that_resigns_while_it_loads_does_nothing",
)
def _kafka_16030_loads_outlive_their_leadership() -> Patches:
    async def load(self: Any) -> None:
        self._log.is_closed = False
        self.start(await self._log.replay())

    return [(ShardRuntime, "load", load)]


@_plant(
    "the response of a committed write waits for the work in the queue",
    _RUNTIME + "test_a_committed_write_is_answered_before_the_work_that_came_after_it",
)
def _kafka_16374_commits_wait_for_the_queue() -> Patches:
    original = ShardRuntime.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        wait = self._uncommitted.committed

        async def committed(future: Any) -> None:
            await wait(future)
            if self._queue.is_busy:
                await self._queue.later(lambda: None)

        self._uncommitted.committed = committed

    return [(ShardRuntime, "__init__", init)]


@_plant(
    "a write ends when it times out, and again when it is committed",
    _RUNTIME + "test_a_write_that_timed_out_is_completed_once_when_it_is_committed",
)
def _kafka_18174_writes_that_time_out_end_twice() -> Patches:
    original = ShardRuntime._start_after

    def start_after(self: Any, future: Any, decision: Any) -> None:
        original(self, future, decision)
        if future is not None:
            asyncio.get_running_loop().call_later(
                self._uncommitted.timeout_s,
                self._on_committed,
                decision,
                ErrorCode.REQUEST_TIMED_OUT,
            )

    return [(ShardRuntime, "_start_after", start_after)]


@_plant(
    "a loader continues after the last record that it has read",
    _RUNTIME + "test_a_batch_that_compaction_emptied_does_not_stop_the_load",
)
def _kafka_17688_empty_batches_are_read_again() -> Patches:
    async def replay(self: Any) -> int:
        at, end = self._host.log_range()
        reads = 0
        while at < end:
            reads += 1
            assert reads <= end, "the loader reads one batch again and again"
            for header, batch in iter_batches(self._host.read(at, end=end, max_bytes=1)):
                for _ in self._replay_batch(header, batch):
                    pass
                if header.records_count:
                    at = header.next_offset
        return int(end)

    return [(ShardLog, "replay", replay)]


@_plant(
    "a value of a newer version is read as the newest version known",
    _OFFSETS + "test_a_value_of_a_newer_version_is_not_read",
)
def _kafka_18672_newer_versions_are_read_as_known() -> Patches:
    original = framing.decode_versioned

    def decode_versioned(cls: Any, data: Any) -> Any:
        newest = max(cls.SCHEMA.versions)
        version = min(int.from_bytes(bytes(data[:2]), "big"), newest)
        return original(cls, version.to_bytes(2, "big") + bytes(data[2:]))

    return [(records, "decode_versioned", decode_versioned)]


# ---- client metrics


@_plant(
    "a client that has ended may push again",
    "server/broker/test_client_telemetry.py::"
    "test_a_client_that_ends_pushes_once_more_and_then_never_again",
)
def _kafka_19959_ended_clients_push_again() -> Patches:
    original = Instance.check_push

    def check_push(self: Any, *given: Any, **more: Any) -> Any:
        self._is_terminating = False
        return original(self, *given, **more)

    return [(Instance, "check_push", check_push)]
