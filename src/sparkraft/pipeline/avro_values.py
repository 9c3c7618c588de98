"""Avro values to Arrow columns: all records of a batch advance together, field by field.

::

    values ─ one byte array ─▶ a position per row
    each type reads at the positions of its rows, moves them, and returns an Arrow array
    a union reads its branches for their rows only; an array reads the next item of all rows

A value is damaged if it ends too early or too late, or has a number, a branch or a text that its
schema does not allow. Its row then reads zeros, and is null in the result.

Invariants:
    * No byte outside of a row's value becomes a part of its result.
    * The type of the result depends on the reader's schema alone.

Not here: schemas (`avro_schema`), the framing of registries (`registered_values`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.pipeline.array_parts import list_offsets, nulls, scattered, taken
from sparkraft.pipeline.avro_columns import (
    arrow_type,
    default_of,
    member_of,
    member_types,
    union_type,
)
from sparkraft.pipeline.value_cursor import Cursor, Ints
from sparkraft.schemas.avro_schema import (
    NO_DEFAULT,
    AvroSchemaError,
    Entries,
    Enumeration,
    Fixed,
    Items,
    Primitive,
    RecordType,
    Type,
    Union,
    branch_for,
    is_match,
    name_of,
)

_EMPTY_ITEMS_MAX: Final = 1 << 16
"""Items without bytes, such as nulls, in a block of an array."""

_MILLIS_MAX: Final = np.iinfo(np.int64).max // 1000
_DECIMAL_BYTES: Final = 16
_DECIMAL: Final = pa.decimal128(38, 0)
_NEGATIVE: Final = 0x80
"""The bit of a first byte that has the sign."""


class Plan(Protocol):
    """How values of a writer's type become an Arrow array."""

    @property
    def kind(self) -> pa.DataType:
        """The type of the array."""
        ...

    def read(self, cursor: Cursor, rows: Ints) -> pa.Array[Any]:
        """Read the next value of these rows, one for each."""
        ...


def plan_of(writer: Type, reader: Type, place: str = "the value") -> Plan:
    """How to read values of one type as another.

    Raises:
        AvroSchemaError: the types do not fit.
    """
    if isinstance(writer, Union):
        return _Branches(writer, reader, place)
    if isinstance(reader, Union):
        at = branch_for(writer, reader)
        if at is None:
            raise AvroSchemaError(f"{place} is {name_of(writer)}, not {name_of(reader)}")
        return _IntoUnion(writer, reader, at, place)
    if not is_match(writer, reader):
        raise AvroSchemaError(f"{place} is {name_of(writer)}, not {name_of(reader)}")
    return _plan_of_kind(writer, reader, place)


def _plan_of_kind(writer: Type, reader: Type, place: str) -> Plan:
    """The same for types that match, except unions."""
    found: Plan
    match writer, reader:
        case Primitive(), Primitive():
            found = _primitive_plan(writer, reader, place)
        case Fixed(), Fixed():
            _check_decimals(writer, reader, place)
            found = _FixedBytes(writer.size, arrow_type(reader), place)
        case Enumeration(), Enumeration():
            found = _Symbols(writer, reader, place)
        case Items(), Items():
            found = _List(plan_of(writer.items, reader.items, f"an item of {place}"), place)
        case Entries(), Entries():
            entry = plan_of(writer.values, reader.values, f"an entry of {place}")
            found = _Map(entry, place)
        case RecordType(), RecordType():
            found = _Struct(writer, reader, place)
        case _:
            raise AssertionError(place)
    return found


def _primitive_plan(writer: Primitive, reader: Primitive, place: str) -> Plan:
    kind = arrow_type(reader)
    match writer.kind:
        case "null":
            return _Nulls(kind)
        case "boolean":
            return _Booleans(kind, place)
        case "int" | "long":
            return _Whole(writer, reader, kind, place)
        case "float" | "double":
            return _Floats(writer.kind, kind, place)
        case _:
            _check_decimals(writer, reader, place)
            return _Bytes(kind, place)


def _check_decimals(writer: Any, reader: Any, place: str) -> None:
    if "decimal" in (writer.logical, reader.logical) and writer.scale != reader.scale:
        raise AvroSchemaError(f"{place} is a decimal of scale {writer.scale}, not {reader.scale}")


@dataclass(frozen=True, slots=True)
class _Nulls:
    kind: pa.DataType

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        del cursor
        return nulls(len(rows), self.kind)


@dataclass(frozen=True, slots=True)
class _Booleans:
    kind: pa.DataType
    place: str

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        found = cursor.numbers(rows, "u1", 1, self.place)
        cursor.damage(rows[found > 1], f"{self.place} is a boolean of neither 0 nor 1")
        return pa.array(found == 1)


@dataclass(frozen=True, slots=True)
class _Whole:
    writer: Primitive
    reader: Primitive
    kind: pa.DataType
    place: str

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        found = cursor.longs(rows, self.place)
        if self.writer.kind == "int":
            wrong = (found < -(1 << 31)) | (found >= 1 << 31)
            if wrong.any():
                cursor.damage(rows[wrong], f"{self.place} is too large for an int")
                found = np.where(wrong, 0, found)
        if pa.types.is_floating(self.kind):
            return pa.array(found.astype(self.kind.to_pandas_dtype()))
        if pa.types.is_timestamp(self.kind):
            return pa.array(self._micros(cursor, rows, found)).view(self.kind)
        if pa.types.is_date(self.kind):
            return pa.array(found.astype(np.int32)).view(self.kind)
        return pa.array(found.astype(self.kind.to_pandas_dtype()))

    def _micros(self, cursor: Cursor, rows: Ints, found: Ints) -> Ints:
        logical = self.writer.logical or self.reader.logical
        if not logical.endswith("millis"):
            return found
        wrong = (found > _MILLIS_MAX) | (found < -_MILLIS_MAX)
        if wrong.any():
            cursor.damage(rows[wrong], f"{self.place} is too far from 1970")
            found = np.where(wrong, 0, found)
        return found * 1000


@dataclass(frozen=True, slots=True)
class _Floats:
    writer: str
    kind: pa.DataType
    place: str

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        kind, size = ("<f4", 4) if self.writer == "float" else ("<f8", 8)
        found = cursor.numbers(rows, kind, size, self.place)
        return pa.array(found.astype(self.kind.to_pandas_dtype()))


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes or texts, of any length."""

    kind: pa.DataType
    place: str

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        start, size = cursor.spans(rows, cursor.longs(rows, self.place), self.place)
        if pa.types.is_decimal(self.kind):
            return _decimals(cursor, rows, start, size, self)
        if pa.types.is_string(self.kind):
            return cursor.texts(rows, start, size, self.place)
        return cursor.gathered(start, size)


@dataclass(frozen=True, slots=True)
class _FixedBytes:
    size: int
    kind: pa.DataType
    place: str

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        start = cursor.advance(rows, self.size, self.place)
        # A damaged row reads zeros after the data, which are fewer.
        sizes = np.where(cursor.reason[rows] > 0, 0, self.size)
        if pa.types.is_decimal(self.kind):
            return _decimals(cursor, rows, start, sizes, self)
        return cursor.gathered(start, sizes)


def _decimals(cursor: Cursor, rows: Ints, start: Ints, size: Ints, plan: Any) -> Any:
    """Whole numbers of a scale: big-endian, with their sign in the first bit."""
    kind, place = plan.kind, plan.place
    wrong = size > _DECIMAL_BYTES
    if wrong.any():
        cursor.damage(rows[wrong], f"{place} is a decimal of more than {_DECIMAL_BYTES} bytes")
        size = np.where(wrong, 0, size)
    first = cursor.data[np.minimum(start, len(cursor.data) - 1)]
    negative = (size > 0) & (first >= _NEGATIVE)
    whole: Any = np.where(negative, 0xFF, 0).astype(np.uint8).repeat(_DECIMAL_BYTES)
    whole = whole.reshape(len(rows), _DECIMAL_BYTES)
    for byte in range(int(size.max(initial=0))):
        long = np.flatnonzero(size > byte)
        whole[long, byte] = cursor.data[start[long] + size[long] - 1 - byte]
    found: Any = pa.Array.from_buffers(_DECIMAL, len(rows), [None, pa.py_buffer(whole)])
    if kind.precision < _DECIMAL.precision and len(rows):
        bound = pa.scalar(10**kind.precision, _DECIMAL)
        large = pc.greater_equal(pc.abs(found), bound).to_numpy(zero_copy_only=False)
        cursor.damage(rows[large], f"{place} has more than {kind.precision} digits")
        if large.any():
            found = pc.if_else(pa.array(large), pa.scalar(0, _DECIMAL), found)
    return pa.Array.from_buffers(kind, len(rows), [None, found.buffers()[1]])


class _Symbols:
    """Texts of an enum."""

    def __init__(self, writer: Enumeration, reader: Enumeration, place: str) -> None:
        self.kind = pa.string()
        self._place = place
        symbols = [each if each in reader.symbols else reader.default for each in writer.symbols]
        self._symbols = pa.array(symbols, pa.string())
        self._unknown = np.array([each is None for each in symbols])
        self._count = len(symbols)

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        found = cursor.longs(rows, self._place)
        wrong = (found < 0) | (found >= self._count)
        if wrong.any():
            cursor.damage(rows[wrong], f"{self._place} has a symbol that does not exist")
            found = np.where(wrong, 0, found)
        unknown = self._unknown[found]
        if unknown.any():
            cursor.damage(rows[unknown], f"{self._place} has a symbol that the schema lacks")
        return taken(self._symbols, found)


def _in_union(reader: Union, count: int, members: dict[int, list[tuple[Ints, Any]]]) -> Any:
    """A column of a union from the values of its members."""
    kind, types = union_type(reader), member_types(reader)
    if len(types) <= 1:
        return scattered(count, members.get(0, []), kind)
    fields: Any = kind
    columns = [
        scattered(count, members.get(at, []), fields.field(at).type) for at in range(len(types))
    ]
    present = np.zeros(count, np.bool_)
    for parts in members.values():
        for positions, _ in parts:
            present[positions] = True
    return pa.StructArray.from_arrays(
        columns, fields=[fields.field(at) for at in range(len(types))], mask=pa.array(~present)
    )


class _IntoUnion:
    """A value of one type, read as a union."""

    def __init__(self, writer: Type, reader: Union, at: int, place: str) -> None:
        self.kind = union_type(reader)
        self._reader = reader
        self._member, as_type = member_of(reader, at)
        self._plan = plan_of(writer, as_type or reader.branches[at], place)
        self._is_null = as_type is None

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        found = self._plan.read(cursor, rows)
        if self._is_null:
            return nulls(len(rows), self.kind)
        return _in_union(self._reader, len(rows), {self._member: [(np.arange(len(rows)), found)]})


class _Branches:
    """A union of the writer."""

    def __init__(self, writer: Union, reader: Type, place: str) -> None:
        self.kind = arrow_type(reader)
        self._reader = reader
        self._place = place
        self._plans: list[tuple[Plan | None, int]] = []
        reasons = []
        for branch in writer.branches:
            try:
                self._plans.append(self._branch(branch))
            except AvroSchemaError as error:
                # An error only of values that have this branch.
                reasons.append(error)
                self._plans.append((None, 0))
        if len(reasons) == len(writer.branches):
            raise reasons[0]

    def _branch(self, branch: Type) -> tuple[Plan, int]:
        if not isinstance(self._reader, Union):
            return plan_of(branch, self._reader, self._place), 0
        at = branch_for(branch, self._reader)
        if at is None:
            raise AvroSchemaError(f"{self._place} is {name_of(branch)}")
        member, as_type = member_of(self._reader, at)
        return plan_of(branch, as_type or self._reader.branches[at], self._place), (
            -1 if as_type is None else member
        )

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        branches = cursor.longs(rows, self._place)
        wrong = (branches < 0) | (branches >= len(self._plans))
        if wrong.any():
            cursor.damage(rows[wrong], f"{self._place} has a branch that does not exist")
        members: dict[int, list[tuple[Ints, Any]]] = {}
        for number, (plan, member) in enumerate(self._plans):
            positions = np.flatnonzero(branches == number)
            if not len(positions):
                continue
            if plan is None:
                reason = f"{self._place} has a type that the schema lacks"
                cursor.damage(rows[positions], reason)
                continue
            found = plan.read(cursor, rows[positions])
            if member >= 0:
                members.setdefault(member, []).append((positions, found))
        if isinstance(self._reader, Union):
            return _in_union(self._reader, len(rows), members)
        return scattered(len(rows), members.get(0, []), self.kind)


class _List:
    """An array."""

    def __init__(self, item: Plan, place: str) -> None:
        self.kind: pa.DataType = pa.list_(pa.field("element", item.kind))
        self._item = item
        self._place = place

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        offsets, items = _blocks(cursor, rows, self._item, self._place)
        return pa.ListArray.from_arrays(offsets, items, type=self.kind)


class _Entry:
    """A key and a value of a map."""

    def __init__(self, value: Plan, place: str) -> None:
        self._key = _Bytes(pa.string(), f"a key of {place}")
        self._value = value
        self._fields = [pa.field("key", pa.string()), pa.field("value", value.kind)]
        self.kind: pa.DataType = pa.struct(self._fields)

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        key = self._key.read(cursor, rows)
        if key.null_count:
            key = key.fill_null("")  # of a damaged value
        return pa.StructArray.from_arrays(
            [key, self._value.read(cursor, rows)], fields=self._fields
        )


class _Map:
    """A map."""

    def __init__(self, value: Plan, place: str) -> None:
        self.kind: pa.DataType = pa.map_(pa.string(), value.kind)
        self._entry = _Entry(value, place)
        self._place = place

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        offsets, entries = _blocks(cursor, rows, self._entry, self._place)
        return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1))


def _blocks(cursor: Cursor, rows: Ints, item: Plan, place: str) -> tuple[Any, Any]:
    """The items of each row: the next one of all rows is read at once."""
    left = np.zeros(len(rows), np.int64)
    active = np.arange(len(rows))
    found, owners = [], []
    while active.size:
        fresh = active[left[active] == 0]
        if fresh.size:
            left[fresh] = _block_sizes(cursor, rows[fresh], place)
        active = active[left[active] > 0]
        if not active.size:
            break
        found.append(item.read(cursor, rows[active]))
        owners.append(active)
        left[active] -= 1
        active = active[cursor.reason[rows[active]] == 0]
    of = np.concatenate([np.zeros(0, np.int64), *owners])
    offsets = list_offsets(of, len(rows))
    if not found:
        return offsets, nulls(0, item.kind)
    items = pa.concat_arrays(found)
    if len(found) > 1:
        items = taken(items, np.argsort(of, kind="stable"))
    return offsets, items


def _block_sizes(cursor: Cursor, rows: Ints, place: str) -> Ints:
    """The number of items of the next blocks; 0 at the end."""
    count = cursor.longs(rows, place)
    sized = np.flatnonzero(count < 0)
    if sized.size:
        cursor.longs(rows[sized], place)  # the block's bytes, to skip it
        count[sized] = -count[sized]
    room = np.maximum(cursor.end[rows] - cursor.at[rows], _EMPTY_ITEMS_MAX)
    wrong = (count < 0) | (count > room)
    if wrong.any():
        cursor.damage(rows[wrong], f"{place} has more items than the value has bytes")
    return np.where(wrong | (cursor.reason[rows] > 0), 0, count)


class _Struct:
    """A record: fields in the writer's order, columns in the reader's."""

    def __init__(self, writer: RecordType, reader: RecordType, place: str) -> None:
        self.kind: Any = arrow_type(reader)
        taken: dict[str, int] = {}
        for number, field in enumerate(reader.fields):
            for name in (field.name, *field.aliases):
                taken.setdefault(name, number)
        self._plans: list[tuple[Plan, int | None]] = []
        present = set()
        prefix = "" if place == "the value" else f"{place.removeprefix('field ')}."
        for field in writer.fields:
            at = f"field {prefix}{field.name}"
            wanted = taken.get(field.name)
            if wanted is None or wanted in present:
                self._plans.append((plan_of(field.type, field.type, at), None))
            else:
                present.add(wanted)
                plan = plan_of(field.type, reader.fields[wanted].type, at)
                self._plans.append((plan, wanted))
        self._defaults: dict[int, Any] = {}
        for at_reader, missing in enumerate(reader.fields):
            if at_reader in present:
                continue
            if missing.default is NO_DEFAULT:
                raise AvroSchemaError(f"field {prefix}{missing.name} is missing without a default")
            self._defaults[at_reader] = default_of(missing.type, missing.default)

    def read(self, cursor: Cursor, rows: Ints) -> Any:
        columns: list[Any] = [None] * self.kind.num_fields
        for plan, number in self._plans:
            found = plan.read(cursor, rows)
            if number is not None:
                columns[number] = found
        for number, default in self._defaults.items():
            columns[number] = taken(default, np.zeros(len(rows), np.int64))
        if not columns:
            return pa.Array.from_buffers(self.kind, len(rows), [None])
        return pa.StructArray.from_arrays(
            columns, fields=[self.kind.field(n) for n in range(self.kind.num_fields)]
        )


def decode(
    values: pa.Array[Any], plan: Plan, *, skipped: int = 0
) -> tuple[pa.Array[Any], list[str | None]]:
    """The values of a column, and for each damaged one the reason; these values are undefined.

    Args:
        values: binary, without nulls.
        plan: for their schema.
        skipped: bytes before each Avro value.
    """
    cursor = Cursor.of(values, skipped)
    rows = np.arange(len(values))
    found = plan.read(cursor, rows)
    rest = cursor.end - cursor.at
    sound = cursor.reason == 0
    for row in np.flatnonzero(sound & (rest != 0)):
        cursor.damage(rows[row : row + 1], f"{rest[row]} bytes follow the value")
    reasons = [cursor.reasons[each] or None for each in cursor.reason]
    return found, reasons
