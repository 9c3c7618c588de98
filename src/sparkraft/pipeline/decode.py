"""Record batches to Arrow columns, with numpy instead of a Python loop over fields.

::

    fetched bytes ─ scan ──▶ batches (headers only, last offset known: the next fetch can leave)
                  ─ CRC, inflate ─▶ one byte array for all of them
                  ─ boundaries ──▶ where each record starts          the only loop over records,
                                                                     skipped for equal strides
                  ─ varint columns ─▶ timestamps, offsets, key and value spans, header spans
                  ─ gather ──▶ Arrow arrays (copied: the fetched bytes may be reused)

A column of byte strings is gathered by looking at the byte array as a binary array of
`value, gap, value, gap, …` and taking every other slot.

Invariants:
    * Nothing of a batch whose CRC is wrong is ever handed out.
    * The fields of a record lie inside it, and the records fill their batch exactly.

Not here: which bytes to fetch (`sparkraft.pipeline.fetch`); formats 0 and 1, which no broker of
our protocol range keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkraft.base.errors import DecodeError
from sparkraft.pipeline.options import COLUMNS
from sparkraft.records.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    SMALLEST_LENGTH,
    TRANSACTIONAL_BIT,
)
from sparkraft.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from sparkraft.records.control import parse_end_transaction
from sparkraft.records.crc import crc32c
from sparkraft.records.errors import CorruptRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Columns of the official Kafka connector, as Arrow sees them."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


class Batch(NamedTuple):
    """One batch in fetched bytes: its header and its position.

    Args:
        at: position of its header in the fetched bytes.
        end: position at which its records end.
    """

    at: int
    end: int
    base_offset: int
    last_offset: int
    attributes: int
    crc: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    records_count: int


def scan(fetched: memoryview) -> list[Batch]:
    """The whole batches in `fetched`, by their headers alone; a cut-off last one is left out."""
    batches: list[Batch] = []
    at, size = 0, len(fetched)
    while at + BATCH_OVERHEAD <= size:
        (base, length, _, magic, crc, bits, last, first_ts, max_ts, producer, _, _, count) = (
            HEADER.unpack_from(fetched, at)
        )
        if magic != MAGIC:
            raise CorruptRecords(f"a batch in format {magic}; only format {MAGIC} is supported")
        if length < SMALLEST_LENGTH or count < 0 or last < 0:
            raise CorruptRecords(f"a batch of {length} bytes, {count} records, delta {last}")
        end = at + LOG_OVERHEAD + length
        if end > size:
            break
        batches.append(
            Batch(at, end, base, base + last, bits, crc, first_ts, max_ts, producer, count)
        )
        at = end
    return batches


@dataclass(slots=True)
class AbortedTransactions:
    """Which transactional batches to leave out, as Fetch reports it for `read_committed`.

    A transaction's batches are left out from its first offset up to its abort marker.
    """

    pending: list[tuple[int, int]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, reported: Sequence[Any] | None) -> AbortedTransactions:
        """From the answer's `aborted_transactions`."""
        pending = [(each.first_offset, each.producer_id) for each in reported or ()]
        heapify(pending)
        return cls(pending)

    def hides(self, batch: Batch) -> bool:
        """Whether a data batch belongs to an aborted transaction; ask in offset order."""
        while self.pending and self.pending[0][0] <= batch.last_offset:
            self.open.add(heappop(self.pending)[1])
        return bool(batch.attributes & TRANSACTIONAL_BIT) and batch.producer_id in self.open

    def on_marker(self, batch: Batch, *, is_abort: bool) -> None:
        """A control batch ends its producer's transaction."""
        if is_abort:
            self.open.discard(batch.producer_id)


@dataclass(slots=True, kw_only=True)
class Columns:
    """Records as arrays of equal length, and the bytes their spans point into."""

    data: Bytes
    offset: Ints
    timestamp: Ints
    timestamp_type: npt.NDArray[np.int32]
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    headers_at: Ints
    headers_count: Ints
    end: Ints

    def rows(self, chosen: npt.NDArray[np.bool_]) -> Columns:
        """Keep only the rows for which `chosen` is true."""
        return Columns(
            data=self.data,
            **{name: getattr(self, name)[chosen] for name in self.__slots__ if name != "data"},
        )


class PartitionDecoder:
    """Decodes what is fetched from one partition.

    Args:
        columns: the columns to make; others are not decoded.
        aborted_hidden: `read_committed`: leave out aborted transactions.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        columns: Sequence[str] = COLUMNS,
        aborted_hidden: bool = False,
    ) -> None:
        """Prepare for one topic partition."""
        self.topic = topic
        self.partition = partition
        self.aborted_hidden = aborted_hidden
        self._schema = arrow_schema(columns)

    def decode(
        self,
        fetched: memoryview,
        batches: Sequence[Batch],
        *,
        start: int,
        end: int,
        aborted: AbortedTransactions | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records with `start` <= offset < `end`, in pieces of bounded size.

        Raises:
            CorruptRecords: a CRC is wrong.
            DecodeError: the records of a batch mean nothing.
        """
        wanted = self._wanted(fetched, batches, start, end, aborted or AbortedTransactions())
        for piece in _pieces(fetched, wanted):
            columns = read_columns(piece)
            if piece.batches[0].base_offset < start or piece.batches[-1].last_offset >= end:
                columns = columns.rows((columns.offset >= start) & (columns.offset < end))
            if len(columns.offset):
                yield self._to_arrow(columns)

    def _wanted(
        self,
        fetched: memoryview,
        batches: Sequence[Batch],
        start: int,
        end: int,
        aborted: AbortedTransactions,
    ) -> list[Batch]:
        wanted = []
        for batch in batches:
            if batch.base_offset >= end:
                break
            if batch.last_offset < start or batch.records_count == 0:
                continue
            _check_crc(fetched, batch, self)
            hidden = self.aborted_hidden and aborted.hides(batch)
            if batch.attributes & CONTROL_BIT:
                aborted.on_marker(batch, is_abort=_is_abort(fetched, batch))
            elif not hidden:
                wanted.append(batch)
        return wanted

    def _to_arrow(self, columns: Columns) -> pa.RecordBatch:
        arrays = [self._column(name, columns) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, columns: Columns) -> pa.Array[Any]:
        rows = len(columns.offset)
        buffer = pa.py_buffer(columns.data.data)
        match name:
            case "key":
                made = gather(buffer, columns.key_at, columns.key_size)
            case "value":
                made = gather(buffer, columns.value_at, columns.value_size)
            case "topic":
                made = _repeated(self.topic, rows)
            case "partition":
                made = pa.array(np.full(rows, self.partition, np.int32))
            case "timestamp":
                made = _timestamps(columns.timestamp)
            case "headers":
                made = _headers(columns, buffer)
            case _:
                made = pa.array(columns.offset if name == "offset" else columns.timestamp_type)
        return made


def _check_crc(fetched: memoryview, batch: Batch, whose: PartitionDecoder) -> None:
    if crc32c(fetched[batch.at + ATTRIBUTES_AT : batch.end]) != batch.crc:
        raise CorruptRecords(
            f"{whose.topic}-{whose.partition}: the batch at offset {batch.base_offset} "
            "does not match its CRC"
        )


def _is_abort(fetched: memoryview, batch: Batch) -> bool:
    if not batch.attributes & TRANSACTIONAL_BIT:
        return False
    marker = parse_end_transaction(fetched[batch.at : batch.end])
    return marker is not None and marker.aborted


def _plain(fetched: memoryview, batch: Batch) -> bytes | memoryview:
    """The record bytes of a batch, inflated if need be."""
    payload = fetched[batch.at + BATCH_OVERHEAD : batch.end]
    codec = batch.attributes & CODEC_MASK
    return decompress(codec, payload, DECOMPRESSED_BYTES_MAX) if codec else payload


class Piece(NamedTuple):
    """Batches that are decoded together: their plain records in one array, and where."""

    data: Bytes
    batches: list[Batch]
    spans: list[tuple[int, int]]


_PIECE_BYTES: Final = 16 << 20
"""A piece is closed at this size: decoding takes several times as much memory for a moment."""


def _pieces(fetched: memoryview, batches: Sequence[Batch]) -> Iterator[Piece]:
    """Inflate what is compressed and cut the batches into pieces."""
    if not any(batch.attributes & CODEC_MASK for batch in batches):
        if batches:
            spans = [(batch.at + BATCH_OVERHEAD, batch.end) for batch in batches]
            yield Piece(np.frombuffer(fetched, np.uint8), list(batches), spans)
        return
    parts: list[bytes | memoryview] = []
    taken: list[Batch] = []
    ends = [0]
    for batch in batches:
        parts.append(_plain(fetched, batch))
        taken.append(batch)
        ends.append(ends[-1] + len(parts[-1]))
        if ends[-1] >= _PIECE_BYTES:
            yield _piece(parts, taken, ends)
            parts, taken, ends = [], [], [0]
    if taken:
        yield _piece(parts, taken, ends)


def _piece(parts: list[bytes | memoryview], batches: list[Batch], ends: list[int]) -> Piece:
    data = np.frombuffer(b"".join(parts), np.uint8)
    return Piece(data, batches, list(pairwise(ends)))


def read_columns(piece: Piece) -> Columns:
    """Every record of a piece as columns; `DecodeError` if their bytes mean nothing."""
    data, batches, spans = piece
    begin, end = _boundaries(data, spans, [batch.records_count for batch in batches])
    counts = np.array([batch.records_count for batch in batches])
    at = begin + 1  # the record's attributes, which have no bits in use
    timestamp_delta, at = _varints(data, at)
    offset_delta, at = _varints(data, at)
    key_size, key_at = _varints(data, at)
    value_size, value_at = _varints(data, key_at + np.maximum(key_size, 0))
    headers_count, headers_at = _varints(data, value_at + np.maximum(value_size, 0))
    _check_inside(headers_at, end, headers_count, (key_size, value_size))
    fixed = np.repeat([bool(b.attributes & LOG_APPEND_TIME_BIT) for b in batches], counts)
    timestamp = np.repeat([batch.base_timestamp for batch in batches], counts) + timestamp_delta
    if fixed.any():
        timestamp = np.where(
            fixed, np.repeat([b.max_timestamp for b in batches], counts), timestamp
        )
    return Columns(
        data=data,
        offset=np.repeat([batch.base_offset for batch in batches], counts) + offset_delta,
        timestamp=timestamp,
        timestamp_type=fixed.astype(np.int32),
        key_at=key_at,
        key_size=key_size,
        value_at=value_at,
        value_size=value_size,
        headers_at=headers_at,
        headers_count=headers_count,
        end=end,
    )


_STRIDE_RUN_MIN: Final = 16
"""A run of equal records shorter than this costs more in numpy calls than in the plain loop."""

_LONGEST_TWO_BYTES: Final = 0x3FFF


def _boundaries(
    data: Bytes, spans: Sequence[tuple[int, int]], counts: Sequence[int]
) -> tuple[Ints, Ints]:
    """Return the positions at which each record's attributes start and at which it ends."""
    edges: list[Ints] = []
    for (at, end), count in zip(spans, counts, strict=True):
        edges.append(_edges(data, at, end, count))
    begins = np.concatenate([edge[:-1] for edge in edges])
    ends = np.concatenate([edge[1:] for edge in edges])
    lengths, begins = _varints(data, begins)
    if ((begins + lengths) != ends).any():
        raise DecodeError("records do not fill their batch")
    return begins, ends


def _edges(data: Bytes, at: int, end: int, count: int) -> Ints:
    """The `count` + 1 places between the records of one batch, which end at `end`."""
    if count > end - at:
        raise DecodeError(f"{count} records in {end - at} bytes", at=at)
    edges = np.empty(count + 1, np.int64)
    edges[0] = at
    known, misses = 0, 0
    while known < count:
        run = _equal_run(data, int(edges[known]), end, count - known)
        if run >= _STRIDE_RUN_MIN:
            misses = 0
        else:
            misses += 1
        if run > 1:
            stride = _next_edge(data, int(edges[known])) - edges[known]
            edges[known + 1 : known + run + 1] = edges[known] + stride * np.arange(1, run + 1)
            known += run
        if misses:
            # Sizes vary: step on without searching for runs, further each time a search fails.
            steps = min(count - known, 64 << min(misses, 10))
            walked = _walk(data[edges[known] : end].tobytes(), int(edges[known]), steps)
            edges[known + 1 : known + steps + 1] = walked
            known += steps
    if edges[count] != end:
        raise DecodeError(f"{end - int(edges[count])} bytes are left after {count} records")
    return edges


def _next_edge(data: Bytes, at: int) -> int:
    return _walk(data[at : at + 10].tobytes(), at, 1)[0]


def _equal_run(data: Bytes, at: int, end: int, most: int) -> int:
    """Count the consecutive records from `at` on that have the same length bytes."""
    stride = _next_edge(data, at) - at
    most = min(most, (end - at) // stride) if stride > 0 else 0
    if most < _STRIDE_RUN_MIN:
        return 0
    equal = np.ones(most, np.bool_)
    for byte in range(_size_of_varint(data, at)):
        column = data[at + byte : at + byte + stride * (most - 1) + 1 : stride]
        equal &= column == column[0]
    return most if equal.all() else int(equal.argmin())


def _size_of_varint(data: Bytes, at: int) -> int:
    size = 1
    while data[at + size - 1] & 0x80:
        size += 1
    return size


def _walk(data: bytes, origin: int, count: int) -> list[int]:
    """The ends of `count` records that start at `data[0]`, counted from `origin`.

    The hot loop for records of varying size: one or two bytes of length are handled in place.
    """
    edges: list[int] = []
    append = edges.append
    at = 0
    try:
        for _ in range(count):
            length = data[at]
            at += 1
            if length > 0x7F:  # noqa: PLR2004 (the continuation bit)
                length = length & 0x7F | data[at] << 7
                at += 1
                if length > _LONGEST_TWO_BYTES:
                    length, at = _long_length(data, at, length & _LONGEST_TWO_BYTES)
            if length & 1:
                raise DecodeError("a record of negative length", at=origin + at)
            at += length >> 1
            append(origin + at)
    except IndexError:
        raise DecodeError("the batch ends inside a record", at=origin + at) from None
    return edges


def _long_length(data: bytes, at: int, low: int) -> tuple[int, int]:
    """Finish a length of three to five bytes whose first 14 bits are `low`."""
    for shift in (14, 21, 28):
        byte = data[at]
        at += 1
        low |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return low, at
    raise DecodeError("a record length of more than five bytes", at=at)


_VARINT_SIZE_MAX: Final = 10


def _varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints at all places `at`, and where each ends.

    Positions past the end read the last byte: callers check the ends of records afterwards.
    """
    first = data.take(at, mode="clip")
    value = first.astype(np.int64)
    after = at + 1
    if len(first) and first.max() > 0x7F:  # noqa: PLR2004 (the continuation bit)
        value &= 0x7F
        longer = np.flatnonzero(first > 0x7F)  # noqa: PLR2004 (the continuation bit)
        _longer_varints(data, at, longer, value, after)
    return (value >> 1) & 0x7FFF_FFFF_FFFF_FFFF ^ -(value & 1), after


def _longer_varints(data: Bytes, at: Ints, longer: Ints, value: Ints, after: Ints) -> None:
    """Add the bytes after the first to the varints numbered `longer`, in place."""
    for position in range(1, _VARINT_SIZE_MAX):
        more = data.take(at[longer] + position, mode="clip")
        value[longer] |= (more & 0x7F).astype(np.int64) << (7 * position)
        after[longer] += 1
        longer = longer[more > 0x7F]  # noqa: PLR2004 (the continuation bit)
        if len(longer) == 0:
            return
    raise DecodeError("a varint of more than 10 bytes", at=int(at[longer[0]]))


def _check_inside(
    headers_at: Ints, end: Ints, headers_count: Ints, sizes: tuple[Ints, ...]
) -> None:
    """Refuse records whose fields leave them.

    Sizes up to the record's are added without overflow, so one larger than all data is caught.
    """
    room = end - headers_at
    outside = (room < 0) | (headers_count < 0) | (headers_count > room)
    outside |= (headers_count == 0) & (room != 0)
    for size in sizes:
        outside |= (size < -1) | (size > _FIELD_BYTES_MAX)
    if outside.any():
        raise DecodeError(f"record {int(outside.argmax())} of a fetch does not hold its fields")


_FIELD_BYTES_MAX: Final = 0x7FFF_FFFF


def gather(data: pa.Buffer, at: Ints, size: Ints) -> pa.Array[Any]:
    """A binary array of the spans at `at`, which do not overlap and go upwards; size -1 is null."""
    rows = len(at)
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = at
    edges[1::2] = at + np.maximum(size, 0)
    slots = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges.data), data])
    chosen = np.arange(0, 2 * rows, 2, dtype=np.int32)
    null = size < 0
    return slots.take(pa.array(chosen, pa.int32(), mask=null if null.any() else None))


def _timestamps(millis: Ints) -> pa.Array[Any]:
    bound = np.iinfo(np.int64).max // 1000
    micros = np.clip(millis, -bound, bound) * 1000
    return pa.array(micros).view(pa.timestamp("us", tz="UTC"))


_TOPIC_ROWS: dict[str, pa.Array[Any]] = {}
"""A topic's name, repeated; grown when longer ones are asked for. Bound: `_TOPICS_MAX` topics."""

_TOPICS_MAX: Final = 64


def _repeated(topic: str, rows: int) -> pa.Array[Any]:
    """The topic's name `rows` times, as a slice of an array that is kept."""
    kept = _TOPIC_ROWS.get(topic)
    if kept is None or len(kept) < rows:
        if len(_TOPIC_ROWS) >= _TOPICS_MAX:
            _TOPIC_ROWS.clear()
        kept = _TOPIC_ROWS[topic] = pa.repeat(pa.scalar(topic), 1 << rows.bit_length())
    return kept.slice(0, rows)


def _headers(columns: Columns, data: pa.Buffer) -> pa.Array[Any]:
    """The column `headers`: null for a record without headers, as in the official connector."""
    counts = columns.headers_count
    total = int(counts.sum())
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    if total == 0:
        return pa.nulls(len(counts), HEADERS_TYPE)
    spans = _header_spans(columns, edges, total)
    keys = _text(gather(data, spans["key_at"], spans["key_size"]))
    values = gather(data, spans["value_at"], spans["value_size"])
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    null = pa.array(counts == 0)
    mask = null if null.true_count else None
    edges_array: Any = pa.array(edges)  # the stubs know lists of plain arrays only
    made: pa.Array[Any] = pa.ListArray.from_arrays(edges_array, pairs, type=HEADERS_TYPE, mask=mask)
    return made


def _header_spans(columns: Columns, edges: npt.NDArray[np.int32], total: int) -> Mapping[str, Ints]:
    """Key and value spans of all headers in order: first each record's first, then its second."""
    names = ("key_at", "key_size", "value_at", "value_size")
    spans = {name: np.empty(total, np.int64) for name in names}
    rows = np.flatnonzero(columns.headers_count)
    at = columns.headers_at[rows]
    nth = 0
    while len(rows):
        key_size, key_at = _varints(columns.data, at)
        value_size, value_at = _varints(columns.data, key_at + key_size)
        at = value_at + np.maximum(value_size, 0)
        if ((key_size < 0) | (value_size < -1) | (at > columns.end[rows])).any():
            raise DecodeError("a header leaves its record")
        slots = edges[rows] + nth
        for name, found in zip(names, (key_at, key_size, value_at, value_size), strict=True):
            spans[name][slots] = found
        nth += 1
        more = columns.headers_count[rows] > nth
        if (at[~more] != columns.end[rows[~more]]).any():
            raise DecodeError("bytes are left behind the headers of a record")
        rows, at = rows[more], at[more]
    return spans


def _text(binary: pa.Array[Any]) -> pa.Array[Any]:
    """As strings; bytes that are not UTF-8 become U+FFFD, as with Java's decoder."""
    try:
        text: pa.Array[Any] = binary.cast(pa.string())
    except pa.ArrowInvalid:
        keys: list[Any] = binary.to_pylist()
        text = pa.array([key.decode("utf-8", "replace") for key in keys])
    return text
