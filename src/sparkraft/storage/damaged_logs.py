"""Logs with bytes that are no whole, right batch: told of, never cut, replaced where that is safe.

Found at a start, below the recovery point: the log is not served (`LogManager.damaged`). Met by a
reader later: it hears CORRUPT_MESSAGE, and the rest of the log is served on (`reads`), unless the
replica is given up. Either way a replica that nobody counts on may be set aside, folder and all,
so that its records are fetched from the leader into a new log.
"""

from typing import TYPE_CHECKING

from sparkraft.base.env import Entropy, random_uuid
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.names import STRAY_MARK, marked_dir, partition_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.ids import TopicPartition
    from sparkraft.storage.log import PartitionLog
    from sparkraft.storage.log_manager import LogManager
    from sparkraft.storage.log_view import ReadableLog


class DamagedLogs:
    """A part of `LogManager`, which owns the logs."""

    def __init__(self, manager: "LogManager", disk: Disk, entropy: Entropy) -> None:
        """Nothing is damaged so far."""
        self._manager = manager
        self._disk = disk
        self._entropy = entropy
        self.reads: dict[TopicPartition, str] = {}
        """Logs in use in which a reader met damage, and where."""
        self.listeners: list[Callable[[PartitionLog], None]] = []
        """Told once of each log that `reads` names."""

    def note(self, log: "ReadableLog", detail: str) -> None:
        """A reader met damage: remember it and tell who wants to know; once a log."""
        key = (log.topic, log.partition)
        known = self._manager.get(*key)
        if key in self.reads or known is None or known is not log:
            return
        self.reads[key] = detail
        for listener in self.listeners:
            listener(known)

    def give_up(self, log: "PartitionLog") -> None:
        """Take a log out of use that `reads` names, as if found damaged at the start."""
        key = (log.topic, log.partition)
        fault = StorageFault(log.log_dir, f"read {log.name}", self.reads.pop(key))
        log.take_offline(fault)
        self._manager.forget_damaged(log, fault)

    def set_aside(self, topic: str, partition: int) -> None:
        """Make room for a new log in place of a damaged one, whose folder is kept as a stray.

        Only where the partition's records can be fetched from its leader, and nobody counts on this
        replica: it is neither in the ISR nor in the ELR.

        Raises:
            StorageFault: the directory failed.
        """
        manager = self._manager
        log_dir = manager.directory(manager.damaged[topic, partition].log_dir)
        old = f"{log_dir.path}/{partition_dir(topic, partition)}"
        stray = marked_dir(topic, partition, random_uuid(self._entropy), STRAY_MARK)
        try:
            self._disk.rename(old, f"{log_dir.path}/{stray}")
            self._disk.fsync_dir(log_dir.path)
        except OSError as error:
            raise manager.on_error(log_dir, f"set {topic}-{partition} aside", error) from error
        del manager.damaged[topic, partition]
        log_dir.cleaned.pop((topic, partition), None)
