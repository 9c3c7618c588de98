"""Records whose values say what they are.

A value in the metadata log (KIP-631), all three numbers unsigned varints:

    frame version (1) | type | version | body

A key or value of a coordinator's log, and what group members send each other:

    version or type i16 | body

The key of a coordinator record begins with its type, which determines the type of the value; the
value begins with its version.
"""

import struct
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.declare import Message
from sparkraft.protocol.varint import Buffer, decode_unsigned, encode_unsigned

M = TypeVar("M", bound=Message)

METADATA_FRAME_VERSION: Final = 1

_SHORT_FRAME: Final = 3
_CONTINUATION: Final = 0x80
"""Of a varint: the bit of bytes that another one follows."""


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a metadata log's record."""
    key = encode_unsigned(record.SCHEMA.key)
    frame = encode_unsigned(METADATA_FRAME_VERSION) + key + encode_unsigned(version)
    return frame + encode(record, version)


@cache
def _metadata_records() -> Mapping[int, type[Message]]:
    """All classes, by key: readers of a metadata log need most of them, all others none."""
    from sparkraft.protocol.messages.metadata_records import METADATA_RECORDS

    return METADATA_RECORDS


def decode_metadata_record(data: Buffer) -> tuple[Message, int]:
    """Read such a value; gives the record and its version."""
    known = _metadata_records()
    # All types and versions so far have one byte; readers of a log decode a million of these.
    is_short = len(data) >= _SHORT_FRAME and data[0] == METADATA_FRAME_VERSION
    if is_short and (data[1] | data[2]) < _CONTINUATION and data[1] in known:
        version = data[2]
        return decode(known[data[1]], version, memoryview(data)[3:]), version
    frame_version, at = decode_unsigned(data, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise DecodeError(f"metadata frame version {frame_version}", at=0)
    key, at = decode_unsigned(data, at)
    cls = known.get(key)
    if cls is None:
        raise DecodeError(f"unknown metadata record type {key}", at=at)
    version, at = decode_unsigned(data, at)
    return decode(cls, version, memoryview(data)[at:]), version


def encode_versioned(message: Message, version: int) -> bytes:
    """A coordinator record's value or a consumer protocol message."""
    return struct.pack(">h", version) + encode(message, version)


def decode_versioned(cls: type[M], data: Buffer) -> M:
    """Read such a value."""
    return decode(cls, _int16(data), memoryview(data)[2:])


def encode_record_key(key: Message) -> bytes:
    """A coordinator record's key."""
    return struct.pack(">h", key.SCHEMA.key) + encode(key, 0)


def decode_record_key(
    types: dict[int, tuple[type[Message], type[Message]]], data: Buffer
) -> tuple[Message, type[Message]] | None:
    """Read a coordinator record's key; gives it and the class of the value.

    `types` is `GROUP_RECORDS`, `TRANSACTION_RECORDS` or `SHARE_RECORDS`. None for a type that is
    not in it: a newer Kafka wrote the record.
    """
    classes = types.get(_int16(data))
    if classes is None:
        return None
    return decode(classes[0], 0, memoryview(data)[2:]), classes[1]


def _int16(data: Buffer) -> int:
    if len(data) < 2:  # noqa: PLR2004 (an int16)
        raise DecodeError("the bytes end inside a version", at=0)
    return int(struct.unpack_from(">h", data)[0])
