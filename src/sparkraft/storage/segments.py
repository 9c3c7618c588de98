"""The segments of one log in order: rolling, finding, truncating, removing, syncing.

Bytes and positions only; `storage.log` interprets batches (epochs, producers, bounds).

Invariants:
    * There is at least one segment; base offsets rise; the last one is the active one.
    * Files go oldest first when the log's head is removed and newest first when its tail is, so a
      crash in between leaves no hole.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from sparkraft.base.env import Entropy
from sparkraft.records.batch import BatchHeader
from sparkraft.records.record import scan_records
from sparkraft.storage.config import INT64_MAX, LogConfig
from sparkraft.storage.disk import Disk, FilePart
from sparkraft.storage.names import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_name,
)
from sparkraft.storage.segment import Segment

_HOT_SEGMENTS = 2
"""Segments whose indexes stay in memory: readers are mostly near the end."""


class Segments:
    """See the module's docstring.

    Args:
        disk: holds the files.
        directory: the log's directory.
        segments: in order, at least one.
        snapshots: offsets of the producer snapshots beside them.
        config: the topic's settings.
        entropy: random numbers for `segment.jitter.ms`.
    """

    __slots__ = (
        "_bases",
        "_config",
        "_disk",
        "_entropy",
        "_list",
        "_to_remove",
        "active",
        "cut_unsynced",
        "directory",
        "snapshots",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        snapshots: list[int],
        *,
        config: LogConfig,
        entropy: Entropy,
    ) -> None:
        """Take over segments that recovery has opened."""
        assert segments
        self._disk = disk
        self._entropy = entropy
        self.directory = directory
        self.snapshots = snapshots
        self._list = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        """The one that takes appends."""
        self._to_remove: list[tuple[int, str]] = []
        self.cut_unsynced = any(segment.cut_unsynced for segment in segments)
        """A file was shortened and not synced since: a power loss may bring its tail back."""
        self.config = config
        for segment in segments:
            self._set_jitter(segment)

    def __len__(self) -> int:
        """Number of segments."""
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        """The segments as they are now; appends and removals don't disturb the walk."""
        return iter(list(self._list))

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._list:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def bases(self) -> list[int]:
        """Base offsets, rising."""
        return list(self._bases)

    @property
    def first_base(self) -> int:
        """Base offset of the oldest segment."""
        return self._bases[0]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._list)

    def end_of(self, index: int, log_end_offset: int) -> int:
        """The offset after segment `index`: the next one's base, or the log's end."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def index_of(self, offset: int) -> int:
        """Which segment `offset` lies in; the first for what is below all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    # -- growing ---------------------------------------------------------------------------------

    def has_room(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether the active segment takes `size` more bytes, or a roll must come first."""
        return not self.active.must_roll(
            self._config,
            size=size,
            max_timestamp=max_timestamp,
            last_offset=last_offset,
            now_ms=now_ms,
        )

    def roll(self, base_offset: int, now_ms: int, snapshot: bytes) -> Segment:
        """Begin a segment at `base_offset`; `snapshot` is the producers' state there.

        The old one's indexes and the snapshot are written, not synced: `sync` does that.
        """
        old = self.active
        if old.size == 0:  # nothing is wrong with it but its base: too far below the next batch
            self._drop_empty_tail()
        else:
            self._disk.fault_point("after_roll_before_index")
            old.write_indexes()
            self.write_snapshot(base_offset, snapshot)
        self.start_at(base_offset, now_ms)
        if len(self._list) > _HOT_SEGMENTS:
            self._list[-_HOT_SEGMENTS - 1].drop_indexes()
        return self.active

    def start_at(self, base_offset: int, now_ms: int) -> None:
        """Add an empty segment after all others."""
        segment = Segment(self._disk, self.directory, base_offset, size=0, created_ms=now_ms)
        segment.index_interval_bytes = self._config.index_interval_bytes
        self._set_jitter(segment)
        self._list.append(segment)
        self._bases.append(base_offset)
        self.active = segment

    def _set_jitter(self, segment: Segment) -> None:
        jitter = min(self._config.segment_jitter_ms, self._config.segment_age_ms_max)
        segment.roll_jitter_ms = self._entropy.below(jitter) if jitter > 0 else 0

    def _drop_empty_tail(self) -> None:
        old = self._list.pop()
        self._bases.pop()
        for path in (old.log_path, old.path(INDEX), old.path(TIME_INDEX)):
            self._disk.unlink(path)

    def write_snapshot(self, offset: int, data: bytes) -> None:
        """Put a producer snapshot beside the segments, once."""
        if offset not in self.snapshots:
            self._disk.write(self._snapshot_path(offset), data)
            self.snapshots.append(offset)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{offset_name(offset, SNAPSHOT)}"

    def _drop_snapshots(self, *, above: int) -> None:
        for offset in [offset for offset in self.snapshots if offset > above]:
            self._disk.unlink(self._snapshot_path(offset))
            self.snapshots.remove(offset)

    # -- finding ---------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, int, int] | None:
        """(segment, position, size) of the first batch that ends at or after `offset`."""
        index = self.index_of(offset)
        while index < len(self._list):
            found = self._list[index].place_of(offset)
            if found is not None:
                return index, *found
            index += 1  # its tail was compacted away: continue in the next one
        return None

    def cold_part(
        self, offset: int, up_to: int, log_end_offset: int, max_bytes: int, *, to_send: bool
    ) -> FilePart | None:
        """The part of a file to warm next, so that `find`, `limit` and a read do not wait."""
        index = self.index_of(offset)
        segment = self._list[index]
        part = segment.cold_place(offset, max_bytes)
        if part is None and up_to < self.end_of(index, log_end_offset):
            part = segment.cold_place(up_to)
        place = segment.place_of(offset) if part is None else None
        if place is None:
            return part
        position, first_size = place
        size = max(max_bytes, first_size)
        return segment.cold_bytes(position, size, to_send=to_send, grows=segment is self.active)

    def limit(self, index: int, up_to: int, log_end_offset: int) -> int:
        """Return the position in segment `index` at which the batches below `up_to` end."""
        segment = self._list[index]
        if up_to >= self.end_of(index, log_end_offset):
            return segment.size
        found = segment.place_of(up_to)
        return segment.size if found is None else found[0]

    def from_offset(self, offset: int) -> list[Segment]:
        """The segments from the one on that `offset` lies in."""
        return self._list[self.index_of(offset) :]

    def bound_of(self, offset: int, size: int) -> int:
        """An offset above all records in the `size` bytes that begin with the batch of `offset`."""
        found = self.find(offset)
        if found is None:
            return INT64_MAX
        index, position, _ = found
        bound = self._list[index].offset_above(position + size)
        if bound is None and index + 1 < len(self._bases):
            bound = self._bases[index + 1]
        return INT64_MAX if bound is None else bound

    def at(self, index: int) -> Segment:
        """The segment at `index`."""
        return self._list[index]

    def first_at_or_after(
        self, timestamp: int, start: int, bound: int
    ) -> tuple[int, int, int] | None:
        """(timestamp, offset, epoch) of the first record that is old enough, in [start, bound)."""
        for segment in self:
            if segment.size == 0 or segment.largest_timestamp()[0] < timestamp:
                continue
            for header, at in segment.headers(segment.position_of_time(timestamp)):
                if header.base_offset >= bound:
                    return None
                if header.max_timestamp >= timestamp and header.last_offset >= start:
                    found = _first_in(segment, header, at, timestamp, start)
                    if found is not None:
                        return found if found[1] < bound else None
        return None

    def of_max_timestamp(self, start: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, epoch) of the first record with the largest timestamp."""
        filled = [segment for segment in self._list if segment.size]
        if not filled:
            return None
        segment = max(filled, key=lambda segment: segment.largest_timestamp()[0])
        timestamp, last_offset = segment.largest_timestamp()
        found = segment.position_of(last_offset)
        if timestamp < 0 or found is None:
            return None
        return _first_in(segment, found[0], found[1], timestamp, start)

    # -- shrinking -------------------------------------------------------------------------------

    def batch_bound(self, offset: int) -> int:
        """`offset`, or the base of the batch that reaches across it."""
        found = self._list[self.index_of(offset)].position_of(offset)
        return offset if found is None else min(offset, found[0].base_offset)

    def truncate_to(self, offset: int) -> int:
        """Remove every batch that ends at or after `offset`, which is not below the first base.

        Returns:
            The new log end offset: `offset`, or the base offset of a batch that contained it.
        """
        while len(self._list) > 1 and self._bases[-1] >= offset:
            self._unlink(self._list.pop().mark_deleted())
            self._bases.pop()
            self._disk.fault_point("between_truncated_segments")
        self.active = self._list[-1]
        end = self.active.truncate_to(offset)
        self.cut_unsynced = self.cut_unsynced or self.active.cut_unsynced
        self._drop_snapshots(above=end)
        return end

    def clear(self) -> None:
        """Remove everything; `start_at` must follow."""
        while self._list:
            self._unlink(self._list.pop().mark_deleted())
            self._bases.pop()
        self._drop_snapshots(above=-1)

    def delete_below(self, offset: int, now_ms: int) -> int:
        """Take segments that end at or below `offset` out, oldest first; how many.

        Their files are renamed and go after `file.delete.delay.ms`, so that readers can finish.
        """
        count = 0
        while len(self._list) > 1 and self._bases[1] <= offset:
            segment = self._list.pop(0)
            base = self._bases.pop(0)
            self.remove_later(segment.mark_deleted(), now_ms)
            if base in self.snapshots:
                self.snapshots.remove(base)
                self._disk.unlink(self._snapshot_path(base))
            count += 1
            self._disk.fault_point("between_deleted_segments")
        return count

    def replace(self, old: Sequence[Segment], new: Segment) -> list[str] | None:
        """Put a cleaned segment, whose files end in `.cleaned`, in place of neighbours.

        First all its files become `.swap`, by which a start after a crash knows that it is whole;
        then the old files `.deleted`; then the new ones get their names.

        Returns:
            The old files, which the caller deletes once the directory is synced; None, and nothing
            is done, if some of the old segments no longer exist.
        """
        first = self.index_of(old[0].base_offset)
        if self._list[first : first + len(old)] != list(old) or old[-1] is self.active:
            return None
        suffixes = [
            suffix
            for suffix in (TRANSACTION_INDEX, TIME_INDEX, INDEX, LOG)
            if self._disk.size(new.path(suffix) + CLEANED) >= 0
        ]
        for suffix in suffixes:
            self._disk.rename(new.path(suffix) + CLEANED, new.path(suffix) + SWAP)
        self._disk.fault_point("cleaned_segment_swapped_before_old_ones_go")
        gone: list[str] = []
        for segment in old:
            gone += segment.mark_deleted()
            self._drop_snapshot_of(segment, kept=new.base_offset)
        self._disk.fault_point("old_segments_gone_before_the_cleaned_one_has_its_name")
        for suffix in suffixes:
            self._disk.rename(new.path(suffix) + SWAP, new.path(suffix))
        self._list[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        new.drop_indexes()
        return gone

    def _drop_snapshot_of(self, segment: Segment, *, kept: int) -> None:
        base = segment.base_offset
        if base != kept and base in self.snapshots:
            self.snapshots.remove(base)
            self._disk.unlink(self._snapshot_path(base))

    def remove_later(self, paths: Sequence[str], now_ms: int) -> None:
        """Unlink files after `file.delete.delay.ms`, so that readers can finish."""
        when = now_ms + self._config.file_delete_delay_ms
        self._to_remove += [(when, path) for path in paths]

    def remove_deleted_files(self, now_ms: int) -> None:
        """Unlink `.deleted` files whose time has come."""
        self._unlink(self.take_deleted_files(now_ms))

    def take_deleted_files(self, now_ms: int) -> list[str]:
        """`.deleted` files whose time has come, for the caller to delete."""
        if not self._to_remove:
            return []
        due = [path for when, path in self._to_remove if when <= now_ms]
        if due:
            self._to_remove = [entry for entry in self._to_remove if entry[0] > now_ms]
        return due

    def _unlink(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.unlink(path)

    def expired_until(
        self, now_ms: int, *, log_start_offset: int, high_watermark: int, log_end_offset: int
    ) -> int:
        """The offset up to which whole segments may go: by time, size and log start offset.

        Never above the high watermark; the active segment goes only when all of it may.
        """
        config = self._config
        by_size = config.delete and config.retention_bytes >= 0
        by_time = config.delete and config.retention_ms >= 0
        excess = self.size_in_bytes - config.retention_bytes
        keep_from = 0
        for index, segment in enumerate(self._list):
            end = self.end_of(index, log_end_offset)
            if end > high_watermark or (segment is self.active and segment.size == 0):
                break
            below_start = segment is not self.active and end <= log_start_offset
            too_much = by_size and excess - segment.size >= 0
            if not (below_start or too_much or (by_time and self._too_old(segment, now_ms))):
                break
            excess -= segment.size
            keep_from = end
        return keep_from

    def _too_old(self, segment: Segment, now_ms: int) -> bool:
        timestamp = segment.largest_timestamp()[0]
        if timestamp < 0:
            timestamp = self._disk.mtime_ms(segment.log_path)
        return now_ms - timestamp > self._config.retention_ms

    # -- syncing and closing ---------------------------------------------------------------------

    def sync(self, start: int, target: int) -> None:
        """Sync the files that hold offsets in [start, target), and the directory; in any thread."""
        segments = list(self._list)
        self.cut_unsynced = False
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            done = following is not None and following <= start
            is_needless = done or segment.size == 0 or segment.base_offset >= target
            if is_needless and not segment.cut_unsynced:
                continue
            # First, so that a truncation in between is synced the next time. If the log was
            # truncated at a segment's end and rolled there, a lost truncation would bring records
            # back below its tail.
            segment.cut_unsynced = False
            self._sync_one(segment, segment.log_path)
            if segment.aborted:  # nothing else reveals a missing entry
                self._sync_one(segment, segment.path(TRANSACTION_INDEX), optional=True)
            if following is not None:
                for suffix in (INDEX, TIME_INDEX):
                    self._sync_one(segment, segment.path(suffix), optional=True)
                self._sync_one(segment, self._snapshot_path(following), optional=True)
        self._disk.fsync_dir(self.directory)

    def _sync_one(self, segment: Segment, path: str, *, optional: bool = False) -> None:
        try:
            self._disk.fsync(path)
        except FileNotFoundError:
            if not (optional or segment.deleted or segment.size == 0):
                raise

    def close(self, log_end_offset: int, snapshot: bytes) -> None:
        """Write what shortens the next start: indexes, and the producers' state at the end."""
        filled = any(segment.size for segment in self._list)
        if self.active.indexes_dirty and self.active.size:
            self.active.write_indexes()
        if filled and log_end_offset > max(self.snapshots, default=0):
            self.write_snapshot(log_end_offset, snapshot)

    def moved_to(self, directory: str) -> None:
        """Follow the log's directory to its new name."""
        self.directory = directory
        for segment in self._list:
            segment.moved_to(directory)


def _first_in(
    segment: Segment, header: BatchHeader, position: int, timestamp: int, start: int
) -> tuple[int, int, int] | None:
    """The first record of a batch at or after `timestamp` and offset `start`."""
    for shape in scan_records(segment.read_batch(position, header)):
        offset = header.base_offset + shape.offset_delta
        if shape.timestamp >= timestamp and offset >= start:
            return shape.timestamp, offset, header.partition_leader_epoch
    return None
