"""JSON values to Arrow columns, by a JSON Schema.

Python's own parser reads each value; columns are then built and checked by type, not by value. A
value is damaged if it is not one JSON document in UTF-8, or if a part of it has another type than
in the schema, is null or missing against the schema, or is not one of the values of `enum`.

Integers are those of 64 bits, also if written as 1.0 or 1e3. The text of any JSON keeps its numbers
as they are written. A date-time needs a zone, as RFC 3339 defines it; its digits after the
microsecond are cut.

A double may lack digits of a number. Values are read with `ExactNumbers`, which takes longer, if a
part of them may be any JSON, or if an integer is written with a fraction or an exponent.

Not here: schemas (`schemas.json_schema`), types of columns (`json_schema_columns`).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.pipeline.array_parts import list_offsets
from sparkraft.pipeline.json_schema_columns import arrow_type
from sparkraft.schemas.exact_json import (
    ExactNumbers,
    refuse_constant,
    text_of,
    whole_number,
)
from sparkraft.schemas.json_schema import (
    JsonAny,
    JsonArray,
    JsonMap,
    JsonObject,
    JsonScalar,
    JsonType,
    has_any,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ABSENT: Final = object()
"""In place of a property that an object lacks."""

_TOO_DEEP: Final = "the value has too many nested arrays and objects"
_LONG_END: Final = 1 << 63
_DATE_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def decode(
    values: pa.Array[Any], of: JsonType, *, skipped: int = 0
) -> tuple[pa.Array[Any], list[str | None]]:
    """The values of a column, and for each damaged one the reason; these values are undefined.

    Args:
        values: binary, without nulls.
        of: their schema.
        skipped: bytes before the JSON of each value.
    """
    texts: list[Any] = values.to_pylist()
    try:
        return _decoded(texts, of, skipped, ExactNumbers() if has_any(of) else None)
    except _DigitsNeededError:
        return _decoded(texts, of, skipped, ExactNumbers())


def _decoded(
    texts: list[Any], of: JsonType, skipped: int, numbers: ExactNumbers | None
) -> tuple[pa.Array[Any], list[str | None]]:
    reader = _Reader(len(texts), numbers)
    documents = [reader.document(row, raw[skipped:]) for row, raw in enumerate(texts)]
    found = reader.column(of, documents, range(len(texts)), "the value")
    return found, reader.reasons


class _DigitsNeededError(Exception):
    """A number may not be a double, and was read as one."""


class _Reader:
    def __init__(self, rows: int, numbers: ExactNumbers | None) -> None:
        self.reasons: list[str | None] = [None] * rows
        self._numbers = numbers

    def damage(self, row: int, reason: str) -> None:
        """Give up a value; the first reason counts."""
        if self.reasons[row] is None:
            self.reasons[row] = reason

    def document(self, row: int, raw: bytes) -> Any:
        """The JSON of a value; `_ABSENT` if it is damaged."""
        try:
            return json.loads(
                raw.decode(), parse_float=self._numbers, parse_constant=refuse_constant
            )
        except UnicodeDecodeError as error:
            self.damage(row, f"the value is not UTF-8: byte {error.start} is invalid")
        except ValueError as error:
            self.damage(row, f"the value is not one JSON document: {error}")
        except RecursionError:
            self.damage(row, _TOO_DEEP)
        return _ABSENT

    def column(self, of: JsonType, values: list[Any], rows: Sequence[int], place: str) -> Any:
        """A column of values.

        Args:
            of: their type.
            values: the values; `_ABSENT` for a missing one, which the caller has checked.
            rows: the row that each value belongs to.
            place: of the values, in messages.
        """
        values = self._without_nulls(of, values, rows, place)
        match of:
            case JsonScalar():
                return self._scalars(of, values, rows, place)
            case JsonAny():
                if of.is_object:
                    values = self._of_type(of, dict, values, rows, place)
                return self._texts(values, rows)
            case JsonArray():
                return self._arrays(of, values, rows, place)
            case JsonMap():
                return self._maps(of, values, rows, place)
            case JsonObject():
                return self._objects(of, values, rows, place)

    def _without_nulls(
        self, of: JsonType, values: list[Any], rows: Sequence[int], place: str
    ) -> list[Any]:
        """The same with None for `_ABSENT`; a null that the schema does not allow is damage."""
        if None in values and not of.is_nullable:
            for row, value in zip(rows, values, strict=True):
                if value is None:
                    self.damage(row, f"{place} is null, not {name_of(of)}")
        return [None if each is _ABSENT else each for each in values]

    def _of_type(
        self, of: JsonType, kind: type, values: list[Any], rows: Sequence[int], place: str
    ) -> list[Any]:
        """The same with None for values of another type, which are damage."""
        if {*map(type, values)} <= {kind, type(None)}:
            return values
        found = []
        for row, value in zip(rows, values, strict=True):
            is_fitting = value is None or type(value) is kind
            if not is_fitting:
                self.damage(row, f"{place} is {_kind_shown(value)}, not {name_of(of)}")
            found.append(value if is_fitting else None)
        return found

    def _texts(self, values: list[Any], rows: Sequence[int]) -> Any:
        """The JSON of any values."""
        has_exact = self._numbers is not None and self._numbers.has_exact
        found = []
        for row, value in zip(rows, values, strict=True):
            text = None
            if value is not None:
                try:
                    text = text_of(value, has_exact=has_exact)
                except RecursionError:
                    self.damage(row, _TOO_DEEP)
            found.append(text)
        return pa.array(found, pa.string())

    def _scalars(self, of: JsonScalar, values: list[Any], rows: Sequence[int], place: str) -> Any:
        if of.allowed is not None:
            values = self._allowed(of.allowed, values, rows, place)
        if of.kind == "integer" and self._numbers is None and float in {*map(type, values)}:
            raise _DigitsNeededError
        kind = arrow_type(of)
        convert = _CONVERTED.get(of.form or of.kind)
        if convert is None:
            values = self._of_type(of, _TYPES[of.kind], values, rows, place)
        elif {*map(type, values)} - _READY.get(of.kind, frozenset()):
            values = self._converted(of, convert, values, rows, place)
        try:
            found = pa.array(values, kind)
            if of.kind != "number" or not pc.any(pc.is_inf(found)).as_py():
                return found
        except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
            pass
        # Texts with half of a pair of surrogates, numbers that are too large.
        return pa.array(self._converted(of, _CHECKS[kind], values, rows, place), kind)

    def _allowed(
        self, allowed: tuple[Any, ...], values: list[Any], rows: Sequence[int], place: str
    ) -> list[Any]:
        known = {(_numeric(each), each) for each in allowed}
        found = []
        for row, value in zip(rows, values, strict=True):
            is_known = value is None or _is_known(value, known)
            if not is_known:
                self.damage(row, f"{place} is not one of the values in enum")
            found.append(value if is_known else None)
        return found

    def _converted(
        self, of: JsonType, convert: Callable[[Any], Any], values: list[Any],
        rows: Sequence[int], place: str,
    ) -> list[Any]:  # fmt: skip
        """The same, converted; None for values that cannot be, which are damage."""
        found = []
        for row, value in zip(rows, values, strict=True):
            changed = None
            if value is not None:
                changed = convert(value)
                if changed is None:
                    self.damage(row, f"{place} is {_kind_shown(value)}, not {name_of(of)}")
            found.append(changed)
        return found

    def _objects(self, of: JsonObject, values: list[Any], rows: Sequence[int], place: str) -> Any:
        values = self._of_type(of, dict, values, rows, place)
        present = [n for n, each in enumerate(values) if each is not None]
        objects = [values[n] for n in present]
        owners = rows if len(present) == len(values) else [rows[n] for n in present]
        prefix = "" if place == "the value" else f"{place.removeprefix('field ')}."
        columns = []
        for each in of.properties:
            parts = [one.get(each.name, _ABSENT) for one in objects]
            if each.is_required and _ABSENT in parts:
                self._check_required(parts, owners, f"field {prefix}{each.name}")
            columns.append(self.column(each.type, parts, owners, f"field {prefix}{each.name}"))
        kind = arrow_type(of)
        found: Any = pa.StructArray.from_arrays(
            columns, fields=[kind.field(n) for n in range(kind.num_fields)]
        )
        if len(present) == len(values):
            return found
        places, missing = np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
        places[present], missing[present] = np.arange(len(present)), False
        return found.take(pa.array(places, mask=missing))

    def _check_required(self, parts: list[Any], rows: Sequence[int], place: str) -> None:
        for row, part in zip(rows, parts, strict=True):
            if part is _ABSENT:
                self.damage(row, f"{place} is missing, and is required")

    def _arrays(self, of: JsonArray, values: list[Any], rows: Sequence[int], place: str) -> Any:
        values = self._of_type(of, list, values, rows, place)
        owners, sizes = self._owners(values, rows)
        items = [item for each in values if each for item in each]
        column = self.column(of.items, items, owners, f"an item of {place}")
        kind, mask = arrow_type(of), pa.array([each is None for each in values], pa.bool_())
        return pa.ListArray.from_arrays(sizes, column, type=kind, mask=mask)

    def _maps(self, of: JsonMap, values: list[Any], rows: Sequence[int], place: str) -> Any:
        values = self._of_type(of, dict, values, rows, place)
        owners, sizes = self._owners(values, rows)
        names = [name for each in values if each for name in each]
        items = [item for each in values if each for item in each.values()]
        key = JsonScalar(kind="string")
        keys: Any = self.column(key, names, owners, f"a key of {place}")
        column = self.column(of.values, items, owners, f"an entry of {place}")
        mask = pa.array([each is None for each in values], pa.bool_())
        return pa.MapArray.from_arrays(
            sizes, keys.fill_null("") if keys.null_count else keys, column, mask=mask
        )

    def _owners(self, values: list[Any], rows: Sequence[int]) -> tuple[list[int], Any]:
        """The row of each item, and the offsets of the lists."""
        counts = [len(each) if each else 0 for each in values]
        owners = [row for row, count in zip(rows, counts, strict=True) for _ in range(count)]
        places = np.repeat(np.arange(len(values)), np.array(counts, np.int64))
        return owners, list_offsets(places, len(values))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind_shown(value: Any) -> str:
    """The kind of a value, in a message."""
    if isinstance(value, bool):
        return "a boolean"
    kinds: dict[type, str] = {dict: "an object", list: "an array", str: "a text"}
    if type(value) in kinds:
        return f"{kinds[type(value)]}" if type(value) is not str else json.dumps(value[:40])
    return f"the number {value}"[:60]


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_known(value: Any, known: set[tuple[bool, Any]]) -> bool:
    """Whether a value is one of some values: 1 and 1.0 are equal in JSON, 1 and true are not."""
    return not isinstance(value, list | dict) and (_numeric(value), value) in known


def _integer(value: Any) -> int | None:
    if isinstance(value, float):
        return whole_number(value)
    if type(value) is not int or not -_LONG_END <= value < _LONG_END:
        return None
    return value


def _number(value: Any) -> float | None:
    if not _numeric(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _instant(value: Any) -> datetime | None:
    if type(value) is not str or not _DATE_TIME.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _day(value: Any) -> date | None:
    if type(value) is not str or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _bytes(value: Any) -> bytes | None:
    if type(value) is not str:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _valid_text(value: Any) -> str | None:
    return value if type(value) is str and _is_utf8(value) else None


_TYPES: Final[Mapping[str, type]] = {"string": str, "boolean": bool, "null": type(None)}
_CONVERTED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "integer": _integer,
    "number": _number,
    "date-time": _instant,
    "date": _day,
    "base64": _bytes,
}
_READY: Final[Mapping[str, frozenset[type]]] = {
    "integer": frozenset({int, type(None)}),
    "number": frozenset({float, type(None)}),
}
"""Types that need no conversion, unless a value is too large."""

_CHECKS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    pa.string(): _valid_text,
    pa.int64(): _integer,
    pa.float64(): _number,
}
