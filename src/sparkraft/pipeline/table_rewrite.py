"""Files of a table with keys, written again without the rows that a batch replaces.

Invariants:
    * Columns that are not keys are copied as they are in the file, whatever the table's types.
    * A task has the keys of `_KEY_BYTES_MAX` and some rows in memory, whatever the batch's size.

Not here: which files to search (`table_merge`), keys in memory (`key_match`).
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.key_match import KeyIndex
from sparkraft.pipeline.table_files import FileWriter, TableFile, filesystem
from sparkraft.pipeline.table_names import Names, inverse, names_in, renamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkraft.pipeline.table_files import Bounds

_KEY_BYTES_MAX: Final = 64 << 20
"""Keys that a task has in memory at once; for more keys, it searches its files several times."""

_KEY_BYTES: Final = 64
"""Memory of a key and its place in an index, if it is a number or a short text."""

_ROWS: Final = 64 << 10
"""Rows of a file that are in memory at once."""


class DataFile(NamedTuple):
    """A file that the table consists of.

    Args:
        path: below the table, or a URI.
        size: in bytes.
        partition: columns that are not in the file, and their values as texts; None for null.
        bounds: of columns, also of those in `partition`.
    """

    path: str
    size: int
    partition: dict[str, str | None]
    bounds: Bounds


class Rewritten(NamedTuple):
    """The result of a search in a file.

    Args:
        path: of that file.
        matched: rows with a key of the batch.
        files: the other rows, if any row matched.
        old: files with the keys and kept columns of the rows that matched.
    """

    path: str
    matched: int
    files: tuple[TableFile, ...]
    old: tuple[TableFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RewriteTask:
    """The second step, for some files of the table.

    Args:
        folder: the table's.
        prefix: of file names.
        columns: of the table.
        keys: columns that name a row.
        key_files: the keys of the batch.
        key_rows: their number.
        kept: columns that the batch lacks.
        found: the files to search.
        names: of columns in the table's files, if they differ from the table's.
    """

    folder: str
    prefix: str
    columns: pa.Schema
    keys: tuple[str, ...]
    key_files: tuple[str, ...]
    key_rows: int
    kept: tuple[str, ...]
    found: tuple[DataFile, ...]
    names: Names = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """About as many are read, or in memory."""
        return self.key_rows * _KEY_BYTES + sum(each.size for each in self.found)

    def run(self) -> list[Rewritten]:
        """Search the files, and write those again that have rows with the batch's keys."""
        import numpy as np

        files = [
            FileReader(self.folder, each.path, each.partition, self.names) for each in self.found
        ]
        matched: list[Any] = [np.zeros(file.rows, np.bool_) for file in files]
        columns = _columns(self.columns, self.keys)
        for keys in _chunks(self.folder, self.key_files, columns):
            index = KeyIndex(keys)
            for file, hits in zip(files, matched, strict=True):
                first = 0
                for rows in file.read_as(columns):
                    hits[first : first + rows.num_rows] |= index.positions(rows) >= 0
                    first += rows.num_rows
        return [
            self._rewritten(each, file, hits) if hits.any() else Rewritten(each.path, 0, ())
            for each, file, hits in zip(self.found, files, matched, strict=True)
        ]

    def _rewritten(self, data: DataFile, file: FileReader, hits: Any) -> Rewritten:
        import pyarrow as pa

        files = FileWriter(self.folder, self.prefix)
        first = 0
        for rows in file.read():
            kept = pa.array(~hits[first : first + rows.num_rows])
            first += rows.num_rows
            files.add_to(folder_of(data.path), data.partition, rows.filter(kept))
        files.close()
        return Rewritten(
            data.path, int(hits.sum()), tuple(files.written), tuple(self._old(file, hits))
        )

    def _old(self, file: FileReader, hits: Any) -> list[TableFile]:
        import pyarrow as pa

        if not self.kept:
            return []
        old = FileWriter(self.folder, f"keys-{self.prefix}")
        first = 0
        for rows in file.read_as(_columns(self.columns, (*self.keys, *self.kept))):
            old.add(rows.filter(pa.array(hits[first : first + rows.num_rows])))
            first += rows.num_rows
        old.close()
        return old.written


@dataclass(frozen=True, kw_only=True)
class FillTask:
    """The third step, for one new file.

    Args:
        folder: the table's.
        prefix: of file names.
        columns: of the table.
        keys: columns that name a row.
        old_files: keys and kept columns of replaced rows.
        kept: columns that the batch lacks.
        new: the file.
        names: of columns in the table's files, if they differ from the table's.
    """

    folder: str
    prefix: str
    columns: pa.Schema
    keys: tuple[str, ...]
    old_files: tuple[str, ...]
    kept: tuple[str, ...]
    new: TableFile
    names: Names = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """About as many are read."""
        return self.new.size

    def run(self) -> list[Rewritten]:
        """Write the file again, with the values that replaced rows had in the kept columns."""
        import pyarrow as pa

        files = FileWriter(self.folder, self.prefix)
        file = FileReader(self.folder, self.new.path, self.new.partition, self.names)
        keys = file.read_as(_columns(self.columns, self.keys))
        for rows, keys_of_rows in zip(file.read(), keys, strict=True):
            old = dict(zip(self.kept, self._old_values(keys_of_rows), strict=True))
            kept = renamed(pa.table(old), self.names)
            filled = rows
            for field_in_file, values in zip(kept.schema, kept.columns, strict=True):
                filled = filled.append_column(field_in_file, values)
            files.add_to(folder_of(self.new.path), self.new.partition, filled)
        files.close()
        return [Rewritten(self.new.path, 0, tuple(files.written))]

    def _old_values(self, keys: pa.Table) -> list[Any]:
        """For each kept column its values in the replaced rows; null for new rows."""
        import pyarrow as pa

        columns = _columns(self.columns, (*self.keys, *self.kept))
        values: list[Any] = [pa.nulls(keys.num_rows, columns.field(n).type) for n in self.kept]
        for old in _chunks(self.folder, self.old_files, columns):
            places = KeyIndex(old.select(list(self.keys))).positions(keys)
            found: Any = pa.array(places, mask=places < 0)
            values = [
                _first(value, old.column(name).take(found))
                for value, name in zip(values, self.kept, strict=True)
            ]
        return values


class FileReader:
    """Rows of a Parquet file, a few at a time.

    Args:
        folder: the table's.
        path: below it, or a URI.
        partition: columns that are not in the file.
        names: of columns in the file, if they differ from the table's.
    """

    def __init__(
        self,
        folder: str,
        path: str,
        partition: Mapping[str, str | None] = MappingProxyType({}),
        names: Names | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        self._partition = partition
        self._names = names or {}
        system, place = filesystem(path if _is_whole(path) else f"{folder}/{path}")
        source = system.open_input_file(place)
        self._file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        self.rows = int(self._file.metadata.num_rows)

    def read(self) -> Iterator[pa.Table]:
        """All columns, unchanged, by their names in the file."""
        import pyarrow as pa

        for batch in self._file.iter_batches(_ROWS):
            yield pa.Table.from_batches([batch])

    def read_as(self, columns: pa.Schema) -> Iterator[pa.Table]:
        """These columns in these types; also those of the partition, and nulls for missing ones."""
        import pyarrow as pa

        present = self._file.schema_arrow.names
        wanted = [name for name in names_in(self._names, columns.names) if name in present]
        for batch in self._file.iter_batches(_ROWS, columns=wanted):
            rows = renamed(pa.Table.from_batches([batch]), inverse(self._names))
            found = [
                rows.column(field.name).cast(field.type)
                if field.name in rows.column_names
                else self._constant(field, batch.num_rows)
                for field in columns
            ]
            yield pa.Table.from_arrays(found, schema=columns)

    def _constant(self, field: pa.Field[Any], count: int) -> Any:
        import pyarrow as pa

        if field.name not in self._partition:
            return pa.nulls(count, field.type)
        value: Any = pa.array([self._partition[field.name]], pa.string())
        if pa.types.is_timestamp(field.type):
            # The text has no zone: it is in UTC, as are Arrow's numbers of a type with a zone.
            value = value.cast(pa.timestamp(field.type.unit))
        return value.cast(field.type).take(pa.array([0] * count, pa.int32()))


def _is_whole(path: str) -> bool:
    return "://" in path or path.startswith("/")


def folder_of(path: str) -> str:
    """The folder of a file with `/`; files that are elsewhere are written again below the table."""
    folder = "" if _is_whole(path) else posixpath.dirname(path)
    return f"{folder}/" if folder else ""


def _chunks(folder: str, paths: Sequence[str], columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files, about `_KEY_BYTES_MAX` at a time."""
    import pyarrow as pa

    buffered: list[pa.Table] = []
    size = 0
    for path in paths:
        for rows in FileReader(folder, path).read_as(columns):
            buffered.append(rows)
            size += rows.nbytes
            if size > _KEY_BYTES_MAX:
                yield pa.concat_tables(buffered)
                buffered, size = [], 0
    if buffered:
        yield pa.concat_tables(buffered)


def _columns(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(name, columns.field(name).type) for name in names])


def _first(one: Any, other: Any) -> Any:
    """Values of `one`, or of `other` if they are null."""
    import pyarrow.compute as pc

    return pc.if_else(pc.is_null(one), other, one)
