"""The record batch, format 2 (KIP-98): 61 bytes of header, then records.

::

    at  0  base_offset              i64    patched by the leader, outside the CRC
        8  batch_length             i32    bytes after this field
       12  partition_leader_epoch   i32    patched by the leader, outside the CRC
       16  magic                    i8     2
       17  crc                      u32    CRC-32C of everything from byte 21
       21  attributes               i16    bits 0-2 codec, 3 log append time, 4 transactional,
                                           5 control, 6 delete horizon
       23  last_offset_delta        i32
       27  base_timestamp           i64    ms; the first record's, or the delete horizon
       35  max_timestamp            i64
       43  producer_id              i64    -1: none
       51  producer_epoch           i16
       53  base_sequence            i32
       57  records_count            i32

Invariant: nothing here looks past the header. Records: `sparkraft.records.record`.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from sparkraft.base.ids import LeaderEpoch, Offset
from sparkraft.records.compression import Codec
from sparkraft.records.crc import crc32c
from sparkraft.records.errors import CorruptRecords

Buffer = bytes | bytearray | memoryview
"""Types of buffer that can hold a batch."""

HEADER: Final = Struct(">qiibIhiqqqhii")
"""The whole header, in the order of `BatchHeader`'s fields."""

HEAD_PATCH: Final = Struct(">qii")
"""The 16 bytes before the magic: base offset, length, leader epoch."""

BATCH_OVERHEAD: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes before what `batch_length` counts."""

HEAD_PATCH_SIZE: Final = 16
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
COUNT_AT: Final = 57
MAGIC: Final = 2

SMALLEST_LENGTH: Final = BATCH_OVERHEAD - LOG_OVERHEAD

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MODULUS: Final = 1 << 31

_HEADER_SIZE_UP_TO_MAGIC = 17
_RECORD_OVERHEAD_V0 = 14
_INT32 = 4


class BatchHeader(NamedTuple):
    """A batch's 61 bytes, field by field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record it held when written (compaction may have removed it)."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset after it."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch of the leader that appended it."""
        return LeaderEpoch(self.partition_leader_epoch)

    @property
    def codec(self) -> Codec:
        """How its records are compressed; `CorruptRecords` for a number no codec has."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptRecords(f"the batch names codec {number}, which does not exist")
        return Codec(number)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's time is `max_timestamp`, set by the broker."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def timestamp_type(self) -> int:
        """0 create time, 1 log append time."""
        return self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether it holds control records, which consumers never see."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at 2^31; -1 without a producer id."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def parse_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`; `CorruptRecords` if it can't be one. The CRC is not looked at."""
    if len(buffer) - at < BATCH_OVERHEAD:
        raise CorruptRecords(
            f"{len(buffer) - at} bytes can't hold a batch header of {BATCH_OVERHEAD}"
        )
    header = BatchHeader._make(HEADER.unpack_from(buffer, at))
    if header.magic != MAGIC:
        raise CorruptRecords(f"magic {header.magic} is not a record batch of format 2")
    if header.batch_length < SMALLEST_LENGTH:
        raise CorruptRecords(f"a batch length of {header.batch_length} is less than its header")
    return header


def iter_batches(
    buffer: Buffer, *, partial_tail: bool = True
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Walk whole batches; each comes with its bytes, header included.

    Args:
        buffer: batches one after another, as a fetch or a file holds them.
        partial_tail: a cut-off last batch ends the walk (a fetch may cut it); else it is corrupt.
    """
    view = memoryview(buffer)
    end = len(view)
    at = 0
    while at < end:
        if end - at < BATCH_OVERHEAD:
            if partial_tail:
                _check_cut(view, at)
                return
            raise CorruptRecords(f"{end - at} bytes are left over after the last batch")
        header = parse_header(view, at)
        size = header.batch_length + LOG_OVERHEAD
        if size > end - at:
            if partial_tail:
                return
            raise CorruptRecords(f"a batch of {size} bytes with only {end - at} left")
        yield header, view[at : at + size]
        at += size


def _check_cut(view: memoryview, at: int) -> None:
    """Refuse a cut-off tail whose visible part is already wrong, as Kafka's reader does."""
    left = len(view) - at
    if left < LOG_OVERHEAD:
        return
    length = int.from_bytes(view[at + 8 : at + 8 + _INT32], "big", signed=True)
    if length < _RECORD_OVERHEAD_V0:
        raise CorruptRecords(f"a batch length of {length} is less than the smallest record")
    if left >= _HEADER_SIZE_UP_TO_MAGIC and view[at + MAGIC_AT] > MAGIC:
        raise CorruptRecords(f"magic {view[at + MAGIC_AT]} does not exist")
    if length + LOG_OVERHEAD <= left:
        raise CorruptRecords(f"a batch of {length + LOG_OVERHEAD} bytes is less than its header")


def crc_ok(batch: Buffer) -> bool:
    """Whether the CRC of one whole batch (exactly its bytes) is right."""
    view = memoryview(batch)
    stored = int.from_bytes(view[CRC_AT:ATTRIBUTES_AT], "big")
    return stored == crc32c(view[ATTRIBUTES_AT:])


def sealed(header: BatchHeader, payload: Buffer) -> bytes:
    """The batch of a header and its payload, with the right CRC."""
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    assert len(batch) == header.size_in_bytes >= BATCH_OVERHEAD
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(batch)


def with_timestamps(
    batch: Buffer, *, log_append_time: bool, max_timestamp: int
) -> tuple[bytes, memoryview]:
    """The batch with another time type and maximum: its new 61 bytes and the untouched rest."""
    view = memoryview(batch)
    header = BatchHeader._make(HEADER.unpack_from(view))
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    head = bytearray(
        HEADER.pack(*header._replace(attributes=attributes, max_timestamp=max_timestamp))
    )
    rest = view[BATCH_OVERHEAD:]
    crc = crc32c(rest, crc32c(memoryview(head)[ATTRIBUTES_AT:]))
    head[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")
    return bytes(head), rest
