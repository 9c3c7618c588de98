"""One segment of a log: a run of batches in a file, its indexes, and how to find things in it.

An unused segment is cheap: indexes are read at the first lookup, files are created at the first
append, and no descriptor is held (the `Disk` keeps a bounded cache).

Invariant: `size` is the number of bytes that whole batches take; bytes beyond it are not ours.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sparkraft.records.batch import (
    BATCH_OVERHEAD,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    SMALLEST_LENGTH,
    BatchHeader,
    Buffer,
    crc_ok,
)
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import Disk, FilePart
from sparkraft.storage.index import (
    AbortedTransaction,
    DamagedIndex,
    OffsetIndex,
    TimeIndex,
    parse_aborted,
)
from sparkraft.storage.names import DELETED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, offset_name

SCAN_CHUNK = 1 << 16
"""Bytes read at a time while walking headers; a walk begins with fewer, as most end soon."""

_FIRST_SCAN_CHUNK = 1 << 12

_TIME_ENTRY_BYTES = 12

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""Entries of indexes are relative to the segment's base, in 32 bits."""

_UNINDEXED_BYTES_MAX = 8 << 20
"""If more bytes than this follow the last index entry, the index was truncated, and rebuilding pays
off.

It exceeds the default `max.message.bytes` by far, as one batch may lie between two entries.
"""


class Segment:
    """One file of batches; owned by one `PartitionLog`."""

    __slots__ = (
        "_aborted",
        "_bytes_since_index",
        "_dir",
        "_disk",
        "_indexes_are_ours",
        "_offset_index",
        "_time_index",
        "base_offset",
        "checked_from",
        "checked_to",
        "created_ms",
        "cut_unsynced",
        "deleted",
        "first_timestamp",
        "index_interval_bytes",
        "indexes_dirty",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "roll_jitter_ms",
        "size",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int, created_ms: int
    ) -> None:
        """A segment of `size` bytes, which may not exist as a file yet."""
        self._disk = disk
        self._dir = directory
        self.base_offset = base_offset
        self.log_path = f"{directory}/{offset_name(base_offset, LOG)}"
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        self.index_interval_bytes = 4096
        self.deleted = False
        self.cut_unsynced = False
        """The file was shortened, and that may not be on disk yet."""
        self.first_timestamp: int | None = None
        """Maximum timestamp of the first batch, from which rolling by time counts."""
        self.max_timestamp: int | None = None
        """Largest timestamp of the segment, -1 without any; None until it is asked for."""
        self.max_timestamp_offset = base_offset
        """Last offset of the batch that holds it."""
        self.indexes_dirty = False
        self.checked_from = size
        self.checked_to = size
        """Bytes in [from, to) were seen to be whole batches by this process."""
        self._bytes_since_index = 0
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] = []
        self._indexes_are_ours = True  # built by this process from what it wrote or walked
        if size == 0:
            self.reset_indexes()

    def path(self, suffix: str) -> str:
        """The segment's file of a kind."""
        return f"{self._dir}/{offset_name(self.base_offset, suffix)}"

    def moved_to(self, directory: str) -> None:
        """Follow the log's directory to its new name."""
        self._dir = directory
        self.log_path = self.path(LOG)

    # -- indexes ---------------------------------------------------------------------------------

    def reset_indexes(self) -> None:
        """Start the indexes afresh, as before a scan."""
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp = None
        self._bytes_since_index = 0
        self._indexes_are_ours = True
        self.indexes_dirty = True

    @property
    def offset_index(self) -> OffsetIndex:
        """Its offset index: read from the file at first use, rebuilt if the file is damaged."""
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """Its time index; as above."""
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Its aborted transactions, by the offset of their markers; `load_aborted` came before."""
        return self._aborted

    def load_aborted(self, end: int) -> None:
        """Read the transaction index; empty if there is no file.

        Args:
            end: the offset after the segment.

        Raises:
            DamagedIndex: it can't be of this segment; it is left empty.
        """
        path = self.path(TRANSACTION_INDEX)
        self._aborted = []
        if self._disk.size(path) < 0:
            return
        entries = parse_aborted(self._disk.read(path))
        for entry in entries:
            if not self.base_offset <= entry.last_offset < end:
                raise DamagedIndex(f"a marker at {entry.last_offset} is not in this segment")
        if entries and not self._is_marker(entries[-1]):
            raise DamagedIndex(f"there is no marker at {entries[-1].last_offset}")
        self._aborted = entries

    def _is_marker(self, entry: AbortedTransaction) -> bool:
        found = self.position_of(entry.last_offset)
        if found is None:
            return False
        header = found[0]
        return header.is_control and (header.producer_id, header.base_offset) == (
            entry.producer_id,
            entry.last_offset,
        )

    def drop_indexes(self) -> None:
        """Free the memory of the indexes of an inactive segment; they are read again when asked."""
        if not self.indexes_dirty:
            self._offset_index = self._time_index = None

    def _load_indexes(self) -> None:
        try:
            offsets = OffsetIndex.from_bytes(
                self._disk.read(self.path(INDEX)), segment_bytes=self.size
            )
            times = TimeIndex.from_bytes(self._disk.read(self.path(TIME_INDEX)))
            self._check_against_log(offsets, times)
            if self.max_timestamp is None:
                self._load_max_timestamp(offsets, times)
        except (FileNotFoundError, DamagedIndex, CorruptRecords):
            self.rebuild_indexes()
            return
        self._offset_index = offsets
        self._time_index = times
        self._indexes_are_ours = False

    def _check_against_log(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Check the batches of the last entries, to find a stale, truncated or foreign index."""
        relative, position = offsets.last
        if len(offsets) and not self._ends_at(position, relative):
            raise DamagedIndex("the last entry points at no batch that ends there")
        if self.size - position > _UNINDEXED_BYTES_MAX:
            raise DamagedIndex("too much of the segment is not indexed")
        if len(times):
            self._check_time_entry(offsets, *times.last)

    def _ends_at(self, position: int, relative: int) -> bool:
        header = self.header_at(position)
        return header is not None and header.last_offset == self.base_offset + relative

    def _scan_start(self, offsets: OffsetIndex, relative: int) -> int:
        """Where to scan from for `relative`; an entry read from a file is held to its batch."""
        entry, position = offsets.lookup(relative)
        trusted = self._indexes_are_ours and offsets is self._offset_index
        if entry >= 0 and not trusted and not self._ends_at(position, entry):
            raise DamagedIndex("an entry points at no batch that ends there")
        return position

    def _check_time_entry(self, offsets: OffsetIndex, timestamp: int, relative: int) -> None:
        """A time entry names the first batch of its time; the one before it must be older."""
        last_offset = self.base_offset + relative
        for header, _ in self.headers(self._scan_start(offsets, relative - 1)):
            if header.last_offset == last_offset and header.max_timestamp == timestamp:
                return
            if header.last_offset >= last_offset or header.max_timestamp >= timestamp:
                break
        raise DamagedIndex("a time entry does not name the first batch of that time")

    def _load_max_timestamp(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        timestamp, relative = times.last
        largest, at = timestamp, self.base_offset + relative
        for header, _ in self.headers(self._scan_start(offsets, relative)):
            if header.max_timestamp > largest:
                largest, at = header.max_timestamp, header.last_offset
        self.max_timestamp, self.max_timestamp_offset = largest, at

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batches; readers report damage in these."""
        self.reset_indexes()
        with suppress(CorruptRecords):
            for header, position in self.headers(0):
                self.note_batch(
                    header.last_offset, header.max_timestamp, header.size_in_bytes, position
                )
        self.time_index.maybe_append(*self._time_entry())

    def _time_entry(self) -> tuple[int, int]:
        assert self.max_timestamp is not None
        return self.max_timestamp, self.max_timestamp_offset - self.base_offset

    def note_batch(self, last_offset: int, max_timestamp: int, size: int, position: int) -> None:
        """Take a batch at `position` into the indexes; batches come in order."""
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = max_timestamp
        assert self.max_timestamp is not None
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position, size)
            self.time_index.maybe_append(*self._time_entry())
            self._bytes_since_index = 0
            self.indexes_dirty = True
        self._bytes_since_index += size

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker lies in this segment, in file and memory."""
        self.aborted.append(aborted)
        self._disk.append(self.path(TRANSACTION_INDEX), [aborted.to_bytes()])

    def set_aborted(self, entries: list[AbortedTransaction]) -> None:
        """Let the transaction index say this, in file and memory; one that does stays as it is."""
        path = self.path(TRANSACTION_INDEX)
        data = b"".join(entry.to_bytes() for entry in entries)
        if entries == self._aborted and max(self._disk.size(path), 0) == len(data):
            return
        self._aborted = entries
        if data:
            self._disk.replace(path, data)
        else:
            self._disk.unlink(path)

    def write_indexes(self) -> None:
        """Put both indexes into their files, ended by the largest timestamp as Kafka does."""
        if self.indexes_dirty or self.size == 0:
            offsets, times = self.index_bytes()
            self._disk.write(self.path(INDEX), offsets)
            self._disk.write(self.path(TIME_INDEX), times)
            self.indexes_dirty = False

    def index_bytes(self) -> tuple[bytes, bytes]:
        """Contents of the files of a segment that ends here: offset and time index."""
        self.time_index.maybe_append(*self._time_entry())
        return self.offset_index.to_bytes(), self.time_index.to_bytes()

    def adopt(self, size: int, aborted: list[AbortedTransaction]) -> None:
        """Take files written elsewhere, indexes and all; `size` bytes of whole batches."""
        self.size = size
        self.checked_from, self.checked_to = 0, size
        self._aborted = aborted
        self.indexes_dirty = False

    # -- appending -------------------------------------------------------------------------------

    def append(self, buffers: Sequence[Buffer], size: int) -> int:
        """Write whole batches at the end and return their position; `note_batch` comes next.

        A failed write leaves bytes beyond `size`; the log is then faulty until it is recovered.
        """
        if self._offset_index is None or self.max_timestamp is None:
            self._load_indexes()
        self._disk.append(self.log_path, buffers)
        position = self.size
        self.size = position + size
        if self.checked_to == position:
            self.checked_to = self.size
        return position

    def must_roll(
        self, config: LogConfig, *, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether a batch set belongs into a new segment (Kafka's shouldRoll)."""
        mine = self.size
        if mine == 0:
            return last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        if mine + size > config.segment_bytes:
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        first = self.first_timestamp
        if first is None:
            first = self.first_batch_timestamp()
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        age_ms_max = config.segment_age_ms_max if config.compact else config.segment_ms
        if waited > age_ms_max - self.roll_jitter_ms:
            return True
        entries_max = mine // (self.index_interval_bytes + 1) + 2
        if entries_max * _TIME_ENTRY_BYTES < config.segment_index_bytes:
            return False  # neither index can be full: there are not that many batches
        return (
            len(self.offset_index) >= config.index_entries_max
            or len(self.time_index) >= config.time_index_entries_max
        )

    def first_batch_timestamp(self) -> int:
        """Largest timestamp of its first batch, -1 without any."""
        if self.first_timestamp is None:
            header = self.header_at(0)
            self.first_timestamp = -1 if header is None else header.max_timestamp
        return self.first_timestamp

    # -- finding ---------------------------------------------------------------------------------

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at `position` if there is a whole batch."""
        if position + BATCH_OVERHEAD > self.size:
            return None
        data = self._disk.pread(self.log_path, BATCH_OVERHEAD, position)
        if len(data) < BATCH_OVERHEAD:
            return None
        header = BatchHeader._make(HEADER.unpack(data))
        sound = header.magic == MAGIC and header.batch_length >= SMALLEST_LENGTH
        return header if sound and position + header.size_in_bytes <= self.size else None

    def headers(self, position: int) -> Iterator[tuple[BatchHeader, int]]:
        """Walk (header, position) from `position` to the end of the segment.

        Raises:
            CorruptRecords: bytes that are not a batch, or a batch that the segment's end truncates.
        """
        end = self.size
        chunk = b""
        chunk_size = _FIRST_SCAN_CHUNK
        start = position  # position of `chunk`
        while position < end:
            if position + BATCH_OVERHEAD > start + len(chunk):
                start = position
                chunk = self._disk.pread(self.log_path, min(chunk_size, end - position), position)
                chunk_size = min(4 * chunk_size, SCAN_CHUNK)
                if len(chunk) < BATCH_OVERHEAD:
                    raise self._damage(position, f"{end - position} bytes cannot be a batch")
            header = BatchHeader._make(HEADER.unpack_from(chunk, position - start))
            if header.magic != MAGIC or header.batch_length < SMALLEST_LENGTH:
                raise self._damage(
                    position, f"magic {header.magic}, batch length {header.batch_length}"
                )
            size = header.batch_length + LOG_OVERHEAD
            if position + size > end:
                raise self._damage(position, f"a batch of {size} bytes is cut off")
            yield header, position
            position += size

    def _damage(self, position: int, what: str) -> CorruptRecords:
        return CorruptRecords(f"{self.log_path} is damaged at byte {position}: {what}")

    def position_of(self, offset: int) -> tuple[BatchHeader, int] | None:
        """Return the first batch that ends at or after `offset`; None if all end before it."""
        relative = offset - self.base_offset
        try:
            start = self._scan_start(self.offset_index, relative)
        except DamagedIndex:
            self.rebuild_indexes()
            start = self.offset_index.lookup(relative)[1]
        for header, position in self.headers(start):
            last_offset = header.base_offset + header.last_offset_delta
            if position == start or last_offset >= offset:  # those between have no entry, mostly
                self.offset_index.learn(
                    last_offset - self.base_offset, position, header.size_in_bytes
                )
            if last_offset >= offset:
                return header, position
        return None

    def start_before(self, offset: int, entries: int) -> int:
        """The position of a batch that many index entries before the one of `offset`."""
        relative = offset - self.base_offset
        try:
            return self._scan_start(
                self.offset_index, self.offset_index.entry_before(relative, entries)
            )
        except DamagedIndex:
            self.rebuild_indexes()
            return self.offset_index.lookup(self.offset_index.entry_before(relative, entries))[1]

    def place_of(self, offset: int) -> tuple[int, int] | None:
        """Return (position, size) of that batch; read the log only if the index is not enough."""
        place = self.offset_index.batch_of(offset - self.base_offset)
        if place is not None:
            return place
        found = self.position_of(offset)
        return None if found is None else (found[1], found[0].size_in_bytes)

    def offset_above(self, position: int) -> int | None:
        """Return an offset above all batches before byte `position`; None if the index has none."""
        relative = self.offset_index.offset_at(position)
        return None if relative is None else self.base_offset + relative + 1

    def position_of_time(self, timestamp: int) -> int:
        """Where to scan from for the first record at or after `timestamp`."""
        found, relative = self.time_index.lookup(timestamp)
        try:
            if found >= 0 and not self._indexes_are_ours:
                self._check_time_entry(self.offset_index, found, relative)
            return self._scan_start(self.offset_index, relative)
        except (DamagedIndex, CorruptRecords):
            self.rebuild_indexes()
            return self.offset_index.lookup(self.time_index.lookup(timestamp)[1])[1]

    def last_header(self) -> tuple[BatchHeader, int] | None:
        """The last batch; None in an empty segment."""
        found = None
        for found in self.headers(self.offset_index.last[1]):  # noqa: B007 (the last one counts)
            pass
        return found

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of the batch at `position`, its CRC checked."""
        batch = self._disk.pread(self.log_path, header.size_in_bytes, position)
        if len(batch) < header.size_in_bytes or not crc_ok(batch):
            raise self._damage(position, "the CRC is wrong")
        return batch

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`; batches not yet seen by this process are checked.

        Raises:
            CorruptRecords: a batch in the range is damaged; nothing is cut off or served.
        """
        data = self._disk.pread(self.log_path, min(size, self.size - position), position)
        end = position + len(data)
        if position < self.checked_from or end > self.checked_to:
            self._check(data, position)
        return data

    def view(self, position: int, size: int, *, grows: bool) -> Sequence[bytes | memoryview]:
        """As `read`, in pieces that are for a socket alone (`Disk.view`); `size` bytes are there.

        `grows`: whether this is the segment that takes appends.

        Raises:
            CorruptRecords: as `read`.
        """
        if not self._is_checked(position, size):
            return [self.read(position, size)]
        return self._disk.view(self.log_path, size, position, grows=grows)

    def cold_place(self, offset: int, more_bytes: int = 0) -> FilePart | None:
        """The part of its files to warm next, so that `place_of(offset)` does not wait.

        `more_bytes`: bytes of the log after it that will be read, too.
        """
        if self._offset_index is None and (part := self._cold_index()) is not None:
            return part
        relative = offset - self.base_offset
        if self.offset_index.batch_of(relative) is not None:
            return None
        start = self.offset_index.lookup(relative)[1]
        left = self.size - start
        if self._disk.cold_part(self.log_path, min(SCAN_CHUNK, left), start) is None:
            return None
        return FilePart(self.log_path, start, min(SCAN_CHUNK + more_bytes, left))

    def cold_bytes(
        self, position: int, size: int, *, to_send: bool, grows: bool
    ) -> FilePart | None:
        """The part to warm before `size` bytes are read: by `view` if `to_send`, else by `read`."""
        size = min(size, self.size - position)
        to_send = to_send and self._is_checked(position, size)
        return self._disk.cold_part(self.log_path, size, position, to_send=to_send, grows=grows)

    def _cold_index(self) -> FilePart | None:
        """The part to warm before the indexes are read and compared with the end of the log."""
        for suffix in (INDEX, TIME_INDEX):
            path = self.path(suffix)
            size = self._disk.size(path)
            if size > 0 and (part := self._disk.cold_part(path, size, 0)) is not None:
                return part
        start = max(0, self.size - SCAN_CHUNK)
        return self._disk.cold_part(self.log_path, self.size - start, start)

    def _is_checked(self, position: int, size: int) -> bool:
        return self.checked_from <= position and position + size <= self.checked_to

    def _check(self, data: bytes, position: int) -> None:
        """Verify the whole batches in `data` and remember the range."""
        view = memoryview(data)
        at = 0
        while at + BATCH_OVERHEAD <= len(view):
            header = BatchHeader._make(HEADER.unpack_from(view, at))
            if header.magic != MAGIC or header.batch_length < SMALLEST_LENGTH:
                raise self._damage(position + at, f"magic {header.magic}")
            end = at + header.size_in_bytes
            if end > len(view):
                break
            if not crc_ok(view[at:end]):
                raise self._damage(position + at, "the CRC is wrong")
            at = end
        self._mark_checked(position, position + at)

    def _mark_checked(self, start: int, end: int) -> None:
        if end <= start:
            return
        if (
            start > self.checked_to
            or end < self.checked_from
            or self.checked_from == self.checked_to
        ):
            self.checked_from, self.checked_to = start, end
        else:
            self.checked_from = min(self.checked_from, start)
            self.checked_to = max(self.checked_to, end)

    def largest_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, last offset of its batch); (-1, base offset) without any."""
        if self.max_timestamp is None:
            self._load_indexes()
        assert self.max_timestamp is not None
        return self.max_timestamp, self.max_timestamp_offset

    # -- changing --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove every batch that ends at or after `offset`.

        Returns: `offset`; or the base offset of a deleted batch that contained it.
        """
        found = self.position_of(offset)
        size = self.size if found is None else found[1]
        if found is not None:
            offset = min(offset, found[0].base_offset)
        relative = offset - self.base_offset
        self.offset_index.truncate_to(relative)
        self.time_index.truncate_to(relative)
        kept = [entry for entry in self.aborted if entry.last_offset < offset]
        if len(kept) != len(self.aborted):
            self.set_aborted(kept)
        self.cut(size)
        self._bytes_since_index = 0
        self.max_timestamp = None
        self._load_max_timestamp(self.offset_index, self.time_index)
        self.indexes_dirty = True
        return offset

    def cut(self, size: int) -> None:
        """Shorten the file to `size` bytes."""
        if self._disk.size(self.log_path) > size:
            self._disk.truncate(self.log_path, size)
            self.cut_unsynced = True
        self.size = size
        self.checked_from = min(self.checked_from, size)
        self.checked_to = min(self.checked_to, size)
        if size == 0:
            self.first_timestamp = None

    def mark_deleted(self) -> list[str]:
        """Rename its files with `.deleted` and return their new paths, which the caller removes."""
        self.deleted = True
        renamed = []
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            path = self.path(suffix)
            if self._disk.size(path) >= 0:
                self._disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed
