"""One Avro value as a JSON value, read with the schema that it was written with.

The branch of a union is not named: its value stands alone. Logical types are shown as the numbers
that they are, except decimals, which are texts with all digits. Schemas may be recursive.

Not here: many values at once (`pipeline.avro_values`), and schema resolution.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.avro_schema import (
    Entries,
    Enumeration,
    Fixed,
    Items,
    Primitive,
    RecordType,
    Union,
)
from sparkraft.schemas.cursor import Cursor, zigzag
from sparkraft.schemas.errors import UndecodableError
from sparkraft.schemas.json_values import bytes_json, number_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.schemas.avro_schema import Schema, Type

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")

_DECIMAL_BYTES_MAX: Final = 16
"""Of 38 digits; longer ones are shown as bytes."""


def decode_avro(data: bytes, schema: Schema, *, skipped: int = 0) -> Any:
    """The value of `data` after `skipped` bytes.

    Raises:
        UndecodableError: it is not exactly one value of the schema, or exceeds a bound.
    """
    cursor = Cursor(data, skipped)
    found = _Reader(schema, cursor).value(schema.type)
    cursor.finish()
    return found


class _Reader:
    def __init__(self, schema: Schema, cursor: Cursor) -> None:
        self._schema = schema
        self._cursor = cursor

    def value(self, kind: Type) -> Any:
        self._cursor.bounds.spend()
        found: Any
        match kind:
            case Primitive():
                found = _PRIMITIVES[kind.kind](self._cursor, kind)
            case Fixed():
                found = _shown(self._cursor.take(kind.size), kind)
            case Enumeration():
                found = kind.symbols[self._index(len(kind.symbols), kind.name)]
            case Union():
                found = self.value(kind.branches[self._index(len(kind.branches), "a union")])
            case Items():
                found = self._items(kind)
            case Entries():
                found = self._entries(kind)
            case RecordType():
                found = self._record(kind)
        return found

    def _index(self, count: int, what: str) -> int:
        found = zigzag(self._cursor.varint())
        if not 0 <= found < count:
            raise UndecodableError(f"{what} has {count} choices, not number {found}")
        return found

    def _record(self, kind: RecordType) -> dict[str, Any]:
        bounds = self._cursor.bounds
        bounds.enter()
        # A type within itself has no fields there: the schema knows them by name.
        fields = self._schema.records[kind.name].fields
        found = {field.name: self.value(field.type) for field in fields}
        bounds.leave()
        return found

    def _items(self, kind: Items) -> list[Any]:
        found: list[Any] = []
        self._blocks(lambda: found.append(self.value(kind.items)))
        return found

    def _entries(self, kind: Entries) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def add() -> None:
            name = self._cursor.text(zigzag(self._cursor.varint()))
            if name in found:
                raise UndecodableError("a map has two equal keys")
            found[name] = self.value(kind.values)

        self._blocks(add)
        return found

    def _blocks(self, read: Callable[[], None]) -> None:
        """Read the blocks of an array or a map; a negative count precedes the size in bytes."""
        cursor = self._cursor
        cursor.bounds.enter()
        while count := zigzag(cursor.varint()):
            cursor.bounds.spend()
            if count < 0:
                count = -count
                cursor.varint()
            for _ in range(count):
                read()
        cursor.bounds.leave()


def _boolean(cursor: Cursor) -> bool:
    found = cursor.byte()
    if found > 1:
        raise UndecodableError(f"{found} is not a boolean")
    return bool(found)


def _size(cursor: Cursor) -> int:
    return zigzag(cursor.varint())


_PRIMITIVES: Final[dict[str, Callable[[Cursor, Primitive], Any]]] = {
    "null": lambda _cursor, _kind: None,
    "boolean": lambda cursor, _: _boolean(cursor),
    "int": lambda cursor, _: zigzag(cursor.varint()),
    "long": lambda cursor, _: zigzag(cursor.varint()),
    "float": lambda cursor, _: number_json(cursor.number(_FLOAT)),
    "double": lambda cursor, _: number_json(cursor.number(_DOUBLE)),
    "bytes": lambda cursor, kind: _shown(cursor.take(_size(cursor)), kind),
    "string": lambda cursor, _: cursor.text(_size(cursor)),
}


def _shown(data: bytes, kind: Primitive | Fixed) -> Any:
    if kind.logical != "decimal" or not 0 < len(data) <= _DECIMAL_BYTES_MAX:
        return bytes_json(data)
    number = int.from_bytes(data, "big", signed=True)
    digits = f"{abs(number):0{kind.scale + 1}}"
    sign = "-" if number < 0 else ""
    if not kind.scale:
        return sign + digits
    return f"{sign}{digits[: -kind.scale]}.{digits[-kind.scale :]}"
