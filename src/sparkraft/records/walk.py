"""The usual records of a produced batch, checked in one pass without taking them apart.

Usual: whole records with offset deltas 0, 1, 2 and so on. `walk` returns None for anything else,
and `records.validate` finds the reason with a slower walk. Nothing is copied and no object is
created per record, so it is more than twice as fast as `scan_records`. Two records of one size in a
row start a search for a run (`records.runs`), which is checked by columns.

A build with a C compiler has `walk_part` from `native.c`, which accepts the same records.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.base.loop_work import LoopBound
from sparkraft.records.batch import Buffer
from sparkraft.records.record import read_varint
from sparkraft.records.runs import RUN_MIN, find_run

_HIGHEST: Final = 1 << 63


class Walked(NamedTuple):
    """The fields of all records together that a validator needs."""

    low: int
    """The smallest timestamp delta."""
    high: int
    """The largest timestamp delta."""
    keyless: int
    """Records without a key."""


RECORDS_PER_PAUSE: Final[LoopBound] = 4096
"""Walked at once by a thread, which keeps the interpreter for about 3 ms then."""


def walk_in_python(data: bytes, at: int, first: int, last: int) -> tuple[int, int, int, int] | None:  # noqa: C901, PLR0911, PLR0912, PLR0915
    """Walk records `first` to `last` - 1 from `at`; return their end, low, high and keyless.

    One function: a call per field would take as long as everything else.

    Reading past a record's end is harmless: positions only grow, so a record that does not end
    exactly at its length is noticed at its last field.
    """
    keyless = size_before = 0
    low, high = _HIGHEST, -_HIGHEST
    index = first
    while index < last:
        start = at
        byte = data[at]
        at += 1
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit, here and below)
            length = byte
        elif data[at] < 0x80:  # noqa: PLR2004
            length = byte & 0x7F | data[at] << 7
            at += 1
        else:
            size, at = read_varint(data, at - 1)
            length = size << 1
        if length < 0 or length & 1:
            return None
        end = at + (length >> 1)
        at += 1  # attributes
        byte = data[at]
        at += 1
        if byte < 0x80:  # noqa: PLR2004
            delta = byte >> 1 ^ -(byte & 1)
        else:
            delta, at = read_varint(data, at - 1)
        if delta < low:  # noqa: PLR1730 (a call of `min` takes a tenth of all)
            low = delta
        if delta > high:  # noqa: PLR1730
            high = delta
        expected = index << 1
        if expected < 0x80:  # noqa: PLR2004
            if data[at] != expected:
                return None
            at += 1
        elif expected < 0x4000:  # noqa: PLR2004 (14 bits in two bytes)
            if data[at] != expected & 0x7F | 0x80 or data[at + 1] != expected >> 7:
                return None
            at += 2
        else:
            offset_delta, at = read_varint(data, at)
            if offset_delta != index:
                return None
        byte = data[at]
        at += 1
        if byte == 1:  # a null key
            keyless += 1
        elif byte < 0x80 and not byte & 1:  # noqa: PLR2004
            at += byte >> 1
        else:
            size, at = read_varint(data, at - 1)
            if size < 0:
                return None
            at += size
        byte = data[at]
        at += 1
        if byte < 0x80:  # noqa: PLR2004
            if not byte & 1:
                at += byte >> 1
            elif byte != 1:  # not a null value either
                return None
        elif data[at] < 0x80:  # noqa: PLR2004
            size = byte & 0x7F | data[at] << 7
            if size & 1:
                return None
            at += 1 + (size >> 1)
        else:
            size, at = read_varint(data, at - 1)
            if size < 0:
                return None
            at += size
        if data[at] == 0:  # no headers
            at += 1
        else:
            at = _after_headers(data, at)
        if at != end:
            return None
        index += 1
        if at - start == size_before and last - index >= RUN_MIN:
            run = find_run(data, at, index, last)
            if run is not None:
                count, at, run_low, run_high, run_keyless = run
                index += count
                keyless += run_keyless
                low, high = min(low, run_low), max(high, run_high)
        else:
            size_before = at - start
    return at, low, high, keyless


def _after_headers(data: bytes, at: int) -> int:
    """The position after a record's headers; -1 if one of them has no key."""
    count, at = read_varint(data, at)
    if count < 0 or count > len(data) - at:
        return -1
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            return -1
        size, at = read_varint(data, at + size)
        at += max(size, 0)
    return at


try:
    from sparkraft.records.native import walk_part as walk_part  # noqa: PLC0414 (an export)
except ImportError:  # built without a C compiler
    IS_COMPILED = False

    def walk_part(
        data: Buffer, at: int, first: int, last: int, /
    ) -> tuple[int, int, int, int] | None:
        """As `walk_in_python`, which needs bytes."""
        return walk_in_python(bytes(data), at, first, last)
else:
    IS_COMPILED = True


def walk(data: Buffer, count: int, pause: Callable[[], None] | None = None) -> Walked | None:
    """Walk `count` records, which must fill `data` exactly; None unless all are usual.

    `pause` is called after every `RECORDS_PER_PAUSE`. The compiled walk needs none: it releases the
    interpreter.
    """
    if count <= 0:
        return None
    plain = data if IS_COMPILED else bytes(data)
    step = count if IS_COMPILED else RECORDS_PER_PAUSE
    at = keyless = 0
    low, high = _HIGHEST, -_HIGHEST
    try:
        for first in range(0, count, step):
            if first and pause is not None:
                pause()
            part = walk_part(plain, at, first, min(count, first + step))
            if part is None:
                return None
            at, part_low, part_high, part_keyless = part
            low, high = min(low, part_low), max(high, part_high)
            keyless += part_keyless
    except (IndexError, DecodeError):
        return None
    return Walked(low, high, keyless) if at == len(data) else None
