"""Messages to bytes and back: `encode`, `encode_parts`, `decode`, `decode_from`.

Invariant: decoding raises `DecodeError` and nothing else, whatever the bytes are; encoding raises
`EncodeError` (a `ValueError`) and nothing else, whatever the message holds.

The element budget bounds what a message may cost: each array element and each tagged field takes
one. Counts are also checked against the bytes that are left, but that is not enough: one byte on
the wire can become an object of a hundred (CVE-2026-111108, CVE-2026-111115).
"""

from typing import Final, TypeVar, cast

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.careful import Reader, Writer
from sparkraft.protocol.declare import Message
from sparkraft.protocol.errors import UnsupportedVersionError
from sparkraft.protocol.varint import Buffer

M = TypeVar("M", bound=Message)

ELEMENT_BUDGET: Final = 1_000_000
"""Elements in one message from anybody; about half a second of decoding, and Kafka 4.4's limit."""

RESPONSE_ELEMENT_BUDGET: Final = 16_000_000
"""Elements in one response that we asked for: Metadata of a million partitions."""


def encode(message: Message, version: int) -> bytes:
    """The bytes of `message` in `version`, without header or frame."""
    return b"".join(encode_parts(message, version))


def encode_parts(message: Message, version: int) -> list[bytes | memoryview]:
    """Like `encode`, in pieces: the buffers of `records` fields are never copied."""
    schema = message.SCHEMA
    if version not in schema.versions:
        raise UnsupportedVersionError(f"{schema.name} has no version {version}")
    writer = Writer(version=version, flexible=version in schema.flexible)
    writer.message(message)
    return writer.parts


def decode(cls: type[M], version: int, data: Buffer, budget: int | None = None) -> M:
    """Read a message that fills `data` to the last byte.

    `budget` elements may be in it: by default `RESPONSE_ELEMENT_BUDGET` in a response, else
    `ELEMENT_BUDGET`.
    """
    if budget is None:
        response = cls.SCHEMA.name.endswith("Response")
        budget = RESPONSE_ELEMENT_BUDGET if response else ELEMENT_BUDGET
    message, at = decode_from(cls, version, data, 0, budget)
    if at != len(data):
        raise DecodeError(f"{len(data) - at} bytes too many", at=at)
    return message


def decode_from(
    cls: type[M], version: int, data: Buffer, at: int, budget: int = ELEMENT_BUDGET
) -> tuple[M, int]:
    """Read a message that begins at `at`; gives it and the place after it."""
    schema = cls.SCHEMA
    if version not in schema.versions:
        raise DecodeError(f"{schema.name} has no version {version}", at=at)
    flexible = version in schema.flexible
    reader = Reader(data, at, version=version, flexible=flexible, budget=budget)
    message = reader.message(cls)
    return cast("M", message), reader.at
