"""Encoded values of a batch, put together from parts: numbers, bytes, sequences, groups of items.

::

    sizes   each part computes the bytes that it takes, one number per row
    write   the values have their places in one byte array; each part writes at those of its rows

Not here: which parts a value has (`avro_encode`, `protobuf_encode`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from sparkraft.pipeline.file_fields import SpecError
from sparkraft.pipeline.value_cursor import positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.pipeline.value_cursor import Ints, Words

_VARINT_BITS: Final = 7


class Encoded(Protocol):
    """A part of some rows that is ready to be written.

    Attributes:
        sizes: in bytes, of each row.
    """

    sizes: Ints

    def write(self, data: Any, at: Ints) -> None:
        """Write each row at its place."""
        ...


class Varints:
    """Unsigned numbers of variable length."""

    def __init__(self, numbers: Words) -> None:
        self._left = numbers
        self.sizes: Ints = np.ones(len(numbers), np.int64)
        for bits in range(_VARINT_BITS, 64, _VARINT_BITS):
            longer = self._left >> np.uint64(bits) > 0
            if not longer.any():
                break
            self.sizes += longer

    def write(self, data: Any, at: Ints) -> None:
        last = int(self.sizes.max(initial=0))
        for byte in range(last):
            rows = slice(None) if byte == 0 else np.flatnonzero(self.sizes > byte)
            part = (self._left[rows] >> np.uint64(byte * _VARINT_BITS)) & np.uint64(0x7F)
            more = (self.sizes[rows] > byte + 1).astype(np.uint8) << np.uint8(_VARINT_BITS)
            data[at[rows] + byte] = part.astype(np.uint8) | more


class FixedNumbers:
    """Numbers of a fixed size, as rows of bytes."""

    def __init__(self, numbers: Any) -> None:
        width = numbers.dtype.itemsize
        self._bytes = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), width)
        self.sizes: Ints = np.full(len(numbers), width, np.int64)

    def write(self, data: Any, at: Ints) -> None:
        for byte in range(self._bytes.shape[1]):
            data[at + byte] = self._bytes[:, byte]


class Spans:
    """Bytes from one buffer."""

    def __init__(self, source: Any, start: Ints, sizes: Ints) -> None:
        self._source = source
        self._start = start
        self.sizes = sizes

    def write(self, data: Any, at: Ints) -> None:
        data[positions(at, self.sizes)] = self._source[positions(self._start, self.sizes)]


class Constant:
    """The same bytes in each row."""

    def __init__(self, value: bytes, rows: int) -> None:
        self._value = value
        self.sizes: Ints = np.full(rows, len(value), np.int64)

    def write(self, data: Any, at: Ints) -> None:
        for place, byte in enumerate(self._value):
            data[at + place] = byte


class Zeros:
    """A number of zeros, which the array has already."""

    def __init__(self, sizes: Ints) -> None:
        self.sizes = sizes

    def write(self, data: Any, at: Ints) -> None:
        """Write nothing."""


class Parts:
    """Parts of each row, one after another; at least one."""

    def __init__(self, parts: Sequence[Encoded]) -> None:
        self._parts = parts
        self.sizes: Ints = parts[0].sizes
        for part in parts[1:]:
            self.sizes = self.sizes + part.sizes

    def write(self, data: Any, at: Ints) -> None:
        for part in self._parts:
            part.write(data, at)
            at = at + part.sizes


class SomeRows:
    """A part that only some of `count` rows have.

    Args:
        rows: those that have it.
        part: of these.
        count: of all rows.
    """

    def __init__(self, rows: Ints, part: Encoded, count: int) -> None:
        self._rows = rows
        self._part = part
        self.sizes: Ints = np.zeros(count, np.int64)
        self.sizes[rows] = part.sizes

    def write(self, data: Any, at: Ints) -> None:
        self._part.write(data, at[self._rows])


class Groups:
    """Several items in each row, one after another.

    Args:
        edges: of the rows in the items: the first item of each row, and the end.
        items: from the first edge to the last one.
    """

    def __init__(self, edges: Ints, items: Encoded) -> None:
        edges = edges - edges[0]
        self._items = items
        self._counts = np.diff(edges)
        ends = np.zeros(len(items.sizes) + 1, np.int64)
        np.cumsum(items.sizes, out=ends[1:])
        self._starts = ends[edges[:-1]]
        self._item_at = ends[:-1]
        self.sizes: Ints = ends[edges[1:]] - self._starts

    def write(self, data: Any, at: Ints) -> None:
        self._items.write(data, self._item_at + np.repeat(at - self._starts, self._counts))


def binary_of(encoded: Encoded, head: bytes) -> pa.Array[Any]:
    """Values as a binary array, each after the bytes `head`.

    Raises:
        SpecError: they have more than 2 GiB, which such an array cannot have.
    """
    whole = Parts([Constant(head, len(encoded.sizes)), encoded])
    edges = np.zeros(len(whole.sizes) + 1, np.int64)
    np.cumsum(whole.sizes, out=edges[1:])
    if edges[-1] > np.iinfo(np.int32).max:
        raise SpecError("a batch of values has more than 2 GiB: lower maxBytesPerTrigger")
    data: Any = np.zeros(int(edges[-1]), np.uint8)
    whole.write(data, edges[:-1])
    offsets: Any = edges.astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)


def zigzag(numbers: Ints) -> Words:
    """Signed numbers as unsigned ones, small ones of both signs first."""
    signed = numbers.astype(np.int64)
    return ((signed << 1) ^ (signed >> 63)).view(np.uint64)


def byte_spans(values: Any) -> Spans:
    """The bytes of texts or binary values; none is null."""
    binary = values.cast(pa.binary())
    places = np.frombuffer(binary.buffers()[1], np.int32)
    edges = places[binary.offset : binary.offset + len(binary) + 1].astype(np.int64)
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    return Spans(data, edges[:-1], np.diff(edges))


def list_edges(values: Any) -> Ints:
    """The edges of the rows of a list or map array in its items."""
    found: Ints = values.offsets.to_numpy().astype(np.int64)
    return found


def list_sizes(values: Any) -> Ints:
    """The number of items of the rows of a list or map array; of a null, anything."""
    found: Ints = np.diff(list_edges(values))
    return found


def list_items(values: Any) -> Any:
    """The items of the rows of a list array, without those that an offset leaves out."""
    edges = list_edges(values)
    return values.values.slice(edges[0], edges[-1] - edges[0])


def map_entries(values: Any) -> tuple[Any, Any]:
    """The keys and the values of a map array, without those that an offset leaves out."""
    edges = list_edges(values)
    first, count = edges[0], edges[-1] - edges[0]
    return values.keys.slice(first, count), values.items.slice(first, count)
