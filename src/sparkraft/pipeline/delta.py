"""The Delta sink: a table that takes each batch once and loses no column in silence.

Spark's tasks write the files and the driver commits them. The driver collects a batch and writes
it itself only if deltalake must do more than add and remove files: see `why_collected`.

Invariants:
    * The commit that adds a batch names the query and the batch, so that a repeated one is skipped.
    * A value is stored as it is, stored in a wider type, or reported: never rounded or cut.
    * A column is left out only with `schema_changes = "ignore"`, and is counted then.
    * Files are committed only if their rows obey the rules that the table has at that time.

Not here: rules (`table_rules`), rows that do not fit (`table_fit`).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import (
    FileTask,
    Stored,
    as_bound,
    partition_text,
)
from sparkraft.pipeline.table_fit import TOMBSTONE, Misfit, TableFit, false_if_null, nullable
from sparkraft.pipeline.table_merge import (
    KeyedTask,
    check_keys,
    check_partitioning,
    is_partition_type,
    last_rows,
    partition_types,
    sorted_rows,
)
from sparkraft.pipeline.table_names import inverse, names_of, renamed_keys
from sparkraft.pipeline.table_rewrite import DataFile
from sparkraft.pipeline.table_rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkraft.pipeline.table_files import Bounds, TableFile, Written
    from sparkraft.pipeline.table_merge import Merge
    from sparkraft.pipeline.table_names import Names
    from sparkraft.pipeline.table_rules import TableRules


T = TypeVar("T")

_NEVER_COMMITTED: Final = {
    "Unsupported table features": "drop them from the table, or write to another table",
    "table is append-only": "leave out keys, or set its property delta.appendOnly to false",
}
"""Texts of deltalake's errors, and remedies."""


class DeltaSink:
    """A Delta table that takes each batch once.

    Args:
        path: path of the table, which the first batch with rows creates.
        keys: columns that name a row. A row replaces the one with equal keys, or deletes it if its
            column `tombstone` is true. Without keys all rows are added.
        order_by: with keys, a column that is not stored: of rows with equal keys in a batch, the
            one with its greatest value counts.
        schema_changes: the action if columns of a batch differ from the table's: `fail`, `add`
            new ones to the table, or `ignore` new ones. With `add` and `ignore`, a column that
            the batch lacks is null in added rows and unchanged in replaced ones.
        partition_by: columns by which the first batch partitions the table.
    """

    def __init__(
        self,
        path: str,
        keys: Sequence[str],
        schema_changes: str = "fail",
        partition_by: Sequence[str] = (),
        order_by: str = "",
    ) -> None:
        self.path = path
        self.keys = tuple(keys)
        self.order_by = order_by
        self.schema_changes = schema_changes
        self.partition_by = tuple(partition_by)
        self._rules: TableRules | None = None
        """Rules that the rows of the batch's files obey; None for those of a new table."""

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
        return (rows, []) if table is None else self._fit(table, rows).without_misfits(rows)

    # ---- files that tasks write

    def why_collected(self, columns: Collection[str]) -> str | None:
        """Why the driver must collect a batch with these columns; None if tasks write its files.

        The answer is the rest of a sentence about the table.
        """
        table = self._table()
        if table is None:
            return None
        if not _has_plain_partitions(table):
            return f"is partitioned by other types than {partition_types(by_times=True)}"
        return self._why_merged(table, columns) if self.keys else None

    def _why_merged(self, table: Any, columns: Collection[str]) -> str | None:
        """Why deltalake itself must replace rows.

        It writes changes for a feed and removes files with deletion vectors; its list of actions
        allows neither. And if replaced rows keep values, only their merged rows can be checked by
        the table's rules.
        """
        if _has_change_data_feed(table):
            return "has a change data feed, which has each replaced row"
        if _has_deletion_vectors(table):
            return "has files with deletion vectors, which deltalake replaces only in a merge"
        if rules_of(table).rules and self._keeps_values(table, columns):
            return "has rules, and the pipeline does not return all of its columns"
        return None

    def ruled(self, batch: DataFrame) -> DataFrame:
        """Add the generated columns that a batch lacks, and mark rows that break a rule.

        Files of the batch can be committed as long as the table has the same rules.

        Raises:
            SpecError: Spark cannot evaluate a rule.
        """
        table = self._table()
        if table is None:
            self._rules = None
            return batch
        self._rules = rules_of(table)
        if self.keys and self._keeps_values(table, batch.columns):
            return batch
        deletes = bool(self.keys) and (TOMBSTONE, "boolean") in batch.dtypes
        return self._rules.applied(batch, self._name, deletes=deletes)

    def _keeps_values(self, table: Any, columns: Collection[str]) -> bool:
        return rules_of(table).lacks(columns)

    def file_task(self, schema: pa.Schema, name: str, *, separates: bool) -> FileTask:
        """The work of a batch's tasks.

        Args:
            schema: of the batch.
            name: of the batch, for file names.
            separates: whether rows that do not fit are returned instead of failing.

        Raises:
            SpecError: the schema does not fit the table.
        """
        rows = schema.empty_table()
        if self.order_by:
            rows = rows.drop_columns([self.order_by])
        table = self._table()
        if table is None:
            names: Names = {}
            stored, parts = self._without_marks(schema.empty_table()).schema, self.partition_by
            check_partitioning(self._name, stored, self.partition_by, by_times=True)
            fit = TableFit(
                name=self._name,
                columns=nullable(stored),
                schema_changes=self.schema_changes,
                deletes=self._has_deletes(rows),
            )
        else:
            fit, names = self._fit(table, rows), names_of(table)
            fitted, _ = fit.fitted(rows)
            if names:
                self._check_nothing_added(fit, fitted.schema)
            parts = tuple(table.metadata().partition_columns)
        missing = [part for part in parts if part not in schema.names]
        if missing:
            raise SpecError(f"{self._name}: the rows have no column {missing[0]} to partition by")
        return FileTask(
            folder=self.path,
            prefix=name,
            fit=fit,
            separates=separates,
            partition_by=parts,
            names=names,
        )

    def _check_nothing_added(self, fit: TableFit, fitted: pa.Schema) -> None:
        """Refuse new columns, also inside of others, for a table with column mapping."""
        for field in fitted:
            is_mark = fit.deletes and field.name == TOMBSTONE
            if not is_mark and not _contains(fit.columns, [field]):
                raise SpecError(
                    f"{self._name}: column {field.name} is new, or has new fields, and deltalake "
                    "cannot add them to a table with column mapping: add them with the program "
                    'that has renamed columns, or set schema_changes = "ignore"'
                )

    def keyed_task(self, schema: pa.Schema, name: str, *, separates: bool) -> KeyedTask:
        """The same for a table with keys."""
        check_keys(self._name, schema, self.keys, self.order_by)
        return KeyedTask(
            files=self.file_task(schema, name, separates=separates),
            keys=self.keys,
            order_by=self.order_by,
        )

    def merge(self, merge: Merge, query_id: str, batch_id: int) -> Stored:
        """Replace and delete rows by the files of a batch, and name the batch in the same commit.

        If another writer commits first, only its files are searched for the batch's keys.

        Raises:
            SpecError: another writer has changed the table so that the files do not fit.
        """
        task, written = merge.task.files, merge.written
        if not written.keys or (self._table() is None and not written.files):
            return merge.stored
        columns = self._prepared(task, merge.schema)

        def commit_once() -> None:
            if not self.has(query_id, batch_id):
                table = self._unchanged(task, columns)
                self._write_merge(table, merge, query_id, batch_id)

        self._committed(commit_once)
        merge.delete_keys()
        return merge.stored

    def _write_merge(self, table: Any, merge: Merge, query_id: str, batch_id: int) -> None:
        from deltalake.transaction import RemoveAction

        names = merge.task.files.names
        change = merge.onto(_data_files(table, names))
        now = int(time.time() * 1000)
        removed = [
            RemoveAction(
                path=each.path,
                data_change=True,
                deletion_timestamp=now,
                size=each.size,
                partition_values=renamed_keys(each.partition, names),
            )
            for each in change.removed
        ]
        actions = [*removed, *_added(change.added, now, names)]
        self._write_actions(table, actions, merge.task.files, query_id, batch_id)

    def commit(
        self, task: FileTask, schema: pa.Schema, written: Written, query_id: str, batch_id: int
    ) -> Stored:
        """Add the files of a batch, and name the batch in the same commit.

        Raises:
            SpecError: another writer has changed the table so that the files do not fit.
        """
        if not written.files:
            return Stored(ignored=written.ignored)

        columns = self._prepared(task, schema)

        def commit_once() -> None:
            if not self.has(query_id, batch_id):
                table = self._unchanged(task, columns)
                actions = _added(written.files, int(time.time() * 1000), task.names)
                self._write_actions(table, actions, task, query_id, batch_id)

        self._committed(commit_once)
        return Stored(sum(each.rows for each in written.files), 0, written.ignored)

    def _prepared(self, task: FileTask, schema: pa.Schema) -> pa.Schema:
        """Create the table, or add the columns of a batch; return its columns then."""
        from deltalake import DeltaTable, write_deltalake

        if self._table() is None:
            parts = list(task.partition_by)
            columns = nullable(task.fit.columns)
            DeltaTable.create(self.path, columns, mode="ignore", partition_by=parts)
        table = self._unchanged(task, task.fit.columns)
        # With the types of the table as it was when the tasks began.
        added = task.fit.fitted(self._without_marks(schema.empty_table()))[0].schema
        if self.schema_changes == "add" and not _contains(_arrow_schema(table), added):
            write_deltalake(self.path, added.empty_table(), mode="append", schema_mode="merge")
            table = self._table()
        return _arrow_schema(table)

    def _unchanged(self, task: FileTask, columns: pa.Schema) -> Any:
        """The table, if it still has these columns."""
        table = self._table()
        present = _arrow_schema(table)
        same = _contains(present, columns) and names_of(table) == task.names
        if self.keys:
            # Replaced rows would lose their values in new columns.
            same &= len(present) == len(columns)
        if not same or tuple(table.metadata().partition_columns) != task.partition_by:
            raise SpecError(f"{self._name}: another writer changed the table's columns meanwhile")
        if rules_of(table).rules != (self._rules.rules if self._rules else ()):
            raise SpecError(f"{self._name}: another writer changed the table's rules meanwhile")
        if self.keys and (_has_change_data_feed(table) or _has_deletion_vectors(table)):
            raise SpecError(
                f"{self._name}: another writer deleted rows by deletion vectors or began a change "
                "data feed meanwhile: start the pipeline again"
            )
        return table

    def _write_actions(
        self, table: Any, actions: Sequence[Any], task: FileTask, query_id: str, batch_id: int
    ) -> None:
        from deltalake import CommitProperties, Transaction

        table.create_write_transaction(
            list(actions),
            "append",
            table.schema(),
            partition_by=list(task.partition_by),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(query_id, batch_id)],
                # With keys, the batch must be searched for in what another writer has added.
                max_commit_retries=0 if self.keys else None,
            ),
        )

    @property
    def _name(self) -> str:
        return f"delta sink {self.path}"

    # ---- rows that the driver writes

    def write(self, rows: pa.Table, query_id: str, batch_id: int) -> Stored:
        """Add or merge the rows, and name the batch in the same commit.

        If another writer commits to the same files meanwhile, it is tried again on the result.
        """
        return self._committed(lambda: self._write(rows, query_id, batch_id))

    def _write(self, rows: pa.Table, query_id: str, batch_id: int) -> Stored:
        from deltalake import CommitProperties, Transaction

        if not rows.num_rows:
            return Stored()
        rows = self._latest(rows)
        noted = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
        table = self._table()
        if table is None:
            rows = self._without_deletes(rows)
            if rows.num_rows:
                self._append(rows, noted)
            return Stored(rows.num_rows)
        rows, ignored = self._fit(table, rows).fitted(rows)
        deletes = self._merge(table, rows, noted) if self.keys else self._append(rows, noted)
        return Stored(rows.num_rows - deletes, deletes, ignored)

    def _append(self, rows: pa.Table, noted: Any) -> int:
        from deltalake import write_deltalake

        write_deltalake(
            self.path,
            rows,
            mode="append",
            partition_by=list(self.partition_by) or None,
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

    def _committed(self, commit: Callable[[], T]) -> T:
        """Commit beside other writers; report at once if no attempt can succeed."""
        from deltalake.exceptions import CommitFailedError

        def attempt() -> T:
            try:
                return commit()
            except CommitFailedError as error:
                for text, remedy in _NEVER_COMMITTED.items():
                    if text in str(error):
                        raise SpecError(f"{self._name}: {error}: {remedy}") from error
                raise

        return commit_with_retries(attempt, CommitFailedError, self.path)

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.path) if DeltaTable.is_deltatable(self.path) else None

    def _fit(self, table: Any, rows: pa.Table) -> TableFit:
        return TableFit(
            name=self._name,
            columns=_arrow_schema(table),
            schema_changes=self.schema_changes,
            deletes=self._has_deletes(rows),
        )

    def _has_deletes(self, rows: pa.Table) -> bool:
        import pyarrow as pa

        if not self.keys or TOMBSTONE not in rows.column_names:
            return False
        return bool(pa.types.is_boolean(rows.schema.field(TOMBSTONE).type))

    def _without_marks(self, rows: pa.Table) -> pa.Table:
        """The columns to store."""
        marks = [self.order_by] if self.order_by else []
        if self._has_deletes(rows):
            marks.append(TOMBSTONE)
        return rows.drop_columns(marks) if marks else rows

    def _without_deletes(self, rows: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        if not self._has_deletes(rows):
            return rows
        kept = pc.invert(false_if_null(rows.column(TOMBSTONE)))
        return rows.filter(kept).drop_columns([TOMBSTONE])

    def _latest(self, rows: pa.Table) -> pa.Table:
        """One row for each key; an error if that is not defined."""
        if not self.keys:
            return rows
        check_keys(self._name, rows.schema, self.keys, self.order_by)
        rows = sorted_rows(rows, self.keys, self.order_by)
        rows = last_rows(self._name, rows, self.keys, self.order_by)
        return rows.drop_columns([self.order_by]) if self.order_by else rows


def _added(files: Sequence[TableFile], now: int, names: Names) -> list[Any]:
    from deltalake.transaction import AddAction

    return [
        AddAction(
            path=each.path,
            size=each.size,
            partition_values=renamed_keys(each.partition, names),
            modification_time=now,
            data_change=True,
            stats=json.dumps(each.stats),
        )
        for each in files
    ]


def _data_files(table: Any, names: Names) -> list[DataFile]:
    """The files of the table, with the bounds in its log."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    parts, columns = table.metadata().partition_columns, inverse(names)
    return [
        DataFile(
            # Delta's log has paths as URIs.
            path=unquote(each["path"]),
            size=each["size_bytes"],
            partition={name: partition_text(each["partition"][name]) for name in parts},
            bounds=_bounds(each, columns),
        )
        for each in actions
    ]


def _bounds(action: dict[str, Any], columns: Names) -> Bounds:
    low, high, nulls = (
        renamed_keys(action.get(name) or {}, columns) for name in ("min", "max", "null_count")
    )
    found: Bounds = {}
    for name in low:
        first, last = as_bound(low[name]), as_bound(high.get(name))
        if first is not None and last is not None:
            found[name] = first, last, nulls.get(name) != 0
        elif nulls.get(name) == action["num_records"]:
            found[name] = None, None, True
    for name, value in (action.get("partition") or {}).items():
        if value is None or as_bound(value) is not None:
            found[name] = as_bound(value), as_bound(value), value is None
    return found


def _contains(present: pa.Schema, columns: Iterable[pa.Field[Any]]) -> bool:
    return all(
        field.name in present.names and present.field(field.name).type == field.type
        for field in columns
    )


def _has_change_data_feed(table: Any) -> bool:
    return bool(table.metadata().configuration.get("delta.enableChangeDataFeed") == "true")


def _has_deletion_vectors(table: Any) -> bool:
    """Whether rows of a file are deleted without a new file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return False
    return any(batch.num_rows for batch in table.deletion_vectors())


def _has_plain_partitions(table: Any) -> bool:
    """Whether the texts of partition values in the log are those that tasks write."""
    columns = _arrow_schema(table)
    parts = [columns.field(name).type for name in table.metadata().partition_columns]
    return all(is_partition_type(each, by_times=True) for each in parts)


def _arrow_schema(table: Any) -> pa.Schema:
    """The table's columns and their types; which of them may be null is a rule (`table_rules`)."""
    import pyarrow as pa

    return nullable(pa.schema(table.schema().to_arrow()))
