"""Planted bugs in the migration from ZooKeeper: play `migration`."""

from typing import Any

from sparkraft.controller import activation
from sparkraft.server.migration.driver import MigrationDriver
from sparkraft.zookeeper.controller import store
from sparkraft.zookeeper.controller.requests import Scope
from sparkraft.zookeeper.migration import propagation, records, ruling, writes
from sparkraft.zookeeper.znodes.json_form import encode_number
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

MIGRATION_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(MIGRATION_MUTANTS, tiers=NODES, workload="migration", scenario="migration")


@_plant("a KRaft controller writes to ZooKeeper without a check of the epochs", "M3")
def _writes_of_a_migration_are_unguarded() -> Patches:
    def guarded(_rule: Any, operations: Any) -> Any:
        return (yield from store.read(list(operations)))

    return [(ruling, "_guarded", guarded)]


@_plant("a KRaft controller takes /controller without the next controller epoch", "M2")
def _a_claim_keeps_the_epoch() -> Patches:
    return [(ruling, "encode_number", lambda number: encode_number(number - 1))]


@_plant("copied partitions begin again at leader epoch 0", "M6", "M7")
def _copied_leader_epochs_begin_again() -> Patches:
    original = records._partition

    def partition(*arguments: Any) -> Any:
        found = original(*arguments)
        found.leader_epoch = min(found.leader_epoch, 0)
        return found

    return [(records, "_partition", partition)]


@_plant("the copy puts all replicas into the ISR", "M1", "M4")
def _copied_isrs_are_all_replicas() -> Patches:
    original = records._partition

    def partition(*arguments: Any) -> Any:
        found = original(*arguments)
        found.isr = list(found.replicas)
        return found

    return [(records, "_partition", partition)]


@_plant("the copy leaves out the configs of topics", "M4", "M5")
def _configs_are_not_copied() -> Patches:
    return [(records, "_configs", lambda *_: [])]


@_plant("the next KRaft controller takes ZooKeeper for equal to its log", "M4", "M7")
def _the_next_controller_does_not_synchronize() -> Patches:
    async def image_of(self: MigrationDriver, _tree: Any) -> Any:
        return self._publisher.image

    return [(MigrationDriver, "_image_of", image_of)]


@_plant("brokers are sent a change before it is in ZooKeeper", "M7")
def _brokers_come_before_zookeeper() -> Patches:
    original = MigrationDriver._write_changes

    async def write_changes(self: MigrationDriver) -> bool:
        before, image, rule = self._known, self._publisher.image, self._rule
        if image is not before and rule is not None:
            await self._send(image, propagation.changed_requests(before, image, None, rule.epoch))
        return await original(self)

    return [(MigrationDriver, "_write_changes", write_changes)]


@_plant("the first requests of a KRaft controller are not marked as full", "M4")
def _full_requests_are_not_full() -> Patches:
    original = propagation._Batch

    def batch(image: Any, epoch: int, _scope: Any) -> Any:
        return original(image, epoch, Scope.INCREMENTAL)

    return [(propagation, "_Batch", batch)]


@_plant("a KRaft controller that starts after a roll-back rules again", "M8")
def _a_controller_rules_after_a_roll_back() -> Patches:
    def is_copied() -> Any:
        yield from ()
        return True

    return [(ruling, "is_copied", is_copied)]


@_plant("partition states have a later epoch than the controller in ZooKeeper", "M8")
def _states_have_a_later_controller_epoch() -> Patches:
    original = writes._state_data

    def state_data(partition: Any, epoch: int) -> bytes:
        return original(partition, epoch + 1_000)

    return [(writes, "_state_data", state_data)]


@_plant("a controller without the migration does not record its end", "M9")
def _a_migration_is_not_finalized() -> Patches:
    return [(activation, "_migration_records", lambda _context: [])]
