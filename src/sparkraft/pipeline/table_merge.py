"""Batches by key into a table's Parquet files: Spark's tasks write them, the driver commits.

    1. `KeyedTask`    writes the rows of a batch to new files, and their keys to key files
    2. `RewriteTask`  finds rows with these keys in the table's files, and writes these files again
                      without the rows
    3. `FillTask`     only if the batch lacks columns: writes the new files again, with the values
                      that replaced rows had there
    4. `Merge`        has the result: the files to remove and to add, for one commit

A file of a table never changes. So what step 2 found in a file stays valid if another writer
commits first: only files that are new since then are searched (`Merge.onto`).

Invariants:
    * A row of the table whose key is in the batch is in no file after the commit, except as the
      batch's row.
    * Tasks have some rows and keys in memory, whatever the batch's size; the driver has names and
      bounds of files.

Not here: steps 2 and 3 (`table_rewrite`), files (`table_files`), commits (`delta`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sparkraft.pipeline.key_match import last_of_runs
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import (
    FileTask,
    FileWriter,
    Stored,
    TableFile,
    bounds_of,
    filesystem,
    misfit_row,
    report,
)
from sparkraft.pipeline.table_fit import TOMBSTONE
from sparkraft.pipeline.table_rewrite import DataFile, FillTask, RewriteTask, Rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from sparkraft.pipeline.table_files import Bounds, Written

    Runner = Callable[[Sequence["Work"]], list[Rewritten]]

_TASK_BYTES: Final = 64 << 20
"""Files that one task searches."""

_TASK_FILES: Final = 100
"""All files of a task are open at once."""

_ORDER: Final = "__sparkraft_order"


class Change(NamedTuple):
    """The files of a commit."""

    removed: tuple[DataFile, ...]
    added: tuple[TableFile, ...]


class Work(Protocol):
    """A task that Spark or this process can run."""

    @property
    def bytes(self) -> int:
        """About as many are read."""
        ...

    def run(self) -> list[Rewritten]:
        """Do it. Files of a failed attempt stay without a commit."""
        ...


def run_here(tasks: Sequence[Work]) -> list[Rewritten]:
    """Run tasks one after another in this process."""
    return [each for task in tasks for each in task.run()]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTask:
    """The first step, for rows that are sorted by `keys` and `order_by`.

    All rows with equal keys must be in one task.

    Args:
        files: how rows fit and where they are written.
        keys: columns that name a row.
        order_by: a column that is not stored: of rows with equal keys, the one with its greatest
            value counts. Empty if there must be one row for each key.
    """

    files: FileTask
    keys: tuple[str, ...]
    order_by: str = ""

    @property
    def folder(self) -> str:
        """The table's."""
        return self.files.folder

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows; yield reports. An error of a row is a report as well."""
        to = self.files
        files = to.writer()
        keys = FileWriter(to.folder, f"keys-{to.prefix}")
        reports: list[pa.RecordBatch] = []
        try:
            for rows in self._distinct(self._fitted(batches, reports)):
                yield from reports
                reports.clear()
                deletes = self._write(rows, files, keys)
                if deletes:
                    yield report(deletes=deletes)
            files.close()
            keys.close()
        except SpecError as error:
            yield report(error=str(error))
        yield from reports
        for each in files.written:
            yield report(file=each)
        for each in keys.written:
            yield report(keys=each)

    def _fitted(
        self, batches: Iterator[pa.RecordBatch], reports: list[pa.RecordBatch]
    ) -> Iterator[pa.Table]:
        """Rows with the table's types, and `_ORDER` if rows are ordered."""
        import pyarrow as pa

        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if self.files.separates:
                rows, misfits = self.files.fit.without_misfits(rows)
                if misfits:
                    reports.append(report(misfits=[misfit_row(each) for each in misfits]))
            order = rows.column(self.order_by) if self.order_by else None
            if self.order_by:
                rows = rows.drop_columns([self.order_by])
            rows, ignored = self.files.fit.fitted(rows)
            if ignored:
                reports.append(report(ignored=ignored))
            yield rows if order is None else rows.append_column(_ORDER, order)

    def _distinct(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The last row of each key."""
        import pyarrow as pa

        pending: pa.Table | None = None
        for table in tables:
            rows = table if pending is None else pa.concat_tables([pending, table])
            # The next table may begin with the key that this one ends with.
            rows = last_rows(self.files.fit.name, rows, self.keys, _ORDER if self.order_by else "")
            end = max(0, rows.num_rows - 1)
            pending = rows.slice(end)
            yield rows.slice(0, end)
        if pending is not None:
            yield pending

    def _write(self, rows: pa.Table, files: FileWriter, keys: FileWriter) -> int:
        """Write rows and their keys; return the number of deletions."""
        import pyarrow.compute as pc

        if self.order_by:
            rows = rows.drop_columns([_ORDER])
        keys.add(rows.select(list(self.keys)))
        count = rows.num_rows
        if self.files.fit.deletes:
            kept = pc.invert(rows.column(TOMBSTONE))
            rows = rows.filter(kept).drop_columns([TOMBSTONE])
        files.add(rows)
        return int(count - rows.num_rows)


def check_keys(name: str, schema: pa.Schema, keys: Sequence[str], order_by: str) -> None:
    """Refuse keys that are missing, or of a type without an order.

    Args:
        name: of the sink, for the error.
        schema: of the batch.
        keys: columns that name a row.
        order_by: as in `KeyedTask`.
    """
    import pyarrow as pa

    wanted = [*keys, order_by] if order_by else [*keys]
    missing = [key for key in wanted if key not in schema.names]
    if missing:
        raise SpecError(
            f"{name}: column {missing[0]} to merge by does not exist, only "
            + ", ".join(schema.names)
        )
    nested = [key for key in wanted if pa.types.is_nested(schema.field(key).type)]
    if nested:
        raise SpecError(f"{name}: column {nested[0]} to merge by is {schema.field(nested[0]).type}")


def check_partitioning(
    name: str, columns: pa.Schema, parts: Sequence[str], *, by_times: bool = False
) -> None:
    """Refuse to partition a new table by columns that are missing or of another type.

    Args:
        name: of the sink, for the error.
        columns: of the table.
        parts: columns to partition by.
        by_times: whether the table may be partitioned by times, too.
    """
    for part in parts:
        if part not in columns.names:
            raise SpecError(f"{name}: the rows have no column {part} to partition by")
        kind = columns.field(part).type
        if not is_partition_type(kind, by_times=by_times):
            types = partition_types(by_times=by_times)
            raise SpecError(f"{name}: partition_by takes {types}, and column {part} is {kind}")


def partition_types(*, by_times: bool = False) -> str:
    """The types that `is_partition_type` accepts, for messages."""
    return f"text, integers, dates{', times' if by_times else ''} and booleans"


def is_partition_type(kind: pa.DataType, *, by_times: bool = False) -> bool:
    """Whether a table can be partitioned by a column of this type."""
    import pyarrow as pa

    kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)
    return any(is_a(kind) for is_a in kinds) or (by_times and pa.types.is_timestamp(kind))


def sorted_rows(rows: pa.Table, keys: Sequence[str], order_by: str) -> pa.Table:
    """Rows as Spark sorts them for a task: in the order of `order_by`, nulls are the smallest."""
    import pyarrow.compute as pc

    by: list[Any] = [(key, "ascending") for key in keys]
    if not order_by:
        return rows.sort_by(by)
    marked = rows.append_column(_ORDER, pc.is_valid(rows.column(order_by)))
    by += [(_ORDER, "ascending"), (order_by, "ascending")]
    return marked.sort_by(by).drop_columns([_ORDER])


def last_rows(name: str, rows: pa.Table, keys: Sequence[str], order_by: str) -> pa.Table:
    """The last row for each key.

    Args:
        name: of the sink, for the error.
        rows: sorted by keys and `order_by`.
        keys: columns that name a row.
        order_by: a column; without one, there must be one row for each key.
    """
    if order_by and last_of_runs(rows, [*keys, order_by])[1]:
        raise SpecError(
            f"{name}: a batch holds several rows for one {', '.join(keys)} that order_by does not "
            "put in order"
        )
    rows, is_repeated = last_of_runs(rows, keys)
    if is_repeated and not order_by:
        raise SpecError(
            f"{name}: a batch holds several rows for one {', '.join(keys)}; aggregate them, merge "
            "by more columns, or name a column in order_by to store the last one"
        )
    return rows


class Merge:
    """The files to remove and to add for a batch, on a table that others write as well.

    Args:
        task: of the batch.
        schema: of the batch's rows.
        written: the reports of its tasks.
        run: runs the tasks of the other steps.
    """

    def __init__(
        self, task: KeyedTask, schema: pa.Schema, written: Written, run: Runner = run_here
    ) -> None:
        self.task = task
        self.schema = schema
        self.written = written
        self._run = run
        columns = task.files.fit.columns
        self._kept = tuple(name for name in columns.names if name not in schema.names)
        self._bounds = [bounds_of(each.stats) for each in written.keys]
        self._known: dict[str, Rewritten] = {}

    @property
    def stored(self) -> Stored:
        """The numbers of rows that the batch changes."""
        rows = sum(each.rows for each in self.written.files)
        return Stored(rows, self.written.deletes, self.written.ignored)

    def onto(self, files: Iterable[DataFile]) -> Change:
        """The change of a table that has these files; searches those that are new to it."""
        present = {each.path: each for each in files}
        new = [
            each
            for each in present.values()
            if each.path not in self._known and self._may_match(each)
        ]
        for found in self._run(self._rewrites(new)):
            self._known[found.path] = found
        hits = [each for path, each in self._known.items() if path in present and each.matched]
        added = [file for each in hits for file in each.files]
        old = [file.path for each in hits for file in each.old]
        return Change(tuple(present[each.path] for each in hits), (*self._filled(old), *added))

    def _may_match(self, file: DataFile) -> bool:
        return any(_may_overlap(file.bounds, bounds, self.task.keys) for bounds in self._bounds)

    def _rewrites(self, files: Sequence[DataFile]) -> list[Work]:
        to = self.task.files
        return [
            RewriteTask(
                folder=to.folder,
                prefix=to.prefix,
                columns=to.fit.columns,
                keys=self.task.keys,
                key_files=tuple(each.path for each in self.written.keys),
                key_rows=sum(each.rows for each in self.written.keys),
                kept=self._kept,
                found=tuple(group),
                names=to.names,
            )
            for group in _groups(files)
        ]

    def _filled(self, old: Sequence[str]) -> Sequence[TableFile]:
        if not old:
            return self.written.files
        to = self.task.files
        tasks: list[Work] = [
            FillTask(
                folder=to.folder,
                prefix=to.prefix,
                columns=to.fit.columns,
                keys=self.task.keys,
                old_files=tuple(old),
                kept=self._kept,
                new=each,
                names=to.names,
            )
            for each in self.written.files
        ]
        return [file for each in self._run(tasks) for file in each.files]

    def delete_keys(self) -> None:
        """Delete the key files, after a commit."""
        system, base = filesystem(self.task.folder)
        old = [file for each in self._known.values() for file in each.old]
        for each in (*self.written.keys, *old):
            system.delete_file(f"{base}/{each.path}")


def _groups(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Files of about `_TASK_BYTES` each."""
    group: list[DataFile] = []
    for file in sorted(files, key=lambda each: each.path):
        size = sum(each.size for each in group) + file.size
        if group and (size > _TASK_BYTES or len(group) == _TASK_FILES):
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _may_overlap(one: Bounds, other: Bounds, keys: Sequence[str]) -> bool:
    """Whether a row within the bounds `one` may have the key of a row within `other`."""
    for key in keys:
        if key not in one or key not in other:
            continue
        (low, high, nulls), (other_low, other_high, other_nulls) = one[key], other[key]
        if nulls and other_nulls:
            continue
        if low is None or other_low is None:
            return False
        if type(low) is type(other_low) and (low > other_high or high < other_low):
            return False
    return True
