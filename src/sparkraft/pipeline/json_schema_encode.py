"""Arrow columns as JSON values of a JSON Schema: the inverse of `json_schema_values`.

A null is written as null if the schema allows that, and left out if the property is not required.

Invariants:
    * A value that the schema cannot have, such as a null in a required property that may not be
      null, is an error that names the column; it is never changed to fit.

Not here: the choice of the schema (`value_codecs`).
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.pipeline.array_parts import as_type
from sparkraft.pipeline.encoded_parts import list_items, list_sizes, map_entries
from sparkraft.pipeline.file_fields import SpecError
from sparkraft.pipeline.json_schema_columns import arrow_type
from sparkraft.schemas.json_schema import (
    JsonAny,
    JsonArray,
    JsonMap,
    JsonObject,
    JsonScalar,
    JsonType,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_ABSENT: Final = object()
"""In place of a property that is left out."""


def encode(values: pa.Array[Any], of: JsonType, *, head: bytes = b"") -> pa.Array[Any]:
    """JSON values of a column as a binary column.

    Args:
        values: of `arrow_type(of)`, or of a type that Arrow casts to it without loss.
        of: the schema.
        head: written before each value.

    Raises:
        SpecError: the schema cannot have a value.
    """
    rows = _plain(as_type(values, arrow_type(of), "the row", "JSON Schema"), of, "the row")
    write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
    return pa.array([head + write(each).encode() for each in rows], pa.binary())


def _plain(values: Any, of: JsonType, place: str, *, is_optional: bool = False) -> list[Any]:
    """The values as Python's JSON takes them; `_ABSENT` for a null that is left out."""
    null = None
    if values.null_count and not of.is_nullable:
        if not is_optional:
            raise SpecError(f"{place} is null, and its JSON schema has {name_of(of)}")
        null = _ABSENT
    found = _present(values, of, place)
    if not values.null_count:
        return list(found)
    return [
        each if is_valid else null
        for each, is_valid in zip(found, values.is_valid().to_pylist(), strict=True)
    ]


def _present(values: Any, of: JsonType, place: str) -> Any:
    """The same; anything for a null."""
    match of:
        case JsonScalar():
            return _scalars(values, of, place)
        case JsonAny():
            return [_parsed(each, of, place) for each in values.to_pylist()]
        case JsonArray():
            items = iter(_plain(list_items(values), of.items, f"an item of {place}"))
            return [[next(items) for _ in range(size)] for size in list_sizes(values)]
        case JsonMap():
            return _maps(values, of, place)
        case JsonObject():
            return _objects(values, of, place)


def _scalars(values: Any, of: JsonScalar, place: str) -> list[Any]:
    found: list[Any]
    match of.form or of.kind:
        case "date-time":
            # Without a zone, Arrow needs no data of zones to write a time.
            local = values.view(pa.int64()).view(pa.timestamp("us")).cast(pa.string())
            found = pc.replace_substring(local, " ", "T").to_pylist()
            found = [each and each + "Z" for each in found]
        case "date":
            found = values.cast(pa.string()).to_pylist()
        case "base64":
            found = [
                None if each is None else base64.b64encode(each).decode()
                for each in values.to_pylist()
            ]
        case _:
            found = values.to_pylist()
    for each in found if of.kind == "number" else ():
        if each is not None and not math.isfinite(each):
            raise SpecError(f"{place} is {each}, which is not a number of JSON")
    if of.allowed is not None:
        for each in found:
            if each is not None and each not in of.allowed:
                raise SpecError(f"{place} is {each}, which enum of its JSON schema lacks")
    return found


def _parsed(text: str | None, of: JsonAny, place: str) -> Any:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SpecError(
            f"{place} is the text of any JSON in its schema, but not JSON: {error}"
        ) from None
    if of.is_object and not isinstance(found, dict):
        raise SpecError(f"{place} is not an object, and its JSON schema has one")
    return found


def _maps(values: Any, of: JsonMap, place: str) -> Iterator[dict[str, Any]]:
    keys, items = map_entries(values)
    entries = zip(keys.to_pylist(), _plain(items, of.values, f"an entry of {place}"), strict=True)
    for size in list_sizes(values):
        yield dict(next(entries) for _ in range(size))


def _objects(values: Any, of: JsonObject, place: str) -> list[Any]:
    prefix = "" if place == "the row" else f"{place.removeprefix('column ')}."
    present = values if not values.null_count else values.drop_null()
    columns = [
        _plain(column, each.type, f"column {prefix}{each.name}", is_optional=not each.is_required)
        for column, each in zip(present.flatten(), of.properties, strict=True)
    ]
    names = [each.name for each in of.properties]
    found = [
        {name: each for name, each in zip(names, row, strict=True) if each is not _ABSENT}
        for row in (zip(*columns, strict=True) if columns else [()] * len(present))
    ]
    if not values.null_count:
        return found
    objects = iter(found)
    return [next(objects) if is_valid else None for is_valid in values.is_valid().to_pylist()]
