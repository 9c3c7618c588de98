"""One cleaning of one log: its keys are indexed, its inactive segments rewritten (log compaction).

    1 index     the last offset of each key in the dirty part
    2 rewrite   segments in groups that fit one segment: `<base>.log.cleaned` and indexes, synced
    3 replace   the owner of the log puts the new segment in place of the group's

The source segments are inactive and therefore do not change; any thread may read and write. The
owner of the log does the third step, and may find that retention or a truncation came first.

A crash leaves `.cleaned` files, which the next start removes, or a whole `.swap`, which it puts in
place (`storage.recovery`); Kafka does the same with both.

Not here: which log is cleaned when (`cleaner_plan`), which records stay (`cleaner_filter`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.base.loop_work import LoopBound
from sparkraft.records.batch import BATCH_OVERHEAD, BatchHeader, crc_ok, parse_header
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.cleaner_filter import (
    BatchFilter,
    OffsetMap,
    Rules,
    Transactions,
    index_batch,
    marker_of,
)
from sparkraft.storage.cleaner_plan import Cleaning, Source
from sparkraft.storage.disk import Disk
from sparkraft.storage.index import AbortedTransaction
from sparkraft.storage.names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from sparkraft.storage.segment import Segment

RECORDS_PER_PAUSE: LoopBound = 200
"""Between two pauses, give or take a batch: about a millisecond of work."""

_RELATIVE_OFFSET_MAX = (1 << 31) - 1
_SMALLEST_BUFFER = 1 << 12


class Replacement(NamedTuple):
    """A finished segment and those it stands for; its files end in `.cleaned`."""

    old: tuple[Segment, ...]
    new: Segment


class LogCleaner:
    """The first two steps of a cleaning.

    Args:
        disk: files, used by methods that any thread may call.
        cleaning: the cleaning to carry out.
        io_bytes: read and written at a time, if no batch is larger.
        keys_max: keys held in memory at a time; records beyond them wait for the next cleaning.
        pause: called every few hundred records, so that other threads can run.
    """

    def __init__(
        self,
        disk: Disk,
        cleaning: Cleaning,
        *,
        io_bytes: int,
        keys_max: int,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is read before `run`."""
        self._pause = pause
        self._records_until_pause = RECORDS_PER_PAUSE
        self._disk = disk
        self._cleaning = cleaning
        self._io_bytes = max(io_bytes, _SMALLEST_BUFFER)
        self._offsets = OffsetMap(keys_max)
        self._transactions = Transactions(cleaning.aborted)
        rules = Rules(
            last_records=cleaning.last_records,
            end=cleaning.end,
            now_ms=cleaning.now_ms,
            delete_retention_ms=cleaning.config.delete_retention_ms,
        )
        self._filter = BatchFilter(self._offsets, self._transactions, rules)
        self.bytes_rewritten = self.bytes_out = 0
        self.end = cleaning.first_dirty
        """Up to here the log is clean once `run` is through."""

    @property
    def records_in(self) -> int:
        """Records of all segments that were rewritten."""
        return self._filter.records_in

    @property
    def records_out(self) -> int:
        """Those that stayed."""
        return self._filter.records_out

    def run(self) -> Iterator[int | Replacement]:
        """Work in slices: the bytes that each read or wrote, and every finished segment.

        Raises:
            CorruptRecords: a segment is damaged; the log is left as it is.
            OSError: the disk failed, or a segment is gone meanwhile.
        """
        yield from self._index()
        end = self._offsets.latest + 1
        for group in groups(self._cleaning.segments, end, self._cleaning.config.segment_bytes):
            yield from self._rewrite(group)
        self.end = end

    # -- indexing --------------------------------------------------------------------------------

    def _index(self) -> Iterator[int]:
        start, offsets = self._cleaning.first_dirty, self._offsets
        offsets.latest = start - 1
        dirty = [each for each in self._cleaning.segments if each.end > start]
        transactions = Transactions(self._cleaning.aborted)
        for source in dirty:
            for step in self._walk(source.segment):
                if isinstance(step, int):
                    yield step
                    continue
                if offsets.is_full:
                    return
                self._index_batch(transactions, *step)
            offsets.latest = max(offsets.latest, source.end - 1)

    def _index_batch(self, transactions: Transactions, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            transactions.on_marker(header, marker_of(header, batch))
        elif not transactions.on_batch(header) and header.last_offset >= self._cleaning.first_dirty:
            index_batch(self._offsets, header, batch, self._cleaning.first_dirty)
        self._offsets.latest = max(self._offsets.latest, header.last_offset)

    def _walk(self, segment: Segment) -> Iterator[int | tuple[BatchHeader, bytes]]:
        """Each whole batch, checked, and after each read its bytes."""
        position = 0
        size = self._io_bytes
        while position < segment.size:
            wanted = min(size, segment.size - position)
            chunk = self._disk.read_part(segment.log_path, wanted, position)
            if len(chunk) < min(wanted, BATCH_OVERHEAD):
                raise CorruptRecords(f"{segment.log_path} ends at byte {position + len(chunk)}")
            used = 0
            size = self._io_bytes
            while len(chunk) - used >= BATCH_OVERHEAD:
                header = parse_header(chunk, used)
                end = used + header.size_in_bytes
                if end > len(chunk):
                    if used == 0:  # larger than the buffer: read all of it next
                        size = header.size_in_bytes
                        self._check_fits(segment, position, size)
                    break
                batch = chunk[used:end]
                self._check_crc(segment, position + used, batch)
                yield header, batch
                used = end
                self._maybe_pause(header.records_count)
            else:
                if used == 0:
                    raise CorruptRecords(f"{segment.log_path} has no batch at byte {position}")
            position += used
            yield len(chunk)

    def _maybe_pause(self, records: int) -> None:
        self._records_until_pause -= records + 1
        if self._records_until_pause <= 0:
            self._records_until_pause = RECORDS_PER_PAUSE
            self._pause()

    @staticmethod
    def _check_fits(segment: Segment, position: int, size: int) -> None:
        if position + size > segment.size:
            raise CorruptRecords(f"{segment.log_path} cuts the batch at byte {position} off")

    @staticmethod
    def _check_crc(segment: Segment, position: int, batch: bytes) -> None:
        if not crc_ok(batch):
            raise CorruptRecords(f"{segment.log_path}: the CRC at byte {position} is wrong")

    # -- rewriting -------------------------------------------------------------------------------

    def _rewrite(self, group: Sequence[Segment]) -> Iterator[int | Replacement]:
        first, last = group[0], group[-1]
        new = Segment(
            self._disk,
            self._cleaning.directory,
            first.base_offset,
            size=0,
            created_ms=last.created_ms,
        )
        new.index_interval_bytes = first.index_interval_bytes
        out = _Output(self._disk, new)
        for segment in group:
            for step in self._walk(segment):
                if isinstance(step, int):
                    yield step
                    continue
                out.put(step[0], self._kept(*step))
                if len(out.buffer) >= self._io_bytes:
                    yield out.write()
        yield out.write()
        yield out.finish(self._transactions.kept)
        self._transactions.kept = []
        self.bytes_rewritten += sum(segment.size for segment in group)
        self.bytes_out += new.size
        yield Replacement(tuple(group), new)

    def _kept(self, header: BatchHeader, batch: bytes) -> bytes:
        try:
            return self._filter.filter(header, batch)
        except DecodeError as error:
            raise CorruptRecords(f"the batch at {header.base_offset}: {error}") from error


class _Output:
    """The files of a new segment, not under their names yet."""

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk = disk
        self._segment = segment
        self._path = segment.path(LOG) + CLEANED
        self._position = 0
        self.buffer = bytearray()

    def put(self, header: BatchHeader, batch: bytes) -> None:
        if not batch:
            return
        latest = parse_header(batch).max_timestamp
        self._segment.note_batch(header.last_offset, latest, len(batch), self._position)
        self._position += len(batch)
        self.buffer += batch

    def write(self) -> int:
        size = len(self.buffer)
        self._disk.extend(self._path, bytes(self.buffer))
        self.buffer.clear()
        return size

    def finish(self, aborted: list[AbortedTransaction]) -> int:
        """Write the indexes and sync everything; the bytes written."""
        segment = self._segment
        offsets, times = segment.index_bytes()
        files = {LOG: b"", INDEX: offsets, TIME_INDEX: times}
        if aborted:
            files[TRANSACTION_INDEX] = b"".join(entry.to_bytes() for entry in aborted)
        for suffix, data in files.items():
            path = segment.path(suffix) + CLEANED
            self._disk.extend(path, data)
            self._disk.fsync(path)
        segment.adopt(self._position, aborted)
        return sum(map(len, files.values()))


def groups(sources: Sequence[Source], end: int, segment_bytes: int) -> Iterator[list[Segment]]:
    """Neighbours that fit one segment together, up to offset `end`."""
    group: list[Segment] = []
    size = 0
    for source in sources:
        segment = source.segment
        if segment.base_offset >= end:
            break
        fits = (
            size + segment.size <= segment_bytes
            and source.end - 1 - group[0].base_offset <= _RELATIVE_OFFSET_MAX
            if group
            else True
        )
        if not fits:
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group
