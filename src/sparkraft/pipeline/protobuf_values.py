"""Protobuf messages to Arrow columns: all records of a batch advance together, field by field.

::

    values ─ one byte array ─▶ a position per row
    a field reads at the rows whose next tag is its own, and keeps what it finds, by row
    serializers write fields by number, so one pass over them reads most values to their end;
    rows that have a tag out of this order, or one that is unknown, take another pass
    nested messages are rows of a cursor of their own

Values are merged as Protobuf's encoding specifies: the last scalar counts, messages are joined, a
field of a oneof removes the others, the last entry of a map's key counts, and repeated numbers may
be packed or not. Fields that the schema lacks are passed over, as is one with another wire type.

A value is damaged if it ends within a field, or has an invalid tag, a text that is not UTF-8 or a
Timestamp outside of the years 1 to 9999, or lacks a required field (proto2). Its row then has
anything, and is null in the result.

Invariants:
    * No byte outside of a row's value becomes a part of its result.
    * The type of the result depends on the reader's schema alone.

Not here: types of columns (`protobuf_columns`), the framing of registries (`value_codecs`), single
messages for people (`schemas.protobuf_value`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkraft.pipeline.array_parts import list_offsets, nulls, scattered, taken
from sparkraft.pipeline.protobuf_columns import (
    INSTANT,
    SECONDS_MAX,
    SECONDS_MIN,
    WIDE,
    FieldShape,
    MessageShape,
    Symbols,
    arrow_type,
    column_type,
    value_type,
)
from sparkraft.pipeline.value_cursor import (
    MORE,
    VARINT_BYTES_MAX,
    Cursor,
    Ints,
    Words,
    positions,
    unzigzag,
)
from sparkraft.schemas.cursor import Cursor as OneValue
from sparkraft.schemas.errors import UndecodableError
from sparkraft.schemas.protobuf_wire import (
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    NUMBER_MAX,
    SIZED,
    VARINT,
    skip_group,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FIXED: Final = {FIXED64: 8, FIXED32: 4}
_BYTES_OF_32_BITS: Final = 5
_TYPE_BITS: Final = 3
_TYPE_MASK: Final = 7

_SECOND_MICROS: Final = 1_000_000
_NANOS_END: Final = 1_000_000_000


class _Found:
    """The values of a field, in the order of the bytes: the row of each one, and its parts.

    The parts are arrays of the same length: the numbers, or the positions and sizes of bytes.
    """

    def __init__(self) -> None:
        self._rows: list[Ints] = []
        self._parts: list[tuple[Any, ...]] = []
        self._places: list[Ints] = []

    def add(self, rows: Ints, places: Ints, *parts: Any) -> None:
        """Add values of rows; `places` are their positions in the bytes, for fields of a oneof."""
        self._rows.append(rows)
        self._places.append(places)
        self._parts.append(parts)

    @property
    def is_empty(self) -> bool:
        """Whether no row has the field."""
        return not self._rows

    @property
    def rows(self) -> Ints:
        """The row of each value."""
        return self._rows[0] if len(self._rows) == 1 else _joined(self._rows)

    @property
    def places(self) -> Ints:
        """The position of each value."""
        return _joined(self._places)

    @property
    def parts(self) -> list[Any]:
        """The parts of all values."""
        if len(self._parts) == 1:
            return list(self._parts[0])
        return [np.concatenate(each) for each in zip(*self._parts, strict=True)]

    def kept(self, chosen: Any) -> _Found:
        """Only some of the values, by row."""
        found, order = _Found(), np.flatnonzero(chosen)
        order = order[np.argsort(self.rows[order], kind="stable")]
        if order.size:
            found.add(self.rows[order], self.places[order], *(each[order] for each in self.parts))
        return found

    def by_row(self) -> tuple[Ints, list[Any]]:
        """Rows and parts, by row; those of one row in their order."""
        rows, parts = self.rows, self.parts
        if len(self._rows) > 1:
            order = np.argsort(rows, kind="stable")
            return rows[order], [each[order] for each in parts]
        return rows, parts


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _last(rows: Any) -> Ints:
    """The place of the last of each group of equal values, in ascending order of the values."""
    _, first = np.unique(rows[::-1], return_index=True)
    found: Ints = len(rows) - 1 - first
    return found


class Message:
    """How messages of a shape become an Arrow array."""

    def __init__(self, shape: MessageShape, place: str = "the value") -> None:
        self.kind = arrow_type(shape)
        self._place = place
        self._shape = shape
        prefix = "" if place == "the value" else f"{place.removeprefix('field ')}."
        self._fields = [_field_of(each, f"field {prefix}{each.name}") for each in shape.fields]
        self._in_order = sorted(range(len(shape.fields)), key=lambda n: shape.fields[n].number)
        self._by_number = {each.number: n for n, each in enumerate(shape.fields)}

    def read(self, cursor: Cursor) -> Any:
        """The messages of all rows, none of which is null."""
        found = self._found(cursor)
        self._settle_oneofs(found)
        for field, values in zip(self._fields, found, strict=True):
            if field.shape.is_required:
                self._check_required(cursor, field, values)
        columns = [
            field.column(cursor, values) for field, values in zip(self._fields, found, strict=True)
        ]
        return self._array(cursor, columns)

    def _array(self, cursor: Cursor, columns: list[Any]) -> Any:
        rows = len(cursor.at)
        if self._shape.is_instant:
            return self._instants(cursor, columns[0].to_numpy(), columns[1].to_numpy())
        if self._shape.is_wrapper:
            return columns[0]
        if not columns:
            return pa.Array.from_buffers(self.kind, rows, [None])
        fields = [self.kind.field(n) for n in range(self.kind.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _instants(self, cursor: Cursor, seconds: Ints, nanos: Any) -> Any:
        wrong = (seconds < SECONDS_MIN) | (seconds > SECONDS_MAX)
        wrong |= (nanos < 0) | (nanos >= _NANOS_END)
        if wrong.any():
            cursor.damage(np.flatnonzero(wrong), f"{self._place} is not a valid Timestamp")
            seconds, nanos = np.where(wrong, 0, seconds), np.where(wrong, 0, nanos)
        return pa.array(seconds * _SECOND_MICROS + nanos // 1000).view(INSTANT)

    def _found(self, cursor: Cursor) -> list[_Found]:
        found = [_Found() for _ in self._fields]
        active = cursor.unfinished(np.arange(len(cursor.at)))
        while active.size:
            before = cursor.at[active]
            for number in self._in_order:
                self._fields[number].take_next(cursor, active, found[number])
            left = cursor.unfinished(active[cursor.at[active] == before])
            if left.size:
                self._take_others(cursor, left, found)
            active = cursor.unfinished(active)
        return found

    def _take_others(self, cursor: Cursor, rows: Ints, found: list[_Found]) -> None:
        """Read a field of rows whose next tag is not one that serializers write for the schema."""
        tags = _of_32_bits(cursor, rows, self._place, 32)
        for each in np.unique(tags):
            chosen = cursor.sound(rows[tags == each])
            number, wire_type = int(each) >> _TYPE_BITS, int(each) & _TYPE_MASK
            if not 0 < number <= NUMBER_MAX or wire_type == END_GROUP or wire_type > FIXED32:
                cursor.damage(chosen, f"{self._place} has an invalid tag")
                continue
            at = self._by_number.get(number)
            if at is not None and self._fields[at].takes(wire_type):
                self._fields[at].take(cursor, chosen, wire_type, found[at])
            else:
                self._skip(cursor, chosen, number, wire_type)

    def _skip(self, cursor: Cursor, rows: Ints, number: int, wire_type: int) -> None:
        place = f"an unknown field of {self._place}"
        if wire_type == VARINT:
            cursor.varints(rows, place)
        elif wire_type == SIZED:
            cursor.spans(rows, _sizes(cursor, rows, place), place)
        elif wire_type == GROUP:
            _groups(cursor, rows, number, place)
        else:
            cursor.advance(rows, _FIXED[wire_type], place)

    def _settle_oneofs(self, found: list[_Found]) -> None:
        """Of the fields of a oneof, keep only what follows the last one of another field."""
        names = {each.oneof for each in self._shape.fields if each.oneof}
        for name in sorted(names):
            members = [
                n
                for n, each in enumerate(self._shape.fields)
                if each.oneof == name and not found[n].is_empty
            ]
            if len(members) > 1:
                self._settle(found, members)

    def _settle(self, found: list[_Found], members: list[int]) -> None:
        given = {n: (found[n].rows, found[n].places) for n in members}
        rows_max = max(int(rows.max()) for rows, _ in given.values()) + 1
        for member in members:
            last = np.full(rows_max, -1, np.int64)
            for other, (rows, places) in given.items():
                if other != member:
                    np.maximum.at(last, rows, places)
            rows, places = given[member]
            found[member] = found[member].kept(places > last[rows])

    def _check_required(self, cursor: Cursor, field: _Field, values: _Found) -> None:
        missing = np.ones(len(cursor.at), np.bool_)
        if not values.is_empty:
            missing[values.rows] = False
        cursor.damage(np.flatnonzero(missing), f"{field.place} is missing, and is required")


def _sizes(cursor: Cursor, rows: Ints, place: str) -> Ints:
    """Lengths of bytes; -1 for one that is too large for any value."""
    return _of_32_bits(cursor, rows, place, 31)


def _of_32_bits(cursor: Cursor, rows: Ints, place: str, bits: int) -> Ints:
    """Read tags or lengths; -1 for one of more bits, or of more bytes than 32 bits need."""
    before = cursor.at[rows]
    found = cursor.varints(rows, place)
    is_long = cursor.at[rows] - before > _BYTES_OF_32_BITS
    return np.where(is_long | (found >> np.uint64(bits) > 0), -1, found.astype(np.int64))


def _groups(cursor: Cursor, rows: Ints, number: int, place: str) -> tuple[Ints, Ints]:
    """Pass over groups; positions and sizes of what is in them. Groups are rare: one by one."""
    start, size = cursor.at[rows].copy(), np.zeros(len(rows), np.int64)
    for n, row in enumerate(rows):
        one = OneValue(cursor.data[cursor.at[row] : cursor.end[row]].tobytes())
        try:
            size[n] = skip_group(one, number)
            cursor.at[row] += one.at
        except UndecodableError as error:
            cursor.damage(rows[n : n + 1], f"{place}: {error}")
    return start, size


# ---- fields


class _Field:
    """A field of a message."""

    def __init__(self, shape: FieldShape, place: str) -> None:
        self.shape = shape
        self.place = place
        self._tags = [(shape.tag(each), each) for each in self._wire_types()]

    def _wire_types(self) -> tuple[int, ...]:
        """Those that a serializer may write, the usual one first."""
        return (self.shape.wire_type,)

    def takes(self, wire_type: int) -> bool:
        """Whether values of a wire type are values of the field."""
        return wire_type in self._wire_types()

    def take_next(self, cursor: Cursor, rows: Ints, into: _Found) -> None:
        """Read the field in those rows that have it next; all values of a repeated one."""
        for tag, wire_type in self._tags:
            hit = rows[cursor.begins(rows, tag)]
            while hit.size:
                cursor.at[hit] += len(tag)
                self.take(cursor, hit, wire_type, into)
                if not self.shape.is_repeated:
                    break
                hit = cursor.sound(hit)
                hit = hit[cursor.begins(hit, tag)]

    def take(self, cursor: Cursor, rows: Ints, wire_type: int, into: _Found) -> None:
        """Read a value of each of these rows, whose tag has been read."""
        raise NotImplementedError

    def column(self, cursor: Cursor, found: _Found) -> Any:
        """The column of the field, with a value or null for each row of the message."""
        raise NotImplementedError

    def _listed(self, cursor: Cursor, found: _Found, items: Callable[..., Any]) -> Any:
        """A column of lists."""
        kind = column_type(self.shape)
        if found.is_empty:
            values = pa.array([], kind.value_type)
            return pa.ListArray.from_arrays(
                list_offsets(_joined([]), len(cursor.at)), values, type=kind
            )
        rows, parts = found.by_row()
        offsets = list_offsets(rows, len(cursor.at))
        return pa.ListArray.from_arrays(offsets, items(cursor, rows, *parts), type=kind)

    def _single(
        self,
        cursor: Cursor,
        found: _Found,
        values: Callable[..., Any],
        defaults: tuple[Any, ...],
    ) -> Any:
        """A column of the last value of each row; the default or null for a row without one."""
        count = len(cursor.at)
        if found.is_empty:
            rows, parts = _joined([]), [each[:0] for each in defaults]
        else:
            rows, parts = found.rows, found.parts
            if len(rows) > 1 and (np.diff(rows) <= 0).any():
                last = _last(rows)
                rows, parts = rows[last], [each[last] for each in parts]
        if self.shape.has_presence:
            return scattered(
                count, [(rows, values(cursor, rows, *parts))], value_type(self.shape.type)
            )
        whole = [
            _filled(count, rows, part, each) for part, each in zip(parts, defaults, strict=True)
        ]
        return values(cursor, np.arange(count), *whole)


def _filled(count: int, rows: Ints, values: Any, default: Any) -> Any:
    if len(rows) == count:
        return values
    found = np.full(count, default[0], default.dtype)
    found[rows] = values
    return found


_NO_BYTES: Final = (np.zeros(1, np.int64), np.zeros(1, np.int64))


class _Bytes(_Field):
    """Texts or bytes."""

    def take(self, cursor: Cursor, rows: Ints, wire_type: int, into: _Found) -> None:
        """See `_Field`."""
        del wire_type
        places = cursor.at[rows]
        into.add(rows, places, *cursor.spans(rows, _sizes(cursor, rows, self.place), self.place))

    def column(self, cursor: Cursor, found: _Found) -> Any:
        """See `_Field`."""
        if self.shape.is_repeated:
            return self._listed(cursor, found, self._values)
        return self._single(cursor, found, self._values, _NO_BYTES)

    def _values(self, cursor: Cursor, rows: Ints, start: Ints, size: Ints) -> Any:
        if self.shape.type == "string":
            return cursor.texts(rows, start, size, self.place)
        return cursor.gathered(start, size)


class _Numbers(_Field):
    """Numbers, booleans and enums."""

    def __init__(self, shape: FieldShape, place: str) -> None:
        super().__init__(shape, place)
        self._form = _FORMS.get(shape.type, "") if isinstance(shape.type, str) else ""
        self._default = (np.zeros(1, self._form or np.uint64),)

    def _wire_types(self) -> tuple[int, ...]:
        single = self.shape.wire_type
        return (SIZED, single) if self.shape.is_repeated else (single,)

    def take(self, cursor: Cursor, rows: Ints, wire_type: int, into: _Found) -> None:
        """See `_Field`."""
        places = cursor.at[rows]
        if wire_type == SIZED:
            rows, numbers = self._packed(cursor, rows)
            into.add(rows, rows, numbers)
        elif self._form:
            width = np.dtype(self._form).itemsize
            into.add(rows, places, cursor.numbers(rows, self._form, width, self.place))
        else:
            into.add(rows, places, cursor.varints(rows, self.place))

    def _packed(self, cursor: Cursor, rows: Ints) -> tuple[Ints, Any]:
        """The numbers in some bytes, and the row of each."""
        start, size = cursor.spans(rows, _sizes(cursor, rows, self.place), self.place)
        if self._form:
            return self._packed_fixed(cursor, rows, start, size)
        return _packed_varints(cursor, rows, start, size, self.place)

    def _packed_fixed(
        self, cursor: Cursor, rows: Ints, start: Ints, size: Ints
    ) -> tuple[Ints, Any]:
        width = np.dtype(self._form).itemsize
        wrong = size % width != 0
        if wrong.any():
            cursor.damage(rows[wrong], f"{self.place} ends within a number")
            size = np.where(wrong, 0, size)
        at = positions(start, size)[::width]
        return np.repeat(rows, size // width), cursor.numbers_at(at, self._form, width)

    def column(self, cursor: Cursor, found: _Found) -> Any:
        """See `_Field`."""
        if self.shape.is_repeated:
            return self._listed(cursor, found, self._values)
        return self._single(cursor, found, self._values, self._default)

    def _values(self, cursor: Cursor, rows: Ints, numbers: Any) -> Any:
        del cursor, rows
        of = self.shape.type
        if isinstance(of, Symbols):
            return _symbols(_int32(numbers), of)
        assert isinstance(of, str)
        numbers = _DECODED[of](numbers) if of in _DECODED else numbers
        kind = value_type(of)
        if kind == WIDE:
            return _wide(numbers)
        return pa.array(numbers.astype(kind.to_pandas_dtype(), copy=False))


def _packed_varints(
    cursor: Cursor, rows: Ints, start: Ints, size: Ints, place: str
) -> tuple[Ints, Words]:
    cut = (size > 0) & (cursor.data[start + np.maximum(size, 1) - 1] >= MORE)
    if cut.any():
        cursor.damage(rows[cut], f"{place} ends within a number")
        size = np.where(cut, 0, size)
    raw = cursor.data[positions(start, size)]
    last = np.flatnonzero(raw < MORE)
    first = np.append(0, last[:-1] + 1)[: len(last)]
    lengths = last - first + 1
    owners = np.repeat(rows, size)[last]
    long = lengths > VARINT_BYTES_MAX
    if long.any():
        cursor.damage(owners[long], f"{place} has a number of more than 10 bytes")
    found = np.zeros(len(last), np.uint64)
    for byte in range(min(int(lengths.max(initial=0)), VARINT_BYTES_MAX)):
        chosen = np.flatnonzero(lengths > byte)
        part = (raw[first[chosen] + byte] & np.uint8(0x7F)).astype(np.uint64)
        found[chosen] |= part << np.uint64(7 * byte)
    return owners, found


_FORMS: Final[Mapping[str, str]] = {
    "double": "<f8",
    "float": "<f4",
    "fixed32": "<u4",
    "sfixed32": "<i4",
    "fixed64": "<u8",
    "sfixed64": "<i8",
}


def _int32(words: Words) -> Any:
    return words.astype(np.uint32).view(np.int32)


def _sint32(words: Words) -> Any:
    return unzigzag(words & np.uint64(0xFFFF_FFFF)).astype(np.int32)


_DECODED: Final[Mapping[str, Callable[[Words], Any]]] = {
    "int32": _int32,
    "int64": lambda words: words.view(np.int64),
    "uint32": lambda words: words.astype(np.uint32),
    "sint32": _sint32,
    "sint64": unzigzag,
    "bool": lambda words: words != 0,
}
"""From 64 bits of a number of variable length, of which shorter types use the lower half."""


def _wide(words: Words) -> Any:
    pairs: Any = np.zeros((len(words), 2), np.uint64)
    pairs[:, 0] = words
    return pa.Array.from_buffers(WIDE, len(words), [None, pa.py_buffer(pairs)])


def _symbols(numbers: Any, of: Symbols) -> Any:
    """The names of numbers; the digits of those without one."""
    distinct, places = np.unique(numbers, return_inverse=True)
    names = pa.array([of.names.get(int(each), str(each)) for each in distinct], pa.string())
    return taken(names, places)


class _Messages(_Field):
    """Nested messages."""

    def __init__(self, shape: FieldShape, place: str) -> None:
        assert isinstance(shape.type, MessageShape)
        self._message = Message(shape.type, place)
        super().__init__(shape, place)

    def takes(self, wire_type: int) -> bool:
        """See `_Field`."""
        return wire_type in {SIZED, GROUP}

    def take(self, cursor: Cursor, rows: Ints, wire_type: int, into: _Found) -> None:
        """See `_Field`."""
        places = cursor.at[rows]
        if wire_type == GROUP:
            start, size = _groups(cursor, rows, self.shape.number, self.place)
        else:
            start, size = cursor.spans(rows, _sizes(cursor, rows, self.place), self.place)
        into.add(rows, places, start, size)

    def column(self, cursor: Cursor, found: _Found) -> Any:
        """See `_Field`."""
        if self.shape.is_repeated:
            return self._listed(cursor, found, self._values)
        count = len(cursor.at)
        if found.is_empty and self.shape.has_presence:
            return nulls(count, self._message.kind)
        if not self.shape.has_presence:
            # The message of a map's entry has its defaults without any bytes.
            missing = np.ones(count, np.bool_)
            if not found.is_empty:
                missing[found.rows] = False
            rows = np.flatnonzero(missing)
            found.add(rows, rows, np.zeros_like(rows), np.zeros_like(rows))
        rows, (start, size) = found.by_row()
        if len(rows) > 1 and (np.diff(rows) == 0).any():
            inner, rows = cursor.joined(rows, start, size), np.unique(rows)
        else:
            inner = cursor.within(rows, start, size)
        return scattered(count, [(rows, self._message.read(inner))], self._message.kind)

    def _values(self, cursor: Cursor, rows: Ints, start: Ints, size: Ints) -> Any:
        return self._message.read(cursor.within(rows, start, size))


class _Map(_Messages):
    """A map: a message of key and value for each entry."""

    def takes(self, wire_type: int) -> bool:
        """See `_Field`."""
        return wire_type == SIZED

    def column(self, cursor: Cursor, found: _Found) -> Any:
        """See `_Field`."""
        kind = column_type(self.shape)
        if found.is_empty:
            rows, keys, values = (
                _joined([]),
                pa.array([], kind.key_type),
                pa.array([], kind.item_type),
            )
        else:
            rows, (start, size) = found.by_row()
            entries = self._message.read(cursor.within(rows, start, size))
            rows, keys, values = _with_last_keys(rows, entries.field(0), entries.field(1))
        if keys.null_count:
            keys = keys.fill_null("")  # of a damaged value
        offsets = list_offsets(rows, len(cursor.at))
        return pa.MapArray.from_arrays(offsets, keys, values)


def _with_last_keys(rows: Ints, keys: Any, values: Any) -> tuple[Ints, Any, Any]:
    """Entries without those whose key follows again in the same row."""
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    last = _last(rows * (int(codes.max(initial=0)) + 2) + codes)
    if len(last) == len(rows):
        return rows, keys, values
    kept = np.sort(last)
    return rows[kept], taken(keys, kept), taken(values, kept)


def _field_of(shape: FieldShape, place: str) -> _Field:
    if shape.is_map:
        return _Map(shape, place)
    if isinstance(shape.type, MessageShape):
        return _Messages(shape, place)
    if shape.type in ("string", "bytes"):
        return _Bytes(shape, place)
    return _Numbers(shape, place)
