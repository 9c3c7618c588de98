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
from sparkraft.schemas.exact_json import ExactNumbers, refuse_constant, text_of
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
    writer = _Writer()
    rows = writer.plain(as_type(values, arrow_type(of), "the row", "JSON Schema"), of, "the row")
    return pa.array([head + writer.encoded(each) for each in rows], pa.binary())


class _Writer:
    def __init__(self) -> None:
        self._numbers = ExactNumbers()

    def encoded(self, row: Any) -> bytes:
        """The JSON of a row."""
        try:
            return text_of(row, has_exact=self._numbers.has_exact).encode()
        except RecursionError:
            raise SpecError("the row has too many nested arrays and objects") from None

    def plain(
        self, values: Any, of: JsonType, place: str, *, is_optional: bool = False
    ) -> list[Any]:
        """The values as Python's JSON takes them; `_ABSENT` for a null that is left out."""
        null = None
        if values.null_count and not of.is_nullable:
            if not is_optional:
                raise SpecError(f"{place} is null, and its JSON schema has {name_of(of)}")
            null = _ABSENT
        found = self._present(values, of, place)
        if not values.null_count:
            return list(found)
        return [
            each if is_valid else null
            for each, is_valid in zip(found, values.is_valid().to_pylist(), strict=True)
        ]

    def _present(self, values: Any, of: JsonType, place: str) -> Any:
        """The same; anything for a null."""
        match of:
            case JsonScalar():
                return _scalars(values, of, place)
            case JsonAny():
                return [self._parsed(each, of, place) for each in values.to_pylist()]
            case JsonArray():
                items = iter(self.plain(list_items(values), of.items, f"an item of {place}"))
                return [[next(items) for _ in range(size)] for size in list_sizes(values)]
            case JsonMap():
                return self._maps(values, of, place)
            case JsonObject():
                return self._objects(values, of, place)

    def _parsed(self, text: str | None, of: JsonAny, place: str) -> Any:
        if text is None:
            return None
        try:
            found = json.loads(text, parse_float=self._numbers, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise SpecError(
                f"{place} is the text of any JSON in its schema, but not JSON: {error}"
            ) from None
        if of.is_object and not isinstance(found, dict):
            raise SpecError(f"{place} is not an object, and its JSON schema has one")
        return found

    def _maps(self, values: Any, of: JsonMap, place: str) -> Iterator[dict[str, Any]]:
        keys, items = map_entries(values)
        found = self.plain(items, of.values, f"an entry of {place}")
        entries = zip(keys.to_pylist(), found, strict=True)
        for size in list_sizes(values):
            yield dict(next(entries) for _ in range(size))

    def _objects(self, values: Any, of: JsonObject, place: str) -> list[Any]:
        prefix = "" if place == "the row" else f"{place.removeprefix('column ')}."
        present = values if not values.null_count else values.drop_null()
        columns = [
            self.plain(
                column, each.type, f"column {prefix}{each.name}", is_optional=not each.is_required
            )
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


def _scalars(values: Any, of: JsonScalar, place: str) -> list[Any]:
    found: list[Any]
    match of.form or of.kind:
        case "date-time":
            # Without a zone, Arrow needs no data of zones to write a time.
            micros = values.view(pa.int64())
            _check_years(micros, of, place)
            local = micros.view(pa.timestamp("us")).cast(pa.string())
            found = pc.replace_substring(local, " ", "T").to_pylist()
            found = [each and each + "Z" for each in found]
        case "date":
            _check_years(values.view(pa.int32()), of, place)
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


_DAY_MICROS: Final = 86_400_000_000
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
"""Of the years 1 and 9999, in days from 1970: RFC 3339 has four digits of a year."""


def _check_years(numbers: Any, of: JsonScalar, place: str) -> None:
    """Refuse dates and times outside of the years 1 to 9999, in days or microseconds from 1970."""
    unit = 1 if of.form == "date" else _DAY_MICROS
    first, end = _FIRST_DAY * unit, (_LAST_DAY + 1) * unit
    found: Any = pc.min_max(numbers).as_py()
    if found["min"] is not None and not first <= found["min"] <= found["max"] < end:
        raise SpecError(f"{place} is not in the years 1 to 9999, as its JSON schema's {of.form} is")
