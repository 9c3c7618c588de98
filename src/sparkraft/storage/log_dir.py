"""One directory of `log.dirs`: its identity, its logs, and why it is offline if it is."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple, TypeVar

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.storage.disk import DirectoryLock, Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.meta_properties import MetaProperties


class DiskJob(NamedTuple):
    """Work that only waits for the disk; may run in any thread.

    It raises `OSError` or `StorageFault` if the disk fails.
    """

    log_dir: "LogDir"
    """The directory that goes offline if it fails."""
    operation: str
    work: Callable[[], None]
    syncs: bool = False
    """Whether the entries of `log_dir` are synced afterwards, once for jobs that run together."""
    replaces: str = ""
    """The file that is written as a whole: of several jobs that run together the last is enough."""


Result = TypeVar("Result")

Steps = Generator[int | DiskJob, None, Result]
"""Work on many logs, step by step: a number of logs that were handled, so that the caller can let
others run, or a job that the caller carries out before it continues."""


@dataclass(slots=True, kw_only=True)
class LogDir:
    """One directory of `log.dirs`."""

    path: str
    meta: MetaProperties | None = None
    lock: DirectoryLock | None = None
    fault: StorageFault | None = None
    """Why it is offline, None while it works."""
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    futures: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    """Copies that will replace a log in another directory."""
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    """As checkpointed by the last run."""
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    """As they are on disk."""
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    """As they are on disk: logs that begin in the middle of their first segment."""
    cleaned: dict[TopicPartition, int] = field(default_factory=dict)
    """Offset at which the last cleaning of each log ended (`storage.cleaner_manager`)."""
    collections: list[set[TopicPartition]] = field(default_factory=list)
    """One for each checkpoint that is being collected: logs truncated or created meanwhile."""
    creating: set[TopicPartition] = field(default_factory=set)
    """Logs whose folder is being created here."""
    checkpoint_lock: Lock = field(default_factory=Lock)
    """Held while a checkpoint file is replaced."""
    checkpoint_versions: dict[str, int] = field(default_factory=dict)
    """File name → number of its newest content, written or about to be."""
    written_versions: dict[str, int] = field(default_factory=dict)
    """File name → number of the content on disk; guarded by `checkpoint_lock`."""
    broker_epoch: int = -1
    """Of the last run, if it stopped cleanly."""
    metadata_recovery_point: Callable[[], int] = lambda: 0
    """Returns the recovery point of the quorum's log, which is not among `logs`: the one
    checkpointed by the last run, until the node replaces it. Called at each checkpoint."""

    def set_metadata_recovery_point(self, point: Callable[[], int]) -> None:
        """Checkpoint what `point` returns from now on."""
        self.metadata_recovery_point = point

    def require_online(self) -> None:
        """Raise `StorageFault` if the directory is offline."""
        if self.fault is not None:
            raise StorageFault(self.path, self.fault.operation, self.fault.cause)

    def revise(self, key: TopicPartition) -> None:
        """Note that offsets collected of a log may be older than a truncation, or its creation."""
        for revised in self.collections:
            revised.add(key)

    def all_logs(self) -> "list[tuple[TopicPartition, PartitionLog]]":
        """Logs, and copies on their way to be one."""
        return [*self.logs.items(), *self.futures.items()]

    @property
    def directory_id(self) -> Uuid | None:
        """Its id from `meta.properties`."""
        return self.meta.directory_id if self.meta else None


class FailedJob(NamedTuple):
    """A job whose disk failed."""

    job: DiskJob
    error: OSError | StorageFault


def run_jobs(disk: Disk, jobs: Sequence[DiskJob]) -> list[FailedJob]:
    """Carry out jobs in their order, then sync directories; in any thread.

    After a failure the other jobs of its directory are left out: it goes offline.
    """
    last = {job.replaces: job for job in jobs if job.replaces}
    failed: dict[str, FailedJob] = {}
    unsynced: dict[str, DiskJob] = {}
    for job in jobs:
        path = job.log_dir.path
        if path in failed or (job.replaces and last[job.replaces] is not job):
            continue
        try:
            job.work()
        except (OSError, StorageFault) as error:
            failed[path] = FailedJob(job, error)
            continue
        if job.syncs:
            unsynced[path] = job
    for path, job in unsynced.items():
        if path in failed:
            continue
        try:
            disk.fsync_dir(path)
        except OSError as error:
            failed[path] = FailedJob(job, error)
    return list(failed.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A directory as DescribeLogDirs reports it."""

    path: str
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]
    fault: StorageFault | None

    @property
    def online(self) -> bool:
        """Whether it works."""
        return self.fault is None
