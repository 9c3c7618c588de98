"""Messages to bytes and back: `encode`, `encode_parts`, `decode`, `decode_from`.

Invariant: decoding raises `DecodeError` and nothing else, whatever the bytes are; encoding raises
`EncodeError` (a `ValueError`) and nothing else, whatever the message holds.

The element budget bounds what a message may cost: each array element and each tagged field takes
one. Counts are also checked against the bytes that are left, but that is not enough: one byte on
the wire can become an object of a hundred (CVE-2026-111108, CVE-2026-111115).
"""

from collections.abc import Generator, Iterable
from copy import copy
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
from sparkraft.protocol.decode_source import DECODER_ERRORS, SLICE_ELEMENTS
from sparkraft.protocol.encode_source import ENCODER_ERRORS, Encoded
from sparkraft.protocol.errors import EncodeError
from sparkraft.protocol.reference_codec import Reader, Writer
from sparkraft.protocol.varint import Buffer

__all__ = [
    "ELEMENT_BUDGET",
    "RESPONSE_ELEMENT_BUDGET",
    "Encoded",
    "decode",
    "decode_few",
    "decode_from",
    "decode_slices",
    "encode",
    "encode_arrays",
    "encode_element_parts",
    "encode_elements",
    "encode_parts",
    "encode_slices",
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


def encode_slices(message: Message, version: int) -> Generator[int, None, bytes]:
    """As `encode`, for a large message; yields the elements encoded since the last time."""
    return encode((yield from encode_arrays(message, version)), version)


def encode_arrays(message: M, version: int) -> Generator[int, None, M]:
    """A copy of a large message that is encoded soon; yields as `encode_slices`.

    Its arrays of structs are `Encoded`, so copies of it with other fields share their bytes.
    """
    return cast("M", (yield from _with_encoded_arrays(type(message), message, version)))


def _with_encoded_arrays(
    cls: type[Message], message: Message, version: int
) -> Generator[int, None, Message]:
    """A copy of `message`, a `cls` or part of it, whose arrays of structs are encoded."""
    made = copy(message)
    for field in message.SCHEMA.fields:
        elements = getattr(message, field.name)
        if type(elements) is not list or isinstance(field.element, str):
            continue
        if version not in field.versions:
            continue
        nested = [each.name for each in field.struct.SCHEMA.fields if each.kind == "array"]
        buffers: list[bytes | memoryview] = []
        part: list[Message] = []
        size = 0
        for element in elements:
            count = 1 + sum(len(getattr(element, name) or ()) for name in nested)
            if count > SLICE_ELEMENTS:
                whole = yield from _with_encoded_arrays(cls, element, version)
                part.append(whole)
            else:
                part.append(element)
                size += count
            if size >= SLICE_ELEMENTS:
                buffers += encode_element_parts(cls, version, part)
                yield size
                part, size = [], 0
        buffers += encode_element_parts(cls, version, part)
        yield size
        setattr(made, field.name, Encoded(len(elements), buffers))
    return made


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


def decode_few(cls: type[M], version: int, data: Buffer, elements: int) -> M | None:
    """Read a message at the start of `data` if it has no more elements.

    None for others, and for bytes that are no such message: `decode_slices` finds out which.
    """
    read, _ = decoder(cls, version)
    try:
        message, _ = read(data, 0, len(data), elements)
    except DECODER_ERRORS:
        return None
    return cast("M", message)


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
