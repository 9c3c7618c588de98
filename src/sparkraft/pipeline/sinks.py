"""Sinks of a pipeline. All run in Spark's `foreachBatch`, on the driver, in order.

A batch that was not finished is run again with the same offsets and the same number, so every
table sink must know a batch it has written:

* delta: tasks write the files; with keys, they also write those files of the table again that have
  rows to replace. The Delta transaction log keeps (query id, batch number) in the commit that adds
  them; a batch that is there already is passed over.
* iceberg: the same, with a table property in place of Delta's transaction.
* parquet: a batch has its own folder. One with Spark's `_SUCCESS` is complete, and the batch is
  passed over; another one is written over as a whole.
* topic: records are written again (at-least-once), unless `delivery` is exactly_once: then the
  batch is in the topic's transactions, see `exactly_once`.

Dead letters of a batch are written after its sinks, and before Spark marks the batch as done.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline import iceberg_upkeep, json_values, upkeep
from sparkraft.pipeline.dead_letters import (
    TASK_PUT,
    BatchName,
    DeadLetter,
    DeadLetterTable,
    DeadLetterTopic,
)
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.functions import load_function
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.options import sink_options
from sparkraft.pipeline.registered_values import encoded_column
from sparkraft.pipeline.table_files import misfit_row
from sparkraft.pipeline.table_files import write_in_tasks as write_files
from sparkraft.pipeline.table_fit import TOMBSTONE
from sparkraft.pipeline.table_merge import Merge, run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from sparkraft.pipeline.spec import AvroValues, Pipeline, Sink
    from sparkraft.pipeline.table_files import MisfitRow, Stored
    from sparkraft.pipeline.table_merge import Runner, Work
    from sparkraft.pipeline.table_rewrite import Rewritten

    BatchSink = Callable[[DataFrame, int], None]

log = logging.getLogger(__name__)

_READ_ONCE: Final = frozenset({"topic", "delta", "iceberg"})

_QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property; the id is in the checkpoint, so it lives as long as its batch numbers."""


def build(pipeline: Pipeline, spark: SparkSession) -> BatchSink:
    """One function that hands a batch to every sink of the pipeline.

    Args:
        pipeline: whose sinks to write.
        spark: the session that runs its query.
    """
    writers = [_WRITERS[sink.kind](sink, pipeline) for sink in pipeline.sinks]
    # Spark counts a damaged record each time it is read, and some sinks read a batch twice.
    counts = pipeline.loses_records and pipeline.sinks[0].kind not in _READ_ONCE
    keep = len(writers) > 1 or counts
    of_sources = any(source.on_error == "dead_letter" for source in pipeline.sources)
    if pipeline.dead_letter is not None and of_sources:
        writers.append(_dead_letter(pipeline.dead_letter, pipeline, spark))

    def write(batch: DataFrame, batch_id: int) -> None:
        if keep:
            batch.persist()
        try:
            for writer in writers:
                writer(batch, batch_id)
        finally:
            if keep:
                batch.unpersist()

    return write


def write_once(
    pipeline: Pipeline, spark: SparkSession, rows: DataFrame, letters: list[DeadLetter], name: str
) -> None:
    """Write the rows of a batch query to all sinks, and its dead letters, as batch 0 of `name`."""
    context = spark.sparkContext
    context.setLocalProperty(_QUERY_ID, name)
    try:
        for sink in pipeline.sinks:
            _WRITERS[sink.kind](sink, pipeline)(rows, 0)
    finally:
        context.setLocalProperty(_QUERY_ID, None)  # type: ignore[arg-type]
    if letters and pipeline.dead_letter:
        _letter_writer(pipeline.dead_letter, pipeline).write(
            letters, BatchName(pipeline.name, name, 0)
        )


# topic


def topic_options(sink: Sink, pipeline: Pipeline) -> dict[str, str]:
    """The options of the writer: the first source's cluster, unless the sink names another."""
    servers = pipeline.sources[0].options.get("kafka.bootstrap.servers", "")
    options = {"kafka.bootstrap.servers": servers, **sink.options, "topic": sink.topic}
    if sink.delivery == "exactly_once":
        options.setdefault("transactionalIdPrefix", f"{pipeline.name}.{sink.topic}")
    return options


def _topic(sink: Sink, pipeline: Pipeline) -> BatchSink:
    options = topic_options(sink, pipeline)
    if sink.delivery == "exactly_once":
        return _exactly_once(sink, options)

    def write(batch: DataFrame, _: int) -> None:
        records = _records(batch, sink)
        records.write.format(pipeline.connector).options(**options).mode("append").save()

    return write


def _exactly_once(sink: Sink, given: dict[str, str]) -> BatchSink:
    from sparkraft.pipeline.exactly_once import Committer, QueryBatch
    from sparkraft.pipeline.sink import write_in_tasks

    options = sink_options(given)
    committer = Committer.of(options)

    def write(batch: DataFrame, batch_id: int) -> None:
        name = QueryBatch(_query_id(batch), batch_id)
        ticket = committer.open()
        if ticket.has(name):
            return
        records = _records(batch, sink)
        try:
            committer.commit(ticket, name, write_in_tasks(records, options, ticket, name))
        except BaseException:
            # Readers wait for open transactions; the reason is the first error.
            try:
                committer.abort(ticket)
            except (KafkaError, RuntimeError) as error:
                log.warning("Batch %d could not be aborted: %s", batch_id, error)
            raise

    return write


def _records(batch: DataFrame, sink: Sink) -> DataFrame:
    """The rows themselves if they have a column `value`, else encoded ones."""
    if sink.avro is None and "value" in batch.columns:
        return batch
    return as_records(batch, sink.keys, sink.avro)


def as_records(rows: DataFrame, keys: Sequence[str], avro: AvroValues | None = None) -> DataFrame:
    """Rows as JSON objects, nulls written out, or Avro; keyed by the key columns, joined by `|`.

    With keys, a row whose boolean column `tombstone` is true becomes a tombstone.
    """
    from pyspark.sql import functions as f

    deletes = bool(keys) and (TOMBSTONE, "boolean") in rows.dtypes
    stored = [each for each in rows.columns if not (deletes and each == TOMBSTONE)]
    if avro:
        value = encoded_column(rows, stored, avro)
    else:
        value = f.to_json(f.struct(*stored), {"ignoreNullFields": "false"})
    if not keys:
        return rows.select(value.alias("value"))
    if deletes:
        value = f.when(~f.coalesce(f.col(TOMBSTONE), f.lit(False)), value)  # noqa: FBT003
    key = f.concat_ws("|", *(f.col(each).cast("string") for each in keys))
    return rows.select(key.alias("key"), value.alias("value"))


# dead letters


def _letter_writer(sink: Sink, pipeline: Pipeline) -> DeadLetterTable | DeadLetterTopic:
    if sink.kind == "delta":
        return DeadLetterTable(sink.path)
    return DeadLetterTopic(topic_options(sink, pipeline))


def _dead_letter(sink: Sink, pipeline: Pipeline, spark: SparkSession) -> BatchSink:
    letters = _letter_writer(sink, pipeline)

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = _query_id(batch)
        metrics = _metrics(pipeline, spark, query_id)
        if not metrics:
            # A table had the batch already, so no sink has read its records this time.
            batch.write.format("noop").mode("overwrite").save()
            metrics = _metrics(pipeline, spark, query_id)
        found = [letter for each in metrics for letter in json_values.dead_letters(each)]
        if found:
            letters.write(found, BatchName(pipeline.name, query_id, batch_id))

    return write


def _metrics(pipeline: Pipeline, spark: SparkSession, query_id: str) -> list[str]:
    """The metrics of the running batch, a JSON object for each source that was read.

    Spark shows them to Python only when the batch is done; its own classes have them before.
    """
    query: Any = spark.streams.get(query_id)
    observed = query._jsq.streamingQuery().lastExecution().observedMetrics()  # noqa: SLF001
    found = []
    for source in pipeline.sources:
        row = observed.get(json_values.observed(source.name))
        if not row.isEmpty() and row.get().getAs(json_values.READ):
            found.append(str(row.get().json()))
    return found


def _query_id(batch: DataFrame) -> str:
    return batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or "batch"


# delta


def _delta(sink: Sink, pipeline: Pipeline) -> BatchSink:
    table = DeltaSink(sink.path, sink.keys, sink.schema_changes, sink.partition_by, sink.order_by)
    policy = upkeep.CompactionPolicy(
        sink.path,
        sink.compact_at,
        partial(upkeep.delta_files, sink.path),
        partial(upkeep.keep_up, sink.path, retain_hours=upkeep.RETAIN_HOURS),
    )
    return _compacting(_table(table, sink.path, sink, pipeline), policy)


def _iceberg(sink: Sink, pipeline: Pipeline) -> BatchSink:
    other = iceberg_sink(sink)
    policy = upkeep.CompactionPolicy(
        sink.table,
        sink.compact_at,
        partial(iceberg_upkeep.iceberg_files, other),
        partial(
            iceberg_upkeep.keep_up,
            other,
            target_bytes=upkeep.TARGET_BYTES,
            retain_hours=upkeep.RETAIN_HOURS,
        ),
    )
    return _compacting(_table(iceberg_sink(sink), sink.table, sink, pipeline), policy)


def _compacting(write: BatchSink, policy: upkeep.CompactionPolicy) -> BatchSink:
    def write_and_look(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        policy.after_batch()

    return write_and_look


def iceberg_sink(sink: Sink) -> IcebergSink:
    """The table of a sink."""
    return IcebergSink(
        sink.path,
        sink.table,
        sink.schema_changes,
        sink.options,
        keys=sink.keys,
        order_by=sink.order_by,
        partition_by=sink.partition_by,
    )


def _table(table: DeltaSink | IcebergSink, path: str, sink: Sink, pipeline: Pipeline) -> BatchSink:
    letters = _letter_writer(pipeline.dead_letter, pipeline) if pipeline.dead_letter else None

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = _query_id(batch)
        if table.has(query_id, batch_id):
            return

        def set_aside(misfits: Sequence[MisfitRow]) -> None:
            # Before the table has the batch: a repeated batch is skipped then.
            if misfits and sink.on_error == "dead_letter" and letters:
                name = BatchName(pipeline.name, query_id, batch_id, part=f":{path}")
                letters.write([_as_letter(misfit) for misfit in misfits], name)
            elif misfits:
                log.warning("%s: batch %d: left out %d rows", path, batch_id, len(misfits))

        name = BatchOfTable(query_id, batch_id, separates=sink.on_error != "stop")
        if isinstance(table, DeltaSink) and not table.takes_files:
            ignored = _put_rows(table, batch, name, set_aside).ignored
        elif table.keys:
            ignored = _merge_files(table, batch, name, set_aside).ignored
        else:
            ignored = _put_files(table, batch, name, set_aside).ignored
        if ignored:
            log.warning(
                "%s: batch %d had %d values in columns that the table does not have",
                path,
                batch_id,
                ignored,
            )

    return write


class BatchOfTable(NamedTuple):
    """A batch for a table.

    Args:
        separates: whether rows that do not fit are set aside instead of failing.
    """

    query_id: str
    batch_id: int
    separates: bool


def _prefix(name: BatchOfTable) -> str:
    """Of file names."""
    return f"part-{name.query_id[:8]}-{name.batch_id:010d}"


def _put_files(
    table: DeltaSink | IcebergSink,
    batch: DataFrame,
    name: BatchOfTable,
    set_aside: Callable[[Sequence[MisfitRow]], None],
) -> Stored:
    """Let tasks write files, and commit them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(batch.schema, timezone="UTC")
    task = table.file_task(schema, _prefix(name), separates=name.separates)
    written = write_files(batch, task, task.fit.name)
    set_aside(written.misfits)
    return table.commit(task, schema, written, name.query_id, name.batch_id)


def _merge_files(
    table: DeltaSink | IcebergSink,
    batch: DataFrame,
    name: BatchOfTable,
    set_aside: Callable[[Sequence[MisfitRow]], None],
) -> Stored:
    """Let tasks write files and search the table's files by key, and commit them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(batch.schema, timezone="UTC")
    task = table.keyed_task(schema, _prefix(name), separates=name.separates)
    by = [f"`{each}`" for each in (*table.keys, *filter(None, [table.order_by]))]
    context = batch.sparkSession.sparkContext
    rows = batch.repartition(context.defaultParallelism, *by[: len(table.keys)])
    written = write_files(rows.sortWithinPartitions(*by), task, task.files.fit.name)
    set_aside(written.misfits)
    merge = Merge(task, schema, written, _runner(context))
    return table.merge(merge, name.query_id, name.batch_id)


_ON_DRIVER_BYTES_MAX: Final = 8 << 20
"""Less is searched faster on the driver than a job of Spark starts."""


def _runner(context: SparkContext) -> Runner:
    """Runs tasks in Spark, or here if they are small."""

    def run(tasks: Sequence[Work]) -> list[Rewritten]:
        if sum(task.bytes for task in tasks) <= _ON_DRIVER_BYTES_MAX:
            return run_here(tasks)
        return context.parallelize(tasks, len(tasks)).flatMap(lambda task: task.run()).collect()

    return run


def _put_rows(
    table: DeltaSink,
    batch: DataFrame,
    name: BatchOfTable,
    set_aside: Callable[[Sequence[MisfitRow]], None],
) -> Stored:
    """Collect the rows, and merge them."""
    rows = batch.toArrow()
    if name.separates:
        rows, misfits = table.without_misfits(rows)
        set_aside([misfit_row(each) for each in misfits])
    return table.write(rows, name.query_id, name.batch_id)


def _as_letter(misfit: MisfitRow) -> DeadLetter:
    """A row as a dead letter, with its record's place if the row has the source's columns."""
    topic, partition, offset, row, error = misfit
    return DeadLetter(topic, partition, offset, None, None, row.encode(), error, TASK_PUT)


# others


def _parquet(sink: Sink, _: Pipeline) -> BatchSink:
    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = _query_id(batch)
        folder = f"{sink.path}/run={query_id[:8]}/batch={batch_id:010d}"
        if not _is_complete(folder, batch.sparkSession) and not batch.isEmpty():
            batch.write.mode("overwrite").partitionBy(*sink.partition_by).parquet(folder)

    return write


def _is_complete(folder: str, spark: SparkSession) -> bool:
    """Whether Spark has finished writing a folder: it then has the file `_SUCCESS`."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(folder, "_SUCCESS")  # noqa: SLF001
    return bool(path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path))  # noqa: SLF001


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
    "iceberg": _iceberg,
    "parquet": _parquet,
    "console": _console,
    "function": _function,
}
