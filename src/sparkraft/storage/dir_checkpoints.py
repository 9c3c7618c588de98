"""The offset checkpoints of a log directory; each file is always written whole.

    recovery-point-offset-checkpoint    the log below it is synced
    log-start-offset-checkpoint         log start offsets that no synced segment's name shows
    replication-offset-checkpoint       high watermarks

The entries of a damaged log stay unchanged, so that every start finds the damage.

Invariant: before a truncated log accepts an append, no checkpoint names a truncated offset. The
content that another thread is about to write has a number; a truncation writes one with a higher
number, and the older one is left out.
"""

from collections.abc import Callable, Mapping
from functools import partial

from sparkraft.base.ids import TopicPartition
from sparkraft.storage.checkpoints import (
    DamagedCheckpoint,
    format_offsets,
    parse_offsets,
    read_offsets,
)
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log_dir import DiskJob, LogDir, Steps
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
        self._put(log_dir, HIGH_WATERMARKS, marks)

    def write_points(self, log_dir: LogDir) -> None:
        """Recovery points."""
        points = self._of_damaged(log_dir, log_dir.recovery_points)
        for key, log in log_dir.all_logs():
            points[key] = int(log.recovery_point)
        self._put_points(log_dir, points)

    def _put_points(self, log_dir: LogDir, points: dict[TopicPartition, int]) -> None:
        self._add_metadata_point(log_dir, points)
        self._put(log_dir, RECOVERY_POINTS, points)
        log_dir.recovery_points = points

    @staticmethod
    def _add_metadata_point(log_dir: LogDir, points: dict[TopicPartition, int]) -> None:
        if metadata_point := log_dir.metadata_recovery_point():
            points[METADATA_TOPIC, 0] = metadata_point

    def write_starts(self, log_dir: LogDir) -> None:
        """Log start offsets."""
        starts = self._of_damaged(log_dir, log_dir.log_starts)
        for key, log in log_dir.all_logs():
            start = _start_to_keep(log)
            if start is not None:
                starts[key] = start
        self._put(log_dir, LOG_START_OFFSETS, starts)
        log_dir.log_starts = starts

    # -- the same in steps -----------------------------------------------------------------------

    def all_steps(self, log_dir: LogDir) -> Steps[None]:
        """As `write_all`, a log at a time; the files are written by `DiskJob`s."""
        yield from self.points_steps(log_dir)
        yield from self.starts_steps(log_dir)
        self._disk.fault_point("between_checkpoints")
        marks: dict[TopicPartition, int] = {}
        yield from self._collect(log_dir, marks, lambda log: int(log.high_watermark))
        yield self._job(log_dir, HIGH_WATERMARKS, marks)

    def points_steps(self, log_dir: LogDir) -> Steps[None]:
        """As `write_points`."""
        points = self._of_damaged(log_dir, log_dir.recovery_points)
        yield from self._collect(log_dir, points, lambda log: int(log.recovery_point))
        self._add_metadata_point(log_dir, points)
        # Before it is written: a truncation from now on must see that it will be.
        log_dir.recovery_points = points
        yield self._job(log_dir, RECOVERY_POINTS, points)

    def starts_steps(self, log_dir: LogDir) -> Steps[None]:
        """As `write_starts`."""
        starts = self._of_damaged(log_dir, log_dir.log_starts)
        yield from self._collect(log_dir, starts, _start_to_keep)
        log_dir.log_starts = starts
        yield self._job(log_dir, LOG_START_OFFSETS, starts)

    @staticmethod
    def _collect(
        log_dir: LogDir,
        offsets: dict[TopicPartition, int],
        offset_of: Callable[[ReadableLog], int | None],
    ) -> Steps[None]:
        """Put each log's offset into `offsets`; those of logs revised meanwhile are up to date."""
        revised: set[TopicPartition] = set()
        log_dir.collections.append(revised)
        try:
            for key, log in log_dir.all_logs():
                offset = offset_of(log)
                if offset is not None:
                    offsets[key] = offset
                yield 1
        finally:
            # By identity: two empty sets are equal.
            log_dir.collections = [each for each in log_dir.collections if each is not revised]
        for key in revised:
            offsets.pop(key, None)
            for logs in (log_dir.futures, log_dir.logs):
                log_now = logs.get(key)
                offset = None if log_now is None else offset_of(log_now)
                if offset is not None:
                    offsets[key] = offset

    def _put(self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]) -> None:
        self._write(log_dir, name, offsets, _next_version(log_dir, name))

    def _job(self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]) -> DiskJob:
        write = partial(self._write, log_dir, name, offsets, _next_version(log_dir, name))
        return DiskJob(log_dir, "checkpoint", write, replaces=f"{log_dir.path}/{name}")

    def _write(
        self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int], version: int
    ) -> None:
        """Replace a file unless newer content is there already; in any thread."""
        data = format_offsets(offsets)
        with log_dir.checkpoint_lock:
            if version > log_dir.written_versions.get(name, 0):
                self._disk.replace(f"{log_dir.path}/{name}", data)
                log_dir.written_versions[name] = version

    def _of_damaged(
        self, log_dir: LogDir, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return {
            key: offset
            for key, offset in offsets.items()
            if key in self._damaged and self._damaged[key].log_dir == log_dir.path
        }

    def moved_starts_steps(self, log_dir: LogDir) -> Steps[None]:
        """Log start offsets, if one is further than its file or its first segment say.

        Offsets that a thread is still writing are not on disk yet, so that they count as moved.
        """
        if _is_being_written(log_dir, LOG_START_OFFSETS):
            yield from self.starts_steps(log_dir)
            return
        for key, log in list(log_dir.logs.items()):
            if log.log_start_offset > max(_start_by_files(log), log_dir.log_starts.get(key, 0)):
                yield from self.starts_steps(log_dir)
                return
            yield 1

    def keep_start(self, log_dir: LogDir, log: ReadableLog) -> None:
        """Write log start offsets if that of `log` has moved since they were written."""
        known = log_dir.log_starts.get((log.topic, log.partition), 0)
        if log.log_start_offset > max(_start_by_files(log), known):
            self.write_starts(log_dir)

    def forget_steps(self, log_dir: LogDir, key: TopicPartition) -> Steps[None]:
        """Remove the entries of an older log of the same name; before a new one has a folder."""
        log_dir.revise(key)
        if key in log_dir.recovery_points:
            # Copied: a thread may be about to write the present ones.
            points = log_dir.recovery_points = dict(log_dir.recovery_points)
            del points[key]
            yield self._job(log_dir, RECOVERY_POINTS, points)
        if key in log_dir.log_starts:
            starts = log_dir.log_starts = dict(log_dir.log_starts)
            del starts[key]
            yield self._job(log_dir, LOG_START_OFFSETS, starts)

    def give_back(self, log_dir: LogDir, log: ReadableLog) -> None:
        """Remove offsets above the new end of a truncated log."""
        key = (log.topic, log.partition)
        log_dir.revise(key)
        if log_dir.cleaned.get(key, 0) > log.log_end_offset:
            log_dir.cleaned[key] = int(log.log_end_offset)
        if log_dir.recovery_points.get(key, 0) > log.recovery_point:
            self.write_points(log_dir)
        start, known = log.log_start_offset, log_dir.log_starts.get(key, 0)
        if known > start or max(known, _start_by_files(log)) < start:
            self.write_starts(log_dir)


def _next_version(log_dir: LogDir, name: str) -> int:
    version = log_dir.checkpoint_versions.get(name, 0) + 1
    log_dir.checkpoint_versions[name] = version
    return version


def _is_being_written(log_dir: LogDir, name: str) -> bool:
    latest = log_dir.checkpoint_versions.get(name, 0)
    return latest > log_dir.written_versions.get(name, 0)


def _start_to_keep(log: ReadableLog) -> int | None:
    """The log start offset, if the files on disk don't prove it."""
    return int(log.log_start_offset) if log.log_start_offset > _start_by_files(log) else None


def _start_by_files(log: ReadableLog) -> int:
    """Return the log start offset that the files on disk prove.

    A segment without records has no file yet, and one that was never synced may lose its own: a
    log that retention has emptied would begin at 0 again.
    """
    base = log.segment_base_offsets[0]
    return base if log.recovery_point > base else 0
