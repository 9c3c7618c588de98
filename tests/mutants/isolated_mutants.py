"""Planted bugs that one invariant alone must see: all others are looked away from.

A bug in replication breaks many things, and whoever looks first reports it: what the others would
have seen stays unknown. Here each invariant of records, of groups and of the controller that is
forestalled elsewhere is the only one that is looked at. Where Kafka had the bug, its KIP is named.
"""

from dataclasses import replace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller import partition_change, partition_rules, topics
from sparkraft.controller.placement import place_replicas
from sparkraft.coordinator.group import rebalance
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.metadata import apply as image_of_records
from sparkraft.records.record import BatchBuilder
from sparkraft.replication.in_sync import PendingShrink
from sparkraft.replication.leader import PartitionLeader
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.controller import processes
from sparkraft.server.coordinator.group_service import GroupCoordinatorService
from sparkraft.simulation.world.machine import EPOCH_MS
from sparkraft.storage.cleaner_filter import OffsetMap
from sparkraft.storage.epochs import LeaderEpochs
from sparkraft.storage.log_view import ReadableLog, ReadResult
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

ISOLATED_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(
    ISOLATED_MUTANTS,
    tiers=NODES,
    workload="produce-consume",
    scenario="leaders-come-and-go",
    isolated=True,
)


# ---- the controller


@_plant("a new leader leaves the ISR", "C2")
def _a_leader_outside_its_isr() -> Patches:
    original = partition_rules._set_leader

    def set_leader(before: Any, state: Any, choice: Any) -> Any:
        after = original(before, state, choice)
        others = tuple(r for r in after.isr if r != choice.leader)
        return after._replace(isr=others) if len(after.isr) > 1 else after

    return [(partition_rules, "_set_leader", set_leader)]


@_plant("a change of a partition leaves its epoch as it was", "C4")
def _a_partition_epoch_that_stands_still() -> Patches:
    original = image_of_records.merge

    def merge(partition: Any, change: Any) -> Any:
        after = original(partition, change)
        return after._replace(partition_epoch=partition.partition_epoch)

    decided = partition_rules.next_state

    def next_state(before: Any, *others: Any) -> Any:
        transition = decided(before, *others)
        after = transition.after._replace(partition_epoch=before.partition_epoch)
        return replace(transition, after=after)

    return [(image_of_records, "merge", merge), (partition_change, "next_state", next_state)]


@_plant("two replicas are placed on one broker", "C8")
def _replicas_side_by_side() -> Patches:
    def place(*arguments: Any, **more: Any) -> list[list[int]]:
        placed = place_replicas(*arguments, **more)
        return [[each[0], *each[:-1]] if len(each) > 1 else each for each in placed]

    return [(topics, "place_replicas", place)]


# ---- replication


@_plant("the leader's high watermark is ahead of the ISR", "P3")
def _high_watermark_ahead_of_the_isr() -> Patches:
    return [(PartitionLeader, "high_watermark", lambda _self, own_end, _now: own_end)]


@_plant("a replica about to leave the ISR no longer counts (before KIP-497)", "P4")
def _leaving_replicas_do_not_count() -> Patches:
    counted = property(lambda self: tuple(replica for replica, _ in self.new_isr))
    return [(PendingShrink, "maximal_isr", counted)]


@_plant("the ELR stays when enough are in sync (KIP-966)", "C1")
def _elr_that_stays() -> Patches:
    def recompute(before: Any, state: Any, _target: Any, facts: Any) -> Any:
        kept = tuple(sorted({*state.elr, *before.isr} - {*state.isr}))
        return state._replace(elr=kept) if facts.elr_enabled else state

    return [(partition_rules, "_recompute_elr", recompute)]


@_plant("one replica is enough for the high watermark (KIP-966)", "P6")
def _one_replica_moves_the_high_watermark() -> Patches:
    return [
        (PartitionLeader, "is_under_min_insync", property(lambda _self: False)),
        (PartitionLeader, "min_insync_effective", property(lambda _self: 1)),
    ]


@_plant("a reader's leader epoch is not looked at (KIP-320)", "P12")
def _leader_epochs_are_not_compared() -> Patches:
    return [(HostedPartition, "check_epoch", lambda _self, _epoch: None)]


@_plant("fetches of an earlier incarnation of a broker count (KIP-903)", "P12")
def _earlier_incarnations_count() -> Patches:
    original = PartitionLeader.on_fetch

    def on_fetch(self: PartitionLeader, replica: int, offset: int, **more: Any) -> bool:
        return original(self, replica, offset, **(more | {"broker_epoch": -1}))

    return [(PartitionLeader, "on_fetch", on_fetch)]


@_plant(
    "a new leader returns its end offset before it knows what is committed (KIP-207)",
    "P7",
    scenario="killed-then-unplugged",
)
def _the_end_offset_goes_back() -> Patches:
    return [(HostedPartition, "check_caught_up", lambda _self: None)]


@_plant("an epoch in which nothing was written stays in the cache", "P9")
def _epochs_of_nothing() -> Patches:
    def assign(self: LeaderEpochs, epoch: int, start_offset: int) -> None:
        if self.latest != epoch and epoch >= 0 and start_offset >= 0:
            self._epochs.append(epoch)
            self._starts.append(start_offset)
            self.dirty = True

    return [(LeaderEpochs, "assign", assign)]


@_plant(
    "uncommitted records are acknowledged, and their producer continues with the next leader",
    "P11",
)
def _sequences_with_a_gap() -> Patches:
    return _uncommitted()


@_plant("a broker that doesn't answer counts as one that refuses", "F1", scenario="chaos")
def _silence_counts_as_refusal() -> Patches:
    async def all_refuse(_connect: Any, _endpoints: Any) -> bool:
        return True

    return [(processes, "all_refuse", all_refuse)]


@_plant("compaction takes the last record of a key as well", "S6")
def _compaction_of_last_records() -> Patches:
    def superseded(self: OffsetMap, key: bytes, offset: int) -> bool:
        return self._offsets.get(key, -1) >= offset

    return [(OffsetMap, "superseded", superseded)]


# ---- groups


@_plant("every member gets the assignment of the first", "G1")
def _one_share_for_all() -> Patches:
    original = rebalance.Rebalancer.set_assignment

    def assign(self: Any, group: Any, assignment: dict[str, bytes], now: Any) -> Any:
        share = assignment[min(assignment)]
        return original(self, group, dict.fromkeys(assignment, share), now)

    return [(rebalance.Rebalancer, "set_assignment", assign)]


@_plant("a member of an older generation commits", "G5")
def _commits_of_older_generations() -> Patches:
    return [(ClassicGroup, "check_commit", lambda *_arguments, **_more: None)]


@_plant("a broker that no longer leads an offsets partition keeps serving its groups", "G8")
def _groups_without_leadership() -> Patches:
    original = GroupCoordinatorService.on_leadership

    def on_leadership(
        self: GroupCoordinatorService, topic: str, index: int, epoch: int | None
    ) -> None:
        if epoch is not None:
            original(self, topic, index, epoch)

    return [(GroupCoordinatorService, "on_leadership", on_leadership)]


# ---- what clients see, by Jepsen's names


def _uncommitted() -> Patches:
    return [(PartitionLeader, "high_watermark", lambda _self, own_end, _now: own_end)]


@_plant("records that only the leader has are acknowledged", "lost-write")
def _acknowledged_and_overwritten() -> Patches:
    return _uncommitted()


@_plant("records that only the leader has are acknowledged and read", "inconsistent-offsets")
def _read_and_overwritten() -> Patches:
    return _uncommitted()


@_plant("a record that no producer sent is appended", "phantom")
def _records_no_producer_sent() -> Patches:
    original = HostedPartition.append

    def append(self: HostedPartition, records: Any, **more: Any) -> Any:
        if self.topic == "records" and self.log.log_end_offset % 50 == 9:
            builder = BatchBuilder()
            builder.append(EPOCH_MS, None, b"nobody.0.1")
            original(self, builder.build(), **(more | {"acks": 1}))
        return original(self, records, **more)

    return [(HostedPartition, "append", append)]


@_plant("a fetch passes over a batch now and then", "poll-skip")
def _batches_passed_over() -> Patches:
    original = ReadableLog.read

    def read(self: Any, offset: int, *, up_to: int, **more: Any) -> Any:
        further = offset + 3 if offset % 40 == 20 and offset + 3 < up_to else offset
        return original(self, further, up_to=up_to, **more)

    return [(ReadableLog, "read", read)]


@_plant(
    "acknowledged records are sent again to the next leader after they are lost",
    "nonmonotonic-send",
)
def _acknowledged_and_sent_again() -> Patches:
    return _uncommitted()


@_plant("the last records are withheld from consumers", "unseen")
def _an_unreadable_tail() -> Patches:
    original = HostedPartition.visible_end

    def visible_end(self: HostedPartition, *, isolation: int, replica: bool) -> int:
        end = original(self, isolation=isolation, replica=replica)
        return end if replica else max(end - 3, 0)

    return [(HostedPartition, "visible_end", visible_end)]


@_plant(
    "records for which there are too few replicas are appended and then refused", "aborted-read"
)
def _appended_and_refused() -> Patches:
    original = HostedPartition.append

    def append(self: HostedPartition, records: Any, **more: Any) -> Any:
        try:
            return original(self, records, **more)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                original(self, records, **(more | {"acks": 1}))
            raise

    return [(HostedPartition, "append", append)]


@_plant("a fetch returns its records twice", "nonmonotonic-poll")
def _read_twice() -> Patches:
    original = ReadableLog.read

    def read(self: Any, offset: int, *, up_to: int, **more: Any) -> Any:
        found = original(self, offset, up_to=up_to, **more)
        if up_to == self.log_end_offset:
            return found  # it may be a follower's
        return ReadResult([*found.pieces, *found.pieces], 2 * found.size)

    return [(ReadableLog, "read", read)]
