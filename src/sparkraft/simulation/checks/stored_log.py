"""A partition directory on a simulated disk: batches, indexes, producer state and file names.

Parsed from bytes only and updated by the operations on them, independently of the product's view
of its files. Flaws are returned as messages, never raised.

Not here: when to check, and the invariants (`storage_checks`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from sparkraft.records.batch import HEAD_PATCH_SIZE, BatchHeader, crc_ok, parse_header
from sparkraft.records.errors import CorruptRecords
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.index import INDEX_ENTRY, TIME_ENTRY
from sparkraft.storage.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_offset_name,
)

PASSING = (DELETED, CLEANED, SWAP, ".tmp")
"""Suffixes of files awaiting deletion or rename."""


class StoredBatch(NamedTuple):
    """A complete batch in a segment file."""

    header: BatchHeader
    position: int
    data: bytes

    @property
    def payload(self) -> bytes:
        """The bytes no broker changes: all after base offset, length and partition leader epoch."""
        return self.data[HEAD_PATCH_SIZE:]


def parsed(data: bytes | memoryview, position: int = 0) -> tuple[list[StoredBatch], str]:
    """Parse batches with a valid CRC; also return why parsing stopped early, or an empty string.

    Args:
        data: bytes of a segment file.
        position: their position in the file.
    """
    view, at = memoryview(data), 0
    batches: list[StoredBatch] = []
    while at < len(view):
        try:
            header = parse_header(view, at)
        except CorruptRecords as error:
            return batches, f"at byte {position + at}: {error.detail}"
        after = at + header.size_in_bytes
        if after > len(view):
            return batches, f"the batch at byte {position + at} is truncated"
        if not crc_ok(view[at:after]):
            return batches, f"the batch at byte {position + at} has an invalid CRC"
        batches.append(StoredBatch(header, position + at, bytes(view[at:after])))
        at = after
    return batches, ""


class StoredSegment:
    """A `.log` file: its batches, and what follows the last complete one."""

    __slots__ = ("base", "batches", "flaw", "path", "size")

    def __init__(self, path: str, base: int, data: bytes = b"") -> None:
        self.path = path
        self.base = base
        self.size = len(data)
        self.batches, self.flaw = parsed(data)

    def extend(self, data: bytes) -> list[StoredBatch]:
        """Add appended bytes and return their batches."""
        batches, flaw = parsed(data, self.size)
        self.flaw = self.flaw or flaw
        self.batches += batches
        self.size += len(data)
        return batches

    def cut(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        while self.batches and self.batches[-1].position >= size:
            self.batches.pop()
        end = self.batches[-1].position + len(self.batches[-1].data) if self.batches else 0
        if end > size:
            end = self.batches.pop().position
        self.size = size
        self.flaw = "" if end == size else f"the batch at byte {end} is truncated"


class StoredLog:
    """The segments of one directory."""

    def __init__(self, disk: MemoryDisk, directory: str) -> None:
        self.directory = directory
        self._segments: dict[int, StoredSegment] = {}
        for name in disk.listdir(directory):
            self.reread(disk, f"{directory}/{name}")

    @property
    def segments(self) -> list[StoredSegment]:
        """All segments, by base offset."""
        return [self._segments[base] for base in sorted(self._segments)]

    @property
    def batches(self) -> list[StoredBatch]:
        """All batches, in file order."""
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def is_empty(self) -> bool:

        return all(not segment.batches for segment in self._segments.values())

    @property
    def end(self) -> int:
        """The offset after the last batch; 0 if there is none."""
        for base in sorted(self._segments, reverse=True):
            if self._segments[base].batches:
                return self._segments[base].batches[-1].header.next_offset
        return 0

    def find(self, path: str) -> StoredSegment | None:
        """Return the segment of a `.log` file or of one of its indexes."""
        stem = path.rpartition("/")[2].partition(".")[0]
        return self._segments.get(int(stem)) if stem.isdigit() else None

    def reread(self, disk: MemoryDisk, path: str) -> StoredSegment | None:
        """Parse a `.log` file again; return None for any other file."""
        base = parse_offset_name(path.rpartition("/")[2], LOG)
        if base is None:
            return None
        segment = self._segments[base] = StoredSegment(path, base, disk.stored(path))
        return segment

    def extend(self, path: str, data: bytes) -> list[StoredBatch]:
        """Add bytes appended to a `.log` file and return their batches."""
        base = parse_offset_name(path.rpartition("/")[2], LOG)
        assert base is not None
        segment = self._segments.get(base)
        if segment is None:
            segment = self._segments[base] = StoredSegment(path, base)
        return segment.extend(data)

    def remove(self, path: str) -> StoredSegment | None:
        """Remove the segment of a deleted or renamed `.log` file."""
        base = parse_offset_name(path.rpartition("/")[2], LOG)
        return None if base is None else self._segments.pop(base, None)

    def durable(self, disk: MemoryDisk) -> list[StoredBatch]:
        """Return the leading batches that survive a power loss."""
        spared: list[StoredBatch] = []
        for segment in self.segments:
            synced = disk.synced(segment.path)
            for batch in segment.batches:
                if synced[batch.position : batch.position + len(batch.data)] != batch.data:
                    return spared
                spared.append(batch)
        return spared

    def unsynced_below(self, disk: MemoryDisk, offset: int) -> str:
        """Return a file with unsynced records below `offset`; an empty string if there is none."""
        for segment in self.segments:
            ends = [
                batch.position + len(batch.data)
                for batch in segment.batches
                if batch.header.last_offset < offset
            ]
            if ends and disk.synced(segment.path)[: ends[-1]] != disk.stored(
                segment.path, ends[-1]
            ):
                return segment.path
        return ""


# ---- flaws


def gap_in(batches: Iterable[StoredBatch], *, holes: bool) -> str:
    """Return the first overlap of batches or, without `holes`, the first gap."""
    for one, other in pairwise(batches):
        end, base = one.header.next_offset, other.header.base_offset
        if base < end or (base > end and not holes):
            return f"offset {base} follows, expected {end}"
    return ""


def offset_index_flaw(segment: StoredSegment, data: bytes) -> str:
    """Return what is wrong with a segment's `.index`; empty if valid.

    Entries must increase, and each must have the position and last offset of one batch: then a scan
    from the last entry at or below an offset finds the batch with that offset.
    """
    if len(data) % INDEX_ENTRY:
        return f"{len(data)} bytes is not a multiple of the entry size"
    entries = [
        (int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big"))
        for at in range(0, len(data), INDEX_ENTRY)
    ]
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
        return f"the entries don't rise: {entries}"
    ends = {batch.position: batch.header.last_offset - segment.base for batch in segment.batches}
    for relative, position in entries:
        if ends.get(position) != relative:
            return f"no batch at byte {position} ends with relative offset {relative}"
    return ""


def time_index_flaw(segment: StoredSegment, data: bytes) -> str:
    """Return what is wrong with a segment's `.timeindex`; empty if valid.

    Entries must increase. Each has the largest timestamp so far with the first batch that has it;
    the last entry has the largest of the segment. Then a scan from the last entry at or below a
    time misses no record.
    """
    if len(data) % TIME_ENTRY.size:
        return f"{len(data)} bytes is not a multiple of the entry size"
    entries = list(TIME_ENTRY.iter_unpack(data))
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
        return f"the entries don't rise: {entries}"
    largest: dict[int, int] = {}
    latest = -1
    for batch in segment.batches:
        if batch.header.max_timestamp > latest:
            latest = batch.header.max_timestamp
            largest[latest] = batch.header.last_offset - segment.base
    for timestamp, relative in entries:
        if largest.get(timestamp) != relative:
            return f"timestamp {timestamp} is not the largest up to relative offset {relative}"
    if latest >= 0 and (not entries or entries[-1][0] != latest):
        return f"the last entry is {entries[-1:]}, the largest timestamp {latest}"
    return ""


class LastBatch(NamedTuple):
    """A producer's last batch in a log."""

    epoch: int
    last_sequence: int
    last_offset: int


def replayed(batches: Iterable[StoredBatch], below: int) -> dict[int, LastBatch]:
    """Return producer id → last batch below an offset.

    A transaction marker of a later epoch removes the batches of the earlier ones.
    """
    found: dict[int, LastBatch] = {}
    for batch in batches:
        header = batch.header
        if not header.has_producer_id or header.last_offset >= below:
            continue
        if not header.is_control:
            found[header.producer_id] = LastBatch(
                header.producer_epoch, header.last_sequence, header.last_offset
            )
            continue
        known = found.get(header.producer_id)
        if known is not None and known.epoch < header.producer_epoch:
            del found[header.producer_id]
    return found


def producers_flaw(state: dict[int, LastBatch], replay: dict[int, LastBatch], *, start: int) -> str:
    """Compare a producer state with a replay of all batches; return the first difference.

    Args:
        state: the producer state.
        replay: the producers by replay.
        start: log start offset; producers without batches from there on may be in `state` or not.
    """
    for producer_id, last in sorted(replay.items()):
        known = state.get(producer_id)
        if known is None and last.last_offset < start:
            continue
        if known != last:
            return f"producer {producer_id} has {known}, its last batch is {last}"
    for producer_id in sorted(set(state) - set(replay)):
        if state[producer_id].last_offset >= start:
            return f"producer {producer_id} has {state[producer_id]}, which is not in the log"
    return ""


def stray_files(
    names: Iterable[str], bases: Sequence[int], *, passing: bool, snapshots: Sequence[int] = ()
) -> list[str]:
    """Return the files of a directory that do not belong to a segment.

    Args:
        names: file names in the directory.
        bases: base offsets of the log's segments.
        passing: whether files awaiting deletion or rename are allowed.
        snapshots: offsets of the log's producer snapshots.
    """
    known, found = set(bases), []
    for name in names:
        if name.endswith(PASSING):
            found += [] if passing else [name]
            continue
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            base = parse_offset_name(name, suffix)
            if base is not None and base not in known:
                found.append(name)
        offset = parse_offset_name(name, SNAPSHOT)
        if offset is not None and offset not in snapshots:
            found.append(name)
    return found


def checkpoint_rows(data: bytes, fields: int) -> Iterator[list[str]] | None:
    """Return the rows of an offset or epoch checkpoint; None if it is incomplete."""
    rows = data.decode("latin-1").split("\n")
    if len(rows) < 3 or rows[0] != "0" or rows[-1]:  # noqa: PLR2004 (version, count, last line end)
        return None
    lines = [row.split(" ") for row in rows[2:-1]]
    if rows[1] != str(len(lines)) or any(len(line) != fields for line in lines):
        return None
    return iter(lines)
