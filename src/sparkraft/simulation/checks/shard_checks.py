"""Invariants of the runtime of coordinators, for groups and transactions alike.

R3  a shard appends only in the leader epoch that it serves, once it is loaded
R4  a coordinator that resigns answers every request that it has parked
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from sparkraft.server.coordinator.shard_runtime import ShardRuntime
from sparkraft.simulation.checks.committed_log import led_by
from sparkraft.simulation.checks.probe import Probe, Require, current_machine
from sparkraft.simulation.checks.stored_log import StoredBatch
from sparkraft.simulation.checks.watched_disk import partition_of

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

TOPICS = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
"""The topics of coordinators."""


class ShardChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self.probe = probe
        self.require = require

    def on_batches(self, machine: "Machine", directory: str, batches: list[StoredBatch]) -> None:
        """Check batches that were just appended to a file."""
        partition = partition_of(directory)
        node = machine.live_node
        if partition[0] not in TOPICS or node is None or node.broker is None:
            return
        runtimes: Mapping[int, Any] = (
            node.broker.groups.runtimes
            if partition[0] == GROUP_METADATA_TOPIC
            else node.broker.transactions.runtimes
        )
        for batch in batches:
            if batch.header.is_control or led_by(machine, partition, batch) is None:
                continue
            runtime = runtimes.get(partition[1])
            epoch = batch.header.partition_leader_epoch
            self.require(
                runtime is not None and runtime.is_serving and runtime.leader_epoch == epoch,
                "R3",
                f"{machine.name} appends {batch.header.base_offset} to {partition} in epoch "
                f"{epoch}, its shard serves {_tell(runtime)}",
            )

    def _on_closed(self, runtime: Any) -> None:
        left = [] if runtime.is_resigning else runtime._parked.left()  # noqa: SLF001
        self.probe.counts["shards closed"] += 1
        self.require(not left, "R4", f"{runtime._name} resigns with parked requests {left}")  # noqa: SLF001

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe coordinators that resign, within this context."""
        original = ShardRuntime.close

        def close(runtime: ShardRuntime[Any, Any]) -> None:
            original(runtime)
            if current_machine(self.probe) is not None:
                self.probe.check(lambda: self._on_closed(runtime))

        with patch.object(ShardRuntime, "close", close):
            yield


def _tell(runtime: Any) -> str:
    if runtime is None:
        return "nothing"
    return f"epoch {runtime.leader_epoch}" + ("" if runtime.is_serving else ", not yet")
