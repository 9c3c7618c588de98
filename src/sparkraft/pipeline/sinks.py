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
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline import iceberg_upkeep, json_values, topic_fit, upkeep
from sparkraft.pipeline.batch_figures import NOTHING, SetAside
from sparkraft.pipeline.dead_letters import (
    TASK_PUT,
    BatchName,
    DeadLetter,
    DeadLetterTable,
    DeadLetterTopic,
    of_part,
)
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.exactly_once import Committer
from sparkraft.pipeline.functions import load_function
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.options import sink_options
from sparkraft.pipeline.spark_tasks import file_exists, in_tasks, parallelism
from sparkraft.pipeline.table_files import misfit_row
from sparkraft.pipeline.table_files import write_in_tasks as write_files
from sparkraft.pipeline.table_fit import BROKEN_RULE
from sparkraft.pipeline.table_merge import Merge, run_here
from sparkraft.pipeline.topic_records import records_of
from sparkraft.pipeline.wire import shared_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from sparkraft.pipeline.batch_figures import BatchFigures
    from sparkraft.pipeline.lag_group import LagGroup
    from sparkraft.pipeline.options import SinkOptions
    from sparkraft.pipeline.spec import Pipeline, Sink
    from sparkraft.pipeline.table_files import MisfitRow, Stored
    from sparkraft.pipeline.table_merge import Runner, Work
    from sparkraft.pipeline.table_rewrite import Rewritten

    BatchSink = Callable[[DataFrame, int], None]
    NamedSink = Callable[[DataFrame, QueryBatch], SetAside | None]

log = logging.getLogger(__name__)

_READ_ONCE: Final = frozenset({"topic", "delta", "iceberg"})

_QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property; the id is in the checkpoint, so it lives as long as its batch numbers."""


def build(
    pipeline: Pipeline,
    spark: SparkSession,
    group: LagGroup | None = None,
    figures: BatchFigures | None = None,
) -> BatchSink:
    """One function that hands a batch to every sink of the pipeline, on a Spark master.

    Args:
        pipeline: whose sinks to write.
        spark: the session that runs its query.
        group: shows the offsets; if it does so with decisions, they are the last sink's.
        figures: takes what the batch did.
    """
    more = []
    of_sources = any(source.on_error == "dead_letter" for source in pipeline.sources)
    if pipeline.dead_letter is not None and of_sources:
        more.append(_dead_letter(pipeline.dead_letter, pipeline, spark))
    write_all = in_order(pipeline, more, group, figures)

    def write(batch: DataFrame, batch_id: int) -> None:
        name = QueryBatch(_query_id(batch), batch_id)
        write_all(batch, name)
        if figures is not None:
            figures.note_jobs(batch_id, spark)

    return write


def in_order(
    pipeline: Pipeline,
    more: Sequence[NamedSink] = (),
    group: LagGroup | None = None,
    figures: BatchFigures | None = None,
) -> Callable[[DataFrame, QueryBatch], None]:
    """All sinks of a pipeline as one, and `more` after them; the others as in `build`."""
    writers = [_WRITERS[sink.kind](sink, pipeline) for sink in pipeline.sinks]
    if group is not None and group.with_decisions:
        last = pipeline.sinks[-1]
        writers[-1] = _exactly_once(last, pipeline, group)
    # Spark counts a damaged record each time it is read, and some sinks read a batch twice.
    counts = pipeline.loses_records and pipeline.sinks[0].kind not in _READ_ONCE
    keep = len(writers) > 1 or counts

    def write(batch: DataFrame, name: QueryBatch) -> None:
        if keep:
            batch.persist()
        try:
            for part, writer in enumerate((*writers, *more)):
                found = writer(batch, name)
                # A sink that has the batch already sets nothing aside this time.
                if figures is not None and found is not None:
                    figures.note_set_aside(name.number, part, found)
        finally:
            if keep:
                batch.unpersist()

    return write


def write_once(pipeline: Pipeline, rows: DataFrame, letters: list[DeadLetter], query: str) -> None:
    """Write the rows of a batch query to all sinks, and its dead letters, as batch 0 of `query`.

    Its dead letters have a transactional id prefix of their own: the pipeline may run meanwhile.
    """
    pipeline = replace(pipeline, dead_letter=_apart(pipeline.dead_letter, pipeline))
    for sink in pipeline.sinks:
        _WRITERS[sink.kind](sink, pipeline)(rows, QueryBatch(query, 0))
    if letters and pipeline.dead_letter:
        _letter_writer(pipeline.dead_letter, pipeline).write(
            letters, BatchName(pipeline.name, query, 0)
        )


def _apart(letters: Sink | None, pipeline: Pipeline) -> Sink | None:
    if letters is None or letters.delivery != "exactly_once":
        return letters
    prefix = topic_options(letters, pipeline)["transactionalIdPrefix"]
    options = {**letters.options, "transactionalIdPrefix": f"{prefix}.backfill"}
    return replace(letters, options=options)


# topic


def transactional_options(pipeline: Pipeline) -> list[SinkOptions]:
    """The options of all that a pipeline writes exactly-once into topics, each with its prefix."""
    found = [
        sink_options(topic_options(sink, pipeline))
        for sink in pipeline.sinks
        if sink.delivery == "exactly_once"
    ]
    letters = pipeline.dead_letter
    if letters is not None and letters.delivery == "exactly_once":
        options = sink_options(topic_options(letters, pipeline))
        parts = [_part(sink) for sink in pipeline.sinks if sink.on_error == "dead_letter"]
        found += [of_part(options, part) for part in ("", *parts)]
    return found


def topic_options(sink: Sink, pipeline: Pipeline) -> dict[str, str]:
    """The options of the writer: the first source's cluster, unless the sink names another."""
    servers = pipeline.sources[0].options.get("kafka.bootstrap.servers", "")
    options = {"kafka.bootstrap.servers": servers, **sink.options, "topic": sink.topic}
    if sink.delivery == "exactly_once":
        options.setdefault("transactionalIdPrefix", f"{pipeline.name}.{sink.topic}")
    return options


def _topic(sink: Sink, pipeline: Pipeline) -> NamedSink:
    options = topic_options(sink, pipeline)
    if sink.delivery == "exactly_once":
        return _exactly_once(sink, pipeline)
    set_aside = _aside(sink, pipeline)

    def write(batch: DataFrame, name: QueryBatch) -> SetAside:
        with _fitting(batch, name, sink, options, set_aside) as (records, limited, aside):
            given = options | limited
            records.write.format(pipeline.connector).options(**given).mode("append").save()
        return aside

    return write


def _exactly_once(sink: Sink, pipeline: Pipeline, group: LagGroup | None = None) -> NamedSink:
    from sparkraft.pipeline.sink import write_in_tasks

    given = topic_options(sink, pipeline)
    committer = Committer.of(sink_options(given))
    set_aside = _aside(sink, pipeline)

    def write(batch: DataFrame, name: QueryBatch) -> SetAside | None:
        ticket = committer.open()
        if ticket.has(name):
            return None
        with (
            committer.aborting(ticket, name),
            _fitting(batch, name, sink, given, set_aside) as (records, limited, aside),
        ):
            slots = write_in_tasks(records, sink_options(given | limited), ticket, name)
            shown = group.of_batch(name) if group else None
            is_shown = committer.commit(ticket, name, slots, shown)
        if group and shown and not is_shown:
            group.refused()
        return aside

    return write


@contextmanager
def _fitting(
    batch: DataFrame,
    name: QueryBatch,
    sink: Sink,
    given: dict[str, str],
    set_aside: Callable[[Sequence[MisfitRow], QueryBatch], SetAside],
) -> Iterator[tuple[DataFrame, dict[str, str], SetAside]]:
    """The records of a batch that fit its topic, options to write them, and what is set aside."""
    if sink.on_error == "stop":
        yield records_of(batch, sink), {}, NOTHING
        return
    from sparkraft.pipeline.sink import checked_columns

    options = sink_options(given)
    limits = topic_fit.limits_of(shared_cluster(options.client), options)
    records = records_of(batch, sink)
    checked_columns(records.schema, options)
    records.persist()
    try:
        fitting, misfits = topic_fit.separated(records, limits)
        # Before the topic has the batch: a repeated batch may be skipped then.
        aside = set_aside(misfits, name)
        size = min(options.client.batch_bytes_max, limits.batch_bytes_max)
        yield fitting, {"kafka.batch.size": str(size)}, aside
    finally:
        records.unpersist()


# dead letters


def _letter_writer(sink: Sink, pipeline: Pipeline) -> DeadLetterTable | DeadLetterTopic:
    if sink.kind == "delta":
        return DeadLetterTable(sink.path)
    return DeadLetterTopic(topic_options(sink, pipeline))


def _dead_letter(sink: Sink, pipeline: Pipeline, spark: SparkSession) -> NamedSink:
    letters = _letter_writer(sink, pipeline)

    def write(batch: DataFrame, name: QueryBatch) -> SetAside:
        metrics = _metrics(pipeline, spark, name.query)
        if not metrics:
            # A table had the batch already, so no sink has read its records this time.
            batch.write.format("noop").mode("overwrite").save()
            metrics = _metrics(pipeline, spark, name.query)
        found = [letter for each in metrics for letter in json_values.dead_letters(each)]
        if found:
            letters.write(found, BatchName(pipeline.name, *name))
        return SetAside(dead_letters=len(found))

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


def delta_sink(sink: Sink) -> DeltaSink:
    """The table of a sink."""
    return DeltaSink(sink.path, sink.keys, sink.schema_changes, sink.partition_by, sink.order_by)


def _delta(sink: Sink, pipeline: Pipeline) -> NamedSink:
    table = delta_sink(sink)
    policy = upkeep.CompactionPolicy(
        sink.path,
        sink.compact_at,
        partial(upkeep.delta_files, sink.path),
        partial(upkeep.keep_up, sink.path, retain_hours=upkeep.RETAIN_HOURS),
    )
    return _compacting(_table(table, sink.path, sink, pipeline), policy)


def _iceberg(sink: Sink, pipeline: Pipeline) -> NamedSink:
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


def _compacting(write: NamedSink, policy: upkeep.CompactionPolicy) -> NamedSink:
    def write_and_look(batch: DataFrame, name: QueryBatch) -> SetAside | None:
        found = write(batch, name)
        policy.after_batch()
        return found

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


def _table(table: DeltaSink | IcebergSink, path: str, sink: Sink, pipeline: Pipeline) -> NamedSink:
    put_aside = _aside(sink, pipeline)

    def write(batch: DataFrame, name: QueryBatch) -> SetAside | None:
        if table.has(*name):
            return None
        aside = NOTHING

        def set_aside(misfits: Sequence[MisfitRow]) -> None:
            # Before the table has the batch: a repeated batch is skipped then.
            nonlocal aside
            aside = put_aside(misfits, name)

        of_table = BatchOfTable(*name, separates=sink.on_error != "stop")
        put = _merge_files if table.keys else _put_files
        if isinstance(table, DeltaSink):
            is_collected = table.why_collected(batch.columns) is not None
            batch = table.ruled(batch)
            put = _put_rows if is_collected else put
        ignored = put(table, batch, of_table, set_aside).ignored
        if ignored:
            log.warning(
                "%s: batch %d had %d values in columns that the table does not have",
                path,
                name.number,
                ignored,
            )
        return aside._replace(ignored=ignored)

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


def _schema(batch: DataFrame) -> pa.Schema:
    """The columns of a batch, without the mark of broken rules."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(batch.schema, timezone="UTC")
    return pa.schema([field for field in schema if field.name != BROKEN_RULE])


def _put_files(
    table: DeltaSink | IcebergSink,
    batch: DataFrame,
    name: BatchOfTable,
    set_aside: Callable[[Sequence[MisfitRow]], None],
) -> Stored:
    """Let tasks write files, and commit them."""
    schema = _schema(batch)
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
    schema = _schema(batch)
    task = table.keyed_task(schema, _prefix(name), separates=name.separates)
    by = [f"`{each}`" for each in (*table.keys, *filter(None, [table.order_by]))]
    spark = batch.sparkSession
    rows = batch.repartition(parallelism(spark), *by[: len(table.keys)])
    written = write_files(rows.sortWithinPartitions(*by), task, task.files.fit.name)
    set_aside(written.misfits)
    merge = Merge(task, schema, written, _runner(spark))
    return table.merge(merge, name.query_id, name.batch_id)


_ON_DRIVER_BYTES_MAX: Final = 8 << 20
"""Less is searched faster on the driver than a job of Spark starts."""


def _runner(spark: SparkSession) -> Runner:
    """Runs tasks in Spark, or here if they are small."""

    def run(tasks: Sequence[Work]) -> list[Rewritten]:
        if sum(task.bytes for task in tasks) <= _ON_DRIVER_BYTES_MAX:
            return run_here(tasks)
        return in_tasks(spark, lambda task: task.run(), tasks)

    return run


def _put_rows(
    table: DeltaSink | IcebergSink,
    batch: DataFrame,
    name: BatchOfTable,
    set_aside: Callable[[Sequence[MisfitRow]], None],
) -> Stored:
    """Collect the rows, and merge them."""
    assert isinstance(table, DeltaSink)
    rows = batch.toArrow()
    if name.separates:
        rows, misfits = table.without_misfits(rows)
        set_aside([misfit_row(each) for each in misfits])
    return table.write(rows, name.query_id, name.batch_id)


def _part(sink: Sink) -> str:
    """The name of a sink's part of the dead letters of a batch."""
    return f":{_place(sink)}"


def _place(sink: Sink) -> str:
    return sink.table or sink.path or sink.topic


def _aside(sink: Sink, pipeline: Pipeline) -> Callable[[Sequence[MisfitRow], QueryBatch], SetAside]:
    """A function for rows of a batch that do not fit a sink: dead letters, or only counted."""
    letters = None
    if sink.on_error == "dead_letter" and pipeline.dead_letter:
        letters = _letter_writer(pipeline.dead_letter, pipeline)

    def set_aside(misfits: Sequence[MisfitRow], name: QueryBatch) -> SetAside:
        count = len(misfits)
        if misfits and letters:
            part = BatchName(pipeline.name, *name, part=_part(sink))
            letters.write([_as_letter(misfit) for misfit in misfits], part)
            return SetAside(count, 0, count)
        if misfits:
            log.warning("%s: batch %d: left out %d rows", _place(sink), name.number, count)
        return SetAside(count)

    return set_aside


def _as_letter(misfit: MisfitRow) -> DeadLetter:
    """A row as a dead letter, with its record's place if the row has the source's columns."""
    topic, partition, offset, row, error = misfit
    return DeadLetter(topic, partition, offset, None, None, row.encode(), error, TASK_PUT)


# others


def _parquet(sink: Sink, _: Pipeline) -> NamedSink:
    def write(batch: DataFrame, name: QueryBatch) -> None:
        folder = f"{sink.path}/run={name.query[:8]}/batch={name.number:010d}"
        # Spark writes the file when the folder is complete.
        is_complete = file_exists(batch.sparkSession, f"{folder}/_SUCCESS")
        if not is_complete and not batch.isEmpty():
            batch.write.mode("overwrite").partitionBy(*sink.partition_by).parquet(folder)

    return write


def _console(sink: Sink, _: Pipeline) -> NamedSink:
    def write(batch: DataFrame, name: QueryBatch) -> None:
        if not batch.isEmpty():
            print(f"-- batch {name.number}")  # noqa: T201 (printing is this sink's job)
            batch.show(sink.rows, truncate=False)

    return write


def _function(sink: Sink, pipeline: Pipeline) -> NamedSink:
    call = load_function(sink.function, pipeline.folder)

    def write(batch: DataFrame, name: QueryBatch) -> None:
        call(batch, name.number)

    return write


_WRITERS: Final[dict[str, Callable[[Sink, Pipeline], NamedSink]]] = {
    "topic": _topic,
    "delta": _delta,
    "iceberg": _iceberg,
    "parquet": _parquet,
    "console": _console,
    "function": _function,
}
