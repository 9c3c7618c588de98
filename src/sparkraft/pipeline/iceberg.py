"""The Iceberg sink: a table that takes each batch once, through `pyiceberg`.

Spark's tasks write the files, and the driver adds them in one snapshot. The catalog is pyiceberg's
SQL catalog in a file below the warehouse, unless the sink's options name another one.

Invariants:
    * The commit that adds a batch sets the table property `sparkraft.batch.<query id>`, so that a
      repeated one is skipped.

Not here: files (`table_files`), how rows fit (`table_fit`). Merging by keys, partitioning.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.delta import Stored
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import FileTask, filesystem
from sparkraft.pipeline.table_fit import TableFit, nullable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sparkraft.pipeline.table_files import Written

_BATCH: Final = "sparkraft.batch."
"""Begins the table property with the last batch of a query."""


class IcebergSink:
    """An Iceberg table that takes each batch once.

    Args:
        warehouse: folder of the SQL catalog and its tables; empty if `options` have a catalog.
        table: `namespace.name`; the first batch creates both.
        schema_changes: as for a Delta table.
        options: properties of pyiceberg's catalog, such as `type` and `uri`.
    """

    def __init__(
        self, warehouse: str, table: str, schema_changes: str, options: Mapping[str, str]
    ) -> None:
        self.table = table
        self.schema_changes = schema_changes
        self._options = dict(options)
        if warehouse:
            folder = warehouse if "://" in warehouse else f"file://{os.path.abspath(warehouse)}"
            self._options.setdefault("warehouse", folder)
        if "type" not in self._options and "uri" not in self._options:
            self._options["type"] = "sql"
            self._options["uri"] = f"sqlite:///{os.path.abspath(warehouse)}/catalog.db"
        self._warehouse = warehouse
        self._catalog: Any = None

    @property
    def name(self) -> str:
        """Its name in errors."""
        return f"iceberg sink {self.table}"

    def has(self, query_id: str, batch_id: int) -> bool:
        """Whether the table contains the batch."""
        table = self._table()
        return table is not None and _last_batch(table, query_id) >= batch_id

    def file_task(self, schema: pa.Schema, name: str, *, separates: bool) -> FileTask:
        """The work of a batch's tasks; creates a missing table.

        Raises:
            SpecError: the schema does not fit the table.
        """
        table = self._table()
        if table is None:
            table = self._create(schema)
        fit = TableFit(
            name=self.name, columns=_arrow_schema(table), schema_changes=self.schema_changes
        )
        fit.fitted(schema.empty_table())
        if table.spec().fields:
            raise SpecError(f"{self.name}: partitioned tables are not supported")
        folder = f"{table.location()}/data"
        return FileTask(folder=folder, prefix=name, fit=fit, separates=separates)

    def commit(
        self, task: FileTask, schema: pa.Schema, written: Written, query_id: str, batch_id: int
    ) -> Stored:
        """Add the files of a batch, and name the batch in the same commit."""
        from pyiceberg.exceptions import CommitFailedException

        if not written.files:
            return Stored(ignored=written.ignored)

        def commit_once() -> None:
            if not self.has(query_id, batch_id):
                self._commit(task, schema, written, query_id, batch_id)

        commit_with_retries(commit_once, CommitFailedException, self.name)
        return Stored(sum(each.rows for each in written.files), 0, written.ignored)

    def _commit(
        self, task: FileTask, schema: pa.Schema, written: Written, query_id: str, batch_id: int
    ) -> None:
        columns = task.fit.fitted(schema.empty_table())[0].schema
        table = self._table()
        present = _arrow_schema(table)
        if any(
            field.name not in present.names or present.field(field.name).type != field.type
            for field in task.fit.columns
        ):
            raise SpecError(f"{self.name}: another writer changed the table's columns meanwhile")
        transaction = table.transaction()
        if any(name not in present.names for name in columns.names) or self._adds(columns, present):
            with transaction.update_schema() as update:
                update.union_by_name(nullable(columns))
        transaction.add_files(
            [f"{task.folder}/{each.path}" for each in written.files],
            snapshot_properties={
                "sparkraft.query": query_id,
                "sparkraft.batch": str(batch_id),
            },
            check_duplicate_files=False,
        )
        transaction.set_properties({f"{_BATCH}{query_id}": str(batch_id)})
        transaction.commit_transaction()

    def _adds(self, columns: pa.Schema, present: pa.Schema) -> bool:
        """Whether a nested column may have new fields."""
        return self.schema_changes == "add" and any(
            field.name in present.names and present.field(field.name).type != field.type
            for field in columns
        )

    def _table(self) -> Any:
        catalog = self._catalog_of()
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return catalog.load_table(self.table)
        except NoSuchTableError:
            return None

    def _create(self, schema: pa.Schema) -> Any:
        catalog = self._catalog_of()
        catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
        return catalog.create_table_if_not_exists(self.table, nullable(schema))

    def _catalog_of(self) -> Any:
        if self._catalog is None:
            if find_spec("pyiceberg") is None:
                raise SpecError(
                    f"{self.name}: pyiceberg is not installed: pip install 'sparkraft[iceberg]'"
                )
            from pyiceberg.catalog import load_catalog

            if self._warehouse:
                system, path = filesystem(self._warehouse)
                system.create_dir(path, recursive=True)
            self._catalog = load_catalog("sparkraft", **self._options)
        return self._catalog


def _last_batch(table: Any, query_id: str) -> int:
    return int(table.properties.get(f"{_BATCH}{query_id}", -1))


def _arrow_schema(table: Any) -> pa.Schema:
    """The columns, without the ids that Iceberg keeps in their metadata."""
    import pyarrow as pa

    fields = table.schema().as_arrow()
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in fields])


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without metadata of nested fields, and with Spark's width of texts."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
