"""Planted bugs in consumer groups of KIP-848: those of Kafka's history among them, by their issues.

Each is looked for by one invariant alone (`group_checks`, `group_ledger`, `shard_checks`).
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group import (
    consumer,
    consumer_migration,
    consumer_records,
    consumer_regex,
    consumer_targets,
    consumer_update,
)
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.consumer_assignors import ASSIGNORS, assign_uniform
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import MemberState
from sparkraft.coordinator.group.consumer_protocol_data import write_assignment
from sparkraft.coordinator.group.consumer_reconciliation import reconcile as reconcile_member
from sparkraft.coordinator.group.consumer_update import MemberUpdates
from sparkraft.coordinator.steps import Steps
from sparkraft.protocol.messages.k08_offset_commit import OffsetCommitResponse
from sparkraft.server.coordinator.coordinator_service import CoordinatorService
from sparkraft.server.coordinator.host import LedPartition
from sparkraft.server.coordinator.shard_log import ShardLog
from sparkraft.server.coordinator.shard_runtime import ShardRuntime
from sparkraft.server.coordinator.uncommitted_writes import UncommittedWrites
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

GROUP_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(GROUP_MUTANTS, tiers=NODES, workload="groups", isolated=True)


# ---- owners and epochs


@_plant("a partition is assigned before its owner has revoked it", "K1")
def _partitions_are_always_free() -> Patches:
    return [(ConsumerGroup, "is_free", lambda *_: True)]


@_plant("the replay of an earlier owner releases a partition (KAFKA-16147)", "K11")
def _kafka_16147_any_member_releases() -> Patches:
    def release_each(self: ConsumerGroup, _member_id: str, partitions: Any) -> Steps[None]:
        yield 0
        for topic_id, epochs in partitions.items():
            for partition in epochs:
                self._holders.get(topic_id, {}).pop(partition, None)
            if not self._holders.get(topic_id, {}):
                self._holders.pop(topic_id, None)

    return [(ConsumerGroup, "_release_each", release_each)]


@_plant("partitions that wait for their revocation have no holder", "K11")
def _revoked_partitions_have_no_holder() -> Patches:
    original = ConsumerGroup._put

    def put(self: ConsumerGroup, member: Any, **more: Any) -> Steps[None]:
        yield from original(self, member, **more)
        yield from self._release_each(member.member_id, member.pending_revocation)

    return [(ConsumerGroup, "_put", put)]


@_plant("a target assignment is stored for an epoch to come (KAFKA-20268)", "K2")
def _kafka_20268_targets_ahead_of_the_group() -> Patches:
    original = consumer_records.target_epoch_record

    def record(group_id: str, epoch: int, at_ms: Any) -> Any:
        return original(group_id, epoch + 1, at_ms)

    return [(consumer_targets, "target_epoch_record", record)]


@_plant("a partition that a member has lost can be committed in an older epoch", "K8")
def _commits_of_lost_partitions() -> Patches:
    return [(ConsumerGroup, "check_partition", lambda *_: None)]


@_plant("every fifth epoch is followed by another without a cause", "K9")
def _epochs_without_a_cause() -> Patches:
    original = MemberUpdates.update_epoch

    def update_epoch(self: MemberUpdates, update: Any, now: Any) -> Steps[None]:
        known = update.group.get(update.member.member_id)
        if known is not None and update.updated == known and update.group.group_epoch % 5 == 0:
            update.topics_changed = True
        yield from original(self, update, now)

    return [(MemberUpdates, "update_epoch", update_epoch)]


# ---- assignments


def _assigned_by(change: Any) -> Patches:
    """Replace the result of the `uniform` assignor."""

    def assign(members: Any, counts: Any) -> Any:
        return change(members, counts, (yield from assign_uniform(members, counts)))

    return [(consumer_targets, "ASSIGNORS", {**ASSIGNORS, "uniform": assign})]


@_plant("the last partition of each topic is not assigned", "K3")
def _the_last_partition_is_left_out() -> Patches:
    def change(_members: Any, counts: Any, found: Any) -> Any:
        return {
            member: {topic: one - {counts[topic] - 1} for topic, one in topics.items()}
            for member, topics in found.items()
        }

    return _assigned_by(change)


@_plant("a member without a topic breaks the assignment of mixed groups (KAFKA-16930)", "K3")
def _kafka_16930_members_without_topics() -> Patches:
    def change(members: Any, _counts: Any, found: Any) -> Any:
        idle = [one for one in sorted(found) if not found[one]]
        return {one: {} for one in found} if idle and len(members) > 1 else found

    return _assigned_by(change)


@_plant("a member keeps topics that it no longer subscribes to (KAFKA-19720)", "K4")
def _kafka_19720_earlier_topics_stay_assigned() -> Patches:
    def change(members: Any, _counts: Any, found: Any) -> Any:
        return {
            one: {**{t: p for t, p in members[one].target.items() if t not in topics}, **topics}
            for one, topics in found.items()
        }

    return _assigned_by(change)


@_plant("a member is given topics of its target that it does not subscribe to", "K4")
def _targets_are_given_whole() -> Patches:
    original = reconcile_member

    def reconcile(member: Any, target: Any, **more: Any) -> Any:
        def subscribed() -> Any:
            topics = yield from target.subscribed()
            return topics | target.partitions.keys() | member.assigned.keys()

        return original(member, replace(target, subscribed=subscribed), **more)

    return [(consumer_update, "reconcile", reconcile)]


@_plant("`uniform` does not look at the previous target", "K6")
def _assignments_from_nothing() -> Patches:
    def assign(members: Any, counts: Any) -> Any:
        return assign_uniform({one: replace(members[one], target={}) for one in members}, counts)

    return [(consumer_targets, "ASSIGNORS", {**ASSIGNORS, "uniform": assign})]


@_plant("`uniform` gives the larger shares to other members each time (KAFKA-18688)", "K6")
def _kafka_18688_larger_shares_move() -> Patches:
    def change(members: Any, _counts: Any, found: Any) -> Any:
        sizes = {one: sum(map(len, topics.values())) for one, topics in found.items()}
        same = len({one.topics for one in members.values()}) == 1
        if not same or not sizes or max(sizes.values()) == min(sizes.values()):
            return found
        large, small = (
            max(sizes, key=lambda one: sizes[one]),
            min(sizes, key=lambda one: sizes[one]),
        )
        return {**found, large: found[small], small: found[large]}

    return _assigned_by(change)


@_plant("`uniform` gives everything to one member", "K7")
def _one_member_gets_everything() -> Patches:
    def change(members: Any, counts: Any, found: Any) -> Any:
        first = min(found)
        every = {topic: frozenset(range(counts[topic])) for topic in members[first].topics}
        return {one: every if one == first else {} for one in found}

    return _assigned_by(change)


@_plant("a regular expression matches a part of a name", "K15")
def _regexes_match_a_part() -> Patches:
    def matching(pattern: str, topics: Any) -> list[str]:
        return [topic for topic in topics if re.match(pattern, topic)]

    return [(consumer_regex, "matching", matching)]


# ---- convergence


@_plant("a member does not get the partitions that others release later", "K5")
def _released_partitions_stay_free() -> Patches:
    original = reconcile_member

    def reconcile(member: Any, target: Any, **more: Any) -> Any:
        if member.state is MemberState.UNRELEASED and member.member_epoch == target.epoch:
            return member
        return (yield from original(member, target, **more))

    return [(consumer_update, "reconcile", reconcile)]


@_plant("a repeated full heartbeat is not answered with the assignment (KAFKA-16367)", "K5")
def _kafka_16367_no_assignment_after_a_lost_response() -> Patches:
    return [(consumer, "is_full", lambda _request: False)]


@_plant("members that stop their heartbeats are never fenced", "K5")
def _sessions_of_members_never_expire() -> Patches:
    return [(MemberUpdates, "schedule_session", lambda *_: None)]


# ---- records


@_plant("a heartbeat is answered before its records are committed", "K10")
def _epochs_before_the_commit() -> Patches:
    return [(UncommittedWrites, "when_committed", lambda _self, response: response)]


@_plant("a tombstone of an unknown member fails the load (KAFKA-19862)", "K12")
def _kafka_19862_tombstones_of_unknown_members() -> Patches:
    original = ConsumerGroup.replay_removed

    def replay_removed(self: ConsumerGroup, member_id: str) -> Steps[None]:
        if member_id not in self:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        yield from original(self, member_id)

    return [(ConsumerGroup, "replay_removed", replay_removed)]


@_plant("an assignment of an unknown member fails the load (KAFKA-17306)", "K12")
def _kafka_17306_assignments_of_unknown_members() -> Patches:
    original = ConsumerGroup.replay_current

    def replay_current(self: ConsumerGroup, member: Any) -> Steps[None]:
        if member.member_id not in self:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        yield from original(self, member)

    return [(ConsumerGroup, "replay_current", replay_current)]


@_plant("a classic group stays beside the consumer group that replaces it", "K13")
def _two_groups_of_one_name() -> Patches:
    return [(ClassicGroup, "tombstones", lambda _self: [])]


@_plant("an upgrade drops the assignments (KAFKA-17733)", "K14")
def _kafka_17733_upgrades_drop_assignments() -> Patches:
    original = consumer_migration._consumer_member

    def consumer_member(*given: Any) -> Any:
        return replace(original(*given), assigned={})

    return [(consumer_migration, "_consumer_member", consumer_member)]


@_plant("an upgrade starts in the generation before", "K14")
def _upgrades_start_a_generation_early() -> Patches:
    original = consumer_migration.upgraded

    def upgraded(group: Any, *given: Any) -> Any:
        group.generation_id -= 1
        try:
            return (yield from original(group, *given))
        finally:
            group.generation_id += 1

    return [(consumer, "upgraded", upgraded)]


@_plant("a downgrade drops the assignments", "K14")
def _downgrades_drop_assignments() -> Patches:
    original = consumer_migration.downgraded

    def downgraded(*given: Any) -> Any:
        classic = yield from original(*given)
        for member in classic.members():
            member.assignment = write_assignment({}, given[2], 1)
        return classic

    return [(consumer, "downgraded", downgraded)]


# ---- the runtime


@_plant("offsets are acknowledged before they are committed", "R1")
def _offsets_before_the_commit() -> Patches:
    original = UncommittedWrites.when_committed

    def when_committed(self: Any, response: Any) -> Any:
        return response if isinstance(response, OffsetCommitResponse) else original(self, response)

    return [(UncommittedWrites, "when_committed", when_committed)]


@_plant("each record of a decision is a batch of its own", "R2")
def _one_batch_per_record() -> Patches:
    append, append_in_steps = ShardLog.append, ShardLog.append_in_steps

    def each(decision: Any) -> Iterator[Any]:
        *first, last = decision.records
        for record in first:
            yield replace(decision, records=(record,))
        yield replace(decision, records=(last,))

    def append_each(self: Any, decision: Any) -> Any:
        return [append(self, one) for one in each(decision)][-1]

    def append_each_in_steps(self: Any, decision: Any) -> Steps[Any]:
        future = None
        for one in each(decision):
            future = yield from append_in_steps(self, one)
        return future

    return [
        (ShardLog, "append", append_each),
        (ShardLog, "append_in_steps", append_each_in_steps),
    ]


@_plant("a coordinator serves while it loads its log, which takes a second", "R3")
def _coordinators_serve_while_they_load() -> Patches:
    original = ShardRuntime.load

    async def load(self: Any) -> None:
        await asyncio.sleep(1)
        await original(self)

    return [(ShardRuntime, "check_loaded", lambda _self: None), (ShardRuntime, "load", load)]


@_plant(
    "a coordinator that is elected again keeps its earlier shard (KAFKA-18137)",
    "R3",
    scenario="coordinators-return",
)
def _kafka_18137_shards_of_earlier_epochs() -> Patches:
    original = CoordinatorService.on_leadership

    def on_leadership(self: Any, topic: str, index: int, epoch: int | None) -> None:
        if topic == self.topic and index not in self.runtimes:
            original(self, topic, index, epoch)

    def partition(self: Any) -> Any:
        return self._replica_manager.leader(self._topic, self._index)

    return [
        (CoordinatorService, "on_leadership", on_leadership),
        (LedPartition, "_partition", partition),
    ]


@_plant("a coordinator that resigns does not answer parked requests", "R4")
def _parked_requests_are_dropped() -> Patches:
    def close(self: Any) -> None:
        self._log.close()
        if self._timer is not None:
            self._timer.cancel()

    return [(ShardRuntime, "close", close)]
