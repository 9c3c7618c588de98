"""A Protobuf message as a JSON object, by its schema: fields by their names in the `.proto` file.

A field without presence (proto3) that is missing has its default; one with presence is absent.
Enums are names, maps are objects. Fields that the schema does not have are shown by number, decoded
without a schema, unless the caller leaves them out.

Values are merged as specified: the last scalar counts, messages are joined, and a field of a oneof
removes the others.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.cursor import Cursor, zigzag
from sparkraft.schemas.errors import UndecodableError
from sparkraft.schemas.json_values import bytes_json, number_json
from sparkraft.schemas.protobuf_wire import FIXED32, FIXED64, GROUP, SIZED, VARINT, signed, tags
from sparkraft.schemas.protobuf_wire import value_of as wire_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.schemas.protobuf_schema import ProtobufField, ProtobufSchema

INDEXES_MAX: Final = 64
"""Of the message that a framed value has: messages are nested less deeply."""

_INT32_SIGN: Final = 1 << 31
_UINT32: Final = 0xFFFF_FFFF


def message_indexes(data: bytes, skipped: int) -> tuple[list[int], int]:
    """The place of a message in its schema, after the frame of a registry; and where it ends.

    Raises:
        UndecodableError: it is malformed.
    """
    cursor = Cursor(data, skipped)
    count = zigzag(cursor.varint())
    if not 0 <= count <= INDEXES_MAX:
        raise UndecodableError(f"a message has {count} indexes")
    # A single 0 stands for the first message.
    return [zigzag(cursor.varint()) for _ in range(count)] or [0], cursor.at


def decode_protobuf(
    data: bytes, schema: ProtobufSchema, message: str, *, skipped: int = 0, has_unknown: bool = True
) -> dict[str, Any]:
    """The message of `data` after `skipped` bytes.

    Args:
        data: the bytes.
        schema: the schema.
        message: the message's full name in it.
        skipped: bytes before the message.
        has_unknown: whether fields that the schema does not have are shown.

    Raises:
        UndecodableError: it is not one, or exceeds a bound.
    """
    cursor = Cursor(data, skipped)
    found: dict[str, Any] = {}
    _Reader(schema, has_unknown=has_unknown).read(cursor, message, found)
    return found


class _Reader:
    def __init__(self, schema: ProtobufSchema, *, has_unknown: bool) -> None:
        self._schema = schema
        self._has_unknown = has_unknown

    def read(self, cursor: Cursor, name: str, found: dict[str, Any], group: int = 0) -> None:
        """Add the fields of a message to `found`."""
        cursor.bounds.enter()
        fields = self._schema.messages[name].fields
        for each in fields.values():
            if each.name not in found and (each.is_repeated or not each.has_presence):
                cursor.bounds.spend()
                found[each.name] = self._default(each)
        for number, kind in tags(cursor, group):
            known = fields.get(number)
            if known is None or not self._field(cursor, known, kind, found):
                self._unknown(cursor, number, kind, found)
        cursor.bounds.leave()

    def _default(self, field: ProtobufField) -> Any:
        if field.entry is not None:
            return {}
        if field.is_repeated:
            return []
        if field.type in self._schema.enums:
            return self._schema.enums[field.type].get(0, 0)
        return _DEFAULTS.get(field.type, 0)

    def _unknown(self, cursor: Cursor, number: int, kind: int, found: dict[str, Any]) -> None:
        value = wire_value(cursor, number, kind)
        if self._has_unknown:
            found.setdefault(str(number), []).append(value)

    def _field(
        self, cursor: Cursor, field: ProtobufField, kind: int, found: dict[str, Any]
    ) -> bool:
        """Read a field; False, without a move, if it has not the wire type of its type."""
        wire, read = self._scalar(field.type)
        if field.entry is not None or field.type in self._schema.messages:
            is_fitting = kind == SIZED or (kind == GROUP and field.entry is None)
            if is_fitting and field.entry is not None:
                self._entry(cursor, field.entry, found[field.name])
            elif is_fitting:
                self._message(cursor, field, kind, found)
        elif wire is None:
            is_fitting = True
            self._set(field, wire_value(cursor, field.number, kind), found)
        else:
            is_packed = field.is_repeated and kind == SIZED and wire != SIZED
            is_fitting = is_packed or kind == wire
            if is_packed:
                self._packed(cursor, read, found[field.name])
            elif is_fitting:
                self._set(field, read(cursor), found)
        return is_fitting

    def _set(self, field: ProtobufField, value: Any, found: dict[str, Any]) -> None:
        if field.is_repeated:
            found[field.name].append(value)
            return
        for rival in field.rivals:
            found.pop(rival, None)
        found[field.name] = value

    def _message(
        self, cursor: Cursor, field: ProtobufField, kind: int, found: dict[str, Any]
    ) -> None:
        into: dict[str, Any] = {}
        if not field.is_repeated and isinstance(found.get(field.name), dict):
            into = found[field.name]
        if kind == GROUP:
            self.read(cursor, field.type, into, field.number)
        else:
            self.read(_inner(cursor), field.type, into)
        self._set(field, into, found)

    def _packed(self, cursor: Cursor, read: Callable[[Cursor], Any], into: list[Any]) -> None:
        inner = _inner(cursor)
        while inner.left:
            inner.bounds.spend()
            into.append(read(inner))

    def _entry(
        self, cursor: Cursor, entry: tuple[ProtobufField, ProtobufField], into: dict[str, Any]
    ) -> None:
        inner = _inner(cursor)
        inner.bounds.enter()
        key_field, value_field = entry
        found: dict[str, Any] = {"key": self._default(key_field)}
        if value_field.type not in self._schema.messages:
            found["value"] = self._default(value_field)
        for number, kind in tags(inner):
            known = next((each for each in entry if each.number == number), None)
            if known is None or not self._field(inner, known, kind, found):
                wire_value(inner, number, kind)
        if "value" not in found:
            found["value"] = {}
            self.read(Cursor(b"", bounds=inner.bounds), value_field.type, found["value"])
        inner.bounds.leave()
        key = found["key"]
        into[key if isinstance(key, str) else json.dumps(key)] = found["value"]

    def _scalar(self, kind: str) -> tuple[int | None, Callable[[Cursor], Any]]:
        """Wire type and reader of a type that is not a message; None if the type is unknown."""
        names = self._schema.enums.get(kind)
        if names is not None:
            return VARINT, lambda cursor: _enum(cursor, names)
        return _SCALARS.get(kind, (None, _int64))


def _inner(cursor: Cursor) -> Cursor:
    """The bytes of a field whose size comes first."""
    size = cursor.varint()
    if size > cursor.left:
        raise UndecodableError(f"{size} bytes are expected, and {cursor.left} follow")
    inner = Cursor(cursor.data, cursor.at, cursor.at + size, bounds=cursor.bounds)
    cursor.at += size
    return inner


def _int64(cursor: Cursor) -> int:
    return signed(cursor.varint())


def _int32(cursor: Cursor) -> int:
    found = cursor.varint() & _UINT32
    return found - 2 * _INT32_SIGN if found >= _INT32_SIGN else found


def _enum(cursor: Cursor, names: dict[int, str]) -> str | int:
    number = _int32(cursor)
    return names.get(number, number)


def _string(cursor: Cursor) -> Any:
    data = cursor.take(cursor.varint())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return bytes_json(data)  # proto2 does not check texts


def _fixed(form: str) -> Callable[[Cursor], Any]:
    struct_ = struct.Struct(form)
    return lambda cursor: cursor.number(struct_)


def _floating(form: str) -> Callable[[Cursor], Any]:
    struct_ = struct.Struct(form)
    return lambda cursor: number_json(cursor.number(struct_))


_SCALARS: Final[dict[str, tuple[int, Callable[[Cursor], Any]]]] = {
    "double": (FIXED64, _floating("<d")),
    "float": (FIXED32, _floating("<f")),
    "int32": (VARINT, _int32),
    "int64": (VARINT, _int64),
    "uint32": (VARINT, lambda cursor: cursor.varint() & _UINT32),
    "uint64": (VARINT, Cursor.varint),
    "sint32": (VARINT, lambda cursor: zigzag(cursor.varint() & _UINT32)),
    "sint64": (VARINT, lambda cursor: zigzag(cursor.varint())),
    "fixed32": (FIXED32, _fixed("<I")),
    "fixed64": (FIXED64, _fixed("<Q")),
    "sfixed32": (FIXED32, _fixed("<i")),
    "sfixed64": (FIXED64, _fixed("<q")),
    "bool": (VARINT, lambda cursor: cursor.varint() != 0),
    "string": (SIZED, _string),
    "bytes": (SIZED, lambda cursor: bytes_json(cursor.take(cursor.varint()))),
}

_DEFAULTS: Final[dict[str, Any]] = {
    "double": 0.0, "float": 0.0, "bool": False, "string": "", "bytes": bytes_json(b""),
}  # fmt: skip
