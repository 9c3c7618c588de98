"""Planted bugs of Kafka's history in transactions, by the numbers of their issues, and others.

Those that the simulator cannot reach are in `scenario_bugs`; `kafka_issues` has the table of all.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.offsets import OffsetStore
from sparkraft.coordinator.steps import Steps
from sparkraft.coordinator.transaction import completion
from sparkraft.coordinator.transaction.decision import TransitionAppended
from sparkraft.server.coordinator import marker_sender
from sparkraft.server.coordinator.marker_sender import MarkerSender
from sparkraft.server.coordinator.shard_runtime import ShardRuntime
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

HISTORY_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(HISTORY_MUTANTS, tiers=NODES, workload="transactions", isolated=True)

LATE_S = 0.4
"""How long a bug delays what should have been done at once."""


@_plant("a marker is acknowledged before the offsets of its transaction count (KAFKA-17507)", "T14")
def _kafka_17507_markers_before_their_offsets() -> Patches:
    original = OffsetStore.replay_end_of_transaction

    def end(self: OffsetStore, producer_id: int, *, committed: bool) -> Steps[None]:
        yield 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a checker loads the log
            loop = None
        pending = self._pending.pop(producer_id, {})
        for group_id, offsets in pending.items():
            for topic_partition in offsets:
                self._close(group_id, topic_partition, producer_id)
        if not committed or not pending:
            return

        def publish() -> None:
            later, self._pending[producer_id] = self._pending.pop(producer_id, {}), pending
            complete(original(self, producer_id, committed=True))
            self._pending[producer_id] = later

        if loop is None:
            publish()
        else:
            loop.call_later(LATE_S, publish)

    return [(OffsetStore, "replay_end_of_transaction", end)]


@_plant("an abort without a transaction fences its producer (KAFKA-18464)", "T6")
def _kafka_18464_an_abort_of_nothing_fences() -> Patches:
    original = completion.complete

    def complete(known: Any, request: Any, *given: Any, **more: Any) -> Any:
        if not request.commit and request.bumps_epoch and known.state.has_ended:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return original(known, request, *given, **more)

    return [(completion, "complete", complete)]


@_plant(
    "markers lack the transaction version, and a repeated one ends the next transaction "
    "(KAFKA-19446)",
    "T1",
)
def _kafka_19446_markers_without_a_version() -> Patches:
    original, marker_of = MarkerSender._write_to, marker_sender._marker_of

    async def write_to(
        self: MarkerSender, broker_id: int, marker: Any, partitions: Any, results: Any
    ) -> None:
        async def again() -> None:
            await asyncio.sleep(LATE_S)
            await original(self, broker_id, marker, partitions, {})

        await original(self, broker_id, marker, partitions, results)
        self._batches._spawn(again(), "a repeated marker")

    def without_version(effect: Any) -> Any:
        return marker_of(effect)._replace(transaction_version=0)

    return [(MarkerSender, "_write_to", write_to), (marker_sender, "_marker_of", without_version)]


@_plant("markers are sent before the decision is committed", "T11")
def _markers_before_the_decision_is_committed() -> Patches:
    original = ShardRuntime._start_after

    def start_after(self: Any, future: Any, decision: Any) -> None:
        for effect in decision.effects:
            self._host.spawn(self._execute_effect(effect), "an early effect")
        original(self, future, replace(decision, effects=()))

    return [(ShardRuntime, "_start_after", start_after)]


@_plant("a transaction is complete after the first responses to its markers", "T11")
def _complete_after_the_first_markers() -> Patches:
    async def write(self: MarkerSender, effect: Any, is_current: Any) -> None:
        del is_current
        turn = self._env.turn(self._env.work_max.partitions)
        await self._write_once(marker_sender._marker_of(effect), sorted(effect.partitions), turn)

    return [(MarkerSender, "write", write)]


@_plant("a transition that takes long to commit counts as failed", "T12")
def _slow_transitions_count_as_failed() -> Patches:
    original = ShardRuntime._start_after

    def start_after(self: Any, future: Any, decision: Any) -> None:
        original(self, future, decision)
        if future is not None and isinstance(decision.append_callback, TransitionAppended):
            asyncio.get_running_loop().call_later(
                LATE_S, partial(fail, self, future, decision.append_callback)
            )

    def fail(self: Any, future: Any, callback: Any) -> None:
        if not future.done() and not self._log.is_closed:
            self._complete_append(callback, ErrorCode.REQUEST_TIMED_OUT)

    return [(ShardRuntime, "_start_after", start_after)]
