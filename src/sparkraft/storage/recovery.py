"""How a log comes back from its directory, after a clean stop or a crash at any byte.

Clean (`.kafka_cleanshutdown` was there): segments are trusted; the end is read from the last one.
Unclean: every segment from the one that holds the recovery point on is walked, batch by batch, CRC
and all. The first byte that is no whole, right batch ends the log; what lies behind goes. Indexes,
epochs and producers of walked segments are derived anew.

Data below the recovery point was synced, so damage there is no crash's doing: it is reported
(`StorageFault`), never cut off silently. In segments that are not walked readers find it.

The metadata log is walked whole at every start: what is missing or broken below its recovery point
was committed, and the log is refused instead of cut.

Invariants: recovering twice gives the same; nothing below the recovery point is removed; a gap
between segments above it means that an unsynced tail was lost, and ends the log as well (compacted
topics have gaps of their own).
"""

from dataclasses import dataclass

from sparkraft.base.env import Clock, Entropy
from sparkraft.base.ids import Uuid
from sparkraft.records.batch import BatchHeader
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.checkpoints import (
    DamagedCheckpoint,
    parse_epochs,
    parse_partition_metadata,
)
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.epochs import LeaderEpochs
from sparkraft.storage.index import AbortedTransaction, DamagedIndex
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_name,
    parse_offset_name,
)
from sparkraft.storage.producers import DamagedSnapshot, Producers
from sparkraft.storage.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where a log lies and what the checkpoints of its directory say about it."""

    log_dir: str
    directory: str
    topic: str
    partition: int
    clean: bool
    """The node that wrote it stopped cleanly."""
    recovery_point: int | None = None
    """None where the checkpoint does not name it: then everything is walked."""
    log_start_offset: int = 0
    whole: bool = False
    """Walk below the recovery point too: a log that ends there, or has a gap there, is damaged."""


def load_log(
    disk: Disk, place: LogPlace, config: LogConfig, *, clock: Clock, entropy: Entropy
) -> PartitionLog:
    """Recover one log.

    Raises:
        StorageFault: the disk failed, or data that was synced is damaged.
    """
    try:
        return _Recovery(disk, place, config, clock).run(entropy)
    except (OSError, CorruptRecords) as error:
        cause = error if isinstance(error, OSError) else str(error)
        raise StorageFault(place.log_dir, f"load {place.topic}-{place.partition}", cause) from error


class _Recovery:
    """One log's recovery, step by step."""

    def __init__(self, disk: Disk, place: LogPlace, config: LogConfig, clock: Clock) -> None:
        self._disk = disk
        self._place = place
        self._config = config
        self._now_ms = clock.wall_ms()
        self._clock = clock
        self._names = disk.listdir(place.directory)
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._recovery_point = place.recovery_point or 0
        self._end = 0

    def run(self, entropy: Entropy) -> PartitionLog:
        self._remove_leftovers()
        self._finish_swaps()
        self._open_segments()
        self._read_epochs()
        if not self._place.clean:
            self._walk_unflushed()
        self._find_end()
        start = max(self._place.log_start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_end(self._end)
        self._epochs.truncate_from_start(start)
        snapshots = self._usable_snapshots(start)
        producers = rebuild_producers(
            self._disk,
            self._place.directory,
            self._segments,
            snapshots=snapshots,
            start=start,
            end=self._end,
        )
        producers.expire(self._now_ms, self._config.producer_id_expiration_ms)
        point = self._end if self._place.clean else min(self._recovery_point, self._end)
        return PartitionLog(
            disk=self._disk,
            clock=self._clock,
            entropy=entropy,
            log_dir=self._place.log_dir,
            directory=self._place.directory,
            topic=self._place.topic,
            partition=self._place.partition,
            topic_id=self._read_topic_id(),
            config=self._config,
            segments=self._segments,
            epochs=self._epochs,
            producers=producers,
            snapshots=snapshots,
            log_start_offset=start,
            log_end_offset=self._end,
            recovery_point=point,
        )

    def _path(self, name: str) -> str:
        return f"{self._place.directory}/{name}"

    def _remove(self, name: str) -> None:
        self._disk.unlink(self._path(name))
        self._names.remove(name)

    def _remove_leftovers(self) -> None:
        """Files of interrupted removals, replacements and compactions."""
        for name in list(self._names):
            if name.endswith((DELETED, ".tmp")):
                self._remove(name)
        cleaned = [name for name in self._names if name.endswith(CLEANED)]
        lowest = min((_offset_of(name) for name in cleaned), default=None)
        for name in cleaned:
            self._remove(name)
        for name in list(self._names):
            # A swap at or above an unfinished split's offset belongs to that split.
            if lowest is not None and name.endswith(SWAP) and _offset_of(name) >= lowest:
                self._remove(name)

    def _finish_swaps(self) -> None:
        """A compacted segment that was complete takes the place of those it replaces."""
        swaps = [name for name in self._names if name.endswith(SWAP)]
        if not swaps:
            return
        low, high = 1 << 63, -1
        for name in swaps:
            if name.endswith(LOG + SWAP):
                base = _offset_of(name)
                low, high = min(low, base), max(high, self._end_of_swap(name, base))
        for name in list(self._names):
            offset = _offset_of(name)
            if not name.endswith(SWAP) and offset >= 0 and low <= offset < high:
                self._remove(name)
        for name in swaps:
            final = name[: -len(SWAP)]
            self._disk.rename(self._path(name), self._path(final))
        self._names = self._disk.listdir(self._place.directory)

    def _end_of_swap(self, name: str, base: int) -> int:
        size = self._disk.size(self._path(name))
        segment = Segment(self._disk, self._place.directory, base, size=size, created_ms=0)
        segment.log_path = self._path(name)
        end = base
        for header, _ in segment.headers(0):
            end = header.next_offset
        return end

    def _open_segments(self) -> None:
        present = set(self._names)
        for name in self._names:
            base = parse_offset_name(name, LOG)
            if base is not None:
                self._segments.append(self._segment(base, self._disk.size(self._path(name))))
        bases = {segment.base_offset for segment in self._segments}
        for name in sorted(present):
            for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                base = parse_offset_name(name, suffix)
                if base is not None and base not in bases:
                    self._remove(name)

    def _segment(self, base: int, size: int) -> Segment:
        segment = Segment(
            self._disk, self._place.directory, base, size=size, created_ms=self._now_ms
        )
        segment.index_interval_bytes = self._config.index_interval_bytes
        return segment

    def _read_epochs(self) -> None:
        if LEADER_EPOCHS not in self._names:
            return
        try:
            entries = parse_epochs(self._disk.read(self._path(LEADER_EPOCHS)))
        except DamagedCheckpoint:
            if not self._place.whole:
                self._recovery_point = 0  # it can only be rebuilt from all batches
            return
        self._epochs = LeaderEpochs(entries)

    def _read_topic_id(self) -> Uuid | None:
        if PARTITION_METADATA not in self._names:
            return None
        data = self._disk.read(self._path(PARTITION_METADATA))
        if not self._place.clean and not data.strip(b"\0"):
            return None  # a power loss took it before anything was synced
        try:
            return parse_partition_metadata(data)
        except DamagedCheckpoint as error:
            raise StorageFault(
                self._place.log_dir,
                f"read {PARTITION_METADATA} of {self._place.topic}-{self._place.partition}",
                str(error),
            ) from error

    def _walk_unflushed(self) -> None:
        point = 0 if self._place.whole else self._recovery_point
        first = 0
        for index, segment in enumerate(self._segments):
            if segment.base_offset <= point:
                first = index
        if self._segments:
            # What the file says of walked batches may be newer than they are; they say it again.
            self._epochs.truncate_from_end(self._segments[first].base_offset)
        expected: int | None = None
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            lost = expected is not None and self._gap_is_loss(expected, segment)
            if lost or not self._walk(segment):
                keep = index if lost else index + 1
                self._check_whole()
                self._drop_from(keep)
                return
            expected = self._end
        self._check_whole()

    def _check_whole(self) -> None:
        """Where the log is walked whole it must reach the recovery point."""
        if self._place.whole and self._end < self._recovery_point:
            raise CorruptRecords(
                f"it ends at offset {self._end} or has a gap there, and {RECOVERY_POINTS} says "
                f"that everything below {self._recovery_point} was committed and on disk"
            )

    def _gap_is_loss(self, expected: int, segment: Segment) -> bool:
        known = self._place.recovery_point is not None and not self._config.compact
        above = expected >= self._recovery_point or self._place.whole
        return known and above and segment.base_offset > expected

    def _walk(self, segment: Segment) -> bool:
        """Check every batch and derive indexes and epochs; False where the tail had to go."""
        segment.reset_indexes()
        segment.clear_aborted()
        self._end = segment.base_offset
        good = 0
        try:
            for header, position in segment.headers(0):
                segment.read_batch(position, header)
                self._check_order(header)
                good = position + header.size_in_bytes
                self._take(segment, header, position)
        except CorruptRecords as error:
            known = self._place.recovery_point is not None
            if known and self._end < self._recovery_point:
                raise CorruptRecords(
                    f"data below the recovery point {self._recovery_point}: {error.detail}"
                ) from error
            segment.cut(good)
        segment.checked_from, segment.checked_to = 0, segment.size
        return segment.size == self._disk.size(segment.log_path) and good == segment.size

    def _check_order(self, header: BatchHeader) -> None:
        if header.base_offset < self._end or header.last_offset_delta < 0:
            raise CorruptRecords(f"offset {header.base_offset} goes back")

    def _take(self, segment: Segment, header: BatchHeader, position: int) -> None:
        segment.note_batch(header.last_offset, header.max_timestamp, header.size_in_bytes, position)
        latest = self._epochs.latest
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (latest is None or epoch > latest):
            self._epochs.assign(epoch, header.base_offset)
        self._end = header.next_offset

    def _drop_from(self, index: int) -> None:
        """Remove the segments from `index` on, newest first."""
        while len(self._segments) > index:
            for path in self._segments.pop().mark_deleted():
                self._disk.unlink(path)

    def _find_end(self) -> None:
        """The log end offset; a log that ends before it starts is begun afresh."""
        start = self._place.log_start_offset
        if self._segments:
            last = self._segments[-1]
            header = last.last_header()
            self._end = last.base_offset if header is None else header[0].next_offset
            if self._end < start:
                self._drop_from(0)
                self._epochs.clear()
        if not self._segments:
            self._segments.append(self._segment(start, 0))
            self._end = start

    def _usable_snapshots(self, start: int) -> list[int]:
        """Producer snapshots that fit the log; others are removed (but those of older segments)."""
        kept = []
        bases = {segment.base_offset for segment in self._segments}
        for name in list(self._names):
            offset = parse_offset_name(name, SNAPSHOT)
            if offset is None:
                continue
            if offset > self._end or offset < start or not (offset in bases or offset == self._end):
                self._remove(name)
            else:
                kept.append(offset)
        return sorted(kept)


def _offset_of(name: str) -> int:
    """The offset a segment's file is named after, -1 for other files."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else -1


def rebuild_producers(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    *,
    snapshots: list[int],
    start: int,
    end: int,
) -> Producers:
    """The producers' state at `end`: the newest good snapshot, and the batches behind it.

    Aborted transactions that complete on the way are added to their segments' indexes where those
    lack them. Damaged snapshots are removed, from the disk and from `snapshots`.
    """
    producers, begin = _newest_snapshot(disk, directory, snapshots, start=start, end=end)
    if begin >= end:
        return producers
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= begin:
            continue
        _replay(segment, producers, begin, end)
    return producers


def _newest_snapshot(
    disk: Disk, directory: str, snapshots: list[int], *, start: int, end: int
) -> tuple[Producers, int]:
    for offset in sorted(snapshots, reverse=True):
        if offset > end:
            continue
        path = f"{directory}/{offset_name(offset, SNAPSHOT)}"
        try:
            return Producers.from_snapshot(disk.read(path)), offset
        except (DamagedSnapshot, FileNotFoundError):
            disk.unlink(path)
            snapshots.remove(offset)
    return Producers(), start


def _replay(segment: Segment, producers: Producers, begin: int, end: int) -> None:
    position = 0
    if begin > segment.base_offset:
        found = segment.position_of(begin)
        if found is None:
            return
        position = found[1]
    for header, at in segment.headers(position):
        if header.base_offset >= end:
            return
        if not header.has_producer_id or header.base_offset < begin:
            continue
        batch = segment.read_batch(at, header) if header.is_control else b""
        done = producers.apply(header, batch, header.base_offset)
        if done is None:
            continue
        if done.aborted:
            stable = producers.last_stable_offset_after(done)
            entry = AbortedTransaction(
                done.producer_id, done.first_offset, done.last_offset, stable
            )
            _add_aborted(segment, entry)
        producers.complete(done)


def _add_aborted(segment: Segment, entry: AbortedTransaction) -> None:
    try:
        known = entry in segment.aborted
    except DamagedIndex:
        segment.clear_aborted()
        known = False
    if not known:
        segment.add_aborted(entry)
