"""The Iceberg sink: a table that takes each batch once, through `pyiceberg`.

Spark's tasks write the files, and the driver commits them in one snapshot. With keys, the snapshot
also replaces those files that have rows of the batch's keys. The catalog is pyiceberg's SQL catalog
in a file below the warehouse, unless the sink's options name another one.

Invariants:
    * The commit that adds a batch sets the table property `sparkraft.batch.<query id>`, so that a
      repeated one is skipped. It fails if another snapshot was first, and is made again on top of
      that one, if the property does not have the batch by then. pyiceberg's own retries do not look
      at the property, so they are turned off.

Not here: files (`table_files`), how rows fit (`table_fit`), rows with keys (`table_merge`).
"""

from __future__ import annotations

import os
from datetime import date, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import (
    FileTask,
    Stored,
    as_bound,
    filesystem,
    partition_text,
)
from sparkraft.pipeline.table_fit import TOMBSTONE, TableFit, nullable, promoted
from sparkraft.pipeline.table_merge import KeyedTask, check_keys, check_partitioning
from sparkraft.pipeline.table_rewrite import DataFile
from sparkraft.pipeline.table_transforms import IDENTITY, Part, part_in_iceberg, part_of, takes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkraft.pipeline.iceberg_replace import Manifests
    from sparkraft.pipeline.table_files import Bounds, TableFile, Written
    from sparkraft.pipeline.table_merge import Merge

_BATCH: Final = "sparkraft.batch."
"""Begins the table property with the last batch of a query."""

_EPOCH: Final = date(1970, 1, 1)


class _Batch(NamedTuple):
    """A batch that tasks have written."""

    task: FileTask
    schema: pa.Schema
    query_id: str
    number: int


class IcebergSink:
    """An Iceberg table that takes each batch once.

    Args:
        warehouse: folder of the SQL catalog and its tables; empty if `options` have a catalog.
        table: `namespace.name`; the first batch creates both.
        schema_changes: as for a Delta table.
        options: properties of pyiceberg's catalog, such as `type` and `uri`.
        keys: as for a Delta table.
        order_by: likewise.
        partition_by: columns, or transforms such as `day(at)`, by which the first batch partitions
            the table (see `table_transforms`).
    """

    def __init__(  # noqa: PLR0913 (the fields of the sink)
        self,
        warehouse: str,
        table: str,
        schema_changes: str,
        options: Mapping[str, str],
        *,
        keys: Sequence[str] = (),
        order_by: str = "",
        partition_by: Sequence[str] = (),
    ) -> None:
        self.table = table
        self.schema_changes = schema_changes
        self.keys = tuple(keys)
        self.order_by = order_by
        self.partition_by = tuple(partition_by)
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
        table = self.loaded()
        return table is not None and _last_batch(table, query_id) >= batch_id

    def file_task(self, schema: pa.Schema, name: str, *, separates: bool) -> FileTask:
        """The work of a batch's tasks; creates a missing table.

        Raises:
            SpecError: the schema does not fit the table.
        """
        rows = self._without_marks(schema.empty_table())
        table = self.loaded()
        if table is None:
            table = self._create(rows.schema)
        columns = _arrow_schema(table)
        if self.schema_changes == "add":
            columns = promoted(columns, rows.schema)
        fit = TableFit(
            name=self.name,
            columns=columns,
            schema_changes=self.schema_changes,
            deletes=self._has_deletes(schema),
        )
        fit.fitted(rows)
        return FileTask(
            folder=f"{table.location()}/data",
            prefix=name,
            fit=fit,
            separates=separates,
            partition_by=self._parts(table, schema),
            keeps_parts=True,
        )

    def keyed_task(self, schema: pa.Schema, name: str, *, separates: bool) -> KeyedTask:
        """The same for a table with keys."""
        check_keys(self.name, schema, self.keys, self.order_by)
        files = self.file_task(schema, name, separates=separates)
        return KeyedTask(files=files, keys=self.keys, order_by=self.order_by)

    def commit(
        self, task: FileTask, schema: pa.Schema, written: Written, query_id: str, batch_id: int
    ) -> Stored:
        """Add the files of a batch, and name the batch in the same commit."""
        batch = _Batch(task, schema, query_id, batch_id)

        def commit_once() -> None:
            table = self._unchanged(task, schema)
            if _last_batch(table, query_id) < batch_id:
                self._write(table, batch, written.files)

        if written.files:
            commit_with_retries(commit_once, retried_errors(), self.name)
        return Stored(sum(each.rows for each in written.files), 0, written.ignored)

    def merge(self, merge: Merge, query_id: str, batch_id: int) -> Stored:
        """Replace and delete rows by the files of a batch, and name the batch in the same commit.

        If another writer commits first, only its files are searched for the batch's keys.

        Raises:
            SpecError: the table has files that cannot be searched.
        """
        from sparkraft.pipeline.iceberg_replace import Manifests

        task = merge.task.files
        batch = _Batch(task, merge.schema, query_id, batch_id)
        manifests = Manifests()

        def commit_once() -> None:
            table = self._unchanged(task, merge.schema)
            if _last_batch(table, query_id) >= batch_id:
                return
            present = data_files(table, self.name, task.folder, manifests)
            change = merge.onto([each for each, _ in present.values()])
            removed = [present[each.path][1] for each in change.removed]
            self._write(table, batch, change.added, removed, manifests)

        if merge.written.keys:
            commit_with_retries(commit_once, retried_errors(), self.name)
            merge.delete_keys()
        return merge.stored

    def _unchanged(self, task: FileTask, schema: pa.Schema) -> Any:
        """The table, if it still has the columns of when the tasks began."""
        table = self.loaded()
        present = _arrow_schema(table)
        known = {*task.fit.columns.names, *schema.names} if self.keys else {*present.names}
        # The commit of the batch widens types, if an earlier attempt has not done so.
        widened = promoted(present, task.fit.columns) if self.schema_changes == "add" else present
        if not {*present.names} <= known or any(
            field.name not in present.names or widened.field(field.name).type != field.type
            for field in task.fit.columns
        ):
            raise SpecError(f"{self.name}: another writer changed the table's columns meanwhile")
        return table

    def _write(
        self,
        table: Any,
        batch: _Batch,
        added: Sequence[TableFile],
        removed: Sequence[Any] = (),
        manifests: Manifests | None = None,
    ) -> None:
        task, schema, query_id, number = batch
        columns = task.fit.fitted(self._without_marks(schema.empty_table()))[0].schema
        present = _arrow_schema(table)
        transaction = transaction_of(table)
        if any(name not in present.names for name in columns.names) or self._adds(columns, present):
            with transaction.update_schema() as update:
                update.union_by_name(nullable(columns))
        write_snapshot(
            transaction,
            task.folder,
            added,
            removed,
            {"sparkraft.query": query_id, "sparkraft.batch": str(number)},
            manifests,
        )
        transaction.set_properties({f"{_BATCH}{query_id}": str(number)})
        transaction.commit_transaction()

    def _adds(self, columns: pa.Schema, present: pa.Schema) -> bool:
        """Whether a column has a wider type, or may have new fields inside."""
        return self.schema_changes == "add" and any(
            field.name in present.names and present.field(field.name).type != field.type
            for field in columns
        )

    def loaded(self) -> Any:
        """The table as it is now; None if there is none."""
        catalog = self._catalog_of()
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return catalog.load_table(self.table)
        except NoSuchTableError:
            return None

    def _create(self, schema: pa.Schema) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError

        parts = [part_of(each) for each in self.partition_by]
        for part in parts:
            check_part(self.name, schema, part)
        catalog = self._catalog_of()

        def create() -> None:
            if self.loaded() is not None:
                return
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            with catalog.create_table_transaction(self.table, nullable(schema)) as transaction:
                if parts:
                    with transaction.update_spec() as update:
                        for part in parts:
                            update.add_field(part.column, part.in_iceberg, _field_name(part))

        errors = (*retried_errors(), TableAlreadyExistsError)
        commit_with_retries(create, errors, self.name)
        return self.loaded()

    def _parts(self, table: Any, schema: pa.Schema) -> tuple[str, ...]:
        """The columns and transforms by which the table is partitioned."""
        found = []
        for field, part in _spec_parts(table.schema(), table.spec()):
            if part is None:
                raise SpecError(
                    f"{self.name}: tables partitioned by {field.transform} are not supported"
                )
            if part.column not in schema.names:
                raise SpecError(
                    f"{self.name}: the rows have no column {part.column} to partition by"
                )
            found.append(str(part))
        return tuple(found)

    def _has_deletes(self, schema: pa.Schema) -> bool:
        import pyarrow as pa

        if not self.keys or TOMBSTONE not in schema.names:
            return False
        return bool(pa.types.is_boolean(schema.field(TOMBSTONE).type))

    def _without_marks(self, rows: pa.Table) -> pa.Table:
        """The columns to store."""
        marks = [self.order_by] if self.order_by else []
        if self._has_deletes(rows.schema):
            marks.append(TOMBSTONE)
        return rows.drop_columns(marks) if marks else rows

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


def retried_errors() -> tuple[type[Exception], ...]:
    """Errors of a commit after which the table is read again, and the commit made if it lacks it.

    Another writer was first; a catalog was busy; or its answer was lost, and it may have committed.
    It cannot do so later: a commit names the snapshot that it follows.
    """
    from pyiceberg import exceptions as known
    from requests import exceptions as of_requests

    found: tuple[type[Exception], ...] = (
        known.CommitFailedException,
        known.CommitStateUnknownException,
        known.ServerError,
        known.ServiceUnavailableError,
        known.TooManyRequestsError,
        known.ValidationException,
        known.WaitingForLockException,
        of_requests.ConnectionError,
        of_requests.Timeout,
    )
    if find_spec("sqlalchemy") is None:
        return found
    # Such as a lock that another process holds, or a connection that broke.
    from sqlalchemy.exc import OperationalError

    return (*found, OperationalError)


def transaction_of(table: Any) -> Any:
    """A transaction that fails if another snapshot is first; its settings are not stored."""
    from sparkraft.pipeline.iceberg_replace import QuickTransaction

    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return QuickTransaction(table)


def write_snapshot(
    transaction: Any,
    folder: str,
    added: Sequence[TableFile],
    removed: Sequence[Any],
    properties: dict[str, str],
    manifests: Manifests | None = None,
) -> None:
    """Add and remove files in a snapshot of a transaction.

    Args:
        transaction: of the table.
        folder: of the files.
        added: files that tasks wrote, without Iceberg's field ids.
        removed: pyiceberg's files.
        properties: of the snapshot.
        manifests: those that earlier attempts have read, if files are removed.
    """
    from sparkraft.pipeline.iceberg_replace import Manifests, ReplaceFiles

    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    update = transaction.update_snapshot(snapshot_properties=properties)
    with (
        ReplaceFiles(transaction, properties, manifests or Manifests())
        if removed
        else update.fast_append()
    ) as snapshot:
        for each in added:
            snapshot.append_data_file(
                _data_file(
                    snapshot._io,  # noqa: SLF001 (a transaction has no other way to its files)
                    transaction.table_metadata,
                    f"{folder}/{each.path}",
                    each,
                )
            )
        for old in removed:
            snapshot.delete_data_file(old)


def _data_file(io: Any, metadata: Any, path: str, written: TableFile) -> Any:
    """Pyiceberg's description of a file.

    Its own function for this takes the partition from the file's statistics. They leave out long
    texts, and a bucket does not follow from them; the task knows the partition.
    """
    import pyarrow.parquet as pq
    from pyiceberg.io import pyarrow as of_arrow
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import DataFileContent, FileFormat

    schema = metadata.schema()
    with io.new_input(path).open() as source:
        footer = pq.read_metadata(source)
    statistics = of_arrow.data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=of_arrow.compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=of_arrow.parquet_path_to_id_mapping(schema),
    )
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=_record(metadata, written),
        file_size_in_bytes=written.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _record(metadata: Any, written: TableFile) -> Any:
    """The partition of a file as Iceberg stores it."""
    from pyiceberg.typedef import Record

    schema = metadata.schema()
    parts = [str(part or field.name) for field, part in _spec_parts(schema, metadata.spec())]
    if parts != list(written.partition):
        raise SpecError(
            f"another writer changed the table's partitioning meanwhile: {written.path} is "
            f"partitioned by {', '.join(written.partition) or 'nothing'}"
        )
    kinds = [
        str(field.transform.result_type(schema.find_type(field.source_id)))
        for field in metadata.spec().fields
    ]
    values = written.partition.values()
    return Record(*(_stored_value(*each) for each in zip(kinds, values, strict=True)))


def _stored_value(kind: str, text: str | None) -> Any:
    """A partition value from its text. Dates are days since 1970; transforms give numbers."""
    if text is None or kind == "string":
        return text
    if kind == "boolean":
        return text == "true"
    if kind == "date" and "-" in text[1:]:
        return (date.fromisoformat(text) - _EPOCH).days
    return int(text)


def _spec_parts(schema: Any, spec: Any) -> Iterator[tuple[Any, Part | None]]:
    """The fields of a partitioning; None for an unknown transform."""
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or ""
        yield field, part_in_iceberg(column, str(field.transform))


def _field_name(part: Part) -> str | None:
    """The name of a new partition field, such as `at_day`; pyiceberg chooses others."""
    return part.column if part.transform == IDENTITY else None


def check_part(name: str, columns: pa.Schema, part: Part) -> None:
    """Refuse to partition a new table by a column that is missing or of another type.

    Args:
        name: of the sink, for the error.
        columns: of the table.
        part: to partition by.
    """
    if part.transform == IDENTITY:
        check_partitioning(name, columns, [part.column])
        return
    if part.column not in columns.names:
        raise SpecError(f"{name}: the rows have no column {part.column} to partition by")
    kind = columns.field(part.column).type
    if not takes(part, kind):
        raise SpecError(
            f"{name}: partition_by has {part}, and {part.transform} of {kind} is not supported"
        )


def _partition(schema: Any, spec: Any, file: Any) -> dict[str, str | None]:
    """The columns and transforms of a file's partition, and their values as texts."""
    found = {}
    for (field, part), value in zip(_spec_parts(schema, spec), file.partition, strict=True):
        kind = str(schema.find_type(field.source_id))
        whole = value
        if isinstance(value, date) and str(field.transform) != IDENTITY:
            whole = (value - _EPOCH).days
        elif kind == "date" and isinstance(value, int) and str(field.transform) == IDENTITY:
            # Dates are days since 1970.
            whole = _EPOCH + timedelta(days=value)
        found[str(part or field.name)] = partition_text(whole)
    return found


def data_files(
    table: Any, name: str, folder: str, manifests: Manifests
) -> dict[str, tuple[DataFile, Any]]:
    """The files of a table by path, and pyiceberg's files.

    Args:
        table: pyiceberg's.
        name: of the sink, for errors.
        folder: of the paths, if a file is below it.
        manifests: those that earlier attempts have read.

    Raises:
        SpecError: rows cannot be found by their names in the files alone.
    """
    _check_names(table, name)
    schema = table.schema()
    found = {}
    live = manifests.live(table)
    for file in _without_deletes(table, name) if live is None else live.values():
        path = file.file_path.removeprefix(f"{folder}/")
        parts = _partition(schema, table.specs()[file.spec_id], file)
        data = DataFile(path, file.file_size_in_bytes, parts, _bounds(schema, file))
        found[path] = data, file
    return found


def _without_deletes(table: Any, name: str) -> Iterator[Any]:
    for task in table.scan().plan_files():
        if task.delete_files:
            raise SpecError(
                f"{name}: the table has delete files, which another writer must compact first"
            )
        yield task.file


def _bounds(schema: Any, file: Any) -> Bounds:
    from pyiceberg.conversions import from_bytes

    low, high = file.lower_bounds or {}, file.upper_bounds or {}
    nulls = file.null_value_counts or {}
    found: Bounds = {}
    for field in schema.fields:
        number = field.field_id
        if number in low and number in high:
            ends: list[Any] = [from_bytes(field.field_type, each[number]) for each in (low, high)]
            if str(field.field_type) == "date":
                ends = [_EPOCH + timedelta(days=each) for each in ends]
            first, last = ends
            if as_bound(first) is not None and as_bound(last) is not None:
                found[field.name] = as_bound(first), as_bound(last), nulls.get(number) != 0
        elif nulls.get(number) == file.record_count:
            found[field.name] = None, None, True
    return found


def _check_names(table: Any, name: str) -> None:
    """Refuse tables in whose older files a name means another column."""
    seen: dict[str, int] = {}
    numbers: dict[int, str] = {}
    for schema in table.schemas().values():
        for field in schema.fields:
            known = seen.setdefault(field.name, field.field_id)
            if known != field.field_id or numbers.setdefault(known, field.name) != field.name:
                raise SpecError(f"{name}: column {field.name} was renamed or added again")


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
