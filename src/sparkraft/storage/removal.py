"""Removal of files: records past their retention, deleted logs, cleaned segments.

    retention     log start offsets move → one checkpoint of them → whole segments are deleted
    throw_away    a log marked `-delete` → file.delete.delay.ms → its files are deleted
    empty_trash   deletes all files of both kinds that are due

Invariant: a log start offset is on disk before the first file below it is deleted, so that no crash
brings deleted records back or leaves a gap in front of others.
"""

from collections.abc import Callable
from functools import partial

from sparkraft.base.env import Clock
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import LogDir
from sparkraft.storage.log_dirs import LogDirs


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
        return self._each_dir(self._retain, now_ms)

    def empty_trash(self, now_ms: int) -> int:
        """Delete logs and segments whose `file.delete.delay.ms` is over; return logs deleted."""
        return self._each_dir(self._empty_trash, now_ms)

    def _each_dir(self, work: Callable[[LogDir, int], int], now_ms: int) -> int:
        return sum(
            self._attempt(log_dir, partial(work, log_dir, now_ms)) for log_dir in self._dirs.online
        )

    def _attempt(self, log_dir: LogDir, work: Callable[[], int]) -> int:
        try:
            return work()
        except StorageFault as fault:
            self._dirs.fail(log_dir, fault.operation, fault.cause)
        except OSError as error:
            self._dirs.fail(log_dir, "remove old segments", error)
        return 0

    def _retain(self, log_dir: LogDir, now_ms: int) -> int:
        expired = [log for log in log_dir.logs.values() if _advance_start(log, now_ms)]
        if expired:
            self._checkpoints.write_starts(log_dir)  # one for all of them
            self._disk.fault_point("log_start_kept_before_files_go")
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


def _advance_start(log: PartitionLog, now_ms: int) -> bool:
    """Move a log's start offset past its expired segments; return whether it moved."""
    until = log.expired_until(now_ms)
    if until <= log.segment_base_offsets[0]:
        return False
    log.advance_log_start(until)
    return True
