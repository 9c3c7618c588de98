"""The committed batches of an internal topic, as they were appended, in the order of offsets."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkraft.simulation.checks.probe import Probe
from sparkraft.simulation.checks.stored_log import StoredBatch, StoredLog

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

Partition = tuple[str, int]
"""Topic and partition index."""


class CommittedLog:
    """One partition of a compacted topic.

    It keeps every batch that was appended, since compaction may remove records before they are
    read here.
    """

    def __init__(self) -> None:
        self._written: dict[int, list[StoredBatch]] = defaultdict(list)
        """Base offset → batches appended there, of several leader epochs."""
        self._end = 0

    def add(self, batch: StoredBatch) -> None:
        """Keep a batch that was appended to a replica."""
        self._written[batch.header.base_offset].append(batch)

    def advance(self, log: StoredLog, high_watermark: int) -> Iterator[StoredBatch]:
        """Yield the batches below the high watermark of a leader that were not yielded before."""
        for batch in log.batches:
            header = batch.header
            if header.last_offset >= high_watermark:
                return
            while self._end < header.next_offset:
                original = self._original(header.partition_leader_epoch)
                if original is None:
                    original = batch
                self._end = original.header.next_offset
                yield original

    def _original(self, epoch: int) -> StoredBatch | None:
        """The next batch; `epoch` is the leader epoch of this one or of a later one in the log."""
        found = self._written.get(self._end, ())
        known = [batch for batch in found if batch.header.partition_leader_epoch <= epoch]
        return max(known, key=lambda batch: batch.header.partition_leader_epoch, default=None)


def leader_of(probe: Probe, partition: Partition) -> "Machine | None":
    """The running machine that leads a partition in the highest epoch."""
    led = [
        (hosted.leader_epoch, machine)
        for machine in probe.brokers
        if (hosted := hosted_of(machine, partition)) is not None and hosted.is_leader
    ]
    return max(led, key=lambda pair: pair[0])[1] if led else None


def hosted_of(machine: "Machine", partition: Partition) -> Any:
    """The replica of a partition in a running process; None if it has none."""
    node = machine.live_node
    if node is None or node.broker is None:
        return None
    return node.broker.replica_manager.hosted(*partition)


def led_by(machine: "Machine", partition: Partition, batch: StoredBatch) -> Any:
    """The replica, if the machine leads it in the epoch of the batch."""
    hosted = hosted_of(machine, partition)
    current = batch.header.partition_leader_epoch
    if hosted is None or not hosted.is_leader or hosted.leader_epoch != current:
        return None
    return hosted
