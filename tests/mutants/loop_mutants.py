"""Planted bugs in the bounds of work on the event loop, and in work in threads, seen by one alone.

L1 has the bounds. P13 has what is appended after a thread has prepared it.
"""

import asyncio
from typing import Any

from sparkraft.base.steps import complete
from sparkraft.records.batch import iter_batches
from sparkraft.server.broker.append_queue import AppendQueue
from sparkraft.server.broker.disk_steps import DiskSteps
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.broker.shared_reads import COLD, SharedReads
from sparkraft.server.controller.decision_queue import DecisionQueue
from sparkraft.server.coordinator.shard_log import LOAD_STEP_BYTES, ShardLog
from sparkraft.server.loop_turns import Turn
from sparkraft.storage.log_dir import DiskJob
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

LOOP_MUTANTS: dict[str, Mutant] = {}

THREAD_S = 0.5

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


@_plant("work continues in the same iteration when its slice is over", "L1")
def _slices_without_an_end() -> Patches:
    async def next_slice(self: Any) -> None:
        self._left = self._units_max

    return [(Turn, "next", next_slice)]


@_plant("the controller makes a long decision in one piece", "L1")
def _uncut_decisions() -> Patches:
    def run(self: DecisionQueue, steps: Any) -> Any:
        turn = self._new_turn()
        while True:
            try:
                turn.is_over(next(steps))
            except StopIteration as end:
                return end.value

    return [(DecisionQueue, "run", run)]


# ---- work in threads


@_plant(
    "a batch that a slow thread has prepared is appended whatever the leader epoch is by then",
    "P13",
    scenario="replicas-move",
)
def _queued_appends_ignore_the_epoch() -> Patches:
    original = AppendQueue._append_now

    def append_now(self: Any, one: Any) -> Any:
        one.epoch = self._partition.leader_epoch
        return original(self, one)

    return [(AppendQueue, "_append_now", append_now), *slow_threads()]


def slow_threads() -> Patches:
    """Threads that prepare a batch take half a second: long enough for a change of the epoch."""
    original = AppendQueue.__init__

    def init(self: AppendQueue, partition: Any, *, in_thread: Any, **more: Any) -> None:
        async def slowly(*arguments: Any) -> Any:
            await asyncio.sleep(THREAD_S)
            return await in_thread(*arguments)

        original(self, partition, in_thread=slowly, **more)

    return [(AppendQueue, "__init__", init)]


@_plant("batches are appended as threads have prepared them, not in order", "P13")
def _queued_appends_out_of_order() -> Patches:
    original = AppendQueue._drain

    def drain(self: Any) -> None:
        ready = [one for one in self._waiting if one.ready]
        waits = [one for one in self._waiting if not one.ready]
        self._waiting.clear()
        self._waiting.extend([*ready, *waits])
        original(self)

    return [(AppendQueue, "_drain", drain)]
