"""Which log serves each topic-partition of a node, and how logs are created and taken out of use.

    put        a log enters the table and its directory
    take_out   a log leaves both; its folder is not touched
    set_aside  the same, and its folder gets a mark: `-delete` or `-stray`

Folders are created and renamed in steps (`log_dir.Steps`), by jobs for any thread. Until such work
on a topic-partition has ended, no other on the same one may begin.

Invariant: a log is in the table exactly if it is in `LogDir.logs` of the directory that holds it.
Invariant: a log enters the table after its folder exists, and leaves it before that is renamed.
"""

from typing import TYPE_CHECKING

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.storage.config import LogConfig
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import DiskJob, LogDir, Steps
from sparkraft.storage.log_dirs import LogDirs
from sparkraft.storage.log_view import LogKeeper
from sparkraft.storage.names import marked_dir
from sparkraft.storage.recovery import LogPlace, load_log

if TYPE_CHECKING:
    from collections.abc import Callable


class LogTable:
    """The logs in use on one node.

    Args:
        dirs: the directories the logs lie in.
        disk: creates and renames folders.
        checkpoints: offsets recorded for an older log of the same name are removed there.
        keeper: set on every new log; notified of truncations and damage.
        damaged: topic-partitions whose files are damaged; they are answered KAFKA_STORAGE_ERROR.
    """

    def __init__(  # noqa: PLR0913 (assembled in one place, LogManager)
        self,
        dirs: LogDirs,
        disk: Disk,
        checkpoints: DirCheckpoints,
        *,
        keeper: LogKeeper,
        damaged: dict[TopicPartition, StorageFault],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.dirs = dirs
        self.damaged = damaged
        self.checkpoints = checkpoints
        self._disk = disk
        self._keeper = keeper
        self._clock = clock
        self._entropy = entropy
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.removal_listeners: list[Callable[[TopicPartition], None]] = []
        """Called with each topic-partition whose log leaves the table."""

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def all(self) -> list[PartitionLog]:
        """Return all logs, sorted by topic and partition."""
        return [self._logs[key] for key in sorted(self._logs)]

    def unsorted(self) -> list[PartitionLog]:
        """Return all logs in the order they were put; cheaper than `all`."""
        return list(self._logs.values())

    def put(self, log_dir: LogDir, log: PartitionLog) -> None:
        """Make `log` the log of its topic-partition."""
        key = (log.topic, log.partition)
        self._logs[key] = log_dir.logs[key] = log

    def take_out(self, key: TopicPartition) -> PartitionLog | None:
        """Remove a log from the table and its directory; its files stay."""
        log = self._logs.pop(key, None)
        if log is None:
            return None
        log_dir = self.dirs.of(log)
        log_dir.logs.pop(key, None)
        log_dir.cleaned.pop(key, None)
        for listener in self.removal_listeners:
            listener(key)
        return log

    def mark_damaged(self, log: PartitionLog, fault: StorageFault) -> None:
        """Stop serving a log: its topic-partition is damaged from now on.

        Its checkpoint entries stay, so that every later start finds the damage.
        """
        key = (log.topic, log.partition)
        self.damaged[key] = fault
        self._logs.pop(key)
        self.dirs.of(log).logs.pop(key)

    def set_aside(self, key: TopicPartition, mark: str) -> Steps[PartitionLog | None]:
        """Remove a log from the table and mark its folder; None if there is no such log."""
        log = self.take_out(key)
        if log is not None:
            yield from self.rename_marked(log, mark)
        return log

    def rename_marked(self, log: PartitionLog, mark: str) -> Steps[None]:
        """Mark a log's folder; the log cannot be used afterwards.

        Raises:
            StorageFault: the directory failed.
        """
        log_dir = self.dirs.of(log)
        topic, partition = log.topic, log.partition
        unique = random_uuid(self._entropy)
        name = f"{log_dir.path}/{marked_dir(topic, partition, unique, mark)}"
        # First: an fsync in another thread must not take the rename for a failure of the disk.
        log.take_offline(StorageFault(log_dir.path, f"use {topic}-{partition}", "it was deleted"))
        yield from self.move_folder(log_dir, f"remove {topic}-{partition}", log.directory, name)
        log.moved_to(name, log_dir.path)

    def move_folder(self, log_dir: LogDir, operation: str, old: str, new: str) -> Steps[None]:
        """Rename a folder of `log_dir` durably.

        Raises:
            StorageFault: the directory failed.
        """

        def work() -> None:
            self._disk.move(old, new)
            self._disk.fault_point("log_renamed_before_sync")

        self._disk.forget(old)
        yield DiskJob(log_dir, operation, work, syncs=True)
        log_dir.require_online()

    def create(
        self,
        log_dir: LogDir,
        name: str,
        key: TopicPartition,
        *,
        topic_id: Uuid | None,
        config: LogConfig,
    ) -> Steps[PartitionLog]:
        """Create an empty log in a folder called `name`; the caller puts it into a table.

        Raises:
            StorageFault: the directory failed.
        """
        log_dir.creating.add(key)
        try:
            yield from self.checkpoints.forget_steps(log_dir, key)
            log = yield from self._make_folder(log_dir, name, key, topic_id, config)
        finally:
            log_dir.creating.discard(key)
        log.keeper = self._keeper
        return log

    def _make_folder(
        self,
        log_dir: LogDir,
        name: str,
        key: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
    ) -> Steps[PartitionLog]:
        topic, partition = key
        path = f"{log_dir.path}/{name}"
        place = LogPlace(
            log_dir=log_dir.path, directory=path, topic=topic, partition=partition, clean=True
        )
        made: list[PartitionLog] = []

        def load() -> None:
            log = load_log(self._disk, place, config, clock=self._clock, entropy=self._entropy)
            if topic_id is not None and log.topic_id is None:
                log.set_topic_id(topic_id)
                log.write_metadata()
            made.append(log)

        def work() -> None:
            self._disk.mkdir(path)
            self._disk.fault_point("log_folder_made_before_its_files")
            if not self._disk.listdir(path):
                load()

        yield DiskJob(log_dir, f"create {topic}-{partition}", work)
        log_dir.require_online()
        if not made:  # it has files already, which only the owner of the open files may read
            load()
        return made[0]
