"""Taking records out of a stored batch, as compaction does (MemoryRecords.filterTo, KIP-534).

Retained: base offset, last offset, leader epoch, producer id, epoch and sequence, codec, timestamp
    type; records keep offset, timestamp and bytes. A batch therefore still shows its sequences
    after some or all of its records were removed.

The delete horizon is the time from which tombstones of a batch may be removed. It replaces the base
timestamp (attribute bit 6 marks it), so every record's delta is rewritten::

    attributes | 0x40, base_timestamp = horizon, timestamp_delta = timestamp - horizon

Not here: which records go (`sparkraft.storage.cleaner_filter`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    SMALLEST_LENGTH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    sealed,
)
from sparkraft.records.compression import compress
from sparkraft.records.record import read_varint, write_varint


class Place(NamedTuple):
    """Position of one record in its batch's decompressed bytes, and the fields compaction needs."""

    start: int
    """Of its length."""
    rest: int
    """Of its offset delta, which follows the timestamp delta."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


_new = tuple.__new__
"""A named tuple without the call of its `__new__`: cleanings make one per record."""


try:
    from sparkraft.records.native import places as _compiled_places
except ImportError:  # built without a C compiler

    def _compiled_places(kind: type[Place], data: Buffer, count: int, /) -> list[Place] | None:
        return None


def places(data: bytes, count: int) -> list[Place]:
    """Walk the `count` records in a batch's plain bytes.

    Raises:
        DecodeError: the bytes mean nothing, or hold another number of records.
    """
    found = _compiled_places(Place, data, count)
    return places_in_python(data, count) if found is None else found


def places_in_python(data: bytes, count: int) -> list[Place]:  # noqa: PLR0915 (one call per batch)
    """As `places`.

    Lengths and deltas of one byte are read in place: a call for each would take twice as long.
    """
    found: list[Place] = []
    at = 0
    size = len(data)
    try:
        for _ in range(count):
            start = at
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > size:
                raise DecodeError(f"a record of {length} bytes with {size - at} left", at=at)
            at += 1
            timestamp_delta = data[at]
            if timestamp_delta < 0x80:  # noqa: PLR2004 (one byte, here and below)
                timestamp_delta = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
                rest = at = at + 1
            else:
                timestamp_delta, rest = read_varint(data, at)
                at = rest
            offset_delta = data[at]
            if offset_delta < 0x80:  # noqa: PLR2004
                offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
                at += 1
            else:
                offset_delta, at = read_varint(data, at)
            key_length = data[at]
            if key_length < 0x80:  # noqa: PLR2004
                key_length = key_length >> 1 ^ -(key_length & 1)
                at += 1
            else:
                key_length, at = read_varint(data, at)
            key = None
            if key_length >= 0:
                key = data[at : at + key_length]
                at += key_length
            has_value = not data[at] & 1  # a negative length is odd
            if at >= end:
                raise DecodeError("a field is larger than its record", at=at)
            fields = (start, rest, end, timestamp_delta, offset_delta, key, has_value)
            found.append(_new(Place, fields))
            at = end
    except IndexError:
        raise DecodeError("the batch ends inside a record", at=at) from None
    if at != size:
        raise DecodeError(f"{size - at} bytes are left after {count} records", at=at)
    return found


def delete_horizon(header: BatchHeader) -> int | None:
    """From when on, ms, tombstones of the batch may go; None until a cleaning has set it."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def with_records(
    header: BatchHeader, data: bytes, kept: Sequence[Place], new_horizon: int | None
) -> bytes:
    """The batch with these of its records only.

    Args:
        header: its header.
        data: its plain bytes.
        kept: at least one of its `places`, in order.
        new_horizon: a delete horizon to set, ms; None leaves that as it is.
    """
    base = header.base_timestamp
    latest = max(place.timestamp_delta for place in kept) + base
    attributes = header.attributes
    if new_horizon is None:
        plain = b"".join([data[place.start : place.end] for place in kept])
    else:
        plain = _shifted(data, kept, base - new_horizon)
        attributes |= DELETE_HORIZON_BIT
        base = new_horizon
    codec = attributes & CODEC_MASK
    payload = compress(codec, plain) if codec else plain
    return sealed(
        header._replace(
            batch_length=SMALLEST_LENGTH + len(payload),
            attributes=attributes,
            base_timestamp=base,
            max_timestamp=header.max_timestamp if header.is_log_append_time else latest,
            records_count=len(kept),
        ),
        payload,
    )


def _shifted(data: bytes, kept: Sequence[Place], shift: int) -> bytes:
    """The records with `shift` added to each timestamp delta."""
    out = bytearray()
    for place in kept:
        body = bytearray(1)
        write_varint(body, place.timestamp_delta + shift)
        body += data[place.rest : place.end]
        write_varint(out, len(body))
        out += body
    return bytes(out)


def without_records(header: BatchHeader) -> bytes:
    """The batch with no record left: its header alone, which remembers offsets and sequences."""
    kept_bits = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    return sealed(
        header._replace(
            batch_length=SMALLEST_LENGTH,
            attributes=header.attributes & kept_bits,
            base_timestamp=header.max_timestamp,
            records_count=0,
        ),
        b"",
    )
