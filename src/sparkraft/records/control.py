"""Control records: transaction markers and raft's own (KIP-98, KIP-595, KIP-853).

The key is ``version i16 = 0 | type i16``; the value depends on the type. A transaction marker's is
``version i16 = 0 | coordinator_epoch i32``; raft's are messages (`protocol.messages.raft_records`).
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import NO_SEQUENCE, Buffer
from sparkraft.records.record import BatchBuilder, decode_records

_KEY = Struct(">hh")
_MARKER = Struct(">hi")


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
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )
    builder.append(timestamp, control_key(end.kind), _MARKER.pack(0, end.coordinator_epoch))
    return builder.build()


def parse_end_transaction(batch: Buffer) -> EndTransaction | None:
    """Return the marker in a transactional control batch; None if compaction has emptied it."""
    for record in decode_records(batch):
        kind = parse_control_key(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise DecodeError(f"a transactional control batch holds a {kind.name} record")
        if record.value is None or len(record.value) < _MARKER.size:
            raise DecodeError("a transaction marker's value has fewer than 6 bytes")
        return EndTransaction(kind, _MARKER.unpack_from(record.value)[1])
    return None
