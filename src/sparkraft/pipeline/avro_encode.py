"""Arrow columns as Avro values: the inverse of `avro_values`, also by column and with numpy.

A union is written with its first branch that has the value's type; null with the branch null.

Invariants:
    * A value that the schema cannot have, such as a null in a field that may not be null, is an
      error that names the field; it is never changed to fit.

Not here: the choice of the schema (`registered_values`), parts of values (`encoded_parts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.pipeline.array_parts import as_type, taken
from sparkraft.pipeline.avro_columns import arrow_type, is_null, member_types
from sparkraft.pipeline.encoded_parts import (
    Encoded,
    FixedNumbers,
    Groups,
    Parts,
    SomeRows,
    Spans,
    Varints,
    Zeros,
    binary_of,
    byte_spans,
    list_edges,
    list_items,
    map_entries,
    zigzag,
)
from sparkraft.pipeline.file_fields import SpecError
from sparkraft.schemas.avro_schema import (
    Entries,
    Enumeration,
    Fixed,
    Items,
    Primitive,
    RecordType,
    Type,
    Union,
)

if TYPE_CHECKING:
    from sparkraft.pipeline.value_cursor import Ints

_DECIMAL_BYTES: Final = 16
_MILLI: Final = 1000


def encode(values: pa.Array[Any], of: Type, *, head: bytes = b"") -> pa.Array[Any]:
    """Avro values of a column as a binary column.

    Args:
        values: of `arrow_type(of)`, or of a type that Arrow casts to it without loss.
        of: the schema.
        head: written before each value.

    Raises:
        SpecError: the schema cannot have a value.
    """
    return binary_of(
        _encoded(as_type(values, arrow_type(of), "the row", "Avro"), of, "the row"), head
    )


def _encoded(values: Any, of: Type, place: str) -> Encoded:
    if isinstance(of, Union):
        return _union(values, of, place)
    if values.null_count and not (isinstance(of, Primitive) and of.kind == "null"):
        raise SpecError(f"{place} is null, and its Avro type is not")
    found: Encoded
    match of:
        case Primitive():
            found = _primitive(values, of, place)
        case Fixed():
            found = _fixed(values, of, place)
        case Enumeration():
            found = _longs(_symbols(values, of, place))
        case Items():
            found = _blocks(values, _encoded(list_items(values), of.items, f"an item of {place}"))
        case Entries():
            found = _blocks(values, _entries(values, of, place))
        case RecordType():
            found = _record(values, of, place)
    return found


# ---- types without parts


def _longs(numbers: Ints) -> Varints:
    return Varints(zigzag(numbers))


def _with_length(spans: Encoded) -> Parts:
    return Parts([_longs(spans.sizes), spans])


def _primitive(values: Any, of: Primitive, place: str) -> Encoded:
    found: Encoded
    if of.kind == "null":
        if values.null_count < len(values):
            raise SpecError(f"{place} is not null, and its Avro type is")
        found = Zeros(np.zeros(len(values), np.int64))
    elif of.logical == "decimal":
        found = _with_length(_decimals(values))
    elif of.kind in ("bytes", "string"):
        found = _with_length(byte_spans(values))
    elif of.kind == "boolean":
        found = FixedNumbers(values.cast(pa.uint8()).to_numpy())
    elif of.kind in ("float", "double"):
        found = FixedNumbers(values.to_numpy())
    else:
        found = _longs(_numbers(values, of, place))
    return found


def _numbers(values: Any, of: Primitive, place: str) -> Ints:
    if not pa.types.is_timestamp(values.type):
        width = pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64()
        found: Ints = values.view(width).to_numpy().astype(np.int64)
        return found
    micros: Ints = values.view(pa.int64()).to_numpy()
    if not of.logical.endswith("millis"):
        return micros
    if (micros % _MILLI).any():
        raise SpecError(f"{place} has microseconds, and its Avro type milliseconds")
    return micros // _MILLI


def _decimals(values: Any, size: int = 0) -> Spans:
    """Big-endian numbers of their smallest size, or of a given one."""
    whole = np.frombuffer(values.buffers()[1], np.uint8)
    whole = whole[values.offset * _DECIMAL_BYTES :][: len(values) * _DECIMAL_BYTES]
    big = np.ascontiguousarray(whole.reshape(len(values), _DECIMAL_BYTES)[:, ::-1])
    sign = (big[:, :1] >> 7) * np.uint8(0xFF)
    if size > _DECIMAL_BYTES:
        big = np.hstack([np.repeat(sign, size - _DECIMAL_BYTES, axis=1), big])
    width = big.shape[1]
    # A first byte can go if it repeats the sign, also in the bit that is the first one then.
    redundant = (big[:, :-1] == sign) & ((big[:, 1:] >> 7) == (sign >> 7))
    least = width - np.cumprod(redundant, axis=1).sum(axis=1).astype(np.int64)
    sizes = np.full(len(values), size, np.int64) if size else least
    if size and (least > size).any():
        raise SpecError(f"a decimal needs {least.max()} bytes, and its Avro type has {size}")
    start = np.arange(1, len(values) + 1, dtype=np.int64) * width - sizes
    return Spans(big.reshape(-1), start, sizes)


def _fixed(values: Any, of: Fixed, place: str) -> Encoded:
    if of.logical == "decimal":
        return _decimals(values, of.size)
    found = byte_spans(values)
    if (found.sizes != of.size).any():
        raise SpecError(f"{place} has not the {of.size} bytes of its Avro type")
    return found


def _symbols(values: Any, of: Enumeration, place: str) -> Ints:
    found: Any = pc.index_in(values, value_set=pa.array(of.symbols))
    if found.null_count:
        wrong = values.filter(found.is_null())[0]
        raise SpecError(f"{place} is {wrong}, which {of.name} does not have")
    numbers: Ints = found.to_numpy()
    return numbers


# ---- types with parts


def _record(values: Any, of: RecordType, place: str) -> Encoded:
    names = values.type.names if values.type.num_fields else []
    columns = dict(zip(names, values.flatten(), strict=True))
    prefix = "" if place == "the row" else f"{place.removeprefix('column ')}."
    parts = [
        _encoded(columns[each.name], each.type, f"column {prefix}{each.name}") for each in of.fields
    ]
    return Parts(parts or [Zeros(np.zeros(len(values), np.int64))])


def _entries(values: Any, of: Entries, place: str) -> Encoded:
    keys, items = map_entries(values)
    parts = [
        _encoded(keys, Primitive(kind="string"), f"a key of {place}"),
        _encoded(items, of.values, f"an entry of {place}"),
    ]
    return Parts(parts)


def _blocks(values: Any, items: Encoded) -> Encoded:
    """An array or a map: its size, its items and a zero; or only the zero."""
    edges = list_edges(values)
    counts = np.diff(edges)
    return Parts([_longs(counts), Groups(edges, items), Zeros((counts > 0).astype(np.int64))])


def _union(values: Any, of: Union, place: str) -> Encoded:
    typed = [(at, each) for at, each in enumerate(of.branches) if not is_null(each)]
    nullable = next((at for at, each in enumerate(of.branches) if is_null(each)), None)
    members = member_types(of)
    if len(members) <= 1:
        # Of two numeric types, the wider one takes all values.
        chosen = [(at, each) for at, each in typed if not members or each == members[0]]
        columns = [values] if chosen else []
    else:
        chosen, columns = typed, values.flatten()
    numbers = np.full(len(values), -1 if nullable is None else nullable, np.int64)
    branches: list[Encoded] = []
    for (at, each), column in zip(chosen, columns, strict=True):
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        numbers[rows] = at
        present = column if len(rows) == len(values) else taken(column, rows)
        branches.append(SomeRows(rows, _encoded(present, each, place), len(values)))
    if (numbers < 0).any():
        raise SpecError(f"{place} is null, and its Avro type is not")
    return Parts([_longs(numbers), *branches])
