"""The columns of Avro schemas, and defaults as their values.

A union of null and another type is a column of that type. Other unions are structs with a column
`member0`, `member1`, … for each type that is not null, as in Spark's own Avro functions; int and
long together are a long, float and double a double.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from sparkraft.schemas.avro_schema import (
    AvroSchemaError,
    Entries,
    Enumeration,
    Fixed,
    Items,
    Primitive,
    RecordType,
    Type,
    Union,
    name_of,
)


def arrow_type(of: Type) -> pa.DataType:
    """The type of a column of values; every value may be null."""
    found: pa.DataType
    match of:
        case Primitive() | Fixed() | Enumeration():
            found = _plain_type(of)
        case Items():
            found = pa.list_(pa.field("element", arrow_type(of.items)))
        case Entries():
            found = pa.map_(pa.string(), arrow_type(of.values))
        case RecordType():
            found = pa.struct([pa.field(each.name, arrow_type(each.type)) for each in of.fields])
        case Union():
            found = union_type(of)
    return found


_PLAIN_TYPES: Final[dict[str, pa.DataType]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def _plain_type(of: Primitive | Fixed | Enumeration) -> pa.DataType:
    if isinstance(of, Enumeration):
        return pa.string()
    if of.logical == "decimal":
        return pa.decimal128(of.precision, of.scale)
    return pa.binary() if isinstance(of, Fixed) else _PLAIN_TYPES[of.logical or of.kind]


def is_null(of: Type) -> bool:
    """Whether a type has no value but null."""
    return isinstance(of, Primitive) and of.kind == "null"


def member_types(of: Union) -> list[Type]:
    """The types of the columns of a union: one, if its other types are null or numbers of a kind.

    These are the rules of Spark's own Avro functions.
    """
    members = [each for each in of.branches if not is_null(each)]
    kinds = [
        each.kind if isinstance(each, Primitive) and not each.logical else "" for each in members
    ]
    for pair, widest in ((("int", "long"), "long"), (("float", "double"), "double")):
        if len(members) > 1 and set(kinds) == set(pair):
            return [Primitive(kind=widest)]
    return members


def union_type(of: Union) -> pa.DataType:
    """The type of the column of a union."""
    members = member_types(of)
    if not members:
        return pa.string()
    if len(members) == 1:
        return arrow_type(members[0])
    return pa.struct([pa.field(f"member{n}", arrow_type(t)) for n, t in enumerate(members)])


def member_of(reader: Union, at: int) -> tuple[int, Type | None]:
    """The column of a union's branch, and the type it is read as; None for null."""
    members = member_types(reader)
    branch = reader.branches[at]
    if is_null(branch):
        return 0, None
    if len(members) == 1:
        return 0, members[0]
    return sum(not is_null(each) for each in reader.branches[:at]), branch


def schema_of(columns: pa.Schema, name: str) -> str:
    """An Avro schema for columns, all of which may be null.

    Raises:
        AvroSchemaError: Avro has no type for a column, or no such name.
    """
    return json.dumps(_record_of(columns, re.sub(r"\W", "_", name)))


def _record_of(columns: Any, name: str) -> dict[str, Any]:
    fields = []
    for field in columns:
        if not re.fullmatch(r"[A-Za-z_]\w*", field.name, re.ASCII):
            raise AvroSchemaError(f"{field.name} cannot be the name of an Avro field")
        kind = _nullable(field.type, f"{name}_{field.name}")
        fields.append({"name": field.name, "type": kind, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _nullable(kind: pa.DataType, name: str) -> list[Any]:
    return ["null", _avro_type(kind, name)]


def _avro_type(kind: Any, name: str) -> Any:
    found: Any = _AVRO_TYPES.get(kind)
    if pa.types.is_struct(kind):
        found = _record_of(kind, name)
    elif pa.types.is_map(kind):
        found = {"type": "map", "values": _nullable(kind.item_type, f"{name}_value")}
    elif pa.types.is_list(kind):
        found = {"type": "array", "items": _nullable(kind.value_type, f"{name}_item")}
    elif pa.types.is_decimal128(kind):
        digits = {"precision": kind.precision, "scale": kind.scale}
        found = {"type": "bytes", "logicalType": "decimal", **digits}
    if found is None:
        raise AvroSchemaError(f"Avro has no type for {kind}, the type of {name}")
    return found


_AVRO_TYPES: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}


def default_of(of: Type, value: Any) -> Any:
    """A default in a schema's JSON, as a column of one row.

    Raises:
        AvroSchemaError: it is not of the type.
    """
    try:
        return pa.array([_default(of, value)], arrow_type(of))
    except (OverflowError, TypeError, ValueError, KeyError, AttributeError):
        raise AvroSchemaError(f"the default {value!r} is not of type {name_of(of)}") from None


def _default(of: Type, value: Any) -> Any:
    found: Any
    match of:
        case Primitive(kind="bytes") | Fixed():
            found = _default_bytes(of, value.encode("latin-1"))
        case Primitive(logical="timestamp-millis" | "local-timestamp-millis"):
            found = int(value) * 1000
        case Primitive() | Enumeration():
            found = None if is_null(of) else value
        case Items():
            found = [_default(of.items, each) for each in value]
        case Entries():
            found = [(key, _default(of.values, each)) for key, each in value.items()]
        case RecordType():
            found = {
                each.name: _default(each.type, value.get(each.name, each.default))
                for each in of.fields
            }
        case Union():
            found = _union_default(of, value)
    return found


def _default_bytes(of: Primitive | Fixed, raw: bytes) -> bytes | Decimal:
    if of.logical != "decimal":
        return raw
    return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-of.scale)


def _union_default(of: Union, value: Any) -> Any:
    at = next((n for n, each in enumerate(of.branches) if _is_of(each, value)), None)
    if at is None:
        raise AvroSchemaError(f"the default {value!r} is not of type {name_of(of)}")
    member, as_type = member_of(of, at)
    if as_type is None:
        return None
    found = _default(as_type, value)
    return found if len(member_types(of)) == 1 else {f"member{member}": found}


def _is_of(of: Type, value: Any) -> bool:
    if isinstance(value, bool):
        return isinstance(of, Primitive) and of.kind == "boolean"
    kinds: dict[str, Any] = {"null": type(None), "int": int, "long": int}
    kinds |= {"float": (int, float), "double": (int, float), "boolean": ()}
    match of:
        case Primitive():
            return isinstance(value, kinds.get(of.kind, str))
        case Items():
            return isinstance(value, list)
        case Entries() | RecordType():
            return isinstance(value, dict)
        case _:
            return isinstance(value, str)
