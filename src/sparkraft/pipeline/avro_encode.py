"""Arrow columns as Avro values: the inverse of `avro_values`, also by column and with numpy.

    sizes   each type computes the bytes of its values, one number per row
    write   the values have their places in one byte array; each type writes at those of its rows

A union is written with its first branch that has the value's type; null with the branch null.

Invariants:
    * A value that the schema cannot have, such as a null in a field that may not be null, is an
      error that names the field; it is never changed to fit.

Not here: the choice of the schema (`registered_values`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.pipeline.avro_columns import arrow_type, is_null, member_types
from sparkraft.pipeline.avro_schema import (
    Entries,
    Enumeration,
    Fixed,
    Items,
    Primitive,
    RecordType,
    Type,
    Union,
)
from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from sparkraft.pipeline.avro_cursor import Ints

_VARINT_BITS: Final = 7
_DECIMAL_BYTES: Final = 16
_MILLI: Final = 1000


class Encoded(Protocol):
    """Values of some rows that are ready to be written.

    Attributes:
        sizes: in bytes, of each row.
    """

    sizes: Ints

    def write(self, data: Any, at: Ints) -> None:
        """Write each row at its place."""
        ...


def encode(values: pa.Array[Any], of: Type, *, head: bytes = b"") -> pa.Array[Any]:
    """Avro values of a column as a binary column.

    Args:
        values: of `arrow_type(of)`, or of a type that Arrow casts to it without loss.
        of: the schema.
        head: written before each value.

    Raises:
        SpecError: the schema cannot have a value.
    """
    encoded = _encoded(_as_type(values, of, "the row"), of, "the row")
    sizes = encoded.sizes + len(head)
    edges = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=edges[1:])
    if edges[-1] > np.iinfo(np.int32).max:
        raise SpecError("a batch of Avro values has more than 2 GiB")
    data: Any = np.zeros(int(edges[-1]), np.uint8)
    at = edges[:-1]
    for place, byte in enumerate(head):
        data[at + place] = byte
    encoded.write(data, at + len(head))
    offsets: Any = edges.astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _as_type(values: Any, of: Type, place: str) -> Any:
    kind = arrow_type(of)
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SpecError(f"{place} is {values.type}, which is not Avro's {kind}: {error}") from None


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
            found = _Longs(_symbols(values, of, place))
        case Items():
            found = _Blocks(values, _encoded(_items(values), of.items, f"an item of {place}"))
        case Entries():
            found = _Blocks(values, _entries(values, of, place))
        case RecordType():
            found = _record(values, of, place)
    return found


# ---- types without parts


class _Longs:
    """Numbers of variable length."""

    def __init__(self, numbers: Ints) -> None:
        signed = numbers.astype(np.int64)
        self._left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
        self.sizes: Ints = np.ones(len(numbers), np.int64)
        for bits in range(_VARINT_BITS, 64, _VARINT_BITS):
            longer = self._left >> np.uint64(bits) > 0
            if not longer.any():
                break
            self.sizes += longer

    def write(self, data: Any, at: Ints) -> None:
        last = int(self.sizes.max(initial=0))
        for byte in range(last):
            rows = slice(None) if byte == 0 else np.flatnonzero(self.sizes > byte)
            part = (self._left[rows] >> np.uint64(byte * _VARINT_BITS)) & np.uint64(0x7F)
            more = (self.sizes[rows] > byte + 1).astype(np.uint8) << np.uint8(_VARINT_BITS)
            data[at[rows] + byte] = part.astype(np.uint8) | more


class _Whole:
    """Numbers of a fixed size, as rows of bytes."""

    def __init__(self, numbers: Any) -> None:
        width = numbers.dtype.itemsize
        self._bytes = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), width)
        self.sizes: Ints = np.full(len(numbers), width, np.int64)

    def write(self, data: Any, at: Ints) -> None:
        for byte in range(self._bytes.shape[1]):
            data[at + byte] = self._bytes[:, byte]


class _Spans:
    """Bytes from one buffer."""

    def __init__(self, source: Any, start: Ints, sizes: Ints) -> None:
        self._source = source
        self._start = start
        self.sizes = sizes

    def write(self, data: Any, at: Ints) -> None:
        ends = np.cumsum(self.sizes)
        total = int(ends[-1]) if len(ends) else 0
        within = np.arange(total) - np.repeat(ends - self.sizes, self.sizes)
        data[np.repeat(at, self.sizes) + within] = self._source[
            np.repeat(self._start, self.sizes) + within
        ]


class _Nothing:
    """Values without bytes."""

    def __init__(self, rows: int) -> None:
        self.sizes: Ints = np.zeros(rows, np.int64)

    def write(self, data: Any, at: Ints) -> None:
        """Write nothing."""


class _Sequence:
    """Parts of each row, one after another."""

    def __init__(self, parts: list[Encoded], rows: int) -> None:
        self._parts = parts
        self.sizes: Ints = np.zeros(rows, np.int64)
        for part in parts:
            self.sizes = self.sizes + part.sizes

    def write(self, data: Any, at: Ints) -> None:
        for part in self._parts:
            part.write(data, at)
            at = at + part.sizes


def _spans(values: Any) -> _Spans:
    binary = values.cast(pa.binary())
    places = np.frombuffer(binary.buffers()[1], np.int32)
    edges = places[binary.offset : binary.offset + len(binary) + 1].astype(np.int64)
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    return _Spans(data, edges[:-1], np.diff(edges))


def _with_length(spans: Encoded) -> _Sequence:
    return _Sequence([_Longs(spans.sizes), spans], len(spans.sizes))


def _primitive(values: Any, of: Primitive, place: str) -> Encoded:
    found: Encoded
    if of.kind == "null":
        if values.null_count < len(values):
            raise SpecError(f"{place} is not null, and its Avro type is")
        found = _Nothing(len(values))
    elif of.logical == "decimal":
        found = _with_length(_decimals(values))
    elif of.kind in ("bytes", "string"):
        found = _with_length(_spans(values))
    elif of.kind == "boolean":
        found = _Whole(values.cast(pa.uint8()).to_numpy())
    elif of.kind in ("float", "double"):
        found = _Whole(values.to_numpy())
    else:
        found = _Longs(_numbers(values, of, place))
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


def _decimals(values: Any, size: int = 0) -> _Spans:
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
    return _Spans(big.reshape(-1), start, sizes)


def _fixed(values: Any, of: Fixed, place: str) -> Encoded:
    if of.logical == "decimal":
        return _decimals(values, of.size)
    found = _spans(values)
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
    return _Sequence(parts, len(values))


def _items(values: Any) -> Any:
    """The items of the rows, without those that an offset leaves out."""
    edges = _edges(values)
    return values.values.slice(edges[0], edges[-1] - edges[0])


def _edges(values: Any) -> Ints:
    found: Ints = values.offsets.to_numpy().astype(np.int64)
    return found


def _entries(values: Any, of: Entries, place: str) -> Encoded:
    edges = _edges(values)
    first, count = edges[0], edges[-1] - edges[0]
    keys, items = values.keys.slice(first, count), values.items.slice(first, count)
    parts = [
        _encoded(keys, Primitive(kind="string"), f"a key of {place}"),
        _encoded(items, of.values, f"an entry of {place}"),
    ]
    return _Sequence(parts, count)


class _Blocks:
    """An array or a map: its size, its items and a zero; or only the zero."""

    def __init__(self, values: Any, items: Encoded) -> None:
        edges = _edges(values)
        self._edges = edges - edges[0]
        counts = np.diff(edges)
        self._counts = _Longs(counts)
        self._empty = counts == 0
        self._items = items
        ends = np.zeros(len(items.sizes) + 1, np.int64)
        np.cumsum(items.sizes, out=ends[1:])
        self._starts = ends[self._edges[:-1]]
        self._item_at = ends[:-1]
        whole = ends[self._edges[1:]] - self._starts
        self.sizes: Ints = whole + self._counts.sizes + np.where(self._empty, 0, 1)

    def write(self, data: Any, at: Ints) -> None:
        # The zero at the end is there already.
        self._counts.write(data, at)
        begin = at + self._counts.sizes - self._starts
        self._items.write(data, self._item_at + np.repeat(begin, np.diff(self._edges)))


@dataclass(slots=True)
class _Branch:
    """The rows of a branch."""

    rows: Ints
    values: Encoded


class _Branches:
    """A union: the number of the branch, and its value."""

    def __init__(self, numbers: Ints, branches: list[_Branch]) -> None:
        self._numbers = _Longs(numbers)
        self._branches = branches
        self.sizes: Ints = self._numbers.sizes.copy()
        for each in branches:
            self.sizes[each.rows] += each.values.sizes

    def write(self, data: Any, at: Ints) -> None:
        self._numbers.write(data, at)
        after = at + self._numbers.sizes
        for each in self._branches:
            each.values.write(data, after[each.rows])


def _union(values: Any, of: Union, place: str) -> Encoded:
    present = [(at, each) for at, each in enumerate(of.branches) if not is_null(each)]
    nullable = next((at for at, each in enumerate(of.branches) if is_null(each)), None)
    members = member_types(of)
    if len(members) <= 1:
        # Of two numeric types, the wider one takes all values.
        chosen = [(at, each) for at, each in present if not members or each == members[0]]
        columns = [values] if chosen else []
    else:
        chosen, columns = present, values.flatten()
    numbers = np.full(len(values), -1 if nullable is None else nullable, np.int64)
    branches = []
    for (at, each), column in zip(chosen, columns, strict=True):
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        numbers[rows] = at
        taken = column if len(rows) == len(values) else _taken(column, rows)
        branches.append(_Branch(rows, _encoded(taken, each, place)))
    if (numbers < 0).any():
        raise SpecError(f"{place} is null, and its Avro type is not")
    return _Branches(numbers, branches)


def _taken(values: Any, rows: Ints) -> Any:
    return values.take(pa.array(rows))
