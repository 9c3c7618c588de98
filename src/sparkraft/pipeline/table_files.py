"""Parquet files of a table, written by Spark's tasks and committed by the driver.

A task writes files that no reader sees yet, and returns a report in JSON for each of them. The
driver commits all files of a batch at once (`delta`). Files of a failed attempt stay
without a commit; a vacuum of the table deletes them.

Invariants:
    * A task keeps at most `_BUFFER_BYTES_MAX` of rows and one open file per partition of the table.
    * Rows are not collected on the driver, except those that do not fit.

Not here: how rows fit (`table_fit`), commits.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_names import Names, renamed
from sparkraft.pipeline.table_transforms import IDENTITY, Part, part_of, transformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkraft.pipeline.table_fit import Misfit, TableFit

_FILE_BYTES: Final = 128 << 20
"""A file is closed at this size; larger ones split badly over readers."""

_BUFFER_BYTES_MAX: Final = 32 << 20
"""Rows that a task keeps before it writes the largest part as a row group."""

_TEXT_MAX: Final = 64
"""Longer texts are left out of a file's bounds."""

Bounds = dict[str, tuple[Any, Any, bool]]
"""Column → lowest and highest value (None if all are null), and whether any may be null.

Values are integers and texts; dates are ISO texts. Columns without known bounds are missing.
"""


class Stored(NamedTuple):
    """The numbers of rows and values that a batch changed."""

    rows: int = 0
    deletes: int = 0
    ignored: int = 0
    """Values of columns that the table does not have."""


class TableFile(NamedTuple):
    """A file that a task has written.

    Args:
        path: below the table, with `/`.
        partition: column or transform of the table's partitioning → value as text; None for null.
        stats: the number of rows, nulls and bounds as in Delta's log, by names in the file.
    """

    path: str
    size: int
    partition: dict[str, str | None]
    stats: dict[str, Any]

    @property
    def rows(self) -> int:
        return int(self.stats["numRecords"])


class MisfitRow(NamedTuple):
    """A row that does not fit, as JSON, and the place of its record if the row has it."""

    topic: str | None
    partition: int | None
    offset: int | None
    row: str
    error: str


@dataclass(slots=True)
class Written:
    """The reports of all tasks."""

    files: list[TableFile] = field(default_factory=list)
    misfits: list[MisfitRow] = field(default_factory=list)
    keys: list[TableFile] = field(default_factory=list)
    """Of a table with keys: files with the keys of the batch, which no commit names."""
    deletes: int = 0
    """Keys whose rows are deleted."""
    ignored: int = 0
    """Values of columns that the table does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """The work of a task.

    Args:
        folder: the table's; a path or a URI that every worker reaches.
        prefix: of file names.
        fit: how rows fit the table.
        separates: whether to return rows that do not fit, instead of failing.
        partition_by: columns, and transforms of them, whose values become folders.
        keeps_parts: whether these columns are in the files as well, as transforms need.
        names: of columns in files, if they differ from the table's.
    """

    folder: str
    prefix: str
    fit: TableFit
    separates: bool
    partition_by: tuple[str, ...] = ()
    keeps_parts: bool = False
    names: Names = field(default_factory=dict)

    def writer(self) -> FileWriter:
        """A writer of the batch's files."""
        return FileWriter(
            self.folder,
            self.prefix,
            self.partition_by,
            keeps_parts=self.keeps_parts,
            names=self.names,
        )

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows; yield reports. An error of a row is a report as well."""
        import pyarrow as pa

        files = self.writer()
        try:
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                if self.separates:
                    rows, misfits = self.fit.without_misfits(rows)
                    if misfits:
                        yield report(misfits=[misfit_row(each) for each in misfits])
                rows, ignored = self.fit.fitted(rows)
                if ignored:
                    yield report(ignored=ignored)
                files.add(rows)
            files.close()
        except SpecError as error:
            yield report(error=str(error))
        for each in files.written:
            yield report(file=each)


class BatchTask(Protocol):
    """The work of each task of a batch; its reports are collected."""

    @property
    def folder(self) -> str:
        """The table's folder."""
        ...

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write files; yield reports."""
        ...


def write_in_tasks(batch: DataFrame, task: BatchTask, name: str) -> Written:
    """Write a batch in its tasks, and collect their reports.

    Args:
        batch: rows.
        task: their work.
        name: of the sink, for errors.

    Raises:
        SpecError: a row does not fit, or the driver does not see the files.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task.run(batches)

    written = collected(row.report for row in batch.mapInArrow(run, "report STRING").collect())
    check_visible(name, task.folder, [*written.files, *written.keys])
    return written


def collected(reports: Iterable[str]) -> Written:
    """The sum of the reports of tasks; the first error is raised."""
    written = Written()
    for text in reports:
        read = json.loads(text)
        if "error" in read:
            raise SpecError(read["error"])
        written.ignored += read.get("ignored", 0)
        written.misfits += [MisfitRow(*each) for each in read.get("misfits", ())]
        if "file" in read:
            written.files.append(TableFile(*read["file"]))
        if "keys" in read:
            written.keys.append(TableFile(*read["keys"]))
        written.deletes += read.get("deletes", 0)
    return written


def report(**content: Any) -> pa.RecordBatch:
    """A row with a report for the driver."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"report": [json.dumps(content)]})


def misfit_row(misfit: Misfit) -> MisfitRow:
    known: list[Any] = [
        value if isinstance(value := misfit.row.get(name), kind) else None
        for name, kind in (("topic", str), ("partition", int), ("offset", int))
    ]
    topic, partition, offset = known
    return MisfitRow(topic, partition, offset, json.dumps(misfit.row, default=str), misfit.error)


def filesystem(folder: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path there."""
    from pyarrow import fs

    if folder.startswith("file:///"):
        # Iceberg writes such paths as they are; Arrow would refuse spaces.
        return fs.LocalFileSystem(), folder.removeprefix("file://")
    if "://" in folder:
        found, path = fs.FileSystem.from_uri(folder)
        return found, path
    return fs.LocalFileSystem(), os.path.abspath(folder)


def check_visible(name: str, folder: str, files: Sequence[TableFile]) -> None:
    """Find out now whether a worker wrote to a disk of its own.

    Args:
        name: of the sink, for the error.
        folder: the table's.
        files: that tasks have written there.
    """
    if not files:
        return
    system, base = filesystem(folder)
    infos = system.get_file_info([f"{base}/{each.path}" for each in files])
    for info, each in zip(infos, files, strict=True):
        if info.size != each.size:
            raise SpecError(
                f"{name}: a worker wrote {each.path}, which the driver does not see: the "
                "path must be on storage that all workers share"
            )


class _Part:
    """Rows and the open file of one partition of the table."""

    def __init__(self, folder: str, values: dict[str, str | None]) -> None:
        self.folder = folder
        self.values = values
        self.buffered: list[pa.Table] = []
        self.bytes = 0
        self.writer: Any = None
        self.path = ""
        self.sink: Any = None
        self.metadata: list[Any] = []


class FileWriter:
    """The files of one task: one at a time for each partition of the table.

    Args:
        folder: the table's.
        prefix: of file names.
        partition_by: columns, and transforms of them, whose values become folders.
        keeps_parts: whether these columns are in the files as well, as transforms need.
        names: of columns in the files, if they differ from those of the rows.
    """

    def __init__(
        self,
        folder: str,
        prefix: str,
        partition_by: Sequence[str] = (),
        *,
        keeps_parts: bool = False,
        names: Names | None = None,
    ) -> None:
        self.written: list[TableFile] = []
        self._prefix = prefix
        self._partition_by = [part_of(each) if keeps_parts else Part(each) for each in partition_by]
        self._keeps_parts = keeps_parts
        self._names = names or {}
        self._system, self._base = filesystem(folder)
        self._parts: dict[str, _Part] = {}
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Write rows to the files of their partitions."""
        for folder, values, part_rows in self._divided(rows):
            self.add_to(folder, values, part_rows)

    def add_to(self, folder: str, values: dict[str, str | None], rows: pa.Table) -> None:
        """Write rows to a file of the partition `values`, in `folder` below the table."""
        if not rows.num_rows:
            return
        part = self._parts.get(folder)
        if part is None:
            part = self._parts[folder] = _Part(folder, values)
        part.buffered.append(rows)
        part.bytes += rows.nbytes
        self._bytes += rows.nbytes
        while self._bytes > _BUFFER_BYTES_MAX:
            self._flush(max(self._parts.values(), key=lambda part: part.bytes))

    def close(self) -> None:
        """Write what is buffered, and close all files."""
        for part in self._parts.values():
            self._flush(part)
            self._finish(part)

    def _divided(self, rows: pa.Table) -> Iterator[tuple[str, dict[str, str | None], pa.Table]]:
        """Rows by their values of the partitioning columns."""
        import pyarrow.compute as pc

        if not rows.num_rows:
            return
        if not self._partition_by:
            yield "", {}, rows
            return
        names = [str(part) for part in self._partition_by]
        dropped = () if self._keeps_parts else names
        kept = [name for name in rows.column_names if name not in dropped]
        for part in self._partition_by:
            if part.transform != IDENTITY:
                rows = rows.append_column(str(part), transformed(part, rows.column(part.column)))
        for row in rows.select(names).group_by(names).aggregate([]).to_pylist():
            chosen = pc.scalar(True)  # noqa: FBT003 (a constant expression)
            for name in names:
                same = (
                    pc.field(name).is_null() if row[name] is None else pc.field(name) == row[name]
                )
                chosen &= same
            values = {name: partition_text(row[name]) for name in names}
            folder = "".join(
                f"{_folder_text(name)}={_folder_text(value)}/" for name, value in values.items()
            )
            yield folder, values, rows.filter(chosen).select(kept)

    def _flush(self, part: _Part) -> None:
        """Write the rows of a part as a row group."""
        import pyarrow as pa

        if not part.buffered:
            return
        rows = renamed(pa.concat_tables(part.buffered), self._names)
        self._bytes -= part.bytes
        part.buffered, part.bytes = [], 0
        if part.writer is None:
            self._open(part, rows.schema)
        part.writer.write_table(rows)
        if part.sink.tell() >= _FILE_BYTES:
            self._finish(part)

    def _open(self, part: _Part, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        part.path = f"{part.folder}{self._prefix}-{uuid.uuid4()}.parquet"
        folder = f"{self._base}/{part.folder}".rstrip("/")
        self._system.create_dir(folder, recursive=True)
        part.sink = self._system.open_output_stream(f"{self._base}/{part.path}")
        part.metadata = []
        part.writer = pq.ParquetWriter(
            part.sink, schema, compression="snappy", metadata_collector=part.metadata
        )

    def _finish(self, part: _Part) -> None:
        if part.writer is None:
            return
        part.writer.close()
        size = part.sink.tell()
        part.sink.close()
        part.writer = None
        self.written.append(TableFile(part.path, size, part.values, _stats(part.metadata[0])))


def partition_text(value: Any) -> str | None:
    """A partition value as Delta's log has it; times are in UTC, with microseconds."""
    if value is None:
        return None
    if isinstance(value, datetime):
        local = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return local.isoformat(" ", "microseconds")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder_text(value: str | None) -> str:
    """A folder's name for a value; readers take the value itself from the log."""
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    plain = _NOT_PLAIN.sub("_", value)[:_TEXT_MAX]
    return plain if plain == value else f"{plain}-{sha256(value.encode()).hexdigest()[:8]}"


_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.-]")
"""Libraries differ in how they escape other characters in paths."""


def _stats(metadata: Any) -> dict[str, Any]:
    """Delta's statistics of a file: rows, nulls and bounds of integer and short text columns."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    found: dict[str, Any] = {"numRecords": metadata.num_rows}
    low, high, nulls = {}, {}, {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        each = [group.column(index).statistics for group in groups]
        if "." in name or not all(stats is not None and stats.has_null_count for stats in each):
            continue
        nulls[name] = sum(stats.null_count for stats in each)
        bounds = [(s.min, s.max) for s in each if s.has_min_max]
        # A group of nulls has no bounds, and the file then none either.
        if len(bounds) == len(each) and all(map(_is_bound, sum(bounds, ()))):
            low[name] = as_bound(min(first for first, _ in bounds))
            high[name] = as_bound(max(last for _, last in bounds))
    return found | {"minValues": low, "maxValues": high, "nullCount": nulls}


def _is_bound(value: Any) -> bool:
    if isinstance(value, bool | datetime):
        return False
    if isinstance(value, int | date):
        return True
    return isinstance(value, str) and len(value) <= _TEXT_MAX


def as_bound(value: Any) -> Any:
    """A value as statistics have it: dates as ISO texts; None if it is of another kind."""
    if not _is_bound(value):
        return None
    return value.isoformat() if isinstance(value, date) else value


def bounds_of(stats: Mapping[str, Any]) -> Bounds:
    """The bounds in a file's statistics."""
    low, high, rows = stats["minValues"], stats["maxValues"], stats["numRecords"]
    return {
        name: (low.get(name), high.get(name), nulls > 0)
        for name, nulls in stats["nullCount"].items()
        if name in low or nulls == rows
    }
