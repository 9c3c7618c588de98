"""Copies of logs on their way to another log directory of the same node (KIP-113, KIP-858).

    A/flights-0                        the log
    B/flights-0.<unique>-future        its copy, which fetches from it

    swap:  B: flights-0.<unique>-future → flights-0        then it is durable in B's directory
           A: flights-0 → flights-0.<unique>-delete        and goes file.delete.delay.ms later

A crash before the first rename leaves log and copy, between the two a log in each directory, which
`LogManager.load` settles: both hold the same. The caller swaps when both end at the same offset and
what was on disk of the log is on disk of the copy.

Not here: copying, and when to swap (`sparkraft.server.broker.log_dir_moves`).
"""

from typing import TYPE_CHECKING

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.ids import Uuid
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.names import DELETE_MARK, FUTURE_MARK, marked_dir, partition_dir

if TYPE_CHECKING:
    from sparkraft.base.ids import TopicPartition
    from sparkraft.storage.log_dir import LogDir
    from sparkraft.storage.log_manager import LogManager


class FutureLogs:
    """The copies of one node; at most one of each log."""

    def __init__(
        self, manager: "LogManager", disk: Disk, *, clock: Clock, entropy: Entropy
    ) -> None:
        """None yet."""
        self._manager = manager
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._logs: dict[TopicPartition, PartitionLog] = {}

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The copy of a partition's log, None where there is none."""
        return self._logs.get((topic, partition))

    def all(self) -> list[PartitionLog]:
        """All of them, by topic and partition."""
        return [self._logs[key] for key in sorted(self._logs)]

    def directory_id(self, topic: str, partition: int) -> Uuid | None:
        """Id of the directory a copy lies in; None where there is no copy, or it failed."""
        log = self._logs.get((topic, partition))
        if log is None or log.fault is not None:
            return None
        return self._manager.directory(log.log_dir).directory_id

    def add(self, log_dir: "LogDir", log: PartitionLog) -> None:
        """Take in a copy found at the start; a second one of the same partition goes."""
        key = (log.topic, log.partition)
        if key in self._logs:
            self._throw_away(log)
            return
        self._logs[key] = log_dir.futures[key] = log

    def discard_damaged(self, log_dir: "LogDir", directory: str, fault: StorageFault) -> None:
        """Remove a copy that can't be loaded: its log is whole, and will be copied anew."""
        try:
            self._disk.remove_tree(directory)
        except OSError as error:
            raise self._manager.on_error(log_dir, fault.operation, error) from error

    def create(self, log: PartitionLog, path: str) -> PartitionLog:
        """An empty copy of `log` in the directory `path`.

        Raises:
            StorageFault: the directory failed.
        """
        manager = self._manager
        log_dir = manager.directory(path)
        name = marked_dir(log.topic, log.partition, random_uuid(self._entropy), FUTURE_MARK)
        key = (log.topic, log.partition)
        made = manager.make_log(log_dir, name, log.topic, log.partition, log.topic_id, log.config)
        self._logs[key] = log_dir.futures[key] = made
        return made

    def drop(self, topic: str, partition: int) -> None:
        """Give a copy up, if there is one; its files go."""
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return
        self._manager.directory(log.log_dir).futures.pop((topic, partition), None)
        if log.fault is None:
            self._throw_away(log)

    def _throw_away(self, log: PartitionLog) -> None:
        self._manager.rename_marked(log, DELETE_MARK)
        self._manager.removal.throw_away(log)

    def swap_in(self, topic: str, partition: int) -> PartitionLog:
        """Let a copy be the partition's log, in the place of the one there is, if any.

        Raises:
            StorageFault: a directory failed. Whichever log is whole is found at the next start.
        """
        manager = self._manager
        key = (topic, partition)
        copy = self._logs.pop(key)
        log_dir = manager.directory(copy.log_dir)
        log_dir.futures.pop(key, None)
        name = f"{log_dir.path}/{partition_dir(topic, partition)}"
        try:
            self._disk.rename(copy.directory, name)
            self._disk.fault_point("log_renamed_before_sync")
            self._disk.fsync_dir(log_dir.path)
        except OSError as error:
            raise manager.on_error(log_dir, f"move {topic}-{partition}", error) from error
        copy.moved_to(name, log_dir.path)
        old = manager.take_out_for_move(topic, partition)
        manager.put(log_dir, copy)
        try:
            manager.checkpoint_dir(log_dir)
        except OSError as error:
            raise manager.on_error(log_dir, "checkpoint", error) from error
        if old is not None and old.fault is None:
            self._throw_away(old)
        return copy
