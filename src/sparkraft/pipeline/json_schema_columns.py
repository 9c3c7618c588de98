"""The columns of JSON Schemas, and schemas for columns.

    integer number string boolean   BIGINT DOUBLE STRING BOOLEAN
    date-time, date, base64         TIMESTAMP, DATE, BINARY
    object, array, map              STRUCT, ARRAY, MAP
    any value                       STRING: its JSON

Not here: values (`json_schema_values`, `json_schema_encode`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.json_schema import (
    JsonAny,
    JsonArray,
    JsonMap,
    JsonObject,
    JsonScalar,
    JsonType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANT: Final = pa.timestamp("us", "UTC")

_SCALAR_TYPES: Final[Mapping[str, pa.DataType]] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "null": pa.string(),
    "date-time": INSTANT,
    "date": pa.date32(),
    "base64": pa.binary(),
}


def arrow_type(of: JsonType) -> Any:
    """The type of a column; every value may be null."""
    match of:
        case JsonScalar():
            return _SCALAR_TYPES[of.form or of.kind]
        case JsonAny():
            return pa.string()
        case JsonArray():
            return pa.list_(pa.field("element", arrow_type(of.items)))
        case JsonMap():
            return pa.map_(pa.string(), arrow_type(of.values))
        case JsonObject():
            return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in of.properties])


def schema_for(columns: pa.Schema, name: str) -> str:
    """A JSON Schema for columns, all of which may be null.

    Raises:
        SchemaError: JSON Schema has no type for a column.
    """
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name}
    return json.dumps(head | _object_for(columns))


_SCHEMAS: Final[Mapping[pa.DataType, dict[str, str]]] = {
    pa.bool_(): {"type": "boolean"},
    pa.int8(): {"type": "integer"},
    pa.int16(): {"type": "integer"},
    pa.int32(): {"type": "integer"},
    pa.int64(): {"type": "integer"},
    pa.float32(): {"type": "number"},
    pa.float64(): {"type": "number"},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "string", "contentEncoding": "base64"},
    pa.date32(): {"type": "string", "format": "date"},
    INSTANT: {"type": "string", "format": "date-time"},
}


def _object_for(columns: Any) -> dict[str, Any]:
    properties = {each.name: _nullable(each.type, each.name) for each in columns}
    return {"type": "object", "properties": properties}


def _nullable(kind: Any, name: str) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _schema_for(kind, name)]}


def _schema_for(kind: Any, name: str) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return _object_for(kind)
    if pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise SchemaError(f"JSON has no maps by {kind.key_type}, as {name} is")
        return {"type": "object", "additionalProperties": _nullable(kind.item_type, name)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, name)}
    found = _SCHEMAS.get(kind)
    if found is None:
        raise SchemaError(f"JSON Schema has no exact type for {kind}, the type of {name}")
    return dict(found)
