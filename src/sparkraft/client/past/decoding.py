"""Decodes the records of the metadata log for tools that read a million of them.

Most records of a long log change a partition, and their tagged fields (KIP-482) repeat: the same
few ISRs and leaders, of other partitions. So the tagged fields are decoded once per distinct text::

    frame version 1 | type 5 | version | partition id i32 | topic id 16 bytes | tagged fields
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.protocol.framing import METADATA_FRAME_VERSION, decode_metadata_record
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from sparkraft.protocol.declare import Message

TEXTS_MAX = 4_096
"""Distinct texts of tagged fields that are kept, of some hundred bytes each with their values."""

TEXT_BYTES_MAX = 256
"""A longer text is decoded each time: few are, and so the memory is bounded."""

_KEY, _VERSIONS = PartitionChangeRecord.SCHEMA.key, PartitionChangeRecord.SCHEMA.versions
_FRAMES = frozenset(
    bytes((METADATA_FRAME_VERSION, _KEY, version))
    for version in range(_VERSIONS.first, _VERSIONS.last + 1)
)
_FRAME_BYTES = 3

_HEAD = Struct(f">{_FRAME_BYTES}si16s")
"""Everything before the tagged fields."""

_SIZES = range(_HEAD.size, _HEAD.size + TEXT_BYTES_MAX)

_unpack = _HEAD.unpack_from
_new = object.__new__
_new_bytes = bytes.__new__


class _Tagged(NamedTuple):
    """The tagged fields of a PartitionChangeRecord; its lists are shared by many records."""

    isr: list[int] | None
    leader: int
    replicas: list[int] | None
    removing_replicas: list[int] | None
    adding_replicas: list[int] | None
    leader_recovery_state: int
    directories: list[Uuid] | None
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None


def metadata_record(value: bytes) -> Message:
    """The record of a value of the log; the caller must not change it or its lists.

    Raises:
        DecodeError: as `decode_metadata_record`.
    """
    if value[:_FRAME_BYTES] not in _FRAMES or len(value) not in _SIZES:
        return decode_metadata_record(value)[0]
    frame, partition_id, topic_id = _unpack(value)
    made: PartitionChangeRecord = _new(PartitionChangeRecord)
    made.partition_id, made.topic_id = partition_id, _new_bytes(Uuid, topic_id)
    (
        made.isr,
        made.leader,
        made.replicas,
        made.removing_replicas,
        made.adding_replicas,
        made.leader_recovery_state,
        made.directories,
        made.eligible_leader_replicas,
        made.last_known_elr,
    ) = _tagged(frame, value[_HEAD.size :])
    return made


@lru_cache(maxsize=TEXTS_MAX)
def _tagged(frame: bytes, text: bytes) -> _Tagged:
    """The tagged fields after a frame, decoded as those of partition 0 of topic 0."""
    record = decode_metadata_record(_HEAD.pack(frame, 0, bytes(Uuid.ZERO)) + text)[0]
    assert isinstance(record, PartitionChangeRecord)
    return _Tagged(*(getattr(record, name) for name in _Tagged._fields))
