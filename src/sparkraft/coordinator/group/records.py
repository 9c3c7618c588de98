"""Records of `__consumer_offsets`: encoding, and the registry of their types.

    key   = type int16 | the key message (no version of its own)
    value = version int16 | the value message; absent for a tombstone

Types 0 and 1 are offset commits, 2 a classic group, 3 to 8 and 16 a consumer group; they are
decoded. The others up to 23 belong to share and streams groups, which Kafka may have written. They
stay raw: such a key begins with its group id (`RawKey`), and the value is bytes. Unknown types are
skipped.

A protocol that interprets its records adds their messages to `RECORD_TYPES`.
"""

import struct
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, pieces
from sparkraft.protocol.codec import Encoded, decode, decode_slices, encode, encode_elements
from sparkraft.protocol.framing import decode_versioned, encode_versioned
from sparkraft.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparkraft.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
"""The last version with an expiry time, which clients of OffsetCommit v2-4 may request."""

_INT16 = struct.Struct(">h")


class RecordType(NamedTuple):
    """One type of record.

    Attributes:
        group_type: of the group it belongs to, as ListGroups names it.
        key: the key message; None if keys and values stay raw.
        value: the value message, if `key` is set.
        is_member: whether a record without a tombstone means that the group has a member.
    """

    group_type: str
    key: type[Any] | None = None
    value: type[Any] | None = None
    is_member: bool = False


_SHARE = RecordType("share")
_STREAMS = RecordType("streams")

RECORD_TYPES: dict[int, RecordType] = {
    0: RecordType("classic", OffsetCommitKey, OffsetCommitValue),
    1: RecordType("classic", OffsetCommitKey, OffsetCommitValue),
    2: RecordType("classic", GroupMetadataKey, GroupMetadataValue),
    3: RecordType("consumer", ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: RecordType(
        "consumer", ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue
    ),
    5: RecordType("consumer", ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: RecordType(
        "consumer",
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: RecordType(
        "consumer",
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: RecordType(
        "consumer",
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: RecordType(
        "consumer", ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue
    ),
    **dict.fromkeys((9, 11, 12, 13, 14, 15), _SHARE),
    10: RecordType("share", is_member=True),
    **dict.fromkeys((17, 18, 20, 21, 22, 23), _STREAMS),
    19: RecordType("streams", is_member=True),
}
"""By the number a key starts with."""

_WRITTEN_TYPE: dict[type, int] = {
    known.key: number for number, known in RECORD_TYPES.items() if known.key is not None
}
"""The newest type of each key message: 0 is read, but never written."""


@dataclass(frozen=True, slots=True)
class RawKey:
    """Key of a record that is not decoded; `raw` is the whole key."""

    record_type: int
    group_id: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A record to write, or one that was read; a tombstone if `value` is None.

    Attributes:
        value: the value message of the key's type; bytes for a `RawKey`.
        value_version: version to write `value` in.
    """

    key: OffsetCommitKey | GroupMetadataKey | ConsumerGroupKey | RawKey
    value: Any = None
    value_version: int = 0


def record_type_of(key: RawKey) -> RecordType:
    return RECORD_TYPES[key.record_type]


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value in the format of the log."""
    key = record.key
    if isinstance(key, RawKey):
        return key.raw, record.value
    key_bytes = _INT16.pack(_WRITTEN_TYPE[type(key)]) + encode(key, 0)
    if record.value is None:
        return key_bytes, None
    return key_bytes, encode_versioned(record.value, record.value_version)


def encode_record_in_steps(record: GroupRecord) -> Steps[tuple[bytes, bytes | None]]:
    """The same; lists of topics and of members are encoded in pieces."""
    value = record.value
    longest: dict[str, Encoded] = {}
    for name in _LISTS.get(type(value), ()):
        elements = getattr(value, name)
        if len(elements) > PIECE_UNITS:
            buffers = []
            for piece in pieces(elements):
                buffers.append(encode_elements(type(value), record.value_version, piece))
                yield len(piece)
            longest[name] = Encoded(len(elements), buffers)
    if longest:
        value = copy(value)
        for name, encoded in longest.items():
            setattr(value, name, encoded)
        record = replace(record, value=value)
    return encode_record(record)


_LISTS: dict[type, tuple[str, ...]] = {
    GroupMetadataValue: ("members",),
    ConsumerGroupTargetAssignmentMemberValue: ("topic_partitions",),
    ConsumerGroupCurrentMemberAssignmentValue: (
        "assigned_partitions",
        "partitions_pending_revocation",
    ),
}
"""Fields with an element for each member or topic."""


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Decode a record; None if its type is unknown.

    Raises:
        DecodeError: the key or the value is malformed.
    """
    if len(key) < _INT16.size:
        raise DecodeError("a key of __consumer_offsets must start with an int16 type", at=0)
    (number,) = _INT16.unpack_from(key)
    known = RECORD_TYPES.get(number)
    if known is None:
        return None
    if known.key is None or known.value is None:
        return GroupRecord(key=_raw_key(number, key), value=value)
    return GroupRecord(
        key=decode(known.key, 0, key[_INT16.size :]),
        value=None if value is None else decode_versioned(known.value, value),
    )


def decode_record_in_steps(key: bytes, value: bytes | None) -> Steps[GroupRecord | None]:
    """The same; a value is decoded in pieces.

    Raises:
        DecodeError: without the field and the place.
    """
    decoded = decode_record(key, None)
    if decoded is None or value is None:
        return decoded
    if isinstance(decoded.key, RawKey):
        return replace(decoded, value=value)
    known = RECORD_TYPES[_INT16.unpack_from(key)[0]]
    assert known.value is not None
    if len(value) < _INT16.size:
        raise DecodeError("a value of __consumer_offsets must start with an int16 version", at=0)
    (version,) = _INT16.unpack_from(value)
    if version not in known.value.SCHEMA.versions:
        raise DecodeError(f"unknown version {version} of {known.value.__name__}", at=0)
    content = memoryview(value)[_INT16.size :]
    return replace(decoded, value=(yield from decode_slices(known.value, version, content)))


def _raw_key(number: int, key: bytes) -> RawKey:
    try:
        (length,) = _INT16.unpack_from(key, _INT16.size)
        start = 2 * _INT16.size
        if not 0 <= length <= len(key) - start:
            raise DecodeError("group id exceeds its key", path="groupId", at=_INT16.size)
        return RawKey(number, key[start : start + length].decode(), bytes(key))
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError("the key has no valid group id", path="groupId") from error
