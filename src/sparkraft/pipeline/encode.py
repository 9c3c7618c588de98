"""Arrow columns to encoded records, with numpy instead of a Python loop: the inverse of `decode`.

::

    key, value, headers ─ sizes ─▶ lengths of all fields and records
                        ─ varint columns ─▶ the bytes between the fields, one binary array each
                        ─ join ─▶ one binary array: a slot is a whole record
                        ─ take ─▶ ordered by partition: a batch's records are one span of bytes

A record of format 2 is what `sparkraft.records.record` draws. Its offset delta depends on its place
in its batch, so `cut` decides first which rows go into which batch.

Not here: which partition a row belongs to (`partition_keys`), batch headers
(`sparkraft.records.record.BatchBuilder`), sending (`produce`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Ints = npt.NDArray[np.int64]

_compute: Any = pc
"""The stubs of these functions know fewer kinds of arrays than the functions."""

RECORD_OVERHEAD: Final = 16
"""Bytes of a record besides its fields, rounded up: batches are cut by sizes estimated with it."""

_CHUNK_BYTES_MAX: Final = 64 << 20
"""Rows encoded together: an Arrow array holds 2 GiB, and encoding needs memory for a copy."""


class Rows(NamedTuple):
    """Records to be encoded, as columns of equal length.

    Args:
        key: binary, null for a record without a key.
        value: binary, null for a tombstone.
        headers: each record's encoded headers in one binary value; None if no record has any.
        header_counts: headers of each record.
    """

    key: pa.Array[Any]
    value: pa.Array[Any]
    headers: pa.Array[Any] | None
    header_counts: Ints

    def field_bytes(self) -> Ints:
        """Estimate the encoded size of each record, in bytes."""
        sizes = np.maximum(_sizes(self.key), 0) + np.maximum(_sizes(self.value), 0)
        if self.headers is not None:
            sizes += _sizes(self.headers)
        return sizes + RECORD_OVERHEAD


def rows_of(batch: pa.RecordBatch) -> Rows:
    """The columns `key`, `value` and `headers` of a batch; only `value` is required.

    Raises:
        ValueError: a header without a key, which Kafka does not store.
    """
    names = batch.schema.names
    value = _binary(batch.column("value"))
    key = _binary(batch.column("key")) if "key" in names else pa.nulls(len(value), pa.binary())
    counts = np.zeros(len(value), np.int64)
    if "headers" not in names:
        return Rows(key, value, None, counts)
    headers, counts = _encoded_headers(batch.column("headers"))
    return Rows(key, value, headers, counts)


def chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch in halves until each is small enough to be encoded at once."""
    if batch.nbytes <= _CHUNK_BYTES_MAX or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from chunks(batch.slice(0, half))
    yield from chunks(batch.slice(half))


class Piece(NamedTuple):
    """Consecutive rows, in order of partition, that continue or begin one batch.

    Args:
        partition: of all of them.
        start: first row.
        end: row after the last.
        size: their bytes, estimated.
        first_delta: offset delta of the first row: the records that are in the batch already.
        nth: batches of its partition that the pieces before it fill.
    """

    partition: int
    start: int
    end: int
    size: int
    first_delta: int
    nth: int


def cut(
    partitions: Ints, sizes: Ints, opened: Callable[[int], tuple[int, int]], limit: int
) -> list[Piece]:
    """Cut rows into batches: one is full as soon as it has `limit` bytes.

    A row of more than `limit` bytes has a batch of its own, so that no other row adds to what the
    broker may refuse. Its piece begins a batch (`first_delta` is 0), also if one is open.

    Args:
        partitions: of each row, ascending.
        sizes: of each row, in bytes.
        opened: bytes and records that a partition's open batch has already.
        limit: bytes of a full batch.
    """
    pieces: list[Piece] = []
    total = np.concatenate(([0], np.cumsum(sizes)))
    starts = np.flatnonzero(np.diff(partitions, prepend=partitions[0] - 1))
    large = np.flatnonzero(sizes > limit)
    for start, stop in zip(starts, [*starts[1:], len(partitions)], strict=True):
        partition = int(partitions[start])
        size, count = opened(partition)
        at, until, nth = int(start), int(stop), 0
        while at < until:
            if size and sizes[at] > limit:
                size, count, nth = 0, 0, nth + 1
            full = int(np.searchsorted(total, total[at] + limit - size))
            end = min(max(full, at + 1), until, _first_from(large, at + 1, until))
            pieces.append(Piece(partition, at, end, int(total[end] - total[at]), count, nth))
            at, size, count, nth = end, 0, 0, nth + 1
    return pieces


def _first_from(rows: Ints, at: int, default: int) -> int:
    place = int(np.searchsorted(rows, at))
    return int(rows[place]) if place < len(rows) else default


def encode(
    rows: Rows, order: Ints | None, pieces: Sequence[Piece], timestamp_deltas: Ints
) -> list[memoryview]:
    """Return the encoded records of each piece.

    Args:
        rows: in any order.
        order: the row at each place of the pieces; None if the rows are in that order.
        pieces: of `cut`; together they cover all rows.
        timestamp_deltas: one for each piece, in milliseconds.
    """
    lengths = np.array([piece.end - piece.start for piece in pieces])
    first = np.array([piece.first_delta - piece.start for piece in pieces])
    deltas = np.arange(len(rows.value)) + np.repeat(first, lengths)
    times = np.repeat(timestamp_deltas, lengths)
    if order is not None:
        deltas, times = _at(order, deltas), _at(order, times)
    records = _joined(rows, times, deltas)
    if order is not None:
        records = records.take(pa.array(order, pa.int64()))
    buffers: list[Any] = records.buffers()
    edges = np.frombuffer(buffers[1], np.int32)[records.offset :]
    data = memoryview(buffers[2])
    return [data[edges[piece.start] : edges[piece.end]] for piece in pieces]


def _at(order: Ints, values: Ints) -> Ints:
    """Move the value at each place to the row that `order` puts there."""
    moved = np.empty_like(values)
    moved[order] = values
    return moved


def _joined(rows: Rows, timestamp_deltas: Ints, offset_deltas: Ints) -> pa.Array[Any]:
    key_size, value_size = _sizes(rows.key), _sizes(rows.value)
    no_attributes = np.zeros(len(key_size), np.int64)
    before_key = [no_attributes, timestamp_deltas, offset_deltas, key_size]
    body = np.maximum(key_size, 0) + np.maximum(value_size, 0)
    for column in (*before_key, value_size, rows.header_counts):
        body += _varint_sizes(_zigzag(column))
    if rows.headers is not None:
        body += _sizes(rows.headers)
    parts = [
        _varints([body, *before_key]),
        rows.key,
        _varints([value_size]),
        rows.value,
        _varints([rows.header_counts]),
    ]
    return _concatenated(*parts, *(() if rows.headers is None else (rows.headers,)))


def _concatenated(*columns: pa.Array[Any]) -> pa.Array[Any]:
    """The bytes of each row of all columns, one after another; nulls have none."""
    joined: pa.Array[Any] = _compute.binary_join_element_wise(
        *columns, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=""
    )
    return joined


def _binary(column: pa.Array[Any]) -> pa.Array[Any]:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _sizes(column: pa.Array[Any]) -> Ints:
    """The bytes of each value; -1 for null, as records have it."""
    lengths = _compute.fill_null(_compute.binary_length(column), -1)
    sizes: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _zigzag(values: Ints) -> Ints:
    return values << 1 ^ values >> 63


def _varint_sizes(coded: Ints) -> Ints:
    """Bytes of each varint, from its zigzag value."""
    sizes = np.ones(len(coded), np.int64)
    rest = coded.view(np.uint64) >> np.uint64(7)
    while rest.any():
        sizes += rest > 0
        rest = rest >> np.uint64(7)
    return sizes


def _varints(columns: Sequence[Ints]) -> pa.Array[Any]:
    """A binary array: each row has its values of all columns as varints."""
    coded = [_zigzag(column) for column in columns]
    sizes = [_varint_sizes(each) for each in coded]
    edges = np.zeros(len(coded[0]) + 1, np.int32)
    np.cumsum(np.sum(sizes, axis=0), out=edges[1:])
    data = np.empty(int(edges[-1]), np.uint8)
    at = edges[:-1].astype(np.int64)
    for values, size in zip(coded, sizes, strict=True):
        _put(data, at, values, size)
        at += size
    buffers = [None, pa.py_buffer(edges.data), pa.py_buffer(data.data)]
    made: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
    return made


def _put(data: npt.NDArray[np.uint8], at: Ints, coded: Ints, sizes: Ints) -> None:
    """Write each varint of `sizes` bytes at its place."""
    longest = int(sizes.max())
    rows: Any = slice(None)
    for byte in range(longest):
        if byte:
            rows = np.flatnonzero(sizes > byte)
        low = coded[rows] >> 7 * byte & 0x7F
        data[at[rows] + byte] = low | (sizes[rows] > byte + 1).astype(np.int64) << 7


def _encoded_headers(column: Any) -> tuple[pa.Array[Any] | None, Ints]:
    """Each record's headers without their count, and the counts; null elements are left out."""
    counts = _compute.fill_null(_compute.list_value_length(column), 0).to_numpy().astype(np.int64)
    pairs = column.flatten()
    if pairs.null_count:
        present = pairs.is_valid()
        row = np.repeat(np.arange(len(counts)), counts)[present.to_numpy(zero_copy_only=False)]
        counts = np.bincount(row, minlength=len(counts)).astype(np.int64)
        pairs = pairs.filter(present)
    if not len(pairs):
        return None, counts
    keys, values = map(_binary, pairs.flatten())
    if keys.null_count:
        raise ValueError("a header has no key")
    encoded = _concatenated(_varints([_sizes(keys)]), keys, _varints([_sizes(values)]), values)
    ends = np.concatenate(([0], np.cumsum(counts)))
    known: list[Any] = encoded.buffers()
    edges = np.frombuffer(known[1], np.int32)[encoded.offset :][ends]
    buffers = [None, pa.py_buffer(edges.data), known[2]]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers), counts
