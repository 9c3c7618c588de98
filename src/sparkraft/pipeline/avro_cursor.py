"""Positions in the Avro values of a batch, one for each row, that all move together.

A row whose value ends too early, or that is damaged otherwise, is moved to zeros that follow the
data. Zeros are valid for each type and end each array, so no other step must know.

Not here: the meaning of values (`avro_values`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

_PAD: Final = 64
"""Zeros after the data: more than any read of a fixed size goes beyond a value's end."""

_MORE: Final = 0x80
"""The bit of a byte after which the number continues."""


class Cursor:
    """The values of a batch, and the position of each row."""

    def __init__(self, values: pa.Array[Any], skipped: int) -> None:
        """Begin at `skipped` bytes after the start of each value; no value is null."""
        rows = len(values)
        buffers: list[Any] = values.buffers()
        edges = np.frombuffer(buffers[1], np.int32)[values.offset : values.offset + rows + 1]
        size = int(edges[-1]) if rows else 0
        self.data = np.zeros(size + _PAD, np.uint8)
        self.data[:size] = np.frombuffer(buffers[2] or b"", np.uint8)[:size]
        self.at: Ints = edges[:-1].astype(np.int64) + skipped
        self.end: Ints = edges[1:].astype(np.int64)
        self.reason = np.zeros(rows, np.int32)
        """An index of `reasons`; 0 for a value that is not damaged."""
        self.reasons = [""]
        self._pad = size

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

    def longs(self, rows: Ints, place: str) -> Ints:
        """Read a number of variable length."""
        at = self.at[rows]
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        size = np.ones(len(rows), np.int64)
        more = np.flatnonzero(byte >= _MORE)
        for shift in range(7, 70, 7):
            if not more.size:
                break
            byte = self.data[at[more] + shift // 7]
            value[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            size[more] += 1
            more = more[byte >= _MORE]
        self.advance(rows, size, place)
        if more.size:
            self.damage(rows[more], f"{place} has a number of more than 10 bytes")
        return ((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))).view(np.int64)

    def spans(self, rows: Ints, place: str) -> tuple[Ints, Ints]:
        """Read the lengths of bytes and move past these; positions and lengths."""
        size = self.longs(rows, place)
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

    def numbers(self, rows: Ints, kind: str, size: int, place: str) -> Any:
        """Read numbers of a fixed size."""
        start = self.advance(rows, size, place)
        view: Any = np.ndarray(len(self.data) - size + 1, kind, self.data, strides=(1,))
        return view[start]
