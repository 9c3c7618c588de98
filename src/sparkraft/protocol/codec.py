"""Messages to bytes and back: `encode`, `encode_parts`, `decode`, `decode_from`.

Invariant: decoding raises `DecodeError` and nothing else, whatever the bytes are; encoding raises
`EncodeError` (a `ValueError`) and nothing else, whatever the message holds.

The element budget bounds what a message may cost: each array element and each tagged field takes
one. Counts are also checked against the bytes that are left, but that is not enough: one byte on
the wire can become an object of a hundred (CVE-2026-111108, CVE-2026-111115).
"""

from collections.abc import Generator, Iterable
from typing import TypeVar, cast

from sparkraft.base.errors import DecodeError, InvariantBroken
from sparkraft.protocol.compiler import (
    ELEMENT_BUDGET,
    RESPONSE_ELEMENT_BUDGET,
    decoder,
    element_encoder,
    encoder,
    sliced_decoder,
)
from sparkraft.protocol.declare import Message
from sparkraft.protocol.decode_source import DECODER_ERRORS
from sparkraft.protocol.encode_source import ENCODER_ERRORS, Encoded
from sparkraft.protocol.errors import EncodeError
from sparkraft.protocol.reference_codec import Reader, Writer
from sparkraft.protocol.varint import Buffer

__all__ = [
    "ELEMENT_BUDGET",
    "RESPONSE_ELEMENT_BUDGET",
    "Encoded",
    "decode",
    "decode_from",
    "decode_slices",
    "encode",
    "encode_element_parts",
    "encode_elements",
    "encode_parts",
]

M = TypeVar("M", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """The bytes of `message` in `version`, without header or frame."""
    parts: list[bytes | memoryview] = []
    write = encoder(type(message), version)
    try:
        write(message, parts, [])
    except ENCODER_ERRORS as error:
        raise _encode_error(message, version, error) from None
    return b"".join(parts)


def encode_parts(message: Message, version: int) -> list[bytes | memoryview]:
    """Like `encode`, in pieces: the buffers of `records` fields are never copied."""
    parts: list[bytes | memoryview] = []
    cuts: list[int] = []
    write = encoder(type(message), version)
    try:
        write(message, parts, cuts)
    except ENCODER_ERRORS as error:
        raise _encode_error(message, version, error) from None
    return _pieces(parts, cuts)


def _pieces(parts: list[bytes | memoryview], cuts: list[int]) -> list[bytes | memoryview]:
    """`parts` joined, but for those between pairs of cuts."""
    if not cuts:
        return [b"".join(parts)]
    joined: list[bytes | memoryview] = []
    after = 0
    # Cuts come in pairs around records; the bytes between the pairs are few.
    for number in range(0, len(cuts), 2):
        before = cuts[number]
        joined.append(b"".join(parts[after:before]))
        after = cuts[number + 1]
        joined.extend(parts[before:after])
    joined.append(b"".join(parts[after:]))
    return joined


def encode_elements(cls: type[Message], version: int, elements: Iterable[Message]) -> bytes:
    """The bytes of structs of one class, elements of an array in the message `cls`; not its count.

    For an `Encoded` array: pieces of a response that are encoded apart from it, and shared. Each
    element is encoded before the next one is taken, so one object may be filled again and again.
    """
    parts: list[bytes | memoryview] = []
    _encode_each(cls, version, elements, parts, [])
    return b"".join(parts)


def encode_element_parts(
    cls: type[Message], version: int, elements: Iterable[Message]
) -> list[bytes | memoryview]:
    """Like `encode_elements`, in pieces: buffers of `records` and `Encoded` are never copied."""
    parts: list[bytes | memoryview] = []
    cuts: list[int] = []
    _encode_each(cls, version, elements, parts, cuts)
    return _pieces(parts, cuts)


def _encode_each(
    cls: type[Message],
    version: int,
    elements: Iterable[Message],
    parts: list[bytes | memoryview],
    cuts: list[int],
) -> None:
    kind, write = None, None
    for element in elements:
        if write is None or type(element) is not kind:
            kind = type(element)
            write = element_encoder(cls, kind, version)
        try:
            write(element, parts, cuts)
        except ENCODER_ERRORS as error:
            raise EncodeError(f"{kind.__name__}: {error}") from error


def _encode_error(message: Message, version: int, error: Exception) -> EncodeError:
    """Encode again slowly for a message that names the field."""
    writer = Writer(version=version, flexible=version in message.SCHEMA.flexible)
    try:
        writer.message(message)
    except EncodeError as found:
        return found
    except ENCODER_ERRORS as found:
        return EncodeError(f"{type(found).__name__}: {found}")
    raise InvariantBroken(f"only the compiled encoder refuses {message!r:.200}: {error!r}")


def decode(cls: type[M], version: int, data: Buffer, budget: int | None = None) -> M:
    """Read a message that fills `data` to the last byte.

    `budget` elements may be in it: by default `RESPONSE_ELEMENT_BUDGET` in a response, else
    `ELEMENT_BUDGET`.
    """
    end = len(data)
    read, usual = decoder(cls, version)
    if budget is None:
        budget = usual
    try:
        message, at = read(data, 0, end, budget)
    except DECODER_ERRORS as error:
        raise _decode_error(cls, version, data, 0, budget, error) from None
    if at != end:
        raise DecodeError(f"{end - at} bytes too many", at=at)
    return cast("M", message)


def decode_from(
    cls: type[M], version: int, data: Buffer, at: int, budget: int = ELEMENT_BUDGET
) -> tuple[M, int]:
    """Read a message that begins at `at`; gives it and the place after it."""
    read, _ = decoder(cls, version)
    try:
        return read(data, at, len(data), budget)
    except DECODER_ERRORS as error:
        raise _decode_error(cls, version, data, at, budget, error) from None


def decode_slices(
    cls: type[M], version: int, data: Buffer, budget: int = ELEMENT_BUDGET
) -> Generator[int, None, M]:
    """Read a large message at the start of `data`; yields the elements read since the last time.

    Raises:
        DecodeError: without the field and the place, which would take long to find.
    """
    try:
        message, _ = yield from sliced_decoder(cls, version)(data, 0, len(data), budget)
    except DECODER_ERRORS as error:
        wrong = f"{len(data)} bytes are not a {cls.__name__} of version {version}"
        raise DecodeError(wrong, at=0) from error
    return cast("M", message)


def _decode_error(
    cls: type[M], version: int, data: Buffer, at: int, budget: int, error: Exception
) -> DecodeError:
    """Decode again slowly for a message that names field and place."""
    flexible = version in cls.SCHEMA.flexible
    reader = Reader(data, at, version=version, flexible=flexible, budget=budget)
    try:
        reader.message(cls)
    except DecodeError as found:
        return found
    raise InvariantBroken(f"only the compiled decoder refuses a {cls.__name__}: {error!r}")
