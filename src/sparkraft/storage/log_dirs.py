"""The log directories of a node and their health: locks, failures, choice, description.

A directory that fails goes offline with all its logs, and stays offline until the node restarts;
the others continue. Every failure of a disk ends in `LogDirs.fail`.

Not here: which logs are in use (`storage.log_table`); loading and closing (`storage.log_manager`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sparkraft.base.ids import Uuid
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import (
    DiskJob,
    FailedJob,
    LogDir,
    LogDirDescription,
    Steps,
    run_jobs,
)
from sparkraft.storage.names import LOCK

Result = TypeVar("Result")

UNASSIGNED_DIRECTORY = Uuid((1).to_bytes(16, "big"))
"""The directory id of a new replica: its broker chooses the directory (KIP-858)."""


class LogDirs:
    """The directories in the order of `log.dirs`.

    Args:
        disk: opens, locks and measures them.
        paths: at least one; nothing is touched before `lock`.
    """

    def __init__(self, disk: Disk, paths: Iterable[str]) -> None:
        self._disk = disk
        self.all = [LogDir(path=path) for path in paths]
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that take no new logs (`cordoned.log.dirs`, KIP-1066)."""

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.all if log_dir.fault is None]

    @property
    def offline(self) -> list[LogDir]:
        return [log_dir for log_dir in self.all if log_dir.fault is not None]

    def at(self, path: str) -> LogDir:
        """Return the directory with this path, which must be one of `log.dirs`."""
        return next(log_dir for log_dir in self.all if log_dir.path == path)

    def of(self, log: PartitionLog) -> LogDir:
        """Return the directory that holds `log`."""
        return self.at(log.log_dir)

    # -- health ----------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the `.lock` of every directory; one that cannot be opened goes offline.

        Raises:
            DirectoryLocked: another process holds one.
            StorageFault: no directory is usable.
        """
        for log_dir in self.all:
            try:
                self._disk.mkdir(log_dir.path)
                log_dir.lock = self._disk.lock(f"{log_dir.path}/{LOCK}")
            except OSError as error:
                self.fail(log_dir, "open", error)
        self.require_one()

    def fail(self, log_dir: LogDir, operation: str, cause: OSError | str) -> StorageFault:
        """Take a directory offline with all its logs; return the fault, for the caller to raise."""
        fault = StorageFault(log_dir.path, operation, cause)
        if log_dir.fault is None:
            log_dir.fault = fault
        for log in [*log_dir.logs.values(), *log_dir.futures.values()]:
            log.take_offline(log_dir.fault)
        return fault

    def run_each(self, operation: str, work: Callable[[LogDir], None]) -> None:
        """Run `work` on every online directory; one whose disk fails in it goes offline."""
        for log_dir in self.online:
            try:
                work(log_dir)
            except StorageFault as fault:
                self.fail(log_dir, fault.operation, fault.cause)
            except OSError as error:
                self.fail(log_dir, operation, error)

    def guarded(
        self, log_dir: LogDir, operation: str, steps: Steps[Result], *, failed: Result
    ) -> Steps[Result]:
        """The steps of one directory; they end, with `failed`, if its disk fails in one."""
        try:
            return (yield from steps)
        except StorageFault as fault:
            self.fail(log_dir, fault.operation, fault.cause)
        except OSError as error:
            self.fail(log_dir, operation, error)
        return failed

    def carry_out(self, steps: Steps[Result]) -> Result:
        """Take all steps at once, jobs included; for callers that may block."""
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, DiskJob):
                self.run_job(step)

    def run_job(self, job: DiskJob) -> None:
        """Carry out one job here."""
        self.fail_jobs(self.attempt([job]))

    def attempt(self, jobs: Sequence[DiskJob]) -> list[FailedJob]:
        """Carry out jobs in any thread; the caller passes the failures to `fail_jobs`."""
        return run_jobs(self._disk, jobs)

    def fail_jobs(self, failed: Iterable[FailedJob]) -> None:
        """Take the directories of failed jobs offline."""
        for job, error in failed:
            if isinstance(error, StorageFault):
                self.fail(job.log_dir, error.operation, error.cause)
            else:
                self.fail(job.log_dir, job.operation, error)

    def require_one(self) -> None:
        """Raise the first directory's fault if all directories are offline."""
        if not self.online:
            raise self.no_directory()

    def no_directory(self) -> StorageFault:
        """Return why there is no directory for a log."""
        offline = self.offline
        if offline and offline[0].fault is not None:
            return offline[0].fault
        return StorageFault("-", "open", "no log directory is configured")

    # -- choice and description ------------------------------------------------------------------

    def pick(self, directory_id: Uuid | None, preferred: str | None) -> LogDir:
        """Choose the directory of a new log.

        The order is: the path an operator preferred, the id the cluster assigned, the directory
        with the fewest logs that is not cordoned, and if all are cordoned, the one with the fewest
        logs, because the cluster has already assigned the replica to this node. Logs that are being
        created count.

        Raises:
            StorageFault: no directory is online.
        """
        online = self.online
        for log_dir in online:
            if preferred is not None and log_dir.path == preferred:
                return log_dir
        for log_dir in online:
            if directory_id is not None and log_dir.directory_id == directory_id:
                return log_dir
        if not online:
            raise self.no_directory()
        open_dirs = [log_dir for log_dir in online if log_dir.path not in self.cordoned]
        return min(
            open_dirs or online, key=lambda log_dir: len(log_dir.logs) + len(log_dir.creating)
        )

    def may_hold_offline(self, directory_id: Uuid | None) -> bool:
        """Return whether a log assigned to `directory_id` may lie in an offline directory."""
        if directory_id is None or directory_id == UNASSIGNED_DIRECTORY or not self.offline:
            return False
        return all(log_dir.directory_id != directory_id for log_dir in self.online)

    def describe(self) -> list[LogDirDescription]:
        """Describe every directory: its volume and the sizes of its logs."""
        return [self._describe(log_dir) for log_dir in self.all]

    def _describe(self, log_dir: LogDir) -> LogDirDescription:
        total = usable = -1
        if log_dir.fault is None:
            try:
                total, usable = self._disk.usable_bytes(log_dir.path)
            except OSError as error:
                self.fail(log_dir, "describe", error)
        sizes = {key: log.size_in_bytes for key, log in sorted(log_dir.logs.items())}
        return LogDirDescription(
            path=log_dir.path,
            total_bytes=total,
            usable_bytes=usable,
            sizes=sizes,
            fault=log_dir.fault,
        )
