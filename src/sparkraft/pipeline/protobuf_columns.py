"""The columns of Protobuf messages, and messages for columns.

    double float bool string bytes          DOUBLE FLOAT BOOLEAN STRING BINARY
    int32 sint32 sfixed32                   INT
    int64 sint64 sfixed64, uint32 fixed32   BIGINT
    uint64 fixed64                          DECIMAL(20, 0)
    enum                                    STRING: its name; digits for a number without one
    repeated, map                           ARRAY, MAP: empty, never null
    message                                 STRUCT
    google.protobuf.Timestamp               TIMESTAMP; digits after the microsecond are cut
    google.protobuf.Int64Value and so on    the column of its value

A field without presence (proto3) that is missing has its default; one with presence is null, as is
each field of a oneof but the one that is set.

Invariant: a message that contains itself has no columns, and is refused.

Not here: values (`protobuf_values`, `protobuf_encode`), the text of schemas (`schemas`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkraft.pipeline.value_cursor import MORE
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.protobuf_schema import SCALARS
from sparkraft.schemas.protobuf_wire import FIXED32, FIXED64, GROUP, SIZED, VARINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.schemas.protobuf_schema import ProtobufField, ProtobufSchema

TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
INSTANT: Final = pa.timestamp("us", "UTC")
SECONDS_MIN: Final = -62_135_596_800
SECONDS_MAX: Final = 253_402_300_799
"""The years 1 to 9999, to which the definition of Timestamp limits its values."""

WIDE: Final = pa.decimal128(20, 0)
"""Of unsigned numbers of 64 bits."""

_SCALAR_TYPES: Final[Mapping[str, pa.DataType]] = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), pa.int64()),
    **dict.fromkeys(("uint64", "fixed64"), WIDE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """An enum; `other_names` are those of numbers that have several."""

    name: str
    names: Mapping[int, str] = field(hash=False)
    other_names: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShape:
    """A message without recursion: its fields, in the order of the schema."""

    name: str
    fields: tuple[FieldShape, ...]

    @property
    def by_number(self) -> tuple[FieldShape, ...]:
        """The fields in the order in which they are written."""
        return tuple(sorted(self.fields, key=lambda each: each.number))

    @property
    def is_instant(self) -> bool:
        """Whether it is a column of times."""
        return self.name == TIMESTAMP

    @property
    def is_wrapper(self) -> bool:
        """Whether it is the column of its only field."""
        return self.name in _WRAPPERS


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldShape:
    """A field and the shape of its type.

    Attributes:
        type: a name of `SCALARS`, an enum, or a message; of a map, its entry.
    """

    name: str
    number: int
    type: str | Symbols | MessageShape
    is_repeated: bool
    has_presence: bool
    is_required: bool
    is_group: bool
    is_map: bool
    oneof: str

    @property
    def wire_type(self) -> int:
        """Of a single value."""
        if isinstance(self.type, MessageShape):
            return GROUP if self.is_group else SIZED
        return VARINT if isinstance(self.type, Symbols) else _WIRE_TYPES.get(self.type, VARINT)

    def tag(self, wire_type: int) -> bytes:
        """The bytes before a value."""
        left, found = self.number << 3 | wire_type, bytearray()
        while left >= MORE:
            found.append(left & 0x7F | MORE)
            left >>= 7
        return bytes([*found, left])


_WIRE_TYPES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("string", "bytes"), SIZED),
    **dict.fromkeys(("double", "fixed64", "sfixed64"), FIXED64),
    **dict.fromkeys(("float", "fixed32", "sfixed32"), FIXED32),
}


def shape_of(schema: ProtobufSchema, message: str) -> MessageShape:
    """The shape of a message.

    Args:
        schema: that defines it.
        message: its full name.

    Raises:
        SchemaError: it has no columns.
    """
    for feature in sorted(schema.features):
        if feature not in _HARMLESS_FEATURES:
            raise SchemaError(f"the Protobuf schema sets {feature}, which is not supported")
    return _message_shape(schema, message, ())


_HARMLESS_FEATURES: Final = frozenset(
    {
        "features.enum_type",
        "features.repeated_field_encoding",
        "features.utf8_validation",
        "features.json_format",
    }
)
"""Those that change nothing of what is read here, and nothing that other readers depend on."""


def _message_shape(schema: ProtobufSchema, name: str, within: tuple[str, ...]) -> MessageShape:
    if name in within:
        raise SchemaError(f"the Protobuf schema is recursive: {name} contains itself")
    given = schema.messages[name].fields.values()
    fields = [_field_shape(schema, each, (*within, name)) for each in given]
    return MessageShape(name=name, fields=tuple(fields))


def _field_shape(
    schema: ProtobufSchema, given: ProtobufField, within: tuple[str, ...]
) -> FieldShape:
    found: str | Symbols | MessageShape
    if given.entry is not None:
        # An entry without a key or a value has its default, also if that is a message.
        parts = tuple(
            replace(_field_shape(schema, each, within), has_presence=False) for each in given.entry
        )
        found = MessageShape(name=f"an entry of {given.name}", fields=parts)
    elif given.type in SCALARS:
        found = given.type
    elif given.type in schema.enums:
        others = schema.other_names.get(given.type, {})
        found = Symbols(name=given.type, names=schema.enums[given.type], other_names=others)
    elif given.type in schema.messages:
        found = _message_shape(schema, given.type, within)
    else:
        raise SchemaError(
            f"the Protobuf schema has no {given.type}, the type of {within[-1]}.{given.name}; "
            "imports names the files of other types"
        )
    return FieldShape(
        name=given.name,
        number=given.number,
        type=found,
        is_repeated=given.is_repeated,
        has_presence=given.has_presence,
        is_required=given.is_required,
        is_group=given.is_group,
        is_map=given.entry is not None,
        oneof=given.oneof,
    )


def arrow_type(shape: MessageShape) -> Any:
    """The type of a column of messages."""
    if shape.is_instant:
        return INSTANT
    if shape.is_wrapper:
        return value_type(shape.fields[0].type)
    return pa.struct([pa.field(each.name, column_type(each)) for each in shape.fields])


def value_type(of: str | Symbols | MessageShape) -> Any:
    """The type of a column of single values."""
    if isinstance(of, MessageShape):
        return arrow_type(of)
    return pa.string() if isinstance(of, Symbols) else _SCALAR_TYPES[of]


def column_type(of: FieldShape) -> Any:
    """The type of the column of a field."""
    if of.is_map and isinstance(of.type, MessageShape):
        key, value = of.type.fields
        return pa.map_(value_type(key.type), value_type(value.type))
    found = value_type(of.type)
    return pa.list_(pa.field("element", found)) if of.is_repeated else found


# ---- evolution

_READ_AS: Final[Mapping[str, frozenset[str]]] = {
    "int32": frozenset({"int64"}),
    "uint32": frozenset({"uint64", "int64"}),
    "bool": frozenset({"int32", "int64", "uint32", "uint64"}),
    "sint32": frozenset({"sint64"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""A type, and those as which its bytes are the same value; bytes that are not UTF-8 are damaged."""

_ENUM_READ_AS: Final = frozenset({"int32", "int64"})


def misfit(shape: MessageShape, schema: ProtobufSchema, name: str, prefix: str = "") -> str | None:
    """Why values of a message that another schema defines cannot be read as `shape`; else None.

    Fields are those of one number, whatever their names. Fields that one of the two lacks do not
    matter: they are passed over, or have their default.
    """
    written = schema.messages[name].fields
    for each in shape.fields:
        other = written.get(each.number)
        if other is None:
            continue
        place = f"{prefix}{each.name}"
        reason = _field_misfit(each, other, schema, place)
        if reason:
            return reason
    return None


def _field_misfit(
    field_: FieldShape, other: ProtobufField, schema: ProtobufSchema, place: str
) -> str | None:
    is_map = other.entry is not None
    if field_.is_map == is_map and other.is_repeated and not field_.is_repeated:
        return f"field {place} is repeated"
    if other.entry is not None and field_.is_map and isinstance(field_.type, MessageShape):
        pairs = zip(field_.type.fields, other.entry, strict=True)
        reasons = (_field_misfit(a, b, schema, f"{place}.{a.name}") for a, b in pairs)
        return next(filter(None, reasons), None)
    if not is_map and isinstance(field_.type, MessageShape) and other.type in schema.messages:
        return misfit(field_.type, schema, other.type, f"{place}.")
    if field_.is_map == is_map and _is_readable(field_.type, other.type, schema):
        return None
    return f"field {place} is {_shown(other)}, not {_shown_shape(field_)}"


def _is_readable(ours: str | Symbols | MessageShape, theirs: str, schema: ProtobufSchema) -> bool:
    if isinstance(ours, MessageShape):
        return False
    if isinstance(ours, Symbols):
        return theirs in schema.enums
    if theirs in schema.enums:
        return ours in _ENUM_READ_AS
    return ours == theirs or ours in _READ_AS.get(theirs, ())


def _shown(field_: ProtobufField) -> str:
    return "a map" if field_.entry is not None else field_.type


def _shown_shape(field_: FieldShape) -> str:
    if field_.is_map:
        return "a map"
    return field_.type if isinstance(field_.type, str) else field_.type.name


# ---- schemas for columns

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PROTO_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    INSTANT: TIMESTAMP,
}
_KEY_TYPES: Final = frozenset({"bool", "int32", "int64", "string"})


def schema_for(columns: pa.Schema, name: str) -> str:
    """A schema of proto3 for columns, whose single values may all be null.

    Raises:
        SchemaError: Protobuf has no type for a column, or no such name.
    """
    message = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not _NAME.fullmatch(message):
        message = f"_{message}"
    body = _message_text(columns, message, "")
    imports = f'import "{TIMESTAMP_FILE}";\n' if TIMESTAMP in body else ""
    return f'syntax = "proto3";\n{imports}{body}'


TIMESTAMP_FILE: Final = "google/protobuf/timestamp.proto"


def _message_text(columns: Any, name: str, indent: str) -> str:
    lines = []
    for number, each in enumerate(columns, 1):
        if not _NAME.fullmatch(each.name):
            raise SchemaError(f"{each.name} cannot be the name of a Protobuf field")
        nested, declared = _declaration(each.type, each.name, indent + "  ")
        lines += [nested, f"{indent}  {declared} {each.name} = {number};\n"]
    return f"{indent}message {name} {{\n{''.join(lines)}{indent}}}\n"


def _declaration(kind: Any, name: str, indent: str) -> tuple[str, str]:
    """The message that the type of a field needs, and the type with its label."""
    if pa.types.is_map(kind):
        _, key = _type_text(kind.key_type, name, indent)
        if key not in _KEY_TYPES:
            raise SchemaError(f"Protobuf has no maps by {kind.key_type}, as {name} is")
        nested, value = _type_text(kind.item_type, name, indent)
        return nested, f"map<{key}, {value}>"
    if pa.types.is_list(kind):
        nested, item = _type_text(kind.value_type, name, indent)
        return nested, f"repeated {item}"
    nested, single = _type_text(kind, name, indent)
    return nested, single if nested else f"optional {single}"


def _type_text(kind: Any, name: str, indent: str) -> tuple[str, str]:
    if pa.types.is_struct(kind):
        # Names of messages and of fields share a scope.
        message = f"{name[:1].upper()}{name[1:]}Message"
        return _message_text(kind, message, indent), message
    found = _PROTO_TYPES.get(kind)
    if found is None:
        raise SchemaError(f"Protobuf has no type for {kind}, the type of {name}")
    return "", found
