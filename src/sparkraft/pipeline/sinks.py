"""Sinks of a pipeline. All run in Spark's `foreachBatch`, on the driver, in order.

A batch that was not finished is run again with the same offsets and the same number, so every
table sink must know a batch it has written:

* delta: the Delta transaction log keeps (query id, batch number) in the commit that adds the
  rows; a batch that is there already is passed over.
* parquet: a batch has its own folder, written over as a whole.
* topic: records are written again (at-least-once).
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.spec import Pipeline, Sink, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    BatchSink = Callable[[DataFrame, int], None]

_QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property; the id is in the checkpoint, so it lives as long as its batch numbers."""


def build(pipeline: Pipeline) -> BatchSink:
    """One function that hands a batch to every sink of the pipeline."""
    writers = [_WRITERS[sink.kind](sink, pipeline) for sink in pipeline.sinks]

    def write(batch: DataFrame, batch_id: int) -> None:
        if len(writers) > 1:
            batch.persist()
        try:
            for writer in writers:
                writer(batch, batch_id)
        finally:
            if len(writers) > 1:
                batch.unpersist()

    return write


def load_function(where: str, folder: Path) -> Callable[..., Any]:
    """`file.py:name`, relative to the pipeline file, or `package.module:name`."""
    place, _, name = where.partition(":")
    if not place or not name:
        raise SpecError(f"function is file.py:name or module:name, not {where!r}")
    try:
        module = _module_of(folder / place) if place.endswith(".py") else _named_module(place)
    except OSError as error:
        raise SpecError(f"function {where}: {error.strerror}: {error.filename}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise SpecError(f"function {where}: there is no function {name} in {place}")
    return found  # type: ignore[no-any-return]


def _named_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SpecError(f"module {name} can't be imported: {error}") from error


def _module_of(path: Path) -> Any:
    if not path.exists():
        raise SpecError(f"function: there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Spark pickles functions of a module by its name.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


# topic


def _topic(sink: Sink, pipeline: Pipeline) -> BatchSink:
    servers = pipeline.source.get("kafka.bootstrap.servers", "")
    options = {"kafka.bootstrap.servers": servers, **sink.options}

    def write(batch: DataFrame, _: int) -> None:
        records = batch if "value" in batch.columns else as_records(batch, sink.keys)
        writer = records.write.format(pipeline.connector).options(**options)
        writer.option("topic", sink.topic).mode("append").save()

    return write


def as_records(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows as JSON objects, nulls written out; keyed by the key columns, joined by `|`."""
    from pyspark.sql import functions as f

    value = f.to_json(f.struct(*rows.columns), {"ignoreNullFields": "false"})
    if not keys:
        return rows.select(value.alias("value"))
    key = f.concat_ws("|", *(f.col(each).cast("string") for each in keys))
    return rows.select(key.alias("key"), value.alias("value"))


# delta


def _delta(sink: Sink, _: Pipeline) -> BatchSink:
    table = DeltaSink(sink.path, sink.keys)

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or "batch"
        if not table.has(query_id, batch_id):
            table.write(batch.toArrow(), query_id, batch_id)

    return write


class DeltaSink:
    """A Delta table that takes each batch once.

    Args:
        path: of the table; made by the first batch that has rows.
        keys: columns that name a row; a batch's rows replace those with equal keys. Without
            keys rows are added.
    """

    def __init__(self, path: str, keys: Sequence[str]) -> None:
        """Store the destination; nothing is opened yet."""
        self.path = path
        self.keys = tuple(keys)

    def has(self, query_id: str, batch_id: int) -> bool:
        """Whether the table holds the batch."""
        table = self._table()
        known = None if table is None else table.transaction_version(query_id)
        return known is not None and known >= batch_id

    def write(self, rows: pa.Table, query_id: str, batch_id: int) -> None:
        """Add or merge the rows, and note the batch in the same commit."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        if not rows.num_rows:
            return
        self._check_keys(rows)
        noted = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
        table = self._table()
        if table is None or not self.keys:
            write_deltalake(self.path, rows, mode="append", commit_properties=noted)
            return
        # Null keys are equal too; without brackets DataFusion reads AND into the last operand.
        same = " AND ".join(
            f'(target."{key}" IS NOT DISTINCT FROM source."{key}")' for key in self.keys
        )
        merger = table.merge(
            rows, same, source_alias="source", target_alias="target", commit_properties=noted
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.path) if DeltaTable.is_deltatable(self.path) else None

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


# others


def _parquet(sink: Sink, _: Pipeline) -> BatchSink:
    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or "batch"
        folder = f"{sink.path}/run={query_id[:8]}/batch={batch_id:010d}"
        if not batch.isEmpty():
            batch.write.mode("overwrite").parquet(folder)

    return write


def _console(sink: Sink, _: Pipeline) -> BatchSink:
    def write(batch: DataFrame, batch_id: int) -> None:
        if not batch.isEmpty():
            print(f"-- batch {batch_id}")  # noqa: T201 (printing is this sink's job)
            batch.show(sink.rows, truncate=False)

    return write


def _function(sink: Sink, pipeline: Pipeline) -> BatchSink:
    return load_function(sink.function, pipeline.folder)


_WRITERS: Final[dict[str, Callable[[Sink, Pipeline], BatchSink]]] = {
    "topic": _topic,
    "delta": _delta,
    "parquet": _parquet,
    "console": _console,
    "function": _function,
}
