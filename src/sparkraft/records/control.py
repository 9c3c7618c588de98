"""Control records: transaction markers and raft's own (KIP-98, KIP-595, KIP-853).

The key is ``version i16 = 0 | type i16``; the value depends on the type. A transaction marker's is
``version i16 = 0 | coordinator_epoch i32``; raft's are messages (`protocol.messages.raft_records`).

A transaction marker is a batch of one record, which is written and read as a whole: it ends every
transaction in every partition. Another form is read record by record.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Buffer,
)
from sparkraft.records.crc import crc32c
from sparkraft.records.record import BatchBuilder, decode_records

_KEY = Struct(">hh")
_MARKER = Struct(">hi")

_COUNTED_RECORD = Struct(">i5shhbhib")
"""Of a transaction marker, from the number of records on: the record's head, the key, the size of
the value, the value, the number of headers."""

_RECORD_HEAD = b"\x20\0\0\0\x08"
"""16 bytes follow; no attributes, both deltas 0, a key of 4 bytes."""

_VALUE_SIZE = 0x0C
"""6 bytes, as a zigzag varint."""

_MARKER_BATCH_SIZE = COUNT_AT + _COUNTED_RECORD.size


class ControlType(IntEnum):
    """Types of control records; readers skip unknown types."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENDS = {kind.value: kind for kind in (ControlType.ABORT, ControlType.COMMIT)}


class EndTransaction(NamedTuple):
    """A transaction's end in one partition."""

    kind: ControlType
    coordinator_epoch: int

    @property
    def aborted(self) -> bool:
        """Whether read_committed consumers skip its records."""
        return self.kind is ControlType.ABORT


def control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, kind)


def parse_control_key(key: bytes | None) -> ControlType:
    """The type in a control record's key; `DecodeError` if it holds none."""
    if key is None or len(key) < _KEY.size:
        raise DecodeError("a control record's key has fewer than 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"a control record's key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def control_batch(
    records: list[tuple[ControlType, bytes]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of raft's control records, each a type and its encoded value."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch, control=True)
    for kind, value in records:
        builder.append(timestamp, control_key(kind), value)
    return builder.build()


def end_transaction_batch(
    end: EndTransaction,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The marker that ends a producer's transaction in a partition."""
    batch = bytearray(
        HEADER.pack(
            base_offset,
            _MARKER_BATCH_SIZE - LOG_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            TRANSACTIONAL_BIT | CONTROL_BIT,
            0,
            timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            NO_SEQUENCE,
            1,
        )
    )
    batch[COUNT_AT:] = _COUNTED_RECORD.pack(
        1, _RECORD_HEAD, 0, end.kind, _VALUE_SIZE, 0, end.coordinator_epoch, 0
    )
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(batch)


def parse_end_transaction(batch: Buffer) -> EndTransaction | None:
    """Return the marker in a transactional control batch; None if compaction has emptied it."""
    if len(batch) == _MARKER_BATCH_SIZE and not batch[ATTRIBUTES_AT + 1] & CODEC_MASK:
        count, head, version, kind, size, _, epoch, headers = _COUNTED_RECORD.unpack_from(
            batch, COUNT_AT
        )
        is_usual = (count, head, version, size, headers) == (1, _RECORD_HEAD, 0, _VALUE_SIZE, 0)
        if is_usual and kind in _ENDS:
            return EndTransaction(_ENDS[kind], epoch)
    for record in decode_records(batch):
        kind = parse_control_key(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise DecodeError(f"a transactional control batch holds a {kind.name} record")
        if record.value is None or len(record.value) < _MARKER.size:
            raise DecodeError("a transaction marker's value has fewer than 6 bytes")
        return EndTransaction(kind, _MARKER.unpack_from(record.value)[1])
    return None
