"""A partition's folder as it stands on a simulated disk: batches, indexes, producers, file names.

Read from the bytes alone and kept up to date by the operations on them, so that nothing here is the
product's own idea of its files. What is wrong with them is told in words, nothing is raised.

Not here: when it is looked at, and what must hold then (`storage_checks`).
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
"""Endings of files that are on their way out, or not in place yet."""


class StoredBatch(NamedTuple):
    """A whole batch in a segment's file."""

    header: BatchHeader
    position: int
    data: bytes

    @property
    def payload(self) -> bytes:
        """What no broker changes: all behind base offset, length and partition leader epoch."""
        return self.data[HEAD_PATCH_SIZE:]


def parsed(data: bytes | memoryview, position: int = 0) -> tuple[list[StoredBatch], str]:
    """Whole batches of right CRC from the beginning of `data` on, and what ends them, if anything.

    Args:
        data: bytes of a segment's file.
        position: where in the file they begin.
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
            return batches, f"the batch at byte {position + at} is cut off"
        if not crc_ok(view[at:after]):
            return batches, f"the CRC of the batch at byte {position + at} is wrong"
        batches.append(StoredBatch(header, position + at, bytes(view[at:after])))
        at = after
    return batches, ""


class StoredSegment:
    """A `.log` file: its batches, and what stands behind the last whole one."""

    __slots__ = ("base", "batches", "flaw", "path", "size")

    def __init__(self, path: str, base: int, data: bytes = b"") -> None:
        self.path = path
        self.base = base
        self.size = len(data)
        self.batches, self.flaw = parsed(data)

    def extend(self, data: bytes) -> list[StoredBatch]:
        """Bytes were appended; the batches in them."""
        batches, flaw = parsed(data, self.size)
        self.flaw = self.flaw or flaw
        self.batches += batches
        self.size += len(data)
        return batches

    def cut(self, size: int) -> None:
        """The file was shortened."""
        while self.batches and self.batches[-1].position >= size:
            self.batches.pop()
        end = self.batches[-1].position + len(self.batches[-1].data) if self.batches else 0
        if end > size:
            end = self.batches.pop().position
        self.size = size
        self.flaw = "" if end == size else f"the batch at byte {end} is cut off"


class StoredLog:
    """The segments of one folder."""

    def __init__(self, disk: MemoryDisk, directory: str) -> None:
        self.directory = directory
        self._segments: dict[int, StoredSegment] = {}
        for name in disk.listdir(directory):
            self.reread(disk, f"{directory}/{name}")

    @property
    def segments(self) -> list[StoredSegment]:
        """By base offset."""
        return [self._segments[base] for base in sorted(self._segments)]

    @property
    def batches(self) -> list[StoredBatch]:
        """All of them, in the order of the files."""
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def is_empty(self) -> bool:
        """Whether there is no batch."""
        return all(not segment.batches for segment in self._segments.values())

    @property
    def end(self) -> int:
        """The offset behind the last batch; 0 where there is none."""
        for base in sorted(self._segments, reverse=True):
            if self._segments[base].batches:
                return self._segments[base].batches[-1].header.next_offset
        return 0

    def find(self, path: str) -> StoredSegment | None:
        """The segment of a `.log` file, or of an index beside it."""
        stem = path.rpartition("/")[2].partition(".")[0]
        return self._segments.get(int(stem)) if stem.isdigit() else None

    def reread(self, disk: MemoryDisk, path: str) -> StoredSegment | None:
        """Take a `.log` file as it is now; None for any other."""
        base = parse_offset_name(path.rpartition("/")[2], LOG)
        if base is None:
            return None
        segment = self._segments[base] = StoredSegment(path, base, disk.stored(path))
        return segment

    def extend(self, path: str, data: bytes) -> list[StoredBatch]:
        """Bytes were appended to a `.log` file; the batches in them."""
        base = parse_offset_name(path.rpartition("/")[2], LOG)
        assert base is not None
        segment = self._segments.get(base)
        if segment is None:
            segment = self._segments[base] = StoredSegment(path, base)
        return segment.extend(data)

    def remove(self, path: str) -> StoredSegment | None:
        """A `.log` file has lost its name."""
        base = parse_offset_name(path.rpartition("/")[2], LOG)
        return None if base is None else self._segments.pop(base, None)

    def durable(self, disk: MemoryDisk) -> list[StoredBatch]:
        """The batches from the first one on that a power loss would spare."""
        spared: list[StoredBatch] = []
        for segment in self.segments:
            synced = disk.synced(segment.path)
            for batch in segment.batches:
                if synced[batch.position : batch.position + len(batch.data)] != batch.data:
                    return spared
                spared.append(batch)
        return spared

    def unsynced_below(self, disk: MemoryDisk, offset: int) -> str:
        """Which file holds a record below `offset` that a power loss might take, if one does."""
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


# ---- what is wrong with what is there


def gap_in(batches: Iterable[StoredBatch], *, holes: bool) -> str:
    """Two neighbours of which one goes back; without `holes`, or that leave offsets out."""
    for one, other in pairwise(batches):
        end, base = one.header.next_offset, other.header.base_offset
        if base < end or (base > end and not holes):
            return f"{base} comes where {end} is next"
    return ""


def offset_index_flaw(segment: StoredSegment, data: bytes) -> str:
    """What is wrong with the `.index` of a segment.

    Entries rise; each position is where a batch begins, whose last record has the entry's offset:
    then whoever scans from the last entry at or below an offset meets the batch that holds it.
    """
    if len(data) % INDEX_ENTRY:
        return f"{len(data)} bytes are not whole entries"
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
    """What is wrong with the `.timeindex` of a segment.

    Entries rise; each names the first batch of the largest timestamp so far, the last one that of
    the whole segment: whoever scans from the last entry at or below a time misses nothing.
    """
    if len(data) % TIME_ENTRY.size:
        return f"{len(data)} bytes are not whole entries"
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
        return f"{latest} is the largest timestamp, and the last entry is {entries[-1:]}"
    return ""


class LastBatch(NamedTuple):
    """What is known of a producer from its last batch in a log."""

    epoch: int
    last_sequence: int
    last_offset: int


def replayed(batches: Iterable[StoredBatch], below: int) -> dict[int, LastBatch]:
    """Producer id → its last batch below an offset."""
    return {
        batch.header.producer_id: LastBatch(
            batch.header.producer_epoch, batch.header.last_sequence, batch.header.last_offset
        )
        for batch in batches
        if batch.header.has_producer_id and batch.header.last_offset < below
    }


def producers_flaw(told: dict[int, LastBatch], true: dict[int, LastBatch], *, start: int) -> str:
    """Where the state of producers is not what a replay of all batches says.

    Args:
        told: the state.
        true: what the replay says.
        start: where the log begins: whoever wrote nothing from there on may be known or not.
    """
    for producer_id, last in sorted(true.items()):
        known = told.get(producer_id)
        if known is None and last.last_offset < start:
            continue
        if known != last:
            return f"producer {producer_id} is known by {known}, its last batch is {last}"
    for producer_id in sorted(set(told) - set(true)):
        if told[producer_id].last_offset >= start:
            return f"producer {producer_id} is known by {told[producer_id]}, which isn't there"
    return ""


def stray_files(
    names: Iterable[str], bases: Sequence[int], *, passing: bool, snapshots: Sequence[int] = ()
) -> list[str]:
    """Files of a folder that belong to no segment.

    Args:
        names: in the folder.
        bases: base offsets of its log's segments.
        passing: whether there may be files on their way out, or not in place yet.
        snapshots: offsets of the producer snapshots that the log knows.
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
    """The lines of an offset or epoch checkpoint; None where it is not a whole one."""
    rows = data.decode("latin-1").split("\n")
    if len(rows) < 3 or rows[0] != "0" or rows[-1]:  # noqa: PLR2004 (version, count, last line end)
        return None
    lines = [row.split(" ") for row in rows[2:-1]]
    if rows[1] != str(len(lines)) or any(len(line) != fields for line in lines):
        return None
    return iter(lines)
