"""All logs of a node: loading, creation, deletion, checkpoints and the periodic work on them.

    LogManager
      dirs      LogDirs      the log directories and their health
      table     LogTable     the log in use of each topic-partition
      futures   FutureLogs   copies on their way to another directory (`-future`)
      damage    DamagedLogs  logs with damaged files
      removal   Removal      retention, deleted logs and segments

A directory that fails goes offline with all its logs; the others continue. The caller must:

* call `load` once, before anything else, and `close` at a clean stop;
* call `flush_due` every few seconds, `checkpoint` each minute, `removal.retention` every 5 minutes
  (`log.flush.scheduler.interval.ms`, `log.flush.offset.checkpoint.interval.ms`,
  `log.retention.check.interval.ms`).

Not here: the log of the quorum itself, `__cluster_metadata-0` (`storage.raft_log`); which log is
cleaned next (`storage.cleaner_manager`).
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sparkraft.base.env import Clock, Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.storage.checkpoints import format_clean_shutdown, parse_clean_shutdown
from sparkraft.storage.config import LogConfig, config_from
from sparkraft.storage.damaged_logs import DamagedLogs
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.future_logs import FutureLogs
from sparkraft.storage.loading import LoadedLog, LoadOptions, find_logs, load_all
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import DiskJob, LogDir, LogDirDescription, Steps
from sparkraft.storage.log_dirs import LogDirs
from sparkraft.storage.log_table import LogTable
from sparkraft.storage.log_view import ReadableLog
from sparkraft.storage.meta_properties import BadMetaProperties, read_meta_properties
from sparkraft.storage.names import CLEAN_SHUTDOWN, DELETE_MARK, STRAY_MARK, partition_dir
from sparkraft.storage.removal import Removal


class LogManager:
    """The logs of one node; it is the `LogKeeper` of each."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: Iterable[str],
        default_config: LogConfig,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._default_config = default_config
        self._configs: dict[LogConfig, LogConfig] = {}
        self._preferred: dict[TopicPartition, str] = {}
        """Directories that AlterReplicaLogDirs chose for logs that do not exist yet."""
        damaged: dict[TopicPartition, StorageFault] = {}
        self._checkpoints = DirCheckpoints(disk, damaged)
        self.dirs = LogDirs(disk, log_dirs)
        self.table = LogTable(
            self.dirs,
            disk,
            self._checkpoints,
            keeper=self,
            damaged=damaged,
            clock=clock,
            entropy=entropy,
        )
        self.removal = Removal(self.dirs, disk, self._checkpoints, clock)
        self.damage = DamagedLogs(self.table, entropy)
        self.futures = FutureLogs(self.table, disk, self.removal, entropy)

    # -- start and stop --------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the `.lock` of every directory; see `LogDirs.lock`."""
        self.dirs.lock()

    def load(
        self,
        config_of: Callable[[str], LogConfig] | None = None,
        options: LoadOptions = LoadOptions(),  # noqa: B008 (it does not change)
    ) -> None:
        """Recover every log of every directory.

        Args:
            config_of: returns a topic's settings; None for the defaults.
            options: how many logs are loaded at a time, and who is notified.

        Raises:
            StorageFault: no directory is left.
        """
        for log_dir in self.dirs.online:
            try:
                self._load_dir(log_dir, config_of or (lambda _: self._default_config), options)
            except OSError as error:
                self.dirs.fail(log_dir, "load", error)
            except BadMetaProperties as error:
                self.dirs.fail(log_dir, "load", str(error))
        self.dirs.require_one()

    def _load_dir(
        self, log_dir: LogDir, config_of: Callable[[str], LogConfig], options: LoadOptions
    ) -> None:
        disk, path = self._disk, log_dir.path
        disk.mkdir(path)
        log_dir.meta = read_meta_properties(disk, path)
        clean = disk.size(f"{path}/{CLEAN_SHUTDOWN}") >= 0
        if clean:
            log_dir.broker_epoch = parse_clean_shutdown(disk.read(f"{path}/{CLEAN_SHUTDOWN}"))
            # The file describes the last run, and a new run has begun.
            disk.unlink(f"{path}/{CLEAN_SHUTDOWN}")
            disk.fsync_dir(path)
        # A partition that the checkpoint does not name is younger than the file; without the file
        # nothing is known.
        known = self._checkpoints.read(log_dir)
        found = list(find_logs(disk, log_dir, config_of, clean=clean, known=known))
        for loaded in load_all(disk, found, options, clock=self._clock, entropy=self._entropy):
            self._add_loaded(log_dir, loaded)
        if not known:
            self._checkpoints.write_all(log_dir)

    def _add_loaded(self, log_dir: LogDir, loaded: LoadedLog) -> None:
        found, log, fault = loaded
        key = (found.place.topic, found.place.partition)
        if log is None:
            assert fault is not None
            if found.is_future:
                self.futures.discard_damaged(log_dir, found.place.directory, fault)
            else:
                self.damaged[key] = fault
            return
        log.keeper = self
        log.set_high_watermark(log_dir.high_watermarks.get(key, 0))
        if found.is_future:
            self.futures.add(log_dir, log)
        else:
            newer = self._newer_of_two(log)
            self.table.put(self.dirs.of(newer), newer)

    def _newer_of_two(self, log: PartitionLog) -> PartitionLog:
        """Keep one of a partition's two logs: a crash in the middle of a move leaves both.

        Both held the same records then. The one in use since has later epochs or records; the
        other is set aside.
        """
        known = self.table.get(log.topic, log.partition)
        if known is None:
            return log
        newer, older = (log, known) if _age(log) > _age(known) else (known, log)
        if older is known:
            self.table.take_out((log.topic, log.partition))
        with suppress(StorageFault):  # its directory is offline then, and the other log is usable
            self.dirs.carry_out(self.table.rename_marked(older, STRAY_MARK))
        return newer

    def close(
        self,
        *,
        clean: bool = True,
        broker_epoch: int = -1,
        run_all: Callable[[list[Callable[[], None]]], None] | None = None,
    ) -> None:
        """Stop: sync and checkpoint all logs, mark the stop as clean, release the locks.

        Args:
            clean: False leaves everything as a kill would, except for the locks.
            broker_epoch: kept in `.kafka_cleanshutdown` for the next registration.
            run_all: runs the logs' syncs, perhaps in threads, and returns when all are done;
                syncs that run side by side share the disk's flushes.
        """
        if clean:
            run = run_all or _run_in_sequence
            self.dirs.run_each("close", lambda log_dir: self._close_dir(log_dir, broker_epoch, run))
        for log_dir in self.dirs.all:
            if log_dir.lock is not None:
                log_dir.lock.release()
                log_dir.lock = None
        self._disk.close()

    def _close_dir(
        self,
        log_dir: LogDir,
        broker_epoch: int,
        run_all: Callable[[list[Callable[[], None]]], None],
    ) -> None:
        logs = [*log_dir.logs.values(), *log_dir.futures.values()]
        for log in logs:
            log.prepare_close()
        run_all([log.flush for log in logs if log.needs_sync])
        self._disk.fault_point("logs_synced_before_checkpoints")
        self._checkpoints.write_all(log_dir)
        self._disk.fault_point("checkpoints_before_clean_shutdown_file")
        path = f"{log_dir.path}/{CLEAN_SHUTDOWN}"
        self._disk.replace(path, format_clean_shutdown(broker_epoch))

    # -- logs ------------------------------------------------------------------------------------

    @property
    def damaged(self) -> dict[TopicPartition, StorageFault]:
        """Topic-partitions whose files are damaged; clients get KAFKA_STORAGE_ERROR."""
        return self.table.damaged

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.table.get(topic, partition)

    def logs(self) -> list[PartitionLog]:
        """Return all logs, sorted by topic and partition."""
        return self.table.all()

    @property
    def default_config(self) -> LogConfig:
        """Settings of logs whose topic sets none."""
        return self._default_config

    def set_default_config(self, config: LogConfig) -> None:
        """Use `config` for logs that are created, and topics that are configured, from now on."""
        self._default_config = config

    def log_config(self, values: Mapping[str, Any]) -> LogConfig:
        """Build a topic's settings from its parsed configs; equal ones share one object."""
        config = config_from(values, self._default_config)
        return self._configs.setdefault(config, config)

    def is_offline(self, topic: str, partition: int) -> bool:
        """Return whether this node has the partition's log but cannot use it."""
        key = (topic, partition)
        log = self.table.get(topic, partition)
        return key in self.damaged or (log is not None and log.fault is not None)

    def prefer_directory(self, topic: str, partition: int, path: str) -> None:
        """Create the partition's log in the directory `path`, if it is created at all."""
        self._preferred[topic, partition] = path

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig | None = None,
        *,
        directory_id: Uuid | None = None,
    ) -> PartitionLog:
        """Take all steps of `creation` at once; for callers that may block."""
        return self.dirs.carry_out(
            self.creation(topic, partition, topic_id, config, directory_id=directory_id)
        )

    def ready(self, topic: str, partition: int, topic_id: Uuid | None) -> PartitionLog | None:
        """Return a log that can be used as it is; None if `creation` has something to do.

        Args:
            topic: its name.
            partition: its index.
            topic_id: None if the topic has no id; that of the log stays then.
        """
        log = self.table.get(topic, partition)
        if log is None or log.fault is not None:
            return None
        return log if topic_id is None or log.topic_id == topic_id else None

    def creation(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig | None = None,
        *,
        directory_id: Uuid | None = None,
    ) -> Steps[PartitionLog]:
        """Return a partition's log; create it if there is none (see `LogDirs.pick`).

        No other work on this topic-partition may run meanwhile.

        A copy in the directory that the cluster names replaces a log in another directory: this
        completes a move if the node stopped between its two steps.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if its files are damaged, or its directory is offline,
                or the cluster names a directory that is not here while another is offline.
            StorageFault: the directory failed, or none is online.
        """
        moved = yield from self._complete_move(topic, partition, topic_id, directory_id)
        if moved is not None:
            return moved
        key = (topic, partition)
        if key in self.damaged:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.damaged[key]))
        log = self.table.get(topic, partition)
        if log is not None:
            return (yield from self._usable(log, topic_id))
        if self.dirs.may_hold_offline(directory_id):
            # An empty log in its place would be served, or elected, as if it had no records.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition} is in directory {directory_id}, which is not online",
            )
        log_dir = self.dirs.pick(directory_id, self._preferred.pop(key, None))
        log = yield from self.table.create(
            log_dir,
            partition_dir(topic, partition),
            key,
            topic_id=topic_id,
            config=config or self._default_config,
        )
        self.table.put(log_dir, log)
        return log

    def _complete_move(
        self, topic: str, partition: int, topic_id: Uuid | None, directory_id: Uuid | None
    ) -> Steps[PartitionLog | None]:
        copy = self.futures.get(topic, partition)
        if copy is None or copy.topic_id != topic_id or copy.fault is not None:
            return None
        current = self.table.get(topic, partition)
        usable = current is not None and current.fault is None
        if usable or self.dirs.of(copy).directory_id != directory_id:
            return None
        return (yield from self.futures.swap_in(topic, partition))

    def _usable(self, log: PartitionLog, topic_id: Uuid | None) -> Steps[PartitionLog]:
        """Return an existing log, with its topic id on disk; KafkaError if its directory failed."""
        if log.fault is None and topic_id is not None and log.topic_id is None:
            # A power loss lost it; without it the next clean start would find damage.
            log.set_topic_id(topic_id)
            operation = f"write partition.metadata of {log.name}"
            yield DiskJob(self.dirs.of(log), operation, log.write_metadata)
        if log.fault is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(log.fault))
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Take all steps of `deletion` at once; for callers that may block."""
        self.dirs.carry_out(self.deletion(topic, partition))

    def deletion(self, topic: str, partition: int) -> Steps[None]:
        """Take a log out of use; its files are deleted after `file.delete.delay.ms`.

        Raises:
            StorageFault: the directory failed.
        """
        yield from self.futures.drop(topic, partition)
        log = yield from self.table.set_aside((topic, partition), DELETE_MARK)
        if log is not None:
            self.removal.throw_away(log)

    def mark_stray(self, topic: str, partition: int) -> Steps[None]:
        """Set aside a log that the cluster does not know: renamed, never deleted by this node.

        Raises:
            StorageFault: the directory failed.
        """
        yield from self.table.set_aside((topic, partition), STRAY_MARK)

    def on_damaged(self, log: ReadableLog, detail: str) -> None:
        """A reader met damage (`LogKeeper`)."""
        self.damage.note(log, detail)

    def on_truncated(self, log: ReadableLog) -> None:
        """Remove offsets that will be written again from the checkpoints (`LogKeeper`).

        Raises:
            StorageFault: the disk failed.
        """
        log_dir = self.dirs.at(log.log_dir)
        try:
            self._checkpoints.give_back(log_dir, log)
        except OSError as error:
            raise self.dirs.fail(log_dir, "checkpoint", error) from error

    # -- periodic work ---------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks of every directory."""
        self.dirs.run_each("checkpoint", self._checkpoints.write_all)

    def checkpoint_steps(self) -> Steps[None]:
        """As `checkpoint`, in steps."""
        for log_dir in self.dirs.online:
            steps = self._checkpoints.all_steps(log_dir)
            yield from self.dirs.guarded(log_dir, "checkpoint", steps, failed=None)

    def recovery_point_steps(self, path: str) -> Steps[None]:
        """As `checkpoint_recovery_points`, in steps; afterwards the directory may be offline."""
        log_dir = self.dirs.at(path)
        if log_dir.fault is None:
            steps = self._checkpoints.points_steps(log_dir)
            yield from self.dirs.guarded(log_dir, "checkpoint", steps, failed=None)

    def checkpoint_recovery_points(self, path: str) -> None:
        """Write the recovery points of one directory now.

        Below them a log has no gaps except those that cleaning makes.
        """
        log_dir = self.dirs.at(path)
        if log_dir.fault is None:
            try:
                self._checkpoints.write_points(log_dir)
            except OSError as error:
                raise self.dirs.fail(log_dir, "checkpoint", error) from error

    def moved_starts_steps(self) -> Steps[None]:
        """Write the log start offsets that moved, before the response to their deletion."""
        for log_dir in self.dirs.online:
            steps = self._checkpoints.moved_starts_steps(log_dir)
            yield from self.dirs.guarded(log_dir, "checkpoint", steps, failed=None)

    def release_views(self, *, entirely: bool = False) -> None:
        """Unmap files that were not read since the last call, or all of them (`Disk.view`)."""
        self._disk.release_views(entirely=entirely)

    def due_for_flush(self, now_ms: int) -> list[PartitionLog]:
        """Return logs whose `flush.ms` has passed since their last sync."""
        return [
            log
            for log in self.table.unsorted()
            if log.unflushed_messages > 0 and now_ms - log.last_flush_ms >= log.config.flush_ms
        ]

    def rolled(self) -> list[tuple[PartitionLog, int]]:
        """Return logs with closed segments that are not synced, and where those segments end.

        Syncing them soon bounds what an unclean start has to scan to the last segment.
        """
        return [
            (log, log.active_base)
            for log in self.table.unsorted()
            if log.active_base > log.recovery_point and log.fault is None
        ]

    def flush_due(self, now_ms: int) -> None:
        """Sync the logs of `due_for_flush`; blocks, and may run in another thread."""
        for log in self.due_for_flush(now_ms):
            try:
                log.flush()
            except StorageFault as fault:
                self.dirs.fail(self.dirs.of(log), fault.operation, fault.cause)

    # -- directories -----------------------------------------------------------------------------

    @property
    def directories(self) -> list[LogDir]:
        """The log directories in the order of `log.dirs`."""
        return self.dirs.all

    def directory(self, path: str) -> LogDir:
        """Return the log directory with this path, which must be one of `directories`."""
        return self.dirs.at(path)

    @property
    def offline_directories(self) -> list[LogDir]:
        return self.dirs.offline

    @property
    def cordoned(self) -> frozenset[str]:
        """Paths of directories that take no new logs (`cordoned.log.dirs`, KIP-1066)."""
        return self.dirs.cordoned

    def cordon(self, paths: frozenset[str]) -> None:
        """Replace the set of cordoned directories."""
        self.dirs.cordoned = paths

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last run if it stopped cleanly in every directory, else -1.

        Also -1 if a log is damaged: its replica leaves ISR and ELR at the registration, because the
        controller must not rely on damaged records.
        """
        if self.damaged:
            return -1
        epochs = {log_dir.broker_epoch for log_dir in self.dirs.online}
        return epochs.pop() if len(epochs) == 1 else -1

    def fail_directory(self, fault: StorageFault) -> None:
        """Take the directory that `fault` names offline, with all its logs."""
        for log_dir in self.dirs.all:
            if log_dir.path == fault.log_dir:
                self.dirs.fail(log_dir, fault.operation, fault.cause)

    def describe_dirs(self) -> list[LogDirDescription]:
        """Describe every directory: its volume and the sizes of its logs."""
        return self.dirs.describe()


def _age(log: PartitionLog) -> tuple[int, int]:
    """Compare how far two logs got: newest epoch first, then log end offset."""
    epoch = log.latest_epoch
    return (-1 if epoch is None else epoch, log.log_end_offset)


def _run_in_sequence(works: list[Callable[[], None]]) -> None:
    for work in works:
        work()
