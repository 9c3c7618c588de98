"""Removal of files: records past their retention, deleted logs, cleaned segments.

    retention     log start offsets move → one checkpoint of them → whole segments are deleted
    throw_away    a log marked `-delete` → file.delete.delay.ms → its files are deleted
    empty_trash   deletes all files of both kinds that are due

On the event loop both run in steps (`retention_steps`, `trash_steps`), and files are deleted in
another thread: a file system takes 0.2 s to free 1 GB.

Invariant: a log start offset is on disk before the first file below it is deleted, so that no crash
brings deleted records back or leaves a gap in front of others.
"""

from functools import partial

from sparkraft.base.env import Clock
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.disk import Disk
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import DiskJob, LogDir, Steps
from sparkraft.storage.log_dirs import LogDirs

OPERATION = "remove old segments"

FOLDERS_PER_JOB = 16
"""Deleted by one call in another thread: few, so that a stopping node need not wait long."""

LOGS_PER_DELETION = 50
"""Renaming the files of an expired segment takes as long as checking 50 logs."""


class Removal:
    """Removes files in every online directory; a directory that fails goes offline."""

    def __init__(
        self, dirs: LogDirs, disk: Disk, checkpoints: DirCheckpoints, clock: Clock
    ) -> None:
        self._dirs = dirs
        self._disk = disk
        self._checkpoints = checkpoints
        self._clock = clock
        self._trash: list[tuple[int, LogDir, str]] = []
        """Wall-clock ms from which a folder may be deleted; its directory; its path."""

    def throw_away(self, log: PartitionLog) -> None:
        """Delete the files of a log marked `-delete`, after `file.delete.delay.ms`."""
        due_at = self._clock.wall_ms() + log.config.file_delete_delay_ms
        self._trash.append((due_at, self._dirs.of(log), log.directory))

    def retention(self, now_ms: int) -> int:
        """Delete expired segments and producer ids and empty the trash; return segments deleted."""
        return self._dirs.carry_out(self.retention_steps(now_ms))

    def empty_trash(self, now_ms: int) -> int:
        """Delete logs and segments whose `file.delete.delay.ms` is over; return logs deleted."""
        return self._dirs.carry_out(self.trash_steps(now_ms))

    def retention_steps(self, now_ms: int) -> Steps[int]:
        """As `retention`, in steps; files are deleted by `DiskJob`s."""
        removed = 0
        for log_dir in self._dirs.online:
            steps = self._retain(log_dir, now_ms)
            removed += yield from self._dirs.guarded(log_dir, OPERATION, steps, failed=0)
        return removed

    def trash_steps(self, now_ms: int) -> Steps[int]:
        """As `empty_trash`, in steps; files are deleted by `DiskJob`s."""
        removed = 0
        for log_dir in self._dirs.online:
            steps = self._empty_trash(log_dir, now_ms)
            removed += yield from self._dirs.guarded(log_dir, OPERATION, steps, failed=0)
        return removed

    def _retain(self, log_dir: LogDir, now_ms: int) -> Steps[int]:
        expired = []
        for log in list(log_dir.logs.values()):
            if log.fault is None and _advance_start(log, now_ms):
                expired.append(log)
            yield 1
        if expired:
            yield from self._checkpoints.starts_steps(log_dir)  # one for all of them
            self._disk.fault_point("log_start_kept_before_files_go")
        removed = 0
        for log in expired:
            removed += self._delete_expired(log_dir, log, now_ms)
            yield LOGS_PER_DELETION
        for log in list(log_dir.logs.values()):
            log.expire_producers(now_ms)
            yield 1
        yield from self._empty_trash(log_dir, now_ms)
        return removed

    def _delete_expired(self, log_dir: LogDir, log: PartitionLog, now_ms: int) -> int:
        if log_dir.fault is not None or log.fault is not None:
            return 0  # the start is not on disk, or the log was deleted meanwhile
        # Meanwhile the start may have moved, or more may have expired: write that first, too.
        self._checkpoints.keep_start(log_dir, log)
        return log.apply_retention(now_ms, partial(self._checkpoints.write_starts, log_dir))

    def _empty_trash(self, log_dir: LogDir, now_ms: int) -> Steps[int]:
        for log in list(log_dir.logs.values()):
            due = log.take_deleted_files(now_ms)
            if due:
                yield from self._delete(log_dir, due)
            yield 1
        folders = [path for when, owner, path in self._trash if when <= now_ms and owner is log_dir]
        if folders:
            gone = set(folders)
            self._trash = [entry for entry in self._trash if entry[2] not in gone]
        for at in range(0, len(folders), FOLDERS_PER_JOB):
            yield from self._delete(log_dir, folders[at : at + FOLDERS_PER_JOB])
        return len(folders)

    def _delete(self, log_dir: LogDir, paths: list[str]) -> Steps[None]:
        """Delete files or folders in another thread, and whatever a late reader opened."""
        for path in paths:
            self._disk.forget(path)
        yield DiskJob(log_dir, OPERATION, partial(self._discard, paths))
        for path in paths:
            self._disk.forget(path)
        yield len(paths)

    def _discard(self, paths: list[str]) -> None:
        for path in paths:
            self._disk.discard(path)


def _advance_start(log: PartitionLog, now_ms: int) -> bool:
    """Move a log's start offset past its expired segments; return whether it moved."""
    until = log.expired_until(now_ms)
    if until <= log.segment_base_offsets[0]:
        return False
    log.advance_log_start(until)
    return True
