"""Records of `__consumer_offsets`: what is written, and how any record found there is read.

    key   = type int16 | the key message (no version of its own)
    value = version int16 | the value message; absent for a tombstone

Types 0 and 1 are offset commits, 2 a classic group. Everything above belongs to groups of other
protocols (consumer, share, streams), which Kafka may have written: those keys all begin with the
group's id and are kept as `ForeignKey`. A type unknown even to that rule is `None`: skipped.
"""

import struct
from dataclasses import dataclass
from typing import Any

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.framing import decode_versioned, encode_versioned
from sparkraft.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_OFFSET_COMMIT_LEGACY = 0
_OFFSET_COMMIT = 1
_GROUP_METADATA = 2
_FOREIGN_TYPE_MAX = 23

GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION = 4
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
"""The last version that carries the retention a client of OffsetCommit v2-4 asked for."""

_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Key of a record that belongs to a group of another protocol; `raw` is the whole key."""

    record_type: int
    group_id: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A record to write, or read back; without `value` a tombstone.

    Args:
        value: an OffsetCommitValue or GroupMetadataValue; the raw bytes for a `ForeignKey`.
        value_version: of `value`.
    """

    key: OffsetCommitKey | GroupMetadataKey | ForeignKey
    value: Any = None
    value_version: int = 0


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    key = record.key
    if isinstance(key, ForeignKey):
        assert record.value is None, "foreign groups are only ever removed"
        return key.raw, None
    record_type = _OFFSET_COMMIT if isinstance(key, OffsetCommitKey) else _GROUP_METADATA
    key_bytes = _INT16.pack(record_type) + encode(key, 0)
    if record.value is None:
        return key_bytes, None
    return key_bytes, encode_versioned(record.value, record.value_version)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Read a record back; None for a type that nobody knows; DecodeError for a torn one."""
    if len(key) < _INT16.size:
        raise DecodeError("a key of __consumer_offsets starts with its type", at=0)
    (record_type,) = _INT16.unpack_from(key)
    body = key[_INT16.size :]
    if record_type in (_OFFSET_COMMIT_LEGACY, _OFFSET_COMMIT):
        return GroupRecord(
            key=decode(OffsetCommitKey, 0, body),
            value=None if value is None else decode_versioned(OffsetCommitValue, value),
        )
    if record_type == _GROUP_METADATA:
        return GroupRecord(
            key=decode(GroupMetadataKey, 0, body),
            value=None if value is None else decode_versioned(GroupMetadataValue, value),
        )
    if 0 < record_type <= _FOREIGN_TYPE_MAX:
        return GroupRecord(key=_foreign_key(record_type, key), value=value)
    return None


def _foreign_key(record_type: int, key: bytes) -> ForeignKey:
    try:
        (length,) = _INT16.unpack_from(key, _INT16.size)
        start = 2 * _INT16.size
        if not 0 <= length <= len(key) - start:
            raise DecodeError("the group id does not fit its key", path="groupId", at=_INT16.size)
        return ForeignKey(record_type, key[start : start + length].decode(), bytes(key))
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError("a key without a group id", path="groupId") from error
