"""The Delta sink: a table that takes each batch once and loses no column in silence.

Without keys, Spark's tasks write the files and the driver commits them. With keys, the driver
collects a batch and merges it.

Invariants:
    * The commit that adds a batch names the query and the batch, so that a repeated one is skipped.
    * A value is stored as it is, stored in a wider type, or reported: never rounded or cut.
    * A column is left out only with `schema_changes = "ignore"`, and is counted then.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import PARTITION_TYPES, FileTask
from sparkraft.pipeline.table_fit import TOMBSTONE, Misfit, TableFit, false_if_null, nullable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sparkraft.pipeline.table_files import Written


class Stored(NamedTuple):
    """The numbers of rows and values that a batch changed."""

    rows: int = 0
    deletes: int = 0
    ignored: int = 0
    """Values of columns that the table does not have."""


class DeltaSink:
    """A Delta table that takes each batch once.

    Args:
        path: path of the table, which the first batch with rows creates.
        keys: columns that name a row. A row replaces the one with equal keys, or deletes it if its
            column `tombstone` is true. Without keys all rows are added.
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
    ) -> None:
        self.path = path
        self.keys = tuple(keys)
        self.schema_changes = schema_changes
        self.partition_by = tuple(partition_by)

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

    @property
    def takes_files(self) -> bool:
        """Whether tasks may write files: no library checks rules of the table on these."""
        if self.keys:
            return False
        table = self._table()
        return table is None or not _has_rules(table)

    def file_task(self, schema: pa.Schema, name: str, *, separates: bool) -> FileTask:
        """The work of a batch's tasks.

        Args:
            schema: of the batch.
            name: of the batch, for file names.
            separates: whether rows that do not fit are returned instead of failing.

        Raises:
            SpecError: the schema does not fit the table.
        """
        table = self._table()
        rows = schema.empty_table()
        if table is None:
            columns, parts = nullable(schema), self.partition_by
            self._check_partitioning(columns)
            fit = TableFit(name=self._name, columns=columns, schema_changes=self.schema_changes)
        else:
            fit = self._fit(table, rows)
            fit.fitted(rows)
            parts = tuple(table.metadata().partition_columns)
        missing = [part for part in parts if part not in schema.names]
        if missing:
            raise SpecError(f"{self._name}: the rows have no column {missing[0]} to partition by")
        return FileTask(
            folder=self.path, prefix=name, fit=fit, separates=separates, partition_by=parts
        )

    def commit(
        self, task: FileTask, schema: pa.Schema, written: Written, query_id: str, batch_id: int
    ) -> Stored:
        """Add the files of a batch, and name the batch in the same commit.

        Raises:
            SpecError: another writer has changed the table so that the files do not fit.
        """
        from deltalake.exceptions import CommitFailedError

        if not written.files:
            return Stored(ignored=written.ignored)

        def commit_once() -> None:
            if not self.has(query_id, batch_id):
                self._commit(task, schema, written, query_id, batch_id)

        commit_with_retries(commit_once, CommitFailedError, self.path)
        return Stored(sum(each.rows for each in written.files), 0, written.ignored)

    def _commit(
        self, task: FileTask, schema: pa.Schema, written: Written, query_id: str, batch_id: int
    ) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.transaction import AddAction

        # With the types of the table as it was when the tasks began.
        columns = task.fit.fitted(schema.empty_table())[0].schema
        table = self._table()
        if table is None:
            parts = list(task.partition_by)
            DeltaTable.create(self.path, nullable(columns), mode="ignore", partition_by=parts)
        else:
            self._check_unchanged(table, task)
            if self.schema_changes == "add":
                write_deltalake(
                    self.path, columns.empty_table(), mode="append", schema_mode="merge"
                )
        table = self._table()
        now = int(time.time() * 1000)
        actions = [
            AddAction(
                path=each.path,
                size=each.size,
                partition_values=each.partition,
                modification_time=now,
                data_change=True,
                stats=json.dumps(each.stats),
            )
            for each in written.files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=list(task.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(query_id, batch_id)]),
        )

    def _check_unchanged(self, table: Any, task: FileTask) -> None:
        present = _arrow_schema(table)
        same = all(
            field.name in present.names and present.field(field.name).type == field.type
            for field in task.fit.columns
        )
        if not same or tuple(table.metadata().partition_columns) != task.partition_by:
            raise SpecError(f"{self._name}: another writer changed the table's columns meanwhile")

    def _check_partitioning(self, columns: pa.Schema) -> None:
        import pyarrow as pa

        kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)
        for name in self.partition_by:
            if name in columns.names and not any(is_a(columns.field(name).type) for is_a in kinds):
                raise SpecError(
                    f"{self._name}: partition_by takes {PARTITION_TYPES}, and column {name} is "
                    f"{columns.field(name).type}"
                )

    @property
    def _name(self) -> str:
        return f"delta sink {self.path}"

    # ---- rows that the driver writes

    def write(self, rows: pa.Table, query_id: str, batch_id: int) -> Stored:
        """Add or merge the rows, and name the batch in the same commit.

        If another writer commits to the same files meanwhile, it is tried again on the result.
        """
        from deltalake.exceptions import CommitFailedError

        return commit_with_retries(
            lambda: self._write(rows, query_id, batch_id), CommitFailedError, self.path
        )

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

    def _without_deletes(self, rows: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        if not self._has_deletes(rows):
            return rows
        kept = pc.invert(false_if_null(rows.column(TOMBSTONE)))
        return rows.filter(kept).drop_columns([TOMBSTONE])

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


def _has_rules(table: Any) -> bool:
    """Whether the table has constraints, generated columns or renamed ones."""
    configuration = table.metadata().configuration
    if any(key.startswith("delta.constraints.") for key in configuration):
        return True
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        return True
    rules = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
    return any(rule in field.metadata for field in table.schema().fields for rule in rules)


def _arrow_schema(table: Any) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())
