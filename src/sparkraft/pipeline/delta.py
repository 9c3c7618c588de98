"""The Delta sink: a table that takes each batch once and loses no column in silence.

Invariants:
    * The commit that adds a batch names the query and the batch, so that a repeated one is skipped.
    * A value is stored as it is, stored in a wider type, or reported: never rounded or cut.
    * A column is left out only with `schema_changes = "ignore"`, and is counted then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

log = logging.getLogger(__name__)

_CONFLICTS_MAX: Final = 10
"""A backfill commits beside the running pipeline; each attempt is a whole merge."""

TOMBSTONE: Final = "tombstone"
"""The boolean column that marks a row as the deletion of its keys."""


class Stored(NamedTuple):
    """The numbers of rows and values that a batch changed."""

    rows: int = 0
    deletes: int = 0
    ignored: int = 0
    """Values of columns that the table does not have."""


class Misfit(NamedTuple):
    """A row that does not fit the table, and the reason."""

    row: dict[str, Any]
    error: str


class DeltaSink:
    """A Delta table that takes each batch once.

    Args:
        path: path of the table, which the first batch with rows creates.
        keys: columns that name a row. A row replaces the one with equal keys, or deletes it if its
            column `tombstone` is true. Without keys all rows are added.
        schema_changes: the action if columns of a batch differ from the table's: `fail`, `add`
            new ones to the table, or `ignore` new ones. With `add` and `ignore`, a column that
            the batch lacks is null in added rows and unchanged in replaced ones.
    """

    def __init__(self, path: str, keys: Sequence[str], schema_changes: str = "fail") -> None:
        self.path = path
        self.keys = tuple(keys)
        self.schema_changes = schema_changes

    def has(self, query_id: str, batch_id: int) -> bool:
        """Whether the table contains the batch."""
        table = self._table()
        known = None if table is None else table.transaction_version(query_id)
        return known is not None and known >= batch_id

    def without_misfits(self, rows: pa.Table) -> tuple[pa.Table, list[Misfit]]:
        """Separate the rows whose values do not fit the table's columns.

        A column of another kind, such as text for a number, is a change of the schema, and `write`
        fails.
        """
        table = self._table()
        if table is None:
            return rows, []
        known = _arrow_schema(table)
        errors: dict[int, str] = {}
        for name in rows.column_names:
            if name in known.names and _widens(
                rows.schema.field(name).type, known.field(name).type
            ):
                for row, error in _misfits(rows.column(name), known.field(name).type):
                    errors.setdefault(row, f"column {name} of the delta sink {self.path}: {error}")
        return _separated(rows, errors) if errors else (rows, [])

    def write(self, rows: pa.Table, query_id: str, batch_id: int) -> Stored:
        """Add or merge the rows, and name the batch in the same commit.

        If another writer commits to the same files meanwhile, it is tried again on the result.
        """
        from deltalake.exceptions import CommitFailedError

        for attempt in range(_CONFLICTS_MAX):
            try:
                return self._write(rows, query_id, batch_id)
            except CommitFailedError:
                if attempt == _CONFLICTS_MAX - 1:
                    raise
                log.info("%s: another writer committed first, writing again", self.path)
        raise AssertionError

    def _write(self, rows: pa.Table, query_id: str, batch_id: int) -> Stored:
        from deltalake import CommitProperties, Transaction

        if not rows.num_rows:
            return Stored()
        self._check_keys(rows)
        noted = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
        table = self._table()
        if table is None:
            rows = self._without_deletes(rows)
            if rows.num_rows:
                self._append(rows, noted)
            return Stored(rows.num_rows)
        rows, ignored = self._fitted(rows, _arrow_schema(table))
        deletes = self._merge(table, rows, noted) if self.keys else self._append(rows, noted)
        return Stored(rows.num_rows - deletes, deletes, ignored)

    def _append(self, rows: pa.Table, noted: Any) -> int:
        from deltalake import write_deltalake

        write_deltalake(
            self.path,
            rows,
            mode="append",
            schema_mode=None if self.schema_changes == "fail" else "merge",
            commit_properties=noted,
        )
        return 0

    def _merge(self, table: Any, rows: pa.Table, noted: Any) -> int:
        """Replace, insert and delete rows by key; return the number of deletions."""
        import pyarrow.compute as pc

        # Null keys are equal too; without brackets DataFusion reads AND into the last operand.
        same = " AND ".join(
            f'(target."{key}" IS NOT DISTINCT FROM source."{key}")' for key in self.keys
        )
        merger = table.merge(
            rows,
            same,
            source_alias="source",
            target_alias="target",
            merge_schema=self.schema_changes == "add",
            commit_properties=noted,
        )
        if not self._has_deletes(rows):
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
            return 0
        marked, kept = f"source.{TOMBSTONE}", f"NOT source.{TOMBSTONE}"
        merger = merger.when_matched_delete(marked)
        merger = merger.when_matched_update_all(except_cols=[TOMBSTONE])
        merger.when_not_matched_insert_all(kept, except_cols=[TOMBSTONE]).execute()
        return int(pc.sum(rows.column(TOMBSTONE)).as_py())

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.path) if DeltaTable.is_deltatable(self.path) else None

    def _has_deletes(self, rows: pa.Table) -> bool:
        import pyarrow as pa

        if not self.keys or TOMBSTONE not in rows.column_names:
            return False
        return bool(pa.types.is_boolean(rows.schema.field(TOMBSTONE).type))

    def _without_deletes(self, rows: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        if not self._has_deletes(rows):
            return rows
        kept = pc.invert(_false_if_null(rows.column(TOMBSTONE)))
        return rows.filter(kept).drop_columns([TOMBSTONE])

    def _fitted(self, rows: pa.Table, known: pa.Schema) -> tuple[pa.Table, int]:
        """Return the rows with the table's types, and how many values had to be left out."""
        fields, columns, ignored = [], [], 0
        deletes = self._has_deletes(rows)
        for field in rows.schema:
            name, column = field.name, rows.column(field.name)
            present = rows.num_rows - column.null_count
            if name == TOMBSTONE and deletes:
                column = _false_if_null(column)
            elif name in known.names:
                wanted = known.field(name).type
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
        self._check_missing([name for name in known.names if name not in fields])
        return type(rows).from_arrays(columns, names=fields), ignored

    def _check_new(self, names: Sequence[str]) -> None:
        if names and self.schema_changes == "fail":
            raise SpecError(
                f"delta sink {self.path}: the table has no column {names[0]}; schema_changes = "
                '"add" adds new columns to the table, "ignore" leaves them out'
            )

    def _check_missing(self, names: Sequence[str]) -> None:
        if names and self.schema_changes == "fail":
            raise SpecError(
                f"delta sink {self.path}: the pipeline returns no column {names[0]}, which the "
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
            f"delta sink {self.path}: column {name} is {column.type}, which does not fit "
            f"the table's {wanted}: {why}"
        )

    def _check_keys(self, rows: pa.Table) -> None:
        missing = [key for key in self.keys if key not in rows.column_names]
        if missing:
            raise SpecError(
                f"delta sink: there is no column {missing[0]} to merge by, only "
                + ", ".join(rows.column_names)
            )
        if (
            self.keys
            and rows.select(list(self.keys)).group_by(list(self.keys)).aggregate([]).num_rows
            < rows.num_rows
        ):
            raise SpecError(
                f"delta sink: a batch holds several rows for one {', '.join(self.keys)}; "
                "aggregate them, or merge by more columns"
            )


def _separated(rows: pa.Table, errors: Mapping[int, str]) -> tuple[pa.Table, list[Misfit]]:
    kept = [row for row in range(rows.num_rows) if row not in errors]
    places = sorted(errors)
    found = rows.take(places).to_pylist()
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


def _false_if_null(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(column, pa.scalar(value=False))


def _arrow_schema(table: Any) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


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
