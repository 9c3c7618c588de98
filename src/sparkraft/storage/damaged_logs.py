"""Logs with bytes that are not valid batches: reported, never truncated, replaced when safe.

Damage found at start-up, below the recovery point: the log is not served (`LogTable.damaged`).
Damage met by a reader later: the reader gets CORRUPT_MESSAGE and the rest of the log stays in use
(`reads`), unless the replica is given up. Either way, a replica in neither ISR nor ELR can
be set aside, folder and all, so that its records are fetched from the leader into a new log.
"""

from typing import TYPE_CHECKING

from sparkraft.base.env import Entropy, random_uuid
from sparkraft.base.ids import TopicPartition
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import Steps
from sparkraft.storage.log_table import LogTable
from sparkraft.storage.log_view import ReadableLog
from sparkraft.storage.names import STRAY_MARK, marked_dir, partition_dir

if TYPE_CHECKING:
    from collections.abc import Callable


class DamagedLogs:
    """The damaged logs of one node."""

    def __init__(self, table: LogTable, entropy: Entropy) -> None:
        self._table = table
        self._entropy = entropy
        self.reads: dict[TopicPartition, str] = {}
        """Logs in use in which a reader met damage, and its position."""
        self.listeners: list[Callable[[PartitionLog], None]] = []
        """Called once for each log that enters `reads`."""
        table.removal_listeners.append(self._on_removed)

    def _on_removed(self, key: TopicPartition) -> None:
        self.reads.pop(key, None)

    def note(self, log: ReadableLog, detail: str) -> None:
        """Record that a reader met damage, and notify the listeners; once per log."""
        key = (log.topic, log.partition)
        known = self._table.get(*key)
        if key in self.reads or known is None or known is not log:
            return
        self.reads[key] = detail
        for listener in self.listeners:
            listener(known)

    def give_up(self, log: PartitionLog) -> None:
        """Stop serving a log of `reads`, as if its damage had been found at start-up."""
        key = (log.topic, log.partition)
        fault = StorageFault(log.log_dir, f"read {log.name}", self.reads.pop(key))
        log.take_offline(fault)
        self._table.mark_damaged(log, fault)

    def set_aside(self, topic: str, partition: int) -> Steps[None]:
        """Make room for a new log in place of a damaged one, whose folder is kept as a stray.

        Call it only if the records can be fetched from the partition's leader and this replica is
        in neither the ISR nor the ELR.

        Raises:
            StorageFault: the directory failed.
        """
        key, dirs = (topic, partition), self._table.dirs
        log_dir = dirs.at(self._table.damaged[key].log_dir)
        old = f"{log_dir.path}/{partition_dir(topic, partition)}"
        stray = marked_dir(topic, partition, random_uuid(self._entropy), STRAY_MARK)
        operation = f"set {topic}-{partition} aside"
        yield from self._table.move_folder(log_dir, operation, old, f"{log_dir.path}/{stray}")
        del self._table.damaged[key]
        log_dir.cleaned.pop(key, None)
