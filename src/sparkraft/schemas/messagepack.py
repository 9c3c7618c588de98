"""A MessagePack value as a JSON value (specification of 2017: msgpack.org).

    0x00-7f int | 80-8f map | 90-9f array | a0-bf text | c0 null | c2 false | c3 true
    c4-c6 bytes | c7-c9 extension | ca cb float | cc-cf unsigned | d0-d3 signed
    d4-d8 extension of 1 to 16 bytes | d9-db text | dc dd array | de df map | e0-ff negative int

Keys of maps become texts: a number as its JSON text. A map with two equal keys is refused, since
a reader that keeps the last one and a reader that keeps the first one would see different values.
An extension is `{"extension": TYPE, "base64": "..."}`; the predefined time (-1) is a text.
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.cursor import Cursor
from sparkraft.schemas.errors import UndecodableError
from sparkraft.schemas.json_values import Opaque, bytes_json, number_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_U8, _U16, _U32, _U64 = (struct.Struct(each) for each in (">B", ">H", ">I", ">Q"))
_I8, _I16, _I32, _I64 = (struct.Struct(each) for each in (">b", ">h", ">i", ">q"))
_F32, _F64 = struct.Struct(">f"), struct.Struct(">d")

_TIME: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS: Final = 1_000_000_000


def decode_messagepack(data: bytes) -> Any:
    """The value of `data`.

    Raises:
        UndecodableError: it is not exactly one value, or exceeds a bound.
    """
    cursor = Cursor(data)
    found = _value(cursor)
    cursor.finish()
    return found


def _value(cursor: Cursor) -> Any:
    cursor.bounds.spend()
    first = cursor.byte()
    if first <= 0x7F:  # noqa: PLR2004 (the table above)
        return first
    if first >= 0xE0:  # noqa: PLR2004
        return first - 0x100
    if first <= 0x8F:  # noqa: PLR2004
        return _map(cursor, first & 0x0F)
    if first <= 0x9F:  # noqa: PLR2004
        return _array(cursor, first & 0x0F)
    if first <= 0xBF:  # noqa: PLR2004
        return cursor.text(first & 0x1F)
    read = _READ.get(first)
    if read is None:
        raise UndecodableError(f"byte {first:#x} begins no value")
    return read(cursor)


def _array(cursor: Cursor, count: int) -> list[Any]:
    if count > cursor.left:
        raise UndecodableError(f"an array of {count} values is cut off")
    cursor.bounds.enter()
    found = [_value(cursor) for _ in range(count)]
    cursor.bounds.leave()
    return found


def _map(cursor: Cursor, count: int) -> dict[str, Any]:
    if 2 * count > cursor.left:
        raise UndecodableError(f"a map of {count} entries is cut off")
    cursor.bounds.enter()
    found: dict[str, Any] = {}
    for _ in range(count):
        key = _value(cursor)
        name = key if isinstance(key, str) else json.dumps(key)
        if name in found:
            raise UndecodableError("a map has two equal keys")
        found[name] = _value(cursor)
    cursor.bounds.leave()
    return found


def _extension(cursor: Cursor, size: int) -> Any:
    kind = cursor.number(_I8)
    data = cursor.take(size)
    time = _time(data) if kind == _TIME else None
    if time is not None:
        return time
    return Opaque(extension=kind, **bytes_json(data))


def _time(data: bytes) -> str | None:
    """The predefined time in its three sizes; None if it is not one."""
    nanos, seconds = 0, 0
    if len(data) == _U32.size:
        seconds = _U32.unpack(data)[0]
    elif len(data) == _U64.size:
        both = _U64.unpack(data)[0]
        nanos, seconds = both >> 34, both & ((1 << 34) - 1)
    elif len(data) == _U32.size + _I64.size:
        nanos, seconds = struct.unpack(">Iq", data)
    else:
        return None
    try:
        at = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    if nanos >= _NANOS:
        return None
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _sized(read: Callable[[Cursor, int], Any], size: struct.Struct) -> Callable[[Cursor], Any]:
    return lambda cursor: read(cursor, cursor.number(size))


def _number(form: struct.Struct) -> Callable[[Cursor], Any]:
    return lambda cursor: cursor.number(form)


def _float(form: struct.Struct) -> Callable[[Cursor], Any]:
    return lambda cursor: number_json(cursor.number(form))


def _fixed_extension(size: int) -> Callable[[Cursor], Any]:
    return lambda cursor: _extension(cursor, size)


def _bytes(cursor: Cursor, size: int) -> Any:
    return bytes_json(cursor.take(size))


_SIZES: Final = (_U8, _U16, _U32)


def _family(first: int, reads: Iterable[Callable[[Cursor], Any]]) -> dict[int, Any]:
    return dict(enumerate(reads, first))


_READ: Final[dict[int, Callable[[Cursor], Any]]] = {
    0xC0: lambda _: None,
    0xC2: lambda _: False,
    0xC3: lambda _: True,
    **_family(0xC4, (_sized(_bytes, size) for size in _SIZES)),
    **_family(0xC7, (_sized(_extension, size) for size in _SIZES)),
    **_family(0xCA, map(_float, (_F32, _F64))),
    **_family(0xCC, map(_number, (_U8, _U16, _U32, _U64))),
    **_family(0xD0, map(_number, (_I8, _I16, _I32, _I64))),
    **_family(0xD4, (_fixed_extension(1 << power) for power in range(5))),
    **_family(0xD9, (_sized(Cursor.text, size) for size in _SIZES)),
    **_family(0xDC, (_sized(_array, size) for size in _SIZES[1:])),
    **_family(0xDE, (_sized(_map, size) for size in _SIZES[1:])),
}
"""By the first byte, for values that are not in it."""
