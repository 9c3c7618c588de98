"""Copies of logs that move to another log directory of the same node (KIP-113, KIP-858).

    A/flights-0                        the log
    B/flights-0.<unique>-future        its copy, which fetches from it

    swap:  B: flights-0.<unique>-future → flights-0        then it is durable in B's directory
           A: flights-0 → flights-0.<unique>-delete        deleted file.delete.delay.ms later

    rename    the first rename, in steps: the copy is not used meanwhile, and the log stays in use
    switch    the copy is in use from now on
    discard   the second rename, in steps, of the log that was in use

A crash before the first rename leaves log and copy; a crash between the two leaves a log in each
directory, and `LogManager.load` keeps the newer one: up to the switch the log in use has all
records of the copy. The caller switches once both end at the same offset and every record that was
synced in the log is synced in the copy.

Not here: copying, and when to swap (`sparkraft.server.broker.log_dir_moves`).
"""

from sparkraft.base.env import Entropy, random_uuid
from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import DiskJob, LogDir, Steps
from sparkraft.storage.log_table import LogTable
from sparkraft.storage.names import DELETE_MARK, FUTURE_MARK, marked_dir, partition_dir
from sparkraft.storage.removal import Removal


class FutureLogs:
    """The copies on one node; at most one of each log."""

    def __init__(self, table: LogTable, disk: Disk, removal: Removal, entropy: Entropy) -> None:
        self._table = table
        self._dirs = table.dirs
        self._disk = disk
        self._removal = removal
        self._entropy = entropy
        self._logs: dict[TopicPartition, PartitionLog] = {}

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def all(self) -> list[PartitionLog]:
        """Return all copies, sorted by topic and partition."""
        return [self._logs[key] for key in sorted(self._logs)]

    def directory_id(self, topic: str, partition: int) -> Uuid | None:
        """Return the id of the directory that holds a copy; None if there is no usable copy."""
        log = self._logs.get((topic, partition))
        if log is None or log.fault is not None:
            return None
        return self._dirs.of(log).directory_id

    def add(self, log_dir: LogDir, log: PartitionLog) -> None:
        """Add a copy found at start-up; a second one of the same topic-partition is deleted."""
        key = (log.topic, log.partition)
        if key in self._logs:
            self._dirs.carry_out(self.discard(log))
            return
        self._logs[key] = log_dir.futures[key] = log

    def discard_damaged(self, log_dir: LogDir, directory: str, fault: StorageFault) -> None:
        """Delete a copy that cannot be loaded: its log is intact and is copied again."""
        try:
            self._disk.remove_tree(directory)
        except OSError as error:
            raise self._dirs.fail(log_dir, fault.operation, error) from error

    def create(self, log: PartitionLog, path: str) -> Steps[PartitionLog]:
        """Create an empty copy of `log` in the directory `path`.

        Raises:
            StorageFault: the directory failed.
        """
        log_dir = self._dirs.at(path)
        name = marked_dir(log.topic, log.partition, random_uuid(self._entropy), FUTURE_MARK)
        key = (log.topic, log.partition)
        copy = yield from self._table.create(
            log_dir, name, key, topic_id=log.topic_id, config=log.config
        )
        self._logs[key] = log_dir.futures[key] = copy
        return copy

    def identify(self, copy: PartitionLog, topic_id: Uuid) -> Steps[None]:
        """Write the id of a topic that had none when the copy was made (KIP-516).

        Raises:
            StorageFault: the directory failed.
        """
        copy.set_topic_id(topic_id)
        log_dir = self._dirs.of(copy)
        yield DiskJob(log_dir, f"write partition.metadata of {copy.name}", copy.write_metadata)
        log_dir.require_online()

    def drop(self, topic: str, partition: int) -> Steps[None]:
        """Drop a copy, if there is one, and delete its files."""
        log = self.take_out(topic, partition)
        if log is not None:
            yield from self.discard(log)

    def take_out(self, topic: str, partition: int) -> PartitionLog | None:
        """Remove a copy, if there is one, from the copies; its files stay until `discard`."""
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            self._dirs.of(log).futures.pop((topic, partition), None)
        return log

    def discard(self, log: PartitionLog) -> Steps[None]:
        """Delete the files of a log that is in no table; if its directory works.

        Raises:
            StorageFault: the directory failed.
        """
        if log.fault is None:
            yield from self._table.rename_marked(log, DELETE_MARK)
            self._removal.throw_away(log)

    def rename(self, copy: PartitionLog) -> Steps[None]:
        """Give a copy the name of a log; it is used in no way until this has ended.

        Raises:
            StorageFault: its directory failed.
        """
        topic, partition, log_dir = copy.topic, copy.partition, self._dirs.of(copy)
        name = f"{log_dir.path}/{partition_dir(topic, partition)}"
        if copy.directory != name:
            operation = f"move {topic}-{partition}"
            yield from self._table.move_folder(log_dir, operation, copy.directory, name)
            copy.moved_to(name, log_dir.path)

    def switch(self, copy: PartitionLog) -> PartitionLog | None:
        """Make a renamed copy the log of its topic-partition; return the log that was.

        `finish` must follow.
        """
        key = (copy.topic, copy.partition)
        self.take_out(*key)
        old = self._table.take_out(key)
        self._table.damaged.pop(key, None)
        self._table.put(self._dirs.of(copy), copy)
        return old

    def finish(self, copy: PartitionLog, old: PartitionLog | None) -> Steps[None]:
        """Write the offsets of a copy that is in use now, and delete the log that was.

        Raises:
            StorageFault: a directory failed. The next start finds the log that is complete.
        """
        log_dir = self._dirs.of(copy)
        yield from self._table.checkpoints.all_steps(log_dir)
        log_dir.require_online()
        if old is not None:
            yield from self.discard(old)

    def swap_in(self, topic: str, partition: int) -> Steps[PartitionLog]:
        """Make a copy the log of its topic-partition, in place of the current one, if any.

        Neither may be in use meanwhile.

        Raises:
            StorageFault: a directory failed. The next start finds the log that is complete.
        """
        copy = self._logs[topic, partition]
        yield from self.rename(copy)
        old = self.switch(copy)
        yield from self.finish(copy, old)
        return copy
