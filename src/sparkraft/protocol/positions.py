"""Positions of fields in encoded messages: one is read or replaced without the others.

    body of a response   | throttle_time_ms i32 | error_code i16 | … strings and arrays …
                           fixed positions                         positions differ

Responses of a controller pass through brokers encoded, and so does much else that is large.
"""

from functools import cache

from sparkraft.protocol.declare import Message
from sparkraft.protocol.reference_codec import FIXED_SIZE


@cache
def has_field(kind: type[Message], version: int, name: str) -> bool:
    """Whether that version of a message has the field."""
    return any(field.name == name and version in field.versions for field in kind.SCHEMA.fields)


@cache
def fixed_position(kind: type[Message], version: int, name: str) -> int:
    """The position of a field in an encoded message; -1: it has none, or not always the same."""
    at = 0
    for field in kind.SCHEMA.fields:
        if version not in field.versions or field.tag >= 0:
            continue
        if field.name == name:
            return at
        if field.kind not in FIXED_SIZE:
            break
        at += FIXED_SIZE[field.kind]
    return -1
