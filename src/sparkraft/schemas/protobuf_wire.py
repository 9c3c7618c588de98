"""A Protobuf message without its schema: fields by number, as `protoc --decode_raw` reads them.

    tag = number << 3 | type      type: 0 varint | 1 64 bits | 2 sized | 3 4 group | 5 32 bits

A varint is shown as a signed 64-bit number, numbers of a fixed size as their hexadecimal digits.
Bytes that are printable text are a text, bytes that are a message themselves are one, and all
others are bytes: without a schema these are guesses. A field that occurs several times is a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.cursor import Bounds, Cursor
from sparkraft.schemas.errors import UndecodableError
from sparkraft.schemas.json_values import bytes_json

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, SIZED, GROUP, END_GROUP, FIXED32 = range(6)

_SIGN: Final = 1 << 63
_TYPE_BITS: Final = 3
_TYPE_MASK: Final = 7
_FIXED: Final = {FIXED64: 8, FIXED32: 4}
NUMBER_MAX: Final = (1 << 29) - 1


def decode_wire(data: bytes) -> dict[str, Any]:
    """The fields of a message.

    Raises:
        UndecodableError: it is not one, or exceeds a bound.
    """
    return message_of(Cursor(data))


def tags(cursor: Cursor, group: int = 0) -> Iterator[tuple[int, int]]:
    """Number and type of each field up to the end of the bytes, or of the group.

    The caller moves the cursor past each field.
    """
    while cursor.left:
        cursor.bounds.spend()
        tag = cursor.varint()
        number, kind = tag >> _TYPE_BITS, tag & _TYPE_MASK
        if kind == END_GROUP and number == group:
            return
        if not 0 < number <= NUMBER_MAX or kind == END_GROUP or kind > FIXED32:
            raise UndecodableError(f"{tag} begins no field")
        yield number, kind
    if group:
        raise UndecodableError(f"group {group} does not end")


def message_of(cursor: Cursor, group: int = 0) -> dict[str, Any]:
    """The fields from the cursor to the end of its bytes, or of the group."""
    cursor.bounds.enter()
    found: dict[int, list[Any]] = {}
    for number, kind in tags(cursor, group):
        found.setdefault(number, []).append(value_of(cursor, number, kind))
    cursor.bounds.leave()
    return {
        str(number): values[0] if len(values) == 1 else values for number, values in found.items()
    }


def skip_group(cursor: Cursor, group: int) -> int:
    """Pass over a group, whose first tag has been read; return the position of its last tag.

    Raises:
        UndecodableError: it does not end, or exceeds a bound.
    """
    cursor.bounds.enter()
    last = cursor.at
    for number, kind in tags(cursor, group):
        if kind == GROUP:
            skip_group(cursor, number)
        elif kind == VARINT:
            cursor.varint()
        else:
            cursor.take(cursor.varint() if kind == SIZED else _FIXED[kind])
        last = cursor.at
    cursor.bounds.leave()
    return last


def value_of(cursor: Cursor, number: int, kind: int) -> Any:
    """The value of a field of a wire type."""
    if kind == VARINT:
        return signed(cursor.varint())
    if kind == SIZED:
        return _guessed(cursor.take(cursor.varint()), cursor.bounds)
    if kind == GROUP:
        return message_of(cursor, number)
    return f"0x{cursor.take(_FIXED[kind])[::-1].hex()}"


def signed(number: int) -> int:
    """An unsigned 64-bit number as a signed one."""
    return number - 2 * _SIGN if number >= _SIGN else number


def _guessed(data: bytes, bounds: Bounds) -> Any:
    text = _text(data)
    if text is not None and text.isprintable():
        return text
    depth = bounds.depth
    try:
        return message_of(Cursor(data, bounds=bounds))
    except UndecodableError:
        bounds.depth = depth
        bounds.spend(0)  # the bounds of the whole value count on
    return bytes_json(data) if text is None or _has_controls(text) else text


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _has_controls(text: str) -> bool:
    return any(ord(c) < ord(" ") and c not in "\n\r\t" for c in text)
