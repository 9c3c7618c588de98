"""P13: produced batches that wait for a thread are appended in order, and in their leader epoch.

When a broker takes a batch that a thread has to prepare, its place after the others of the
partition and the partition's leader epoch are noted. When a client's batch has been appended:
    no batch that was taken before it still waits
    the leader epoch is that in which it was taken
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from sparkraft.records.validate import Origin
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.simulation.checks.probe import Probe, Require, current_machine

if TYPE_CHECKING:
    from sparkraft.server.broker.append_queue import QueuedAppend
    from sparkraft.simulation.world.machine import Machine


class Taken(NamedTuple):
    """A batch that a broker has taken, and the leader epoch then."""

    one: "QueuedAppend"
    epoch: int


class AppendChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self._probe = probe
        self._require = require
        self._waiting: dict[HostedPartition, list[Taken]] = {}
        """In the order in which they were taken."""

    def on_taken(self, partition: HostedPartition, one: "QueuedAppend") -> None:
        """A batch waits for a thread, or for one that does."""
        waiting = self._waiting.get(partition, ())
        still = [taken for taken in waiting if not taken.one.has_ended.done()]
        self._waiting[partition] = [*still, Taken(one, partition.leader_epoch)]

    def on_appended(self, partition: HostedPartition, records: Any) -> None:
        """A client's batch was appended, after it waited or at once."""
        machine = current_machine(self._probe)
        waiting = self._waiting.get(partition)
        if machine is not None and waiting:
            self._probe.check(lambda: self._check(machine, partition, waiting, records))

    def _check(
        self, machine: "Machine", partition: Any, waiting: list[Taken], records: Any
    ) -> None:
        self._probe.counts["appends beside queued ones"] += 1
        for taken in waiting:
            if taken.one.records is records:
                self._require(
                    taken.epoch == partition.leader_epoch,
                    "P13",
                    f"{machine.name} appends to {partition} in epoch {partition.leader_epoch} what "
                    f"it took in epoch {taken.epoch}",
                )
                return
            self._require(
                taken.one.has_ended.done(),
                "P13",
                f"{machine.name} appends a batch to {partition} before one that it took earlier",
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe brokers within this context."""
        take, append = ReplicaManager.append_in_order, HostedPartition.append

        @wraps(take)
        def on_take(self: ReplicaManager, partition: HostedPartition, one: "QueuedAppend") -> None:
            checks.on_taken(partition, one)
            take(self, partition, one)

        @wraps(append)
        def on_append(self: HostedPartition, records: Any, **more: Any) -> Any:
            info = append(self, records, **more)
            if more.get("origin", Origin.CLIENT) is Origin.CLIENT:
                checks.on_appended(self, records)
            return info

        checks = self
        with (
            patch.object(ReplicaManager, "append_in_order", on_take),
            patch.object(HostedPartition, "append", on_append),
        ):
            yield
