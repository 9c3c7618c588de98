"""How a log comes back from its directory, after a clean stop or a crash at any byte.

Clean (`.kafka_cleanshutdown` existed): segments are trusted; the end is read from the last one.
Unclean: every segment from the one with the recovery point on is scanned, batch by batch, including
the CRC. The log ends at the first byte that does not belong to a valid batch; everything after it
is deleted. Indexes, epochs and producer state of scanned segments are rebuilt.

Data below the recovery point was synced, so damage there is no crash's doing: it is reported
(`StorageFault`), never cut off silently. In segments that are not walked readers find it.

The metadata log is scanned completely at every start. Records that are missing or damaged below its
recovery point were committed, so the log is refused instead of truncated.

Invariants: recovering twice gives the same result; nothing below the recovery point is deleted; a
    gap between segments above it means that an unsynced tail was lost, and ends the log as well.
    Cleaning makes gaps too: ours only below the recovery point, Kafka's also above it, recognizable
    by its checkpoint or by files it has not deleted yet. A follower of a cleaned log has its gaps
    within segments (`PartitionLog.append_as_follower`).
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
from sparkraft.storage.index import DamagedIndex
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
    parse_offset_name,
)
from sparkraft.storage.producer_replay import rebuild_producers
from sparkraft.storage.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The location of a log, and its entries in the checkpoints of its directory."""

    log_dir: str
    directory: str
    topic: str
    partition: int
    clean: bool
    """The node that wrote it stopped cleanly."""
    recovery_point: int | None = None
    """None if the checkpoint does not name the log: then everything is scanned."""
    log_start_offset: int = 0
    cleaned_to: int = 0
    """Offset at which the last cleaning ended: gaps below it were made by that cleaning."""
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
        self._replay_from: int | None = None
        self._cleaned_by_kafka = 0
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
        self._check_aborted()
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
            replay_from=self._replay_from,
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
        self._note_cleaning_by_kafka()
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

    def _note_cleaning_by_kafka(self) -> None:
        """Find how far Kafka cleaned just before it died, if its checkpoints don't say so yet.

        Then the files it replaced are still there, above a recovery point that is older.
        """
        replaced = [_offset_of(name) for name in self._names if name.endswith(LOG + DELETED)]
        present = [parse_offset_name(name.removesuffix(SWAP), LOG) for name in self._names]
        bases = sorted(base for base in present if base is not None)
        for base in replaced:
            if base >= self._recovery_point and base in bases:
                following = [each for each in bases if each > base]
                self._cleaned_by_kafka = max([self._cleaned_by_kafka, *following[:1]])

    def _finish_swaps(self) -> None:
        """A compacted segment that was complete takes the place of those it replaces."""
        swaps = [name for name in self._names if name.endswith(SWAP)]
        if not swaps:
            return
        low, high = 1 << 63, -1
        bases = set()
        for name in swaps:
            if name.endswith(LOG + SWAP):
                base = _offset_of(name)
                bases.add(base)
                low, high = min(low, base), max(high, self._end_of_swap(name, base))
        for name in list(self._names):
            offset = _offset_of(name)
            if name.endswith(SWAP) or offset < 0:
                continue
            # Segments that the swap replaces; the producer state at its start stays valid.
            if offset in bases:
                if not name.endswith(SNAPSHOT):
                    self._remove(name)
            elif low < offset < high:
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
        is_empty = all(segment.size == 0 for segment in self._segments)
        if not data.strip(b"\0") and (is_empty or not self._place.clean):
            # A power loss took it before anything was synced. The file must not outlast a clean
            # stop, after which it would pass for damaged.
            self._disk.unlink(self._path(PARTITION_METADATA))
            self._disk.fsync_dir(self._place.directory)
            return None
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
            # not at it: records truncated there may have reappeared
            if segment.base_offset < point:
                first = index
        if self._segments:
            # The file's entries for scanned batches may be newer than the batches, which provide
            # them again.
            self._epochs.truncate_from_end(self._segments[first].base_offset)
            self._replay_from = self._segments[first].base_offset
            # The run that crashed may have cut one of them, or the end of the one before.
            for segment in self._segments[max(first - 1, 0) :]:
                segment.cut_unsynced = True
        expected: int | None = None
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            following = self._segments[index + 1] if index + 1 < len(self._segments) else None
            lost = expected is not None and self._gap_is_loss(expected, segment)
            if lost or not self._walk(segment, following):
                keep = index if lost else index + 1
                self._check_whole()
                self._drop_from(keep)
                return
            expected = self._end
        self._check_whole()

    def _check_whole(self) -> None:
        """Refuse a completely scanned log that does not reach the recovery point."""
        if self._place.whole and self._end < self._recovery_point:
            raise CorruptRecords(
                f"it ends at offset {self._end} or has a gap there, but according to "
                f"{RECOVERY_POINTS} every record below {self._recovery_point} was synced"
            )

    def _gap_is_loss(self, expected: int, segment: Segment) -> bool:
        if segment.base_offset <= expected or self._place.recovery_point is None:
            return False
        return self._place.whole or expected >= max(
            self._recovery_point, self._place.cleaned_to, self._cleaned_by_kafka
        )

    def _walk(self, segment: Segment, following: Segment | None) -> bool:
        """Check every batch and rebuild indexes and epochs; False if a tail was deleted.

        If the segment reaches into `following`, a power loss undid half of a truncation: the newer
        epoch wins.
        """
        segment.reset_indexes()
        self._end = segment.base_offset
        good = 0
        try:
            for header, position in segment.headers(0):
                if _is_cut_by(following, header):
                    segment.cut(position)
                    break
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
        whole = segment.size == self._disk.size(segment.log_path) and good == segment.size
        return whole and (following is None or self._end <= following.base_offset)

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

    def _check_aborted(self) -> None:
        """Find the first segment whose transaction index is inconsistent and must be rebuilt."""
        for index, segment in enumerate(self._segments):
            last = index + 1 == len(self._segments)
            end = self._end if last else self._segments[index + 1].base_offset
            try:
                segment.load_aborted(end)
            except DamagedIndex:
                if self._replay_from is None or segment.base_offset < self._replay_from:
                    self._replay_from = segment.base_offset

    def _usable_snapshots(self, start: int) -> list[int]:
        """Producer snapshots that fit the log; others are removed.

        Those inside what was walked go as well: they may be of an older tail than the batches.
        """
        kept = []
        walked = None if self._place.clean else self._replay_from
        bases = {segment.base_offset for segment in self._segments}
        for name in list(self._names):
            offset = parse_offset_name(name, SNAPSHOT)
            if offset is None:
                continue
            fits = start <= offset <= self._end and (offset in bases or offset == self._end)
            if not fits or (walked is not None and offset > walked):
                self._remove(name)
            else:
                kept.append(offset)
        return sorted(kept)


def _offset_of(name: str) -> int:
    """The offset a segment's file is named after, -1 for other files."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else -1


def _is_cut_by(following: Segment | None, header: BatchHeader) -> bool:
    """Whether the batch was cut off before `following` was begun, by a leader of a later epoch."""
    if following is None or header.last_offset < following.base_offset:
        return False
    first = following.header_at(0)
    return first is not None and first.partition_leader_epoch > header.partition_leader_epoch
