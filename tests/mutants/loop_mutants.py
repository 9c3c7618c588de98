"""Planted bugs in the bounds of work on the event loop, seen by L1 alone."""

from typing import Any

from sparkraft.coordinator.steps import complete
from sparkraft.records.batch import iter_batches
from sparkraft.server.broker.disk_steps import DiskSteps
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.broker.shared_reads import COLD, SharedReads
from sparkraft.server.coordinator.shard_log import LOAD_STEP_BYTES, ShardLog
from sparkraft.storage.log_dir import DiskJob
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

LOOP_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(LOOP_MUTANTS, tiers=NODES, workload="produce-consume", isolated=True)


@_plant("retention checks all logs in one piece of the loop's work", "L1")
def _uncut_loop() -> Patches:
    async def carry_out(self: Any, steps: Any) -> Any:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            if isinstance(step, DiskJob):
                await self._run(step)

    return [(DiskSteps, "carry_out", carry_out)]


@_plant("fetches read on the event loop what is not in the page cache", "L1")
def _uncached_reads() -> Patches:
    original = SharedReads.read

    def read(self: Any, *arguments: Any, **more: Any) -> Any:
        found = original(self, *arguments, **{**more, "cold": []})
        return original(self, *arguments, **{**more, "cold": None}) if found is COLD else found

    return [(SharedReads, "read", read)]


@_plant("a group coordinator is loaded in one piece", "L1", workload="groups")
def _uncut_load_of_groups() -> Patches:
    async def replay(self: ShardLog[Any]) -> int:
        at, end = self._host.log_range()
        while at < end and not self.is_closed:
            batches = self._host.read(at, end=end, max_bytes=LOAD_STEP_BYTES)
            if not batches:
                break
            for header, batch in iter_batches(batches):
                complete(self._replay_batch(header, batch))
                at = header.next_offset
        return int(end)

    return [(ShardLog, "replay", replay)]


@_plant("compressed batches are decompressed on the event loop", "L1")
def _uncut_decode() -> Patches:
    return [(ReplicaManager, "must_queue", lambda _self, _partition, _records: False)]
