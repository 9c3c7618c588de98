"""What leaves the disk: records past their retention, deleted logs, cleaned segments.

    retention     log starts move → one checkpoint of them → whole segments go
    throw_away    a log marked as deleted → file.delete.delay.ms → its files go
    empty_trash   whatever of both is due

Invariant: a log start is on disk before the first file below it goes, so that no crash brings back
records that were deleted, nor leaves a hole in front of others.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.base.env import Clock
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import LogDir

if TYPE_CHECKING:
    from sparkraft.storage.log_manager import LogManager


class Removal:
    """Over every directory of a node that is online; one that fails goes offline."""

    def __init__(
        self, manager: "LogManager", disk: Disk, checkpoints: DirCheckpoints, clock: Clock
    ) -> None:
        """Nothing is to be removed yet."""
        self._manager = manager
        self._disk = disk
        self._checkpoints = checkpoints
        self._clock = clock
        self._trash: list[tuple[int, LogDir, str]] = []
        """When a folder may go, wall ms; where it lies; its path."""

    def throw_away(self, log: PartitionLog) -> None:
        """Remove the files of a log that is marked as deleted, after `file.delete.delay.ms`."""
        when = self._clock.wall_ms() + log.config.file_delete_delay_ms
        self._trash.append((when, self._manager.directory(log.log_dir), log.directory))

    def retention(self, now_ms: int) -> int:
        """Remove segments that may go, expire producers, empty the trash; segments removed."""
        return self._each_dir(self._retain, now_ms)

    def empty_trash(self, now_ms: int) -> int:
        """Remove deleted logs and segments whose `file.delete.delay.ms` is over; the logs."""
        return self._each_dir(self._empty_trash, now_ms)

    def _each_dir(self, work: Callable[[LogDir, int], int], now_ms: int) -> int:
        return sum(
            self._attempt(log_dir, partial(work, log_dir, now_ms))
            for log_dir in self._manager.directories
            if log_dir.fault is None
        )

    def _attempt(self, log_dir: LogDir, work: Callable[[], int]) -> int:
        try:
            return work()
        except StorageFault as fault:
            self._manager.on_error(log_dir, fault.operation, fault.cause)
        except OSError as error:
            self._manager.on_error(log_dir, "remove old segments", error)
        return 0

    def _retain(self, log_dir: LogDir, now_ms: int) -> int:
        expired = [log for log in log_dir.logs.values() if _begins_later(log, now_ms)]
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


def _begins_later(log: PartitionLog, now_ms: int) -> bool:
    """Move a log's start over what may go; whether that is anything."""
    until = log.expired_until(now_ms)
    if until <= log.segment_base_offsets[0]:
        return False
    log.advance_log_start(until)
    return True
