"""Avro schemas: parsed, and matched with the schema that a value was written with.

`parse` turns a schema's JSON into types. `matched` pairs a writer's type with a reader's, by the
rules of schema resolution in Avro's specification 1.12: fields by name or alias, missing ones by
default, numbers promoted, enum symbols by name, each branch of a union by itself.

Invariants:
    * Types are frozen values; a reader's type alone determines the columns.
    * A recursive schema has no columns, and is refused; `parse_any` accepts it.

Not here: values (`avro_value`, `pipeline.avro_values`), a registry of schemas (`registry`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NUMBERS: Final = ("int", "long", "float", "double")
PRIMITIVES: Final = frozenset({"null", "boolean", *NUMBERS, "bytes", "string"})

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})

_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"int", "long", "float", "double"}),
    "long": frozenset({"long", "float", "double"}),
    "float": frozenset({"float", "double"}),
    "double": frozenset({"double"}),
    "string": frozenset({"string", "bytes"}),
    "bytes": frozenset({"string", "bytes"}),
}
"""A primitive type, and those as which it can be read."""

_DECIMAL_DIGITS_MAX: Final = 38
"""Of Spark's and Arrow's decimals."""

_DEPTH_MAX: Final = 50
"""Types in types: generated schemas have less, and a recursive Python call is a frame each."""

NO_DEFAULT: Final = object()


class AvroSchemaError(SchemaError):
    """A schema that is invalid, or that values cannot be read with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A type without parts; `logical` is its logical type if that is known and valid."""

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A number of bytes."""

    name: str
    size: int
    logical: str = ""
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """One of some texts; `default` stands for those that the reader does not know."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """An array."""

    items: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A map from texts."""

    values: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a record; `default` is JSON, or `NO_DEFAULT`."""

    name: str
    type: Type
    default: Any = field(default=NO_DEFAULT, compare=False)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordType:
    """A record."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """One of several types."""

    branches: tuple[Type, ...]


Type = Primitive | Fixed | Enumeration | Items | Entries | RecordType | Union


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A type, and all records in it by name.

    A record within itself is a `RecordType` without fields: `records` has it with its fields.
    """

    type: Type
    records: Mapping[str, RecordType]


def parse_any(text: str, *, known: Sequence[str] = ()) -> Schema:
    """The same as `parse`, for schemas that may be recursive."""
    parser = _Parser(accepts_recursion=True)
    for each in known:
        parser.type_of(_read(each), "", 0)
    found = parser.type_of(_read(text), "", 0)
    named = parser.named.items()
    return Schema(
        type=found, records={name: kind for name, kind in named if isinstance(kind, RecordType)}
    )


def parse(text: str, *, known: Sequence[str] = ()) -> Type:
    """The type that a schema in JSON defines; it may refer to the types of known ones.

    Raises:
        AvroSchemaError: one is invalid, or recursive.
    """
    parser = _Parser()
    for each in known:
        parser.type_of(_read(each), "", 0)
    return parser.type_of(_read(text), "", 0)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"the Avro schema is not JSON: {error}") from None


class _Parser:
    """The named types so far; None while one is being parsed."""

    def __init__(self, *, accepts_recursion: bool = False) -> None:
        self.named: dict[str, Type | None] = {}
        self._accepts_recursion = accepts_recursion

    def type_of(self, read: Any, space: str, depth: int) -> Type:
        if depth > _DEPTH_MAX:
            raise AvroSchemaError(f"the Avro schema has more than {_DEPTH_MAX} types in each other")
        if isinstance(read, str):
            return self._named(read, space)
        if isinstance(read, list):
            return self._union(read, space, depth)
        if not isinstance(read, dict) or "type" not in read:
            raise AvroSchemaError(f"the Avro schema has no type: {json.dumps(read)[:100]}")
        if not isinstance(read["type"], str):
            return self.type_of(read["type"], space, depth + 1)
        return self._defined(read["type"], read, space, depth)

    def _defined(self, kind: str, read: dict[str, Any], space: str, depth: int) -> Type:
        found: Type
        if kind in PRIMITIVES:
            found = _logical(Primitive(kind=kind), read)
        elif kind == "array":
            found = Items(items=self.type_of(read.get("items"), space, depth + 1))
        elif kind == "map":
            found = Entries(values=self.type_of(read.get("values"), space, depth + 1))
        elif kind in _NAMED:
            found = self._new_name(kind, read, space, depth)
        else:
            found = self._named(kind, space)
        return found

    def _named(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(kind=name)
        full = name if "." in name or not space else f"{space}.{name}"
        for each in (full, name):
            if each in self.named:
                found = self.named[each]
                if found is None and self._accepts_recursion:
                    return RecordType(name=each, fields=())
                if found is None:
                    raise AvroSchemaError(f"the Avro schema is recursive: {each} contains itself")
                return found
        raise AvroSchemaError(f"the Avro schema has no type {name}")

    def _union(self, read: list[Any], space: str, depth: int) -> Type:
        branches = tuple(self.type_of(each, space, depth + 1) for each in read)
        if not branches or any(isinstance(each, Union) for each in branches):
            raise AvroSchemaError("an Avro union needs types, and none of them may be a union")
        return Union(branches=branches)

    def _new_name(self, kind: str, read: dict[str, Any], space: str, depth: int) -> Type:
        name = read.get("name")
        if not isinstance(name, str) or not name:
            raise AvroSchemaError(f"an Avro {kind} has no name")
        space = name.rpartition(".")[0] if "." in name else read.get("namespace", space)
        full = name if "." in name or not space else f"{space}.{name}"
        self.named[full] = None
        aliases = tuple(str(each).rpartition(".")[2] for each in read.get("aliases", ()))
        found: Type
        if kind == "fixed":
            found = _logical(Fixed(name=full, size=_size(read, full), aliases=aliases), read)
        elif kind == "enum":
            symbols, default = tuple(read.get("symbols", ())), read.get("default")
            if not symbols or (default is not None and default not in symbols):
                raise AvroSchemaError(f"the Avro enum {full} lacks symbols, or its default")
            found = Enumeration(name=full, symbols=symbols, default=default, aliases=aliases)
        else:
            fields = tuple(self._field(each, space, depth) for each in read.get("fields", ()))
            if len({each.name for each in fields}) < len(fields):
                raise AvroSchemaError(f"the Avro record {full} has two fields of one name")
            found = RecordType(name=full, fields=fields, aliases=aliases)
        self.named[full] = found
        return found

    def _field(self, read: Any, space: str, depth: int) -> Field:
        if not isinstance(read, dict) or "name" not in read or "type" not in read:
            raise AvroSchemaError("a field of an Avro record has no name or no type")
        return Field(
            name=str(read["name"]),
            type=self.type_of(read["type"], space, depth + 1),
            default=read.get("default", NO_DEFAULT),
            aliases=tuple(map(str, read.get("aliases", ()))),
        )


def _size(read: dict[str, Any], name: str) -> int:
    size = read.get("size")
    if not isinstance(size, int) or size < 0:
        raise AvroSchemaError(f"the Avro fixed {name} has no size")
    return size


_LOGICAL: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"date"}),
    "long": frozenset(
        {
            "timestamp-millis",
            "timestamp-micros",
            "local-timestamp-millis",
            "local-timestamp-micros",
        }
    ),
}
"""Logical types with a type of their own in Spark; other ones are read as their base type."""


def _logical(base: Any, read: dict[str, Any]) -> Any:
    """The type with its logical type; an unknown or invalid one is ignored, as specified."""
    from dataclasses import replace

    logical: Any = read.get("logicalType")
    is_bytes = isinstance(base, Fixed) or base.kind == "bytes"
    if logical == "decimal" and is_bytes:
        precision: Any = read.get("precision")
        scale: Any = read.get("scale", 0)
        valid = isinstance(precision, int) and isinstance(scale, int)
        if valid and 0 <= scale <= precision and 0 < precision <= _DECIMAL_DIGITS_MAX:
            return replace(base, logical="decimal", precision=precision, scale=scale)
        return base
    if isinstance(base, Primitive) and logical in _LOGICAL.get(base.kind, ()):
        return replace(base, logical=logical)
    return base


def name_of(kind: Type) -> str:
    """The type in messages."""
    match kind:
        case Primitive():
            return kind.logical or kind.kind
        case Fixed() | Enumeration() | RecordType():
            return kind.name
        case Items():
            return f"array of {name_of(kind.items)}"
        case Entries():
            return f"map of {name_of(kind.values)}"
        case Union():
            return f"union of {', '.join(map(name_of, kind.branches))}"


def is_match(writer: Type, reader: Type) -> bool:
    """Whether a value of one type can be read as the other, by the types' kinds and names."""
    found = False
    match writer, reader:
        case Union(), _:
            found = any(is_match(each, reader) for each in writer.branches)
        case _, Union():
            found = any(is_match(writer, each) for each in reader.branches)
        case Primitive(), Primitive():
            found = reader.kind in _PROMOTED.get(writer.kind, {writer.kind})
        case Fixed(), Fixed():
            found = writer.size == reader.size and _same_name(writer, reader)
        case (Enumeration(), Enumeration()) | (RecordType(), RecordType()):
            found = _same_name(writer, reader)
        case Items(), Items():
            found = is_match(writer.items, reader.items)
        case Entries(), Entries():
            found = is_match(writer.values, reader.values)
        case _:
            pass
    return found


def _same_name(writer: Any, reader: Any) -> bool:
    last = writer.name.rpartition(".")[2]
    return last == reader.name.rpartition(".")[2] or last in reader.aliases


def branch_for(writer: Type, reader: Union) -> int | None:
    """The reader's branch for a value of another type: one of an equal type, else the first."""
    equal = [at for at, each in enumerate(reader.branches) if _is_equal(writer, each)]
    fitting = [at for at, each in enumerate(reader.branches) if is_match(writer, each)]
    return next(iter([*equal, *fitting]), None)


def _is_equal(writer: Type, reader: Type) -> bool:
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return writer.kind == reader.kind
    return is_match(writer, reader)
