"""How the rows of a batch fit the columns of a table.

Invariants:
    * A value is stored as it is, stored in a wider type, or reported: never rounded or cut.
    * A column is left out only with `schema_changes = "ignore"`, and is counted then.
    * A row that breaks a rule of the table is reported.

Not here: tables themselves (`delta`), their rules (`table_rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

TOMBSTONE: Final = "tombstone"
"""The boolean column that marks a row as the deletion of its keys."""

BROKEN_RULE: Final = "__sparkraft_broken_rule"
"""A column of a batch that is not stored: the rule of the table that a row breaks, or null."""


class Misfit(NamedTuple):
    """A row that does not fit the table, and the reason."""

    row: dict[str, Any]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFit:
    """The columns of a table, and what happens to rows that do not fit.

    Args:
        name: of the sink, for errors.
        columns: those of the table.
        schema_changes: `fail`, `add` or `ignore`, as for `DeltaSink`.
        deletes: whether the column `tombstone` marks rows to delete.
    """

    name: str
    columns: pa.Schema
    schema_changes: str
    deletes: bool = False

    def without_misfits(self, rows: pa.Table) -> tuple[pa.Table, list[Misfit]]:
        """Separate the rows whose values do not fit, or that break a rule of the table.

        A column of another kind, such as text for a number, is a change of the schema, and
        `fitted` fails.
        """
        errors: dict[int, str] = {}
        for name in rows.column_names:
            if name not in self.columns.names:
                continue
            wanted = self.columns.field(name).type
            if _widens(rows.schema.field(name).type, wanted):
                for row, error in _misfits(rows.column(name), wanted):
                    errors.setdefault(row, f"column {name} of the {self.name}: {error}")
        for row, rule in _broken_rules(rows):
            errors.setdefault(row, self._broken(rule))
        return _separated(rows, errors) if errors else (rows, [])

    def fitted(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """Return the rows with the table's types, and how many values had to be left out."""
        broken = next(_broken_rules(rows), None)
        if BROKEN_RULE in rows.column_names:
            rows = rows.drop_columns([BROKEN_RULE])
        fields, columns, ignored = [], [], 0
        deletes = self.deletes
        for field in rows.schema:
            name, column = field.name, rows.column(field.name)
            present = rows.num_rows - column.null_count
            if name == TOMBSTONE and deletes:
                column = false_if_null(column)
            elif name in self.columns.names:
                wanted = self.columns.field(name).type
                nested = list(_new_fields(field.type, wanted, name))
                self._check_new(nested)
                if not nested or self.schema_changes == "ignore":
                    column = self._cast(column, name, wanted)
                    ignored += present * len(nested)
            else:
                self._check_new([name])
                if self.schema_changes == "ignore":
                    ignored += present
                    continue
            fields.append(name)
            columns.append(column)
        self._check_missing([name for name in self.columns.names if name not in fields])
        if broken:
            raise SpecError(self._broken(broken[1]))
        return type(rows).from_arrays(columns, names=fields), ignored

    def _broken(self, rule: str) -> str:
        return f"{self.name}: a row breaks the table's {rule}"

    def _check_new(self, names: Sequence[str]) -> None:
        if names and self.schema_changes == "fail":
            raise SpecError(
                f"{self.name}: the table has no column {names[0]}; schema_changes = "
                '"add" adds new columns to the table, "ignore" leaves them out'
            )

    def _check_missing(self, names: Sequence[str]) -> None:
        if names and self.schema_changes == "fail":
            raise SpecError(
                f"{self.name}: the pipeline returns no column {names[0]}, which the "
                'table has; schema_changes = "add" or "ignore" leaves it null'
            )

    def _cast(self, column: Any, name: str, wanted: pa.DataType) -> Any:
        import pyarrow as pa

        why = "its values would change"
        if _widens(column.type, wanted):
            try:
                return column.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                why = str(error)
        raise SpecError(
            f"{self.name}: column {name} is {column.type}, which does not fit "
            f"the table's {wanted}: {why}"
        )


def _broken_rules(rows: pa.Table) -> Iterator[tuple[int, str]]:
    """The rows that break a rule, and the rules' names."""
    if BROKEN_RULE not in rows.column_names:
        return
    column = rows.column(BROKEN_RULE)
    if column.null_count < len(column):
        yield from ((row, str(rule)) for row, rule in enumerate(column.to_pylist()) if rule)


def _separated(rows: pa.Table, errors: Mapping[int, str]) -> tuple[pa.Table, list[Misfit]]:
    import pyarrow as pa

    # Of no row, Arrow would not know the type of the places.
    kept: Any = pa.array([row for row in range(rows.num_rows) if row not in errors], pa.int64())
    places = sorted(errors)
    found = rows.take(places).to_pylist()
    for row in found:
        row.pop(BROKEN_RULE, None)
    return rows.take(kept), [
        Misfit(row, errors[place]) for row, place in zip(found, places, strict=True)
    ]


def _misfits(column: Any, wanted: pa.DataType, first: int = 0) -> Iterator[tuple[int, str]]:
    """The rows that a checked cast refuses, from `first` on, by cutting the column in halves."""
    import pyarrow as pa

    try:
        column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        half = len(column) // 2
        if half == 0:
            yield first, str(error)
            return
        yield from _misfits(column.slice(0, half), wanted, first)
        yield from _misfits(column.slice(half), wanted, first + half)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of which may be null, also inside: a later batch may lack one."""
    import pyarrow as pa

    return pa.schema([_nullable_field(field) for field in schema])


def _nullable_field(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_nullable_inside(field.type)).with_nullable(nullable=True)


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([_nullable_field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        item: Any = _nullable_field(kind.item_field)
        return pa.map_(_nullable_inside(kind.key_type), item)
    if pa.types.is_list(kind):
        return pa.list_(_nullable_field(kind.value_field))
    return kind


def promoted(known: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The columns of an Iceberg table with the wider types that a batch has, also inside.

    Iceberg widens int to long, float to double, and decimals of a scale to more digits (schema
    evolution in its specification); files with the narrower types stay as they are.
    """
    import pyarrow as pa

    return pa.schema(
        [
            field.with_type(promoted_type(field.type, found.field(field.name).type))
            if field.name in found.names
            else field
            for field in known
        ]
    )


def promoted_type(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The type of a column of type `known` after it was widened for values of type `found`."""
    import pyarrow as pa

    if pa.types.is_struct(known) and pa.types.is_struct(found):
        return pa.struct(
            [
                field.with_type(promoted_type(field.type, found.field(field.name).type))
                if found.get_field_index(field.name) >= 0
                else field
                for field in map(known.field, range(known.num_fields))
            ]
        )
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(promoted_type(known.value_type, found.value_type))
    if pa.types.is_map(known) and pa.types.is_map(found):
        return pa.map_(known.key_type, promoted_type(known.item_type, found.item_type))
    return found if _is_promotion(known, found) else known


def _is_promotion(known: pa.DataType, found: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_decimal128(known) and pa.types.is_decimal128(found):
        return bool(known.scale == found.scale and known.precision < found.precision)
    pairs = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
    return any(known == narrow and found == wide for narrow, wide in pairs)


def false_if_null(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(column, pa.scalar(value=False))


def _new_fields(found: pa.DataType, known: pa.DataType, path: str) -> Iterator[str]:
    """Fields inside a struct, list or map that the table does not have.

    A cast of Arrow leaves these out without an error.
    """
    import pyarrow as pa

    if pa.types.is_struct(found) and pa.types.is_struct(known):
        names = {known.field(index).name for index in range(known.num_fields)}
        for index in range(found.num_fields):
            field = found.field(index)
            if field.name in names:
                yield from _new_fields(
                    field.type, known.field(field.name).type, f"{path}.{field.name}"
                )
            else:
                yield f"{path}.{field.name}"
    elif pa.types.is_map(found) and pa.types.is_map(known):
        yield from _new_fields(found.item_type, known.item_type, path)
    elif pa.types.is_list(found) and pa.types.is_list(known):
        yield from _new_fields(found.value_type, known.value_type, path)


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow's checked cast keeps every value: it would round floats and format numbers."""
    import pyarrow as pa

    if found == wanted or pa.types.is_null(found):
        return True
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        pairs = [
            (field.type, wanted.field(field.name).type)
            for field in map(found.field, range(found.num_fields))
            if wanted.get_field_index(field.name) >= 0
        ]
    elif pa.types.is_map(found) and pa.types.is_map(wanted):
        pairs = [(found.key_type, wanted.key_type), (found.item_type, wanted.item_type)]
    elif pa.types.is_list(found) and pa.types.is_list(wanted):
        pairs = [(found.value_type, wanted.value_type)]
    else:
        return _scalar_widens(found, wanted)
    return all(_widens(*pair) for pair in pairs)


def _scalar_widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    old, new = _family(found), _family(wanted)
    if old == new == "float":
        return bool(found.bit_width <= wanted.bit_width)
    wider = {"integer": {"integer", "float", "decimal"}, "float": {"integer"}}
    return new in wider.get(old, {old})


def _family(kind: pa.DataType) -> str:
    import pyarrow as pa

    families = {
        "integer": (pa.types.is_integer,),
        "float": (pa.types.is_floating,),
        "decimal": (pa.types.is_decimal,),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    }
    for name, tests in families.items():
        if any(test(kind) for test in tests):
            return name
    return str(kind.id)
