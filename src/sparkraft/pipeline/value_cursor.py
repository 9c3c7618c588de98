"""Positions in the values of a batch, one for each row, that all move together.

A row whose value ends too early, or that is damaged otherwise, is moved to zeros that follow the
data. Zeros are valid for each Avro type and end each array, so no other step must know; a reader of
Protobuf passes over such rows (`unfinished`).

A cursor of parts of values, such as nested messages, has a row for each part. Damage of a part is
damage of the row that it belongs to.

Not here: the meaning of values (`avro_values`, `protobuf_values`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_PAD: Final = 64
"""Zeros after the data: more than any read of a fixed size goes beyond a value's end."""

MORE: Final = 0x80
"""The bit of a byte after which a number of variable length continues."""

VARINT_BYTES_MAX: Final = 10


class Cursor:
    """Positions in `data`.

    Args:
        data: the bytes of all rows, and at least `_PAD` zeros.
        at: position of each row.
        end: position at which each row ends.
        outer: the cursor of the values whose parts these rows are.
        owners: the row of `outer` for each row.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        at: Ints,
        end: Ints,
        *,
        outer: Cursor | None = None,
        owners: Ints | None = None,
    ) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.reason = np.zeros(len(at), np.int32)
        """An index of `reasons`; 0 for a value that is not damaged."""
        self.reasons = [""]
        self._pad = len(data) - _PAD
        self._outer = outer
        self._owners = owners

    @classmethod
    def of(cls, values: pa.Array[Any], skipped: int) -> Cursor:
        """Begin at `skipped` bytes after the start of each value; no value is null."""
        rows = len(values)
        buffers: list[Any] = values.buffers()
        edges = np.frombuffer(buffers[1], np.int32)[values.offset : values.offset + rows + 1]
        size = int(edges[-1]) if rows else 0
        data = np.zeros(size + _PAD, np.uint8)
        data[:size] = np.frombuffer(buffers[2] or b"", np.uint8)[:size]
        return cls(data, edges[:-1].astype(np.int64) + skipped, edges[1:].astype(np.int64))

    def within(self, owners: Ints, start: Ints, size: Ints) -> Cursor:
        """A cursor of parts: a row for each span of bytes, which belongs to the row `owners`."""
        return Cursor(self.data, start.copy(), start + size, outer=self, owners=owners)

    def joined(self, owners: Ints, start: Ints, size: Ints) -> Cursor:
        """A cursor of parts: a row for each of these rows, with the bytes of all its spans.

        Args:
            owners: the row of each span, in ascending order.
            start: position of each span.
            size: of each span.
        """
        rows, first = np.unique(owners, return_index=True)
        ends = np.cumsum(size)
        data = np.zeros(int(ends[-1]) + _PAD, np.uint8)
        data[: len(data) - _PAD] = self.data[positions(start, size)]
        begin = (ends - size)[first]
        end = np.append(begin[1:], ends[-1])
        return Cursor(data, begin, end, outer=self, owners=rows)

    def unfinished(self, rows: Ints) -> Ints:
        """Those rows that have bytes left and are not damaged."""
        found: Ints = rows[(self.at[rows] < self.end[rows]) & (self.reason[rows] == 0)]
        return found

    def sound(self, rows: Ints) -> Ints:
        """Those rows that are not damaged."""
        found: Ints = rows[self.reason[rows] == 0]
        return found

    def begins(self, rows: Ints, with_bytes: bytes) -> Any:
        """Whether the rest of each row begins with some bytes, or may be cut off in them."""
        at = self.at[rows]
        found = (at < self.end[rows]) & (self.data[at] == with_bytes[0])
        for place in range(1, len(with_bytes)):
            found &= self.data[at + place] == with_bytes[place]
        return found

    def damage(self, rows: Ints, reason: str) -> None:
        """Give up these rows; the first reason counts."""
        if not len(rows):
            return
        if reason not in self.reasons:
            self.reasons.append(reason)
        fresh = rows[self.reason[rows] == 0]
        self.reason[fresh] = self.reasons.index(reason)
        self.at[rows] = self._pad
        self.end[rows] = self._pad + _PAD // 2
        if self._outer is not None and self._owners is not None:
            self._outer.damage(self._owners[rows], reason)

    def advance(self, rows: Ints, sizes: Any, place: str) -> Ints:
        """Move past some bytes; return the positions before."""
        start = self.at[rows]
        after = start + sizes
        self.at[rows] = after
        past = after > self.end[rows]
        if past.any():
            self.damage(rows[past], f"the value ends in {place}")
            start = np.where(past, self._pad, start)
        return start

    def varints(self, rows: Ints, place: str) -> Words:
        """Read an unsigned number of variable length, of which 64 bits count."""
        at = self.at[rows]
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        size = np.ones(len(rows), np.int64)
        more = np.flatnonzero(byte >= MORE)
        for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
            if not more.size:
                break
            byte = self.data[at[more] + shift // 7]
            value[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            size[more] += 1
            more = more[byte >= MORE]
        self.advance(rows, size, place)
        if more.size:
            self.damage(rows[more], f"{place} has a number of more than 10 bytes")
        return value

    def longs(self, rows: Ints, place: str) -> Ints:
        """Read a signed number of variable length, in zigzag encoding."""
        return unzigzag(self.varints(rows, place))

    def spans(self, rows: Ints, size: Ints, place: str) -> tuple[Ints, Ints]:
        """Move past bytes of these lengths, which may be wrong; positions and lengths."""
        room = self.end[rows] - self.at[rows]
        wrong = (size < 0) | (size > room)
        if wrong.any():
            self.damage(rows[wrong], f"the value ends in {place}")
            size = np.where(wrong, 0, size)
        start = self.at[rows]
        self.at[rows] = start + size
        return start, size

    def gathered(self, at: Ints, size: Ints) -> Any:
        """A binary array of the spans at `at`."""
        rows = len(at)
        # The spans are every other value of an array whose other values are the gaps, which lie
        # backwards if a row is damaged, and are not taken.
        edges: Any = np.zeros(2 * rows + 2, np.int32)
        edges[1:-1:2] = at
        edges[2:-1:2] = at + size
        edges[-1] = len(self.data)
        data: Any = self.data
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
        slots = pa.Array.from_buffers(pa.binary(), 2 * rows + 1, buffers)
        chosen: Any = pa.array(np.arange(1, 2 * rows, 2, dtype=np.int32))
        return slots.take(chosen)

    def texts(self, rows: Ints, at: Ints, size: Ints, place: str) -> Any:
        """A string array of the spans at `at`; null for damaged ones, those that are not UTF-8."""
        found = self.gathered(at, size)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [_text(each) for each in found.to_pylist()]
            wrong = [row for row, text in enumerate(texts) if text is None]
            self.damage(rows[wrong], f"{place} is not UTF-8")
            return pa.array(texts, pa.string())

    def numbers(self, rows: Ints, kind: str, size: int, place: str) -> Any:
        """Read numbers of a fixed size."""
        return self.numbers_at(self.advance(rows, size, place), kind, size)

    def numbers_at(self, at: Ints, kind: str, size: int) -> Any:
        """The numbers of a fixed size at some positions."""
        view: Any = np.ndarray(len(self.data) - size + 1, kind, self.data, strides=(1,))
        return view[at]


def unzigzag(words: Words) -> Ints:
    """The signed numbers that unsigned ones encode."""
    return ((words >> np.uint64(1)) ^ (np.uint64(0) - (words & np.uint64(1)))).view(np.int64)


def positions(start: Ints, size: Ints) -> Ints:
    """The position of each byte of some spans, one span after another."""
    ends = np.cumsum(size)
    total = int(ends[-1]) if len(ends) else 0
    found: Ints = np.arange(total) + np.repeat(start - (ends - size), size)
    return found


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
