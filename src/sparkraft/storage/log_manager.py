"""All logs of a node: its log directories, their checkpoints, and the rounds over every log.

A directory that fails goes offline with all its logs; the others go on. What the caller must do:

* `load` once, before anything else; `close` at a clean stop.
* every few seconds `flush_due`, each minute `checkpoint`, each few minutes `removal.retention`
  (`log.flush.scheduler.interval.ms`, `log.flush.offset.checkpoint.interval.ms`,
  `log.retention.check.interval.ms`).

Not here: the log of the quorum itself, `__cluster_metadata-0` (`storage.raft_log`); which log is
cleaned next (`storage.cleaner_manager`); what is removed, and when (`storage.removal`).
Copies on their way to another directory (`-future`): `storage.future_logs`.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.storage.checkpoints import (
    format_clean_shutdown,
    parse_clean_shutdown,
)
from sparkraft.storage.config import LogConfig, config_from
from sparkraft.storage.damaged_logs import DamagedLogs
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.future_logs import FutureLogs
from sparkraft.storage.loading import LoadedLog, LoadOptions, find_logs, load_all
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import LogDir, LogDirDescription
from sparkraft.storage.log_view import ReadableLog
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    read_meta_properties,
)
from sparkraft.storage.names import (
    CLEAN_SHUTDOWN,
    DELETE_MARK,
    LOCK,
    STRAY_MARK,
    marked_dir,
    partition_dir,
)
from sparkraft.storage.recovery import LogPlace, load_log
from sparkraft.storage.removal import Removal

_UNASSIGNED = Uuid((1).to_bytes(16, "big"))
"""The directory of a replica that is new: its broker is to choose one (KIP-858)."""


class LogManager:
    """The logs of one node."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: Iterable[str],
        default_config: LogConfig,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """Nothing is read before `load`."""
        self._disk = disk
        self._dirs = [LogDir(path=path) for path in log_dirs]
        self.default_config = default_config
        self._clock = clock
        self._entropy = entropy
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.damaged: dict[TopicPartition, StorageFault] = {}
        """Partitions whose files are damaged; they answer KAFKA_STORAGE_ERROR."""
        self.damage = DamagedLogs(self, disk, entropy)
        self._checkpoints = DirCheckpoints(disk, self.damaged)
        self.removal = Removal(self, disk, self._checkpoints, clock)
        self._configs: dict[LogConfig, LogConfig] = {}
        self.preferred: dict[TopicPartition, str] = {}
        """Directories that AlterReplicaLogDirs chose for logs that aren't there yet."""
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that take no new logs (`cordoned.log.dirs`, KIP-1066)."""
        self.futures = FutureLogs(self, disk, clock=clock, entropy=entropy)

    # -- start and stop --------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the `.lock` of every directory.

        Raises:
            DirectoryLocked: another process has one.
            StorageFault: not a single directory is usable.
        """
        for log_dir in self._dirs:
            try:
                self._disk.mkdir(log_dir.path)
                log_dir.lock = self._disk.lock(f"{log_dir.path}/{LOCK}")
            except OSError as error:
                self._fail(log_dir, "open", error)
        self._require_one()

    def load(
        self,
        config_of: Callable[[str], LogConfig] | None = None,
        options: LoadOptions = LoadOptions(),  # noqa: B008 (it does not change)
    ) -> None:
        """Recover every log of every directory.

        Args:
            config_of: a topic's settings; the defaults where it is None.
            options: how many at a time, and who is told.

        Raises:
            StorageFault: no directory is left.
        """
        for log_dir in self._dirs:
            if log_dir.fault is None:
                try:
                    self._load_dir(log_dir, config_of, options)
                except OSError as error:
                    self._fail(log_dir, "load", error)
                except BadMetaProperties as error:
                    self._fail(log_dir, "load", str(error))
        self._require_one()

    def _load_dir(
        self,
        log_dir: LogDir,
        config_of: Callable[[str], LogConfig] | None,
        options: LoadOptions,
    ) -> None:
        disk, path = self._disk, log_dir.path
        disk.mkdir(path)
        log_dir.meta = read_meta_properties(disk, path)
        clean = disk.size(f"{path}/{CLEAN_SHUTDOWN}") >= 0
        if clean:
            log_dir.broker_epoch = parse_clean_shutdown(disk.read(f"{path}/{CLEAN_SHUTDOWN}"))
            # It speaks of the last run only, and this one has begun.
            disk.unlink(f"{path}/{CLEAN_SHUTDOWN}")
            disk.fsync_dir(path)
        # A partition it does not name is younger than the file; without one nothing is known.
        known = self._checkpoints.read(log_dir)
        found = list(find_logs(disk, log_dir, self._config_of(config_of), clean=clean, known=known))
        for loaded in load_all(disk, found, options, clock=self._clock, entropy=self._entropy):
            self._take_over(log_dir, loaded)
        if not known:
            self._checkpoints.write_all(log_dir)

    def _config_of(
        self, config_of: Callable[[str], LogConfig] | None
    ) -> Callable[[str], LogConfig]:
        return config_of or (lambda _: self.default_config)

    def _take_over(self, log_dir: LogDir, loaded: LoadedLog) -> None:
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
            self.put(self._dir_of(newer), newer)

    def _newer_of_two(self, log: PartitionLog) -> PartitionLog:
        """Keep one of a partition's two logs: a crash in the middle of a move leaves both.

        Both held the same then. The one that went on since has later epochs or records; the other
        is set aside.
        """
        known = self._logs.pop((log.topic, log.partition), None)
        if known is None:
            return log
        self._dir_of(known).logs.pop((log.topic, log.partition))
        newer, older = (log, known) if _age(log) > _age(known) else (known, log)
        with suppress(StorageFault):  # its directory is offline then, and the other's log is there
            self.rename_marked(older, STRAY_MARK)
        return newer

    def close(
        self,
        *,
        clean: bool = True,
        broker_epoch: int = -1,
        run_all: Callable[[list[Callable[[], None]]], None] | None = None,
    ) -> None:
        """Stop: sync and checkpoint all, mark the stop as clean, release the locks.

        Args:
            clean: False leaves everything as a kill would, but for the locks.
            broker_epoch: kept in `.kafka_cleanshutdown` for the next registration.
            run_all: runs the logs' syncs, perhaps in threads, and returns when all are done; syncs
                side by side share the disk's flushes.
        """
        for log_dir in self._dirs:
            if clean and log_dir.fault is None:
                try:
                    self._close_dir(log_dir, broker_epoch, run_all or _run_in_turn)
                except OSError as error:
                    self._fail(log_dir, "close", error)
                except StorageFault as fault:
                    self._fail(log_dir, fault.operation, fault.cause)
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

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, None where this node has none."""
        return self._logs.get((topic, partition))

    def logs(self) -> list[PartitionLog]:
        """All logs, by topic and partition."""
        return [self._logs[key] for key in sorted(self._logs)]

    def log_config(self, values: Mapping[str, Any]) -> LogConfig:
        """A topic's settings from its parsed configs; equal ones are one object, to save memory."""
        config = config_from(values, self.default_config)
        return self._configs.setdefault(config, config)

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether this node has the partition's log but can't use it."""
        key = (topic, partition)
        log = self._logs.get(key)
        return key in self.damaged or (log is not None and log.fault is not None)

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig | None = None,
        *,
        directory_id: Uuid | None = None,
    ) -> PartitionLog:
        """A partition's log, made if there is none; in the emptiest directory unless told.

        A copy in the directory the cluster names takes the place of a log elsewhere: a node that
        stopped between the two steps of a move ends it so.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR where its files are damaged, or its directory is
                offline, or the cluster names one that isn't here while another is offline.
            StorageFault: the directory failed; or none is online.
        """
        key = (topic, partition)
        copy = self.futures.get(topic, partition)
        if copy is not None and copy.topic_id == topic_id and copy.fault is None:
            current = self._logs.get(key)
            usable = current is not None and current.fault is None
            if not usable and self._dir_of(copy).directory_id == directory_id:
                return self.futures.swap_in(topic, partition)
        if key in self.damaged:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.damaged[key]))
        log = self._logs.get(key)
        if log is not None:
            if log.fault is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(log.fault))
            if topic_id is not None and log.topic_id is None:
                # A power loss took it; left like that, the next clean start would find damage.
                log.set_topic_id(topic_id)
                log.write_metadata()
            return log
        self._check_not_elsewhere(topic, partition, directory_id)
        log_dir = self._pick_dir(directory_id, self.preferred.pop(key, None))
        log = self.make_log(
            log_dir, partition_dir(topic, partition), topic, partition, topic_id, config
        )
        self.put(log_dir, log)
        return log

    def _check_not_elsewhere(self, topic: str, partition: int, directory_id: Uuid | None) -> None:
        """Refuse to make a log that may lie in a directory that is offline (KIP-858).

        An empty one in its place would be served, or elected, as if the records had never been.
        """
        if directory_id is None or directory_id == _UNASSIGNED or not self.offline_directories:
            return
        if all(log_dir.directory_id != directory_id for log_dir in self._dirs if not log_dir.fault):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition} lies in directory {directory_id}, which isn't online",
            )

    def make_log(
        self,
        log_dir: LogDir,
        name: str,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig | None,
    ) -> PartitionLog:
        """A new, empty log in a folder called `name`; in no table yet.

        Raises:
            StorageFault: the directory failed.
        """
        path = f"{log_dir.path}/{name}"
        place = LogPlace(
            log_dir=log_dir.path, directory=path, topic=topic, partition=partition, clean=True
        )
        try:
            self._disk.mkdir(path)
        except OSError as error:
            raise self._fail(log_dir, f"create {topic}-{partition}", error) from error
        self._disk.fault_point("log_folder_made_before_its_files")
        try:
            self._checkpoints.forget(log_dir, (topic, partition))
        except OSError as error:
            raise self._fail(log_dir, "checkpoint", error) from error
        log = load_log(
            self._disk,
            place,
            config or self.default_config,
            clock=self._clock,
            entropy=self._entropy,
        )
        log.keeper = self
        if topic_id is not None and log.topic_id is None:
            log.set_topic_id(topic_id)
            log.write_metadata()
        return log

    create = get_or_create

    def put(self, log_dir: LogDir, log: PartitionLog) -> None:
        """Let `log` be the partition's log, in this directory."""
        key = (log.topic, log.partition)
        self._logs[key] = log_dir.logs[key] = log

    def _pick_dir(self, directory_id: Uuid | None, preferred: str | None) -> LogDir:
        """The one the cluster or an operator chose; else the emptiest that isn't cordoned.

        Where all are cordoned the emptiest of them: the cluster has given us the replica already.
        """
        online = [log_dir for log_dir in self._dirs if log_dir.fault is None]
        for log_dir in online:
            if preferred is not None and log_dir.path == preferred:
                return log_dir
        for log_dir in online:
            if directory_id is not None and log_dir.directory_id == directory_id:
                return log_dir
        if not online:
            raise self._no_directory()
        open_dirs = [log_dir for log_dir in online if log_dir.path not in self.cordoned]
        return min(open_dirs or online, key=lambda log_dir: len(log_dir.logs))

    def delete(self, topic: str, partition: int) -> None:
        """Take a log out of service at once; its files go after `file.delete.delay.ms`."""
        self.futures.drop(topic, partition)
        log = self._take_out(topic, partition, DELETE_MARK)
        if log is not None:
            self.removal.throw_away(log)

    def on_damaged(self, log: ReadableLog, detail: str) -> None:
        """A reader met damage."""
        self.damage.note(log, detail)

    def forget_damaged(self, log: PartitionLog, fault: StorageFault) -> None:
        """Take a log out of every table; its partition is damaged from now on."""
        key = (log.topic, log.partition)
        self.damaged[key] = fault
        self._logs.pop(key)
        self._dir_of(log).logs.pop(key)

    def mark_stray(self, topic: str, partition: int) -> None:
        """Put a log aside that the cluster does not know: renamed, never removed by itself."""
        self._take_out(topic, partition, STRAY_MARK)

    def take_out_for_move(self, topic: str, partition: int) -> PartitionLog | None:
        """Forget a partition's log, whose copy takes its place; its files stay."""
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            log_dir = self._dir_of(log)
            log_dir.logs.pop((topic, partition), None)
            log_dir.cleaned.pop((topic, partition), None)
        self.damaged.pop((topic, partition), None)
        self.damage.reads.pop((topic, partition), None)
        return log

    def _take_out(self, topic: str, partition: int, mark: str) -> PartitionLog | None:
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return None
        log_dir = self._dir_of(log)
        log_dir.logs.pop((topic, partition), None)
        log_dir.cleaned.pop((topic, partition), None)
        self.damage.reads.pop((topic, partition), None)
        self.rename_marked(log, mark)
        return log

    def rename_marked(self, log: PartitionLog, mark: str) -> None:
        """Mark a log's folder; the log is of no use from then on.

        Raises:
            StorageFault: the directory failed.
        """
        log_dir = self._dir_of(log)
        topic, partition = log.topic, log.partition
        unique = random_uuid(self._entropy)
        name = f"{log_dir.path}/{marked_dir(topic, partition, unique, mark)}"
        # First: an fsync in another thread must not take the rename for a failure of the disk.
        log.take_offline(StorageFault(log_dir.path, f"use {topic}-{partition}", "it was deleted"))
        try:
            self._disk.rename(log.directory, name)
            self._disk.fault_point("log_renamed_before_sync")
            self._disk.fsync_dir(log_dir.path)
        except OSError as error:
            raise self._fail(log_dir, f"remove {topic}-{partition}", error) from error
        log.moved_to(name, log_dir.path)

    def _dir_of(self, log: PartitionLog) -> LogDir:
        return self.directory(log.log_dir)

    # -- rounds ----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks of every directory."""
        self._each_dir("checkpoint", self._checkpoints.write_all)

    def release_views(self, *, entirely: bool = False) -> None:
        """Let go of mapped files nobody read since the last call, or of all (`Disk.view`)."""
        self._disk.release_views(entirely=entirely)

    def checkpoint_recovery_points(self, path: str) -> None:
        """Write the recovery points of one directory now.

        What is below them has no holes but those that cleaning makes.
        """
        log_dir = self.directory(path)
        if log_dir.fault is None:
            try:
                self._checkpoints.write_points(log_dir)
            except OSError as error:
                raise self._fail(log_dir, "checkpoint", error) from error

    def keep_log_starts(self) -> None:
        """Write the log start offsets that moved; before somebody hears that records are gone."""
        self._each_dir("checkpoint", self._checkpoints.write_moved_starts)

    def on_truncated(self, log: PartitionLog) -> None:
        """Let no checkpoint speak of offsets that will be written anew.

        Raises:
            StorageFault: the disk failed.
        """
        log_dir = self._dir_of(log)
        try:
            self._checkpoints.give_back(log_dir, log)
        except OSError as error:
            raise self._fail(log_dir, "checkpoint", error) from error

    def due_for_flush(self, now_ms: int) -> list[PartitionLog]:
        """Logs whose `flush.ms` has passed since their last sync."""
        return [
            log
            for log in self._logs.values()
            if log.unflushed_messages > 0 and now_ms - log.last_flush_ms >= log.config.flush_ms
        ]

    def rolled(self) -> list[tuple[PartitionLog, int]]:
        """Logs with closed segments that aren't synced, and where those end.

        Syncing them soon bounds what an unclean start has to walk to the last segment.
        """
        return [
            (log, log.active_base)
            for log in self._logs.values()
            if log.active_base > log.recovery_point and log.fault is None
        ]

    def flush_due(self, now_ms: int) -> None:
        """Sync the logs of `due_for_flush`; blocks, and may run in another thread."""
        for log in self.due_for_flush(now_ms):
            try:
                log.flush()
            except StorageFault as fault:
                self._fail(self._dir_of(log), fault.operation, fault.cause)

    def _each_dir(self, operation: str, work: Callable[[LogDir], None]) -> None:
        for log_dir in self._dirs:
            if log_dir.fault is None:
                try:
                    work(log_dir)
                except OSError as error:
                    self._fail(log_dir, operation, error)

    # -- directories -----------------------------------------------------------------------------

    @property
    def directories(self) -> list[LogDir]:
        """The log directories in the order of `log.dirs`."""
        return self._dirs

    def directory(self, path: str) -> LogDir:
        """The log directory of this path, which is one of `directories`."""
        return next(log_dir for log_dir in self._dirs if log_dir.path == path)

    @property
    def offline_directories(self) -> list[LogDir]:
        """Those that failed."""
        return [log_dir for log_dir in self._dirs if log_dir.fault is not None]

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last run if it stopped cleanly in every directory, else -1.

        Also -1 where a log is damaged: at the registration its replica leaves ISR and ELR.
        """
        if self.damaged:
            return -1  # the controller must not count on what is damaged
        epochs = {log_dir.broker_epoch for log_dir in self._dirs if log_dir.fault is None}
        return epochs.pop() if len(epochs) == 1 else -1

    def fail_directory(self, fault: StorageFault) -> None:
        """Take a directory offline, with all its logs, because of `fault`."""
        for log_dir in self._dirs:
            if log_dir.path == fault.log_dir:
                self._fail(log_dir, fault.operation, fault.cause)

    def describe_dirs(self) -> list[LogDirDescription]:
        """Every directory with its volume and the sizes of its logs."""
        return [self._describe(log_dir) for log_dir in self._dirs]

    def _describe(self, log_dir: LogDir) -> LogDirDescription:
        total = usable = -1
        if log_dir.fault is None:
            try:
                total, usable = self._disk.usable_bytes(log_dir.path)
            except OSError as error:
                self._fail(log_dir, "describe", error)
        sizes = {key: log.size_in_bytes for key, log in sorted(log_dir.logs.items())}
        return LogDirDescription(
            path=log_dir.path,
            total_bytes=total,
            usable_bytes=usable,
            sizes=sizes,
            fault=log_dir.fault,
        )

    def _fail(self, log_dir: LogDir, operation: str, cause: OSError | str) -> StorageFault:
        fault = StorageFault(log_dir.path, operation, cause)
        if log_dir.fault is None:
            log_dir.fault = fault
        for log in [*log_dir.logs.values(), *log_dir.futures.values()]:
            log.take_offline(log_dir.fault)
        return fault

    def on_error(self, log_dir: LogDir, operation: str, cause: OSError | str) -> StorageFault:
        """Take a directory offline because something failed in it; the fault, to be raised."""
        return self._fail(log_dir, operation, cause)

    def checkpoint_dir(self, log_dir: LogDir) -> None:
        """Write one directory's checkpoints now."""
        self._checkpoints.write_all(log_dir)

    def _require_one(self) -> None:
        if all(log_dir.fault is not None for log_dir in self._dirs):
            raise self._no_directory()

    def _no_directory(self) -> StorageFault:
        for log_dir in self._dirs:
            if log_dir.fault is not None:
                return log_dir.fault
        return StorageFault("-", "open", "no log directory is configured")


def _age(log: PartitionLog) -> tuple[int, int]:
    """How far a log went: its newest epoch, then its end."""
    epoch = log.latest_epoch
    return (-1 if epoch is None else epoch, log.log_end_offset)


def _run_in_turn(works: list[Callable[[], None]]) -> None:
    for work in works:
        work()
