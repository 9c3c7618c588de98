"""Runs of records with one layout, checked by columns instead of one by one.

Most batches hold records of equal size: fixed-width events, metrics, padded values. Then the bytes
that describe record n are `size` bytes after those of record n - 1, and one strided slice holds
such a byte of every record::

    length             equal
    attributes         ignored
    timestamp_delta    the first byte varies, others are equal
    offset_delta       counts up
    key length         equal
    value length       equal
    header count       0

A slice costs about as much as one step of the walk over single records, so a run of 60 records is
checked 10 times as fast. `find_run` accepts only what `walk_part` accepts record by record.
"""

from typing import Final, NamedTuple

from sparkraft.records.record import read_varint


class Run(NamedTuple):
    """Consecutive records with equal lengths of all fields and without headers."""

    size: int
    """Number of records."""
    end: int
    """Position after the last of them."""
    low: int
    """The smallest timestamp delta."""
    high: int
    """The largest timestamp delta."""
    keyless: int
    """Records without a key: all or none."""


RUN_MIN: Final = 4
"""Fewer records are checked faster one by one."""

_NULL: Final = 1  # -1 as a zigzag varint of one byte
_ENDS: Final = (1 << 6, 1 << 13, 1 << 20)
"""Offset deltas below these take one, two and three bytes."""

_PERIOD: Final = 1 << 13
_ONE: Final = bytes(range(0, 128, 2))
"""Offset deltas 0 to 63, as zigzag varints."""
_LOW: Final = bytes(0x80 | index << 1 & 0x7F for index in range(2 * _PERIOD))
"""The first byte of offset deltas from 64 on; repeats after `_PERIOD`."""
_HIGH: Final = bytes(index >> 6 for index in range(_PERIOD))
"""The second and last byte of offset deltas from 64 to 8191."""
_MIDDLE: Final = bytes(0x80 | index >> 6 & 0x7F for index in range(2 * _PERIOD))
"""The second byte of offset deltas from 8192 on; repeats after `_PERIOD`."""

_LAST_BYTES: Final = bytes(range(0, 0x80, 2))
_OTHER_BYTES: Final = bytes(range(0x80, 0x100, 2))
"""First bytes of deltas that are not negative: of one byte, and of several."""


def find_run(data: bytes, at: int, first: int, last: int) -> Run | None:
    """Find the records from `first` at `at` that have its layout, at most up to `last` - 1.

    None if they are fewer than `RUN_MIN`, or not usual. `IndexError` past the end of `data`.
    """
    length, body = read_varint(data, at)
    size = body - at + length
    count = min(last - first, (len(data) - at) // size) if length > 0 else 0
    if count < RUN_MIN or data[at + size] != data[at] or data[at + size * 2] != data[at]:
        return None
    delta, offset_at = read_varint(data, body + 1)
    offset, key_at = read_varint(data, offset_at)
    key, key_end = read_varint(data, key_at)
    value_at = key_end + max(key, 0)
    value, value_end = read_varint(data, value_at)
    end = value_end + max(value, 0)
    if (
        delta < 0
        or offset != first
        or (key < 0 and data[key_at] != _NULL)
        or (value < 0 and data[value_at] != _NULL)
        or end + 1 != at + size
        or data[end] != 0  # no headers
    ):
        return None
    equal = [
        *range(at, body),
        *range(body + 2, offset_at),
        *range(key_at, key_end),
        *range(value_at, value_end),
        end,
    ]
    for place in equal:
        count = _leading(data[place : place + (count - 1) * size + 1 : size])
        if count < RUN_MIN:
            return None
    count = _counted(data, offset_at, key_at - offset_at, size, first, count)
    return _timed(data, at, body + 1, offset_at, size, count, keyless=key < 0)


def _leading(column: bytes) -> int:
    """How many bytes from the first on are equal."""
    first = column[:1]
    if column == first * len(column):
        return len(column)
    return len(column) - len(column.lstrip(first))


def _counted(data: bytes, at: int, width: int, size: int, first: int, count: int) -> int:
    """How many of `count` records have offset deltas `first`, `first` + 1 and so on; all or none.

    Only those whose deltas take `width` bytes count, and that have an equal third byte.
    """
    if width > len(_ENDS) or first >= _ENDS[width - 1] or (width > 1 and first < _ENDS[width - 2]):
        return 0
    count = min(count, _ENDS[0] - first if width == 1 else _PERIOD - first % _PERIOD)
    stop = (count - 1) * size + 1
    column = data[at : at + stop : size]
    if width == 1:
        return count if column == _ONE[first : first + count] else 0
    phase = first % _PERIOD
    second = data[at + 1 : at + 1 + stop : size]
    expected = _HIGH if width == 2 else _MIDDLE  # noqa: PLR2004 (bytes of the varint)
    usual = (
        column == _LOW[phase : phase + count]
        and second == expected[phase : phase + count]
        and (width == 2 or _leading(data[at + 2 : at + 2 + stop : size]) == count)  # noqa: PLR2004
    )
    return count if usual else 0


def _timed(  # noqa: PLR0913 (a record's place)
    data: bytes, at: int, delta_at: int, delta_end: int, size: int, count: int, *, keyless: bool
) -> Run | None:
    """The run up to the first negative timestamp delta, or the first of another width."""
    column = data[delta_at : delta_at + (count - 1) * size + 1 : size] if count else b""
    usual = _LAST_BYTES if delta_end - delta_at == 1 else _OTHER_BYTES
    if column.translate(None, usual):
        column = column[: len(column) - len(column.lstrip(usual))]
    count = len(column)
    if count < RUN_MIN:
        return None
    low, high = min(column), max(column)
    if delta_end - delta_at > 1:
        rest = read_varint(data, delta_at)[0] << 1 & ~0x7F
        low, high = low & 0x7F | rest, high & 0x7F | rest
    return Run(count, at + count * size, low >> 1, high >> 1, count if keyless else 0)
