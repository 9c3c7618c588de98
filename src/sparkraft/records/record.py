"""Records in a batch: taken apart and built (format 2, KIP-98).

One record, all lengths zigzag varints::

    length | attributes i8 = 0 | timestamp_delta | offset_delta
           | key length (-1 null) | key | value length (-1 null) | value
           | header count | { key length | key | value length (-1 null) | value }*
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    parse_header,
)
from sparkraft.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from sparkraft.records.crc import crc32c

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers in order; keys may repeat."""

_SMALLEST_RECORD = 7  # length, attributes, two deltas, two null lengths, no headers
_VARINT_BITS_MAX = 70


class Record(NamedTuple):
    """One record as a consumer sees it; key and value are copies."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordShape(NamedTuple):
    """The fields of a record that a validator needs, without its contents."""

    offset_delta: int
    timestamp: int
    has_key: bool


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits at `at`, and where it ends; `IndexError` past the end."""
    byte = data[at]
    at += 1
    if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
        return byte >> 1 ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            value &= 0xFFFF_FFFF_FFFF_FFFF
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift >= _VARINT_BITS_MAX:
            raise DecodeError("a varint of more than 10 bytes", at=at)


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` as a zigzag varint."""
    zigzag = value << 1 ^ value >> 63
    while zigzag > 0x7F:  # noqa: PLR2004 (seven bits a byte)
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def decompressed(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:
    """The record bytes of one batch, inflated if need be."""
    view = memoryview(batch)
    codec = view[ATTRIBUTES_AT + 1] & CODEC_MASK
    payload = view[BATCH_OVERHEAD:]
    return payload if codec == Codec.NONE else decompress(codec, payload, max_bytes)


_new = tuple.__new__
"""A named tuple without the call of its `__new__`: a reader makes one per record."""


def decode_records(  # noqa: C901, PLR0912, PLR0915 (a call per field would double the time)
    batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Each record of one whole batch, header included; the CRC is not looked at.

    Raises `DecodeError` if the bytes are invalid, decompress to more than `max_bytes`, or hold a
    number of records that differs from the header. Control batches are decoded like others.
    Lengths and deltas of one byte are read in place.
    """
    header = parse_header(batch)
    data = bytes(decompressed(batch, max_bytes))
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed = header.max_timestamp if header.is_log_append_time else None
    key: bytes | None
    value: bytes | None
    headers: Headers
    at, size = 0, len(data)
    try:
        for _ in range(header.records_count):
            length = data[at]
            if length < 0x80:  # noqa: PLR2004 (one byte, here and below)
                length, at = length >> 1 ^ -(length & 1), at + 1
            else:
                length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > size:
                raise DecodeError(f"a record of {length} bytes with {size - at} left", at=at)
            at += 1  # attributes
            timestamp = data[at]
            if timestamp < 0x80:  # noqa: PLR2004
                timestamp, at = timestamp >> 1 ^ -(timestamp & 1), at + 1
            else:
                timestamp, at = read_varint(data, at)
            offset = data[at]
            if offset < 0x80:  # noqa: PLR2004
                offset, at = offset >> 1 ^ -(offset & 1), at + 1
            else:
                offset, at = read_varint(data, at)
            if data[at] == 1:
                key, at = None, at + 1
            else:
                key, at = _read_bytes(data, at, end)
            field = data[at]
            if field < 0x80 and not field & 1:  # noqa: PLR2004
                value_at, at = at + 1, at + 1 + (field >> 1)
                if at > end:
                    raise _too_long(field >> 1, end - value_at, value_at)
                value = data[value_at:at]
            else:
                value, at = _read_bytes(data, at, end)
            if data[at] == 0:
                headers, at = (), at + 1
            else:
                headers, at = _read_headers(data, at, end)
            if at != end:
                wrong = f"a record of {length} bytes holds {length + at - end}"
                raise DecodeError(wrong, at=at)
            timestamp = base_timestamp + timestamp if fixed is None else fixed
            yield _new(Record, (base_offset + offset, timestamp, key, value, headers))
    except IndexError:
        raise DecodeError("the batch ends inside a record", at=at) from None
    if at != size:
        raise DecodeError(f"{size - at} bytes are left after {header.records_count} records", at=at)


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    if length > end - at:
        raise _too_long(length, end - at, at)
    return data[at : at + length], at + length


def _too_long(length: int, left: int, at: int) -> DecodeError:
    return DecodeError(f"a field of {length} bytes with {left} left in its record", at=at)


def _read_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if count < 0 or count > end - at:
        raise DecodeError(f"{count} headers with {end - at} bytes left in the record", at=at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, at = _read_bytes(data, at, end)
        if key is None:
            raise DecodeError("a header without a key", at=at)
        value, at = _read_bytes(data, at, end)
        headers.append((key.decode("utf-8", "replace"), value))
    return headers, at


def scan_records(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[RecordShape]:
    """Walk a batch without copying keys and values; raises as `decode_records` does."""
    return scan_plain(parse_header(batch), decompressed(batch, max_bytes))


def scan_plain(header: BatchHeader, data: Buffer) -> Iterator[RecordShape]:
    """As `scan_records`, with the record bytes already decompressed."""
    fixed = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    at = 0
    try:
        for _ in range(header.records_count):
            shape, at = _scan_record(data, at, base_timestamp, fixed)
            yield shape
    except IndexError:
        raise DecodeError("the batch ends inside a record", at=at) from None
    if at != len(data):
        raise DecodeError(
            f"{len(data) - at} bytes are left after {header.records_count} records", at=at
        )


def _scan_record(
    data: Buffer, at: int, base_timestamp: int, fixed_timestamp: int | None
) -> tuple[RecordShape, int]:
    length, at = read_varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise DecodeError(f"a record of {length} bytes with {len(data) - at} left", at=at)
    timestamp_delta, at = read_varint(data, at + 1)
    offset_delta, at = read_varint(data, at)
    key_length, at = read_varint(data, at)
    at = _skip(at, key_length, end)
    value_length, at = read_varint(data, at)
    at = _skip(at, value_length, end)
    count, at = read_varint(data, at)
    if count < 0 or count > end - at:
        raise DecodeError(f"{count} headers with {end - at} bytes left in the record", at=at)
    for _ in range(count):
        header_length, at = read_varint(data, at)
        if header_length < 0:
            raise DecodeError("a header without a key", at=at)
        at = _skip(at, header_length, end)
        header_length, at = read_varint(data, at)
        at = _skip(at, header_length, end)
    if at != end:
        raise DecodeError(f"a record of {length} bytes holds {length + at - end}", at=at)
    timestamp = base_timestamp + timestamp_delta if fixed_timestamp is None else fixed_timestamp
    return RecordShape(offset_delta, timestamp, key_length >= 0), at


def _skip(at: int, length: int, end: int) -> int:
    if length <= 0:
        return at
    if length > end - at:
        raise DecodeError(f"a field of {length} bytes with {end - at} left in its record", at=at)
    return at + length


class BatchBuilder:
    """Builds one batch from records.

    Args:
        codec: compression of the records.
        level: `compression.<codec>.level`; None for Kafka's default.
        base_offset: offset of the first record; producers send 0.
        leader_epoch: -1 from producers.
        producer_id: with `producer_epoch` and `base_sequence` for idempotent producers, else -1.
        transactional: belongs to a transaction.
        control: holds control records.
        log_append_time: when given, the batch is of type LogAppendTime with this time, ms.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_codec",
        "_leader_epoch",
        "_level",
        "_log_append_time",
        "_max_timestamp",
        "_producer_epoch",
        "_producer_id",
        "_records",
        "count",
        "last_offset_delta",
    )

    def __init__(  # noqa: PLR0913 (the header has that many fields)
        self,
        *,
        codec: Codec | int = Codec.NONE,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time: int | None = None,
    ) -> None:
        """Start an empty batch."""
        self._codec = codec
        self._level = level
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._log_append_time = log_append_time
        self._attributes = (
            (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
            | (0 if log_append_time is None else LOG_APPEND_TIME_BIT)
        )
        self._records = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.count = 0
        self.last_offset_delta = -1

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the batch if it were built now without compression."""
        return BATCH_OVERHEAD + len(self._records)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
        *,
        offset_delta: int | None = None,
    ) -> int:
        """Add a record and return its offset delta, one above the last unless given.

        Compaction leaves gaps, so it gives them.
        """
        if self.count == 0:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        delta = self.last_offset_delta + 1 if offset_delta is None else offset_delta
        body = bytearray(1)
        write_varint(body, timestamp - self._base_timestamp)
        write_varint(body, delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        write_varint(body, len(headers))
        for name, content in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
        write_varint(self._records, len(body))
        self._records += body
        self.count += 1
        self.last_offset_delta = delta
        return delta

    @property
    def base_timestamp(self) -> int:
        """Timestamp of the first record, to which the others give deltas; -1 without records."""
        return self._base_timestamp

    def extend(self, records: Buffer, *, count: int, timestamp: int) -> None:
        """Add `count` encoded records, all with this timestamp in milliseconds.

        Their offset deltas continue those of the batch, and their timestamp deltas are to its
        `base_timestamp`, which is `timestamp` if it was empty.
        """
        if self.count == 0:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._records += records
        self.count += count
        self.last_offset_delta += count

    def place(self, *, base_offset: int, leader_epoch: int) -> None:
        """Set the offset of the first record and the epoch, if they are known only at the end."""
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch

    def build(self) -> bytes:
        """Return the finished batch with its CRC; `b""` if nothing was appended."""
        if self.count == 0:
            return b""
        payload: Buffer = self._records
        if self._codec != Codec.NONE:
            payload = compress(self._codec, payload, self._level)
        max_timestamp = (
            self._max_timestamp if self._log_append_time is None else self._log_append_time
        )
        batch = bytearray(
            HEADER.pack(
                self._base_offset,
                BATCH_OVERHEAD - LOG_OVERHEAD + len(payload),
                self._leader_epoch,
                MAGIC,
                0,
                self._attributes | self._codec,
                self.last_offset_delta,
                self._base_timestamp,
                max_timestamp,
                self._producer_id,
                self._producer_epoch,
                self._base_sequence,
                self.count,
            )
        )
        batch += payload
        batch[17:21] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
        return bytes(batch)


def _write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
        return
    write_varint(out, len(value))
    out += value
