"""Snapshots of the metadata log: `<offset, 20 digits>-<epoch, 10 digits>.checkpoint` (KIP-630).

::

    control batch   SnapshotHeader { version 0, last contained log timestamp }
                    [KRaftVersion, KRaftVoters]           if kraft.version is 1 or more
    batch …         the metadata records, framed as in the log
    control batch   SnapshotFooter { version 0 }

Offsets in the file count from 0; the batches' leader epoch is the snapshot's. A file being written
has the suffix `.part`, one being deleted `.deleted`; both are deleted at start-up.
`bootstrap.checkpoint` has the same form, with the records of a formatted directory.

Invariant: a `.checkpoint` file is whole and on disk: it is renamed into place after its fsync.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages.raft_records import SnapshotFooterRecord, SnapshotHeaderRecord
from sparkraft.records.batch import BATCH_OVERHEAD, BatchHeader, Buffer, crc_ok, parse_header
from sparkraft.records.control import ControlType, control_batch, parse_control_key
from sparkraft.records.errors import CorruptRecords
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.storage.disk import Disk

SUFFIX = ".checkpoint"
PART = ".part"
DELETED = ".deleted"

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Kafka's largest batch of the metadata log."""

BATCH_RECORDS_MAX = 10_000
"""A reader decodes a batch at a time; more records would hold its loop up."""

READ_CHUNK = 1 << 20

_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10


class SnapshotId(NamedTuple):
    """Everything below `offset`, whose last record was of `epoch`; sorts by age."""

    offset: Offset
    epoch: LeaderEpoch

    @property
    def file_name(self) -> str:
        """Its file's name."""
        return f"{self.offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


ZERO_SNAPSHOT = SnapshotId(Offset(0), LeaderEpoch(0))
"""The checkpoint that a dynamic quorum is formatted with: kraft.version and voters only."""


def parse_snapshot_name(name: str) -> tuple[SnapshotId, bool] | None:
    """The id in a file's name, and whether it is complete; None for other files."""
    stem, dot, rest = name.partition(".")
    offset, dash, epoch = stem[:_OFFSET_DIGITS], stem[_OFFSET_DIGITS:][:1], stem[21:31]
    if not dot or dash != "-" or not rest.startswith("checkpoint"):
        return None
    if len(offset) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    if not (offset.isascii() and offset.isdigit() and epoch.isascii() and epoch.isdigit()):
        return None
    whole = f".{rest}" == SUFFIX and len(stem) == _OFFSET_DIGITS + 1 + _EPOCH_DIGITS
    return SnapshotId(Offset(int(offset)), LeaderEpoch(int(epoch))), whole


class SnapshotFile:
    """A snapshot in the making, written piece by piece into a `.part` file."""

    def __init__(self, disk: Disk, directory: str, snapshot: SnapshotId) -> None:
        """Start again."""
        self._disk = disk
        self._directory = directory
        self.id = snapshot
        self.size = 0
        self._path = f"{directory}/{snapshot.file_name}{PART}"
        disk.unlink(self._path)

    def append(self, piece: Buffer) -> None:
        """Write the next bytes, from any thread; not yet on disk."""
        self._disk.extend(self._path, piece)
        self.size += len(piece)

    def freeze(self) -> int:
        """Bring it to disk under its own name; its size."""
        final = f"{self._directory}/{self.id.file_name}"
        self._disk.fsync(self._path)
        self._disk.fault_point("snapshot_before_rename")
        self._disk.rename(self._path, final)
        self._disk.fsync_dir(self._directory)
        return self.size

    def verify(self) -> "SnapshotContent":
        """Read the whole file again and check it, in any thread; `DecodeError` if it is damaged."""
        disk, path = self._disk, self._path
        read = SnapshotData(
            path, disk.size(path), lambda at, count: disk.read_part(path, count, at)
        )
        return read.verify()

    def discard(self) -> None:
        """Remove what was written."""
        self._disk.unlink(self._path)


def snapshot_batches(
    records: Iterable[bytes],
    *,
    epoch: LeaderEpoch,
    now: Millis,
    last_contained_log_timestamp: Millis,
    controls: Iterable[tuple[ControlType, bytes]] = (),
) -> Iterator[bytes]:
    """The batches of a snapshot file.

    Args:
        records: the framed metadata records.
        epoch: of the snapshot's id.
        now: the wall clock, for the records' timestamps.
        last_contained_log_timestamp: for the header.
        controls: encoded KRaftVersion and KRaftVoters records that follow the header.
    """
    header = SnapshotHeaderRecord(
        version=0, last_contained_log_timestamp=last_contained_log_timestamp
    )
    first = [(ControlType.SNAPSHOT_HEADER, encode(header, 0)), *controls]
    yield control_batch(first, timestamp=now, base_offset=0, leader_epoch=epoch)
    offset = len(first)
    builder = BatchBuilder(base_offset=offset, leader_epoch=epoch)
    for record in records:
        full = builder.size_in_bytes + len(record) > BATCH_BYTES_MAX - BATCH_OVERHEAD
        if builder.count and (full or builder.count >= BATCH_RECORDS_MAX):
            yield builder.build()
            offset += builder.count
            builder = BatchBuilder(base_offset=offset, leader_epoch=epoch)
        builder.append(now, None, record)
    if builder.count:
        yield builder.build()
        offset += builder.count
    footer = [(ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(version=0), 0))]
    yield control_batch(footer, timestamp=now, base_offset=offset, leader_epoch=epoch)


class SnapshotContent(NamedTuple):
    """Content of a snapshot's header batches."""

    last_contained_log_timestamp: Millis
    controls: list[tuple[ControlType, bytes]]
    """KRaftVersion and KRaftVoters records, encoded."""


class SnapshotData:
    """Open a complete snapshot file for reading; `DecodeError` names its path if it is damaged.

    `read(at, count)` gives its bytes, so that nothing need be in memory at once.
    """

    def __init__(self, path: str, size: int, read: Callable[[int, int], bytes]) -> None:
        """Look at nothing yet."""
        self._path = path
        self._size = size
        self._read = read

    def _batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Each batch, CRC checked."""
        at = 0
        while at < self._size:
            header = parse_header(self._read(at, BATCH_OVERHEAD))
            raw = self._read(at, header.size_in_bytes)
            if len(raw) < header.size_in_bytes or not crc_ok(raw):
                raise CorruptRecords(f"the batch at byte {at} is cut off or damaged")
            yield header, raw
            at += header.size_in_bytes

    def verify(self) -> SnapshotContent:
        """Check every byte: `DecodeError` unless it is whole, from header to footer."""
        content = self.content()
        for _ in self.data_batches():
            pass
        return content

    def data_batches(self) -> Iterator[bytes]:
        """The batches of metadata records, each CRC checked; the footer must come last."""
        finished = False
        try:
            for header, raw in self._batches():
                if finished:
                    raise DecodeError(f"{self._path} has data after its footer")
                if header.is_control:
                    kinds = [parse_control_key(record.key) for record in decode_records(raw)]
                    finished = ControlType.SNAPSHOT_FOOTER in kinds
                else:
                    yield raw
        except CorruptRecords as error:
            raise DecodeError(f"{self._path}: {error}") from error
        if not finished:
            raise DecodeError(f"{self._path} has no footer: it is incomplete")

    def content(self) -> SnapshotContent:
        """Header, kraft.version and voters: the first batch."""
        try:
            head, raw = next(self._batches())
            records = list(decode_records(raw))
        except (StopIteration, CorruptRecords, DecodeError) as error:
            raise DecodeError(f"{self._path} is not a snapshot: {error!r}") from error
        typed = [(parse_control_key(record.key), record.value or b"") for record in records]
        if not head.is_control or not typed or typed[0][0] is not ControlType.SNAPSHOT_HEADER:
            raise DecodeError(f"{self._path} does not begin with a snapshot header")
        header = decode(SnapshotHeaderRecord, 0, typed[0][1])
        return SnapshotContent(Millis(header.last_contained_log_timestamp), typed[1:])

    def records(self) -> Iterator[list[bytes]]:
        """The framed metadata records, batch by batch; the footer must come last."""
        for raw in self.data_batches():
            yield [record.value or b"" for record in decode_records(raw)]


def open_snapshot(disk: Disk, path: str) -> SnapshotData:
    """Read a snapshot or `bootstrap.checkpoint`; `FileNotFoundError` if there is none."""
    size = disk.size(path)
    if size < 0:
        raise FileNotFoundError(path)
    return SnapshotData(path, size, lambda at, count: disk.pread(path, count, at))
