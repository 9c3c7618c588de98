"""Iceberg's partition transforms over Arrow columns, as its specification defines them.

`partition_by` names a column, or a transform of one: `year(at)`, `month(at)`, `day(at)`,
`hour(at)`, `bucket(16, id)`, `truncate(10, name)`. Times are counted from 1970 in UTC; a bucket is
the 32-bit murmur3 hash of the value, without its sign, modulo the number of buckets.

Tasks compute them without pyiceberg, which workers need not have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Words = npt.NDArray[np.uint32]

IDENTITY: Final = "identity"
TIMES: Final = ("year", "month", "day", "hour")
SIZED: Final = ("bucket", "truncate")

_CALL: Final = re.compile(
    rf"\s*(?:({'|'.join(TIMES)})\s*\(\s*(\S[^()]*?)"
    rf"|({'|'.join(SIZED)})\s*\(\s*(\d+)\s*,\s*(\S[^()]*?))\s*\)\s*"
)
_SIZE_MAX: Final = (1 << 31) - 1

_MICROS_PER_HOUR: Final = 3_600_000_000


class Part(NamedTuple):
    """A column of a partitioning.

    Args:
        column: of the rows.
        transform: `identity`, or one of `TIMES` or `SIZED`.
        size: buckets or width.
    """

    column: str
    transform: str = IDENTITY
    size: int = 0

    def __str__(self) -> str:
        """The text in `partition_by`."""
        if self.transform == IDENTITY:
            return self.column
        return f"{self.transform}({f'{self.size}, ' if self.size else ''}{self.column})"

    @property
    def in_iceberg(self) -> str:
        """The transform in Iceberg's metadata."""
        return f"{self.transform}[{self.size}]" if self.size else self.transform


def part_of(text: str) -> Part:
    """Parse an entry of `partition_by`; other texts are names of columns."""
    found = _CALL.fullmatch(text)
    if not found:
        return Part(text)
    time, of_time, sized, size, of_sized = found.groups()
    if time:
        return Part(of_time, time)
    if not 0 < int(size) <= _SIZE_MAX:
        raise SpecError(f"partition_by: {text} needs a size from 1 to {_SIZE_MAX}")
    return Part(of_sized, sized, int(size))


def part_in_iceberg(column: str, transform: str) -> Part | None:
    """The part that a field of a table's partitioning names; None for other transforms."""
    name, _, size = transform.partition("[")
    if name in SIZED and size.endswith("]"):
        return Part(column, name, int(size.removesuffix("]")))
    return Part(column, name) if name in (IDENTITY, *TIMES) and not size else None


def takes(part: Part, kind: pa.DataType) -> bool:
    """Whether a transform is defined, here, for a column of this type."""
    import pyarrow as pa

    is_time = pa.types.is_timestamp(kind)
    is_whole = pa.types.is_integer(kind)
    if part.transform in TIMES:
        return is_time or (pa.types.is_date(kind) and part.transform != "hour")
    if part.transform == "truncate":
        return is_whole or pa.types.is_string(kind)
    if part.transform == "bucket":
        is_bytes = pa.types.is_string(kind) or pa.types.is_binary(kind)
        return is_time or is_whole or pa.types.is_date(kind) or is_bytes
    return is_whole or pa.types.is_string(kind) or pa.types.is_date(kind) or kind == pa.bool_()


def transformed(part: Part, column: pa.ChunkedArray[Any]) -> Any:
    """The value of the partitioning for each row; null for a null."""
    values: Any = column.combine_chunks()
    if part.transform == IDENTITY:
        return values
    if part.transform == "truncate":
        return _truncated(values, part.size)
    if part.transform == "bucket":
        return _buckets(values, part.size)
    return _times(values, part.transform)


def _numbers(values: Any) -> Any:
    """Whole numbers: of days for dates, of microseconds for times; 0 for nulls."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.date32()).view(pa.int32())
    return values.cast(pa.int64()).fill_null(0).to_numpy()


def _masked(numbers: Any, values: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa

    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers, mask=nulls).cast(kind)


def _times(values: Any, unit: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = _numbers(values)
    if unit == "hour":
        return _masked(numbers // _MICROS_PER_HOUR, values, pa.int32())
    is_time = pa.types.is_timestamp(values.type)
    days = numbers // (24 * _MICROS_PER_HOUR) if is_time else numbers
    if unit == "day":
        return _masked(days, values, pa.int32())
    dates = pa.array(days).cast(pa.int32()).view(pa.date32())
    years = pc.year(dates).to_numpy() - 1970
    if unit == "year":
        return _masked(years, values, pa.int32())
    return _masked(years * 12 + pc.month(dates).to_numpy() - 1, values, pa.int32())


def _truncated(values: Any, width: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, width)
    numbers = _numbers(values)
    # The smallest numbers wrap around, as in Java.
    cut = (numbers - numbers % width).astype(values.type.to_pandas_dtype())
    return _masked(cut, values, values.type)


def _buckets(values: Any, count: int) -> Any:
    import numpy as np
    import pyarrow as pa

    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        filled = values.cast(pa.binary()).fill_null(b"")
        places = np.frombuffer(filled.buffers()[1], np.int32)
        edges = places[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
        hashes = murmur3(np.frombuffer(filled.buffers()[2] or b"", np.uint8), edges)
    else:
        data = np.ascontiguousarray(_numbers(values).astype("<i8")).view(np.uint8)
        hashes = murmur3(data, np.arange(len(values) + 1, dtype=np.int64) * 8)
    return _masked((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count), values, pa.int32())


def murmur3(data: Any, edges: Any) -> Words:
    """MurmurHash3_x86_32 with seed 0 of each value, which end at `edges` but the first of these."""
    import numpy as np

    at, sizes = edges[:-1], np.diff(edges)
    hashes = np.zeros(len(at), np.uint32)
    words = sizes >> 2
    every = max(len(data) - 3, 0)
    # A little-endian word at every byte: a value may begin anywhere.
    view: Any = np.ndarray(every, "<u4", data, strides=(1,)) if every else np.empty(0, "<u4")
    for number in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > number)
        mixed = hashes[rows] ^ _scrambled(view[at[rows] + 4 * number].astype(np.uint32))
        hashes[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    tails, ends = sizes & 3, at + 4 * words
    last = np.zeros(len(at), np.uint32)
    for byte in range(int(tails.max(initial=0))):
        rows = np.flatnonzero(tails > byte)
        last[rows] |= data[ends[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashes ^= _scrambled(last)
    hashes ^= sizes.astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
    return hashes


def _scrambled(words: Words) -> Words:
    import numpy as np

    return _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(words: Words, bits: int) -> Words:
    import numpy as np

    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
