"""Arrow columns as Protobuf messages: the inverse of `protobuf_values`, by column and with numpy.

Fields are written by number. A field without presence is left out if it has its default, as
Protobuf's own serializers do; a null of a field with presence is left out, as is an empty array.
Repeated numbers are packed, which all readers accept.

Invariants:
    * A value that the schema cannot have, such as a null in a field without presence, is an error
      that names the column; it is never changed to fit.

Not here: the choice of the schema (`value_codecs`), parts of values (`encoded_parts`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.pipeline.array_parts import as_type, taken
from sparkraft.pipeline.encoded_parts import (
    Constant,
    Encoded,
    FixedNumbers,
    Groups,
    Parts,
    SomeRows,
    Varints,
    Zeros,
    binary_of,
    byte_spans,
    list_edges,
    list_items,
    list_sizes,
    map_entries,
    zigzag,
)
from sparkraft.pipeline.file_fields import SpecError
from sparkraft.pipeline.protobuf_columns import (
    SECONDS_MAX,
    SECONDS_MIN,
    FieldShape,
    MessageShape,
    Symbols,
    arrow_type,
    value_type,
)
from sparkraft.schemas.protobuf_wire import END_GROUP, GROUP, SIZED

if TYPE_CHECKING:
    from sparkraft.pipeline.value_cursor import Ints

_SECOND_MICROS: Final = 1_000_000
_MICRO_NANOS: Final = 1000
_UINT32_MAX: Final = (1 << 32) - 1


def encode(values: pa.Array[Any], shape: MessageShape, *, head: bytes = b"") -> pa.Array[Any]:
    """Messages of a struct column as a binary column.

    Args:
        values: of `arrow_type(shape)`, or of a type that Arrow casts to it without loss; none is
            null.
        shape: of the messages.
        head: written before each message.

    Raises:
        SpecError: a message cannot have a value.
    """
    rows = as_type(values, arrow_type(shape), "the row", "Protobuf")
    return binary_of(_message(rows, shape, "the row"), head)


def _message(values: Any, shape: MessageShape, place: str) -> Encoded:
    if shape.is_instant:
        return _instants(values, shape, place)
    if shape.is_wrapper:
        columns = {shape.fields[0].name: values}
    else:
        names = values.type.names if values.type.num_fields else []
        columns = dict(zip(names, values.flatten(), strict=True))
    _check_oneofs(columns, shape, place)
    prefix = "" if place == "the row" else f"{place.removeprefix('column ')}."
    parts = [
        _field(columns[each.name], each, f"column {prefix}{each.name}") for each in shape.by_number
    ]
    return Parts(parts or [Zeros(np.zeros(len(values), np.int64))])


def _instants(values: Any, shape: MessageShape, place: str) -> Encoded:
    micros = values.view(pa.int64()).to_numpy()
    seconds = np.floor_divide(micros, _SECOND_MICROS)
    if ((seconds < SECONDS_MIN) | (seconds > SECONDS_MAX)).any():
        raise SpecError(f"{place} is not in the years 1 to 9999, as each Timestamp is")
    nanos = ((micros - seconds * _SECOND_MICROS) * _MICRO_NANOS).astype(np.int32)
    numbers = (pa.array(seconds), pa.array(nanos))
    return Parts([_field(x, each, "") for x, each in zip(numbers, shape.fields, strict=True)])


def _check_oneofs(columns: dict[str, Any], shape: MessageShape, place: str) -> None:
    sizes = Counter(each.oneof for each in shape.fields if each.oneof)
    for name in [each for each, size in sizes.items() if size > 1]:
        members = [each.name for each in shape.fields if each.oneof == name]
        valid = [_validity(columns[each]) for each in members]
        count: Any = np.sum(valid, axis=0)
        if (count > 1).any():
            raise SpecError(f"{place} has several values of the oneof {name}: {', '.join(members)}")


def _field(values: Any, field: FieldShape, place: str) -> Encoded:
    """The field of all rows, with its tags."""
    count = len(values)
    if field.is_repeated:
        rows = np.flatnonzero(list_sizes(values) * _validity(values))
        given = values if len(rows) == count else taken(values, rows)
        return SomeRows(rows, _repeated(given, field, place), count)
    if field.has_presence or isinstance(field.type, MessageShape):
        rows = _present(values)
        if field.is_required and len(rows) < count:
            raise SpecError(f"{place} is null, and its Protobuf field is required")
        given = values if len(rows) == count else taken(values, rows)
        return SomeRows(rows, _tagged(given, field, place), count)
    if values.null_count:
        raise SpecError(
            f"{place} is null, and its Protobuf field has no presence: make it optional in the "
            "schema, or replace nulls"
        )
    rows = np.flatnonzero(_differs_from_default(values, field, place))
    given = values if len(rows) == count else taken(values, rows)
    return SomeRows(rows, _tagged(given, field, place), count)


def _validity(values: Any) -> Any:
    return values.is_valid().to_numpy(zero_copy_only=False)


def _present(values: Any) -> Ints:
    return np.flatnonzero(_validity(values)) if values.null_count else np.arange(len(values))


def _differs_from_default(values: Any, field: FieldShape, place: str) -> Any:
    kind = values.type
    if pa.types.is_string(kind) and isinstance(field.type, Symbols):
        # The name of 0, which aliases may have, too.
        return _numbers_of_symbols(values, field.type, place) != 0
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found: Any = pc.binary_length(values).to_numpy(zero_copy_only=False) > 0
    elif pa.types.is_decimal(kind):
        found = _words(values, place) != 0
    elif pa.types.is_floating(kind):
        # -0.0 is not the default.
        numbers = values.to_numpy()
        found = numbers.view(f"u{numbers.dtype.itemsize}") != 0
    else:
        found = values.cast(pa.int64()).to_numpy() != 0
    return found


def _tagged(values: Any, field: FieldShape, place: str) -> Encoded:
    """A tag and a value in each row; none is null."""
    tag = Constant(field.tag(field.wire_type), len(values))
    value = _value(values, field.type, place)
    if field.wire_type == GROUP:
        return Parts([tag, value, Constant(field.tag(END_GROUP), len(values))])
    if field.wire_type == SIZED:
        return Parts([tag, Varints(value.sizes.astype(np.uint64)), value])
    return Parts([tag, value])


def _repeated(values: Any, field: FieldShape, place: str) -> Encoded:
    """The items of lists, none of which is null or empty."""
    edges = list_edges(values)
    if field.is_map and isinstance(field.type, MessageShape):
        return Groups(edges, _entries(values, field, field.type, place))
    items = list_items(values)
    if items.null_count:
        raise SpecError(f"an item of {place} is null, and Protobuf has no nulls in arrays")
    if field.wire_type in (SIZED, GROUP):
        return Groups(edges, _tagged(items, field, f"an item of {place}"))
    packed = Groups(edges, _value(items, field.type, f"an item of {place}"))
    sizes = Varints(packed.sizes.astype(np.uint64))
    return Parts([Constant(field.tag(SIZED), len(values)), sizes, packed])


def _entries(values: Any, field: FieldShape, entry: MessageShape, place: str) -> Encoded:
    keys, items = map_entries(values)
    key, value = entry.fields
    if items.null_count:
        raise SpecError(f"an entry of {place} is null, and Protobuf has no nulls in maps")
    body = Parts(
        [
            _tagged(keys, key, f"a key of {place}"),
            _tagged(items, value, f"an entry of {place}"),
        ]
    )
    tag = Constant(field.tag(SIZED), len(keys))
    return Parts([tag, Varints(body.sizes.astype(np.uint64)), body])


# ---- single values


def _value(values: Any, of: str | Symbols | MessageShape, place: str) -> Encoded:
    """Values without tags and lengths."""
    if isinstance(of, MessageShape):
        return _message(values, of, place)
    if isinstance(of, Symbols):
        return _signed(_numbers_of_symbols(values, of, place))
    if of in ("string", "bytes"):
        return byte_spans(values)
    if of in ("double", "float"):
        return FixedNumbers(values.to_numpy())
    if of == "bool":
        return Varints(values.cast(pa.uint8()).to_numpy().astype(np.uint64))
    return _whole(values, of, place)


def _whole(values: Any, of: str, place: str) -> Encoded:
    if value_type(of) != values.type:
        raise AssertionError(place)
    if of in ("uint64", "fixed64"):
        words = _words(values, place)
        return FixedNumbers(words) if of == "fixed64" else Varints(words)
    numbers = values.to_numpy()
    if of in ("uint32", "fixed32") and ((numbers < 0) | (numbers > _UINT32_MAX)).any():
        raise SpecError(f"{place} has a number that is not one of Protobuf's {of}")
    found: Encoded
    match of:
        case "sint32" | "sint64":
            found = Varints(zigzag(numbers))
        case "fixed32":
            found = FixedNumbers(numbers.astype(np.uint32))
        case "sfixed32" | "sfixed64":
            found = FixedNumbers(numbers)
        case _:
            found = _signed(numbers)
    return found


def _signed(numbers: Any) -> Varints:
    """Numbers whose sign fills 64 bits."""
    return Varints(numbers.astype(np.int64).view(np.uint64))


def _words(values: Any, place: str) -> Any:
    """Decimals as unsigned numbers of 64 bits."""
    raw = np.frombuffer(values.buffers()[1], np.uint64)
    pairs = raw[2 * values.offset :][: 2 * len(values)].reshape(len(values), 2)
    if pairs[:, 1].any():
        raise SpecError(f"{place} has a number that is not one of 64 bits without a sign")
    return pairs[:, 0].copy()


def _numbers_of_symbols(values: Any, of: Symbols, place: str) -> Any:
    numbers = {name: number for number, name in of.names.items()} | dict(of.other_names)
    distinct = values.dictionary_encode()
    found = []
    for name in distinct.dictionary.to_pylist():
        number = numbers.get(name, _digits(name))
        if number is None:
            raise SpecError(f"{place} is {name}, which {of.name} does not have")
        found.append(number)
    codes = distinct.indices.to_numpy()
    return np.array(found, np.int32)[codes] if found else np.zeros(0, np.int32)


def _digits(name: str) -> int | None:
    """The number of an enum that has no name."""
    try:
        number = int(name)
    except ValueError:
        return None
    return number if str(number) == name and -(1 << 31) <= number < 1 << 31 else None
