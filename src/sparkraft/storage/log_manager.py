"""All logs of a node: its log directories, their checkpoints, and the rounds over every log.

A directory that fails goes offline with all its logs; the others go on. What the caller must do:

* `load` once, before anything else; `close` at a clean stop.
* every few seconds `flush_due`, each minute `checkpoint`, each few minutes `retention`
  (`log.flush.scheduler.interval.ms`, `log.flush.offset.checkpoint.interval.ms`,
  `log.retention.check.interval.ms`).

Not here: the log of the quorum itself, `__cluster_metadata-0` (`storage.raft_log`).
Not done: moving logs between directories (`-future`), the log cleaner.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.storage.checkpoints import (
    TopicPartition,
    format_clean_shutdown,
    format_offsets,
    parse_clean_shutdown,
    read_offsets,
)
from sparkraft.storage.config import LogConfig, config_from
from sparkraft.storage.disk import DirectoryLock, Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
)
from sparkraft.storage.names import (
    CLEAN_SHUTDOWN,
    DELETE_MARK,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    METADATA_DIR,
    METADATA_TOPIC,
    RECOVERY_POINTS,
    STRAY_MARK,
    PartitionDir,
    marked_dir,
    parse_partition_dir,
    partition_dir,
)
from sparkraft.storage.recovery import LogPlace, load_log


@dataclass(slots=True, kw_only=True)
class LogDir:
    """One directory of `log.dirs`."""

    path: str
    meta: MetaProperties | None = None
    lock: DirectoryLock | None = None
    fault: StorageFault | None = None
    """Why it is offline, None while it works."""
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    """As checkpointed by the last run."""
    broker_epoch: int = -1
    """Of the last run, if it stopped cleanly."""
    metadata_recovery_point: Callable[[], int] = lambda: 0
    """Of the quorum's log, which is not among `logs`: as checkpointed by the last run, until the
    node sets it to what gives the present one; asked at each checkpoint."""

    @property
    def directory_id(self) -> Uuid | None:
        """Its id from `meta.properties`."""
        return self.meta.directory_id if self.meta else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A directory as DescribeLogDirs tells it."""

    path: str
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]
    fault: StorageFault | None

    @property
    def online(self) -> bool:
        """Whether it works."""
        return self.fault is None


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
        self._trash: list[tuple[int, LogDir, str]] = []
        self._configs: dict[LogConfig, LogConfig] = {}

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

    def load(self, config_of: Callable[[str], LogConfig] | None = None) -> None:
        """Recover every log of every directory.

        Args:
            config_of: a topic's settings; the defaults where it is None.

        Raises:
            StorageFault: no directory is left.
        """
        for log_dir in self._dirs:
            if log_dir.fault is None:
                try:
                    self._load_dir(log_dir, config_of)
                except OSError as error:
                    self._fail(log_dir, "load", error)
                except BadMetaProperties as error:
                    self._fail(log_dir, "load", str(error))
        self._require_one()

    def _load_dir(self, log_dir: LogDir, config_of: Callable[[str], LogConfig] | None) -> None:
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
        known = disk.size(f"{path}/{RECOVERY_POINTS}") >= 0
        points = read_offsets(disk, f"{path}/{RECOVERY_POINTS}")
        starts = read_offsets(disk, f"{path}/{LOG_START_OFFSETS}")
        log_dir.high_watermarks = read_offsets(disk, f"{path}/{HIGH_WATERMARKS}")
        metadata_point = points.get((METADATA_TOPIC, 0), 0)
        log_dir.metadata_recovery_point = lambda: metadata_point
        for name in disk.listdir(path):
            parsed = parse_partition_dir(name)
            if parsed is None or name == METADATA_DIR or not disk.is_dir(f"{path}/{name}"):
                continue
            if parsed.mark:
                self._load_marked(log_dir, name, parsed)
                continue
            place = LogPlace(
                log_dir=path,
                directory=f"{path}/{name}",
                topic=parsed.topic,
                partition=parsed.partition,
                clean=clean,
                recovery_point=points.get((parsed.topic, parsed.partition), 0 if known else None),
                log_start_offset=max(0, starts.get((parsed.topic, parsed.partition), 0)),
            )
            self._load_one(log_dir, place, config_of)
        if not known:
            self._checkpoint_dir(log_dir)

    def _load_marked(self, log_dir: LogDir, name: str, parsed: PartitionDir) -> None:
        """Finish a deletion; strays and Kafka's half moved copies stay as they are."""
        if parsed.mark == DELETE_MARK:
            self._disk.remove_tree(f"{log_dir.path}/{name}")

    def _load_one(
        self, log_dir: LogDir, place: LogPlace, config_of: Callable[[str], LogConfig] | None
    ) -> None:
        key = (place.topic, place.partition)
        config = config_of(place.topic) if config_of else self.default_config
        if key in self._logs:
            self._fail(log_dir, "load", f"{place.topic}-{place.partition} is in two directories")
            return
        try:
            log = load_log(self._disk, place, config, clock=self._clock, entropy=self._entropy)
        except StorageFault as fault:
            if isinstance(fault.cause, OSError):
                raise fault.cause from fault
            self.damaged[key] = fault
            return
        mark = log_dir.high_watermarks.get(key, 0)
        log.set_high_watermark(mark)
        self._logs[key] = log_dir.logs[key] = log

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
        logs = list(log_dir.logs.values())
        for log in logs:
            log.prepare_close()
        run_all([log.flush for log in logs if log.unflushed_messages > 0])
        self._checkpoint_dir(log_dir)
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

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR where its files are damaged.
            StorageFault: the directory failed; or none is online.
        """
        key = (topic, partition)
        if key in self.damaged:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.damaged[key]))
        log = self._logs.get(key)
        if log is not None:
            return log
        log_dir = self._pick_dir(directory_id)
        path = f"{log_dir.path}/{partition_dir(topic, partition)}"
        place = LogPlace(
            log_dir=log_dir.path, directory=path, topic=topic, partition=partition, clean=True
        )
        try:
            self._disk.mkdir(path)
        except OSError as error:
            raise self._fail(log_dir, f"create {topic}-{partition}", error) from error
        log = load_log(
            self._disk,
            place,
            config or self.default_config,
            clock=self._clock,
            entropy=self._entropy,
        )
        if topic_id is not None and log.topic_id is None:
            log.set_topic_id(topic_id)
            log.write_metadata()
        self._logs[key] = log_dir.logs[key] = log
        return log

    create = get_or_create

    def _pick_dir(self, directory_id: Uuid | None) -> LogDir:
        online = [log_dir for log_dir in self._dirs if log_dir.fault is None]
        for log_dir in online:
            if directory_id is not None and log_dir.directory_id == directory_id:
                return log_dir
        if not online:
            raise self._no_directory()
        return min(online, key=lambda log_dir: len(log_dir.logs))

    def delete(self, topic: str, partition: int) -> None:
        """Take a log out of service at once; its files go after `file.delete.delay.ms`."""
        log = self._take_out(topic, partition, DELETE_MARK)
        if log is not None:
            when = self._clock.wall_ms() + log.config.file_delete_delay_ms
            self._trash.append((when, self._dir_of(log), log.directory))

    def mark_stray(self, topic: str, partition: int) -> None:
        """Put a log aside that the cluster does not know: renamed, never removed by itself."""
        self._take_out(topic, partition, STRAY_MARK)

    def _take_out(self, topic: str, partition: int, mark: str) -> PartitionLog | None:
        log = self._logs.pop((topic, partition), None)
        if log is None:
            return None
        log_dir = self._dir_of(log)
        log_dir.logs.pop((topic, partition), None)
        unique = random_uuid(self._entropy)
        name = f"{log_dir.path}/{marked_dir(topic, partition, unique, mark)}"
        try:
            self._disk.rename(log.directory, name)
            self._disk.fsync_dir(log_dir.path)
        except OSError as error:
            raise self._fail(log_dir, f"remove {topic}-{partition}", error) from error
        log.moved_to(name, log_dir.path)
        log.take_offline(StorageFault(log_dir.path, f"use {topic}-{partition}", "it was deleted"))
        return log

    def _dir_of(self, log: PartitionLog) -> LogDir:
        return self.directory(log.log_dir)

    # -- rounds ----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks of every directory."""
        self._each_dir("checkpoint", self._checkpoint_dir)

    def _checkpoint_dir(self, log_dir: LogDir) -> None:
        points, marks = {}, {}
        for key, log in log_dir.logs.items():
            points[key] = int(log.recovery_point)
            marks[key] = int(log.high_watermark)
        if metadata_point := log_dir.metadata_recovery_point():
            points[METADATA_TOPIC, 0] = metadata_point
        self._disk.replace(f"{log_dir.path}/{RECOVERY_POINTS}", format_offsets(points))
        self._checkpoint_starts(log_dir)
        self._disk.replace(f"{log_dir.path}/{HIGH_WATERMARKS}", format_offsets(marks))

    def _checkpoint_starts(self, log_dir: LogDir) -> None:
        starts = {
            key: int(log.log_start_offset)
            for key, log in log_dir.logs.items()
            if log.log_start_offset > log.segment_base_offsets[0]
        }
        self._disk.replace(f"{log_dir.path}/{LOG_START_OFFSETS}", format_offsets(starts))

    def retention(self, now_ms: int) -> int:
        """Remove segments that may go, expire producers, empty the trash; segments removed."""
        removed = 0
        for log_dir in self._dirs:
            if log_dir.fault is None:
                removed += self._removing(log_dir, partial(self._retain_dir, log_dir, now_ms))
        return removed

    def empty_trash(self, now_ms: int) -> int:
        """Remove deleted logs and segments whose `file.delete.delay.ms` is over; the logs."""
        removed = 0
        for log_dir in self._dirs:
            if log_dir.fault is None:
                removed += self._removing(log_dir, partial(self._empty_trash, log_dir, now_ms))
        return removed

    def _removing(self, log_dir: LogDir, work: Callable[[], int]) -> int:
        try:
            return work()
        except StorageFault as fault:
            self._fail(log_dir, fault.operation, fault.cause)
        except OSError as error:
            self._fail(log_dir, "remove old segments", error)
        return 0

    def _retain_dir(self, log_dir: LogDir, now_ms: int) -> int:
        expired = [log for log in log_dir.logs.values() if self._begins_later(log, now_ms)]
        if expired:
            # One checkpoint for all, on disk before the first file goes: no crash brings back
            # records that were deleted, nor leaves a hole in front of others.
            self._checkpoint_starts(log_dir)
        removed = sum(log.apply_retention(now_ms) for log in expired)
        for log in log_dir.logs.values():
            log.expire_producers(now_ms)
        self._empty_trash(log_dir, now_ms)
        return removed

    def _empty_trash(self, log_dir: LogDir, now_ms: int) -> int:
        for log in log_dir.logs.values():
            log.remove_deleted_files(now_ms)
        due = [entry for entry in self._trash if entry[0] <= now_ms and entry[1] is log_dir]
        for entry in due:
            self._trash.remove(entry)
            self._disk.remove_tree(entry[2])
        return len(due)

    def _begins_later(self, log: PartitionLog, now_ms: int) -> bool:
        until = log.expired_until(now_ms)
        if until <= log.segment_base_offsets[0]:
            return False
        log.advance_log_start(until)
        return True

    def due_for_flush(self, now_ms: int) -> list[PartitionLog]:
        """Logs whose `flush.ms` has passed since their last sync."""
        return [
            log
            for log in self._logs.values()
            if log.unflushed_messages > 0 and now_ms - log.last_flush_ms >= log.config.flush_ms
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
        """Broker epoch of the last run if it stopped cleanly in every directory, else -1."""
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
        for log in log_dir.logs.values():
            log.take_offline(log_dir.fault)
        return fault

    def _require_one(self) -> None:
        if all(log_dir.fault is not None for log_dir in self._dirs):
            raise self._no_directory()

    def _no_directory(self) -> StorageFault:
        for log_dir in self._dirs:
            if log_dir.fault is not None:
                return log_dir.fault
        return StorageFault("-", "open", "no log directory is configured")


def _run_in_turn(works: list[Callable[[], None]]) -> None:
    for work in works:
        work()
