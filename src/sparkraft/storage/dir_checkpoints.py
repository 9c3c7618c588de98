"""The offset checkpoints of a log directory; each file is always written whole.

    recovery-point-offset-checkpoint    the log below it is synced
    log-start-offset-checkpoint         log start offsets that no synced segment's name shows
    replication-offset-checkpoint       high watermarks

The entries of a damaged log stay unchanged, so that every start finds the damage.

Invariant: before a truncated log accepts an append, no checkpoint names a truncated offset.
"""

from collections.abc import Mapping

from sparkraft.base.ids import TopicPartition
from sparkraft.storage.checkpoints import (
    DamagedCheckpoint,
    format_offsets,
    parse_offsets,
    read_offsets,
)
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log_dir import LogDir
from sparkraft.storage.log_view import ReadableLog
from sparkraft.storage.names import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    METADATA_TOPIC,
    RECOVERY_POINTS,
)


class DirCheckpoints:
    """Reads and writes them; every method raises `OSError` as the disk does.

    Args:
        disk: files.
        damaged: partitions whose log can't be used; looked at whenever something is written.
    """

    def __init__(self, disk: Disk, damaged: Mapping[TopicPartition, StorageFault]) -> None:
        """Nothing is read yet."""
        self._disk = disk
        self._damaged = damaged

    def read(self, log_dir: LogDir) -> bool:
        """Take over what the last run left; whether its recovery points can be read."""
        path = log_dir.path
        log_dir.recovery_points = read_offsets(self._disk, f"{path}/{RECOVERY_POINTS}")
        log_dir.log_starts = read_offsets(self._disk, f"{path}/{LOG_START_OFFSETS}")
        log_dir.high_watermarks = read_offsets(self._disk, f"{path}/{HIGH_WATERMARKS}")
        log_dir.cleaned = read_offsets(self._disk, f"{path}/{CLEANED_OFFSETS}")
        metadata_point = log_dir.recovery_points.get((METADATA_TOPIC, 0), 0)
        log_dir.metadata_recovery_point = lambda: metadata_point
        try:
            parse_offsets(self._disk.read(f"{path}/{RECOVERY_POINTS}"))
        except (FileNotFoundError, DamagedCheckpoint):
            return False
        return True

    def write_all(self, log_dir: LogDir) -> None:
        """Recovery points, log starts, high watermarks."""
        self.write_points(log_dir)
        self.write_starts(log_dir)
        self._disk.fault_point("between_checkpoints")
        marks = {key: int(log.high_watermark) for key, log in log_dir.all_logs()}
        self._disk.replace(f"{log_dir.path}/{HIGH_WATERMARKS}", format_offsets(marks))

    def write_points(self, log_dir: LogDir) -> None:
        """Recovery points."""
        points = self._of_damaged(log_dir, log_dir.recovery_points)
        for key, log in log_dir.all_logs():
            points[key] = int(log.recovery_point)
        if metadata_point := log_dir.metadata_recovery_point():
            points[METADATA_TOPIC, 0] = metadata_point
        self._disk.replace(f"{log_dir.path}/{RECOVERY_POINTS}", format_offsets(points))
        log_dir.recovery_points = points

    def write_starts(self, log_dir: LogDir) -> None:
        """Log start offsets."""
        starts = self._of_damaged(log_dir, log_dir.log_starts)
        for key, log in log_dir.all_logs():
            if log.log_start_offset > _start_by_files(log):
                starts[key] = int(log.log_start_offset)
        self._disk.replace(f"{log_dir.path}/{LOG_START_OFFSETS}", format_offsets(starts))
        log_dir.log_starts = starts

    def _of_damaged(
        self, log_dir: LogDir, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return {
            key: offset
            for key, offset in offsets.items()
            if key in self._damaged and self._damaged[key].log_dir == log_dir.path
        }

    def write_moved_starts(self, log_dir: LogDir) -> None:
        """Log start offsets, if one is further than its file or its first segment say."""
        known = log_dir.log_starts
        for key, log in log_dir.logs.items():
            if log.log_start_offset > max(_start_by_files(log), known.get(key, 0)):
                self.write_starts(log_dir)
                return

    def forget(self, log_dir: LogDir, key: TopicPartition) -> None:
        """Remove the entries of an older log of the same name."""
        if key in log_dir.recovery_points:
            self.write_points(log_dir)
        if key in log_dir.log_starts:
            self.write_starts(log_dir)

    def give_back(self, log_dir: LogDir, log: ReadableLog) -> None:
        """Remove offsets above the new end of a truncated log."""
        key = (log.topic, log.partition)
        if log_dir.cleaned.get(key, 0) > log.log_end_offset:
            log_dir.cleaned[key] = int(log.log_end_offset)
        if log_dir.recovery_points.get(key, 0) > log.recovery_point:
            self.write_points(log_dir)
        start, known = log.log_start_offset, log_dir.log_starts.get(key, 0)
        if known > start or max(known, _start_by_files(log)) < start:
            self.write_starts(log_dir)


def _start_by_files(log: ReadableLog) -> int:
    """Return the log start offset that the files on disk prove.

    A segment without records has no file yet, and one that was never synced may lose its own: a
    log that retention has emptied would begin at 0 again.
    """
    base = log.segment_base_offsets[0]
    return base if log.recovery_point > base else 0
