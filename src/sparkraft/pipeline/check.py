"""Mistakes in a pipeline file that are found before records are read.

`before_spark` takes at most two seconds; `planned`, which needs Spark, also finds mistakes in the
schema, in SQL and in the names of key columns.
"""

from __future__ import annotations

import os
import re
import tempfile
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkraft.pipeline import sinks, status
from sparkraft.pipeline.decisions import checked_prefix
from sparkraft.pipeline.functions import load_function
from sparkraft.pipeline.metrics import parsed_listen
from sparkraft.pipeline.offsets import places
from sparkraft.pipeline.options import sink_options, source_options
from sparkraft.pipeline.query import batch_limit
from sparkraft.pipeline.registered_values import check_sink, reader_of
from sparkraft.pipeline.spec import Pipeline, Sink, Source, SpecError
from sparkraft.pipeline.table_fit import TOMBSTONE
from sparkraft.pipeline.table_transforms import part_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

_UNITS: Final = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
_CALENDAR: Final = ("month", "year")
_UNIT_MS: Final = dict(zip(_UNITS, (0.001, 1, 1e3, 6e4, 3.6e6, 8.64e7, 6.048e8), strict=True))

_TRIGGERS_PER_TIMEOUT: Final = 10
"""A transaction lasts for a batch, which may be much slower than the trigger's interval."""


def before_spark(pipeline: Pipeline) -> None:
    """Find what is wrong with options, topics, intervals, functions and paths."""
    _check_intervals(pipeline)
    if pipeline.metrics:
        parsed_listen(pipeline.metrics)
    named = [stage.function for stage in pipeline.stages]
    for function in (*named, *(sink.function for sink in pipeline.sinks)):
        if function:
            load_function(function, pipeline.folder)
    _check_owner(pipeline)
    _check_writable("checkpoint", pipeline.checkpoint)
    destinations = [(f"the {sink.kind} sink", sink) for sink in pipeline.sinks]
    if pipeline.dead_letter:
        destinations.append(("[dead_letter]", pipeline.dead_letter))
    for name, sink in destinations:
        _check_writable(name, sink.path)
    _check_distinct(destinations)
    _check_formats(pipeline)
    if pipeline.connector == "sparkraft":
        _check_topic_sinks(pipeline, [sink for _, sink in destinations if sink.kind == "topic"])
        _check_topics(pipeline)


def _check_formats(pipeline: Pipeline) -> None:
    for source in pipeline.sources:
        for form in filter(None, (source.format, source.key_format)):
            reader_of(form, "reason")
    for sink in pipeline.sinks:
        for form in filter(None, (sink.format, sink.key_format)):
            check_sink(form)


def is_available_now(trigger: str) -> bool:
    """Whether the pipeline stops when it has caught up."""
    return trigger.replace(" ", "").replace("-", "").replace("_", "").lower() == "availablenow"


def check_keys(pipeline: Pipeline, columns: Sequence[str]) -> None:
    """Refuse keys, partitioning and order that are not columns of the pipeline's result."""
    known = {column.lower() for column in columns}
    named = [
        (sink.kind, option, each)
        for sink in pipeline.sinks
        for option, chosen in (
            ("keys", sink.keys),
            ("partition_by", tuple(_column(sink.kind, each) for each in sink.partition_by)),
            ("order_by", tuple(filter(None, [sink.order_by]))),
        )
        for each in chosen
    ]
    for kind, option, each in named:
        if each.lower() not in known:
            raise SpecError(
                f"the {kind} sink: {option} names {each}, which is not a column; columns: "
                + ", ".join(columns)
            )


def _column(kind: str, part: str) -> str:
    """The column of an entry of `partition_by`, which may be a transform for an Iceberg table."""
    return part_of(part).column if kind == "iceberg" else part


def _check_owner(pipeline: Pipeline) -> None:
    owner = pipeline.name
    if status.is_local(pipeline.checkpoint):
        owner = status.read(pipeline.checkpoint).get("name", owner)
    if owner != pipeline.name:
        raise SpecError(
            f"checkpoint {pipeline.checkpoint} belongs to the pipeline {owner}, which would lose "
            "its place in the topics"
        )


def _check_distinct(destinations: Sequence[tuple[str, Sink]]) -> None:
    """Refuse two sinks that write the same table or folder: one skips what the other wrote."""
    stored = [(name, sink) for name, sink in destinations if _store(sink)]
    for (one, first), (other, second) in combinations(stored, 2):
        if _store(first) != _store(second):
            continue
        if not first.table or not second.table:
            raise SpecError(f"{one} and {other} have the same path {second.path}")
        if first.table == second.table:
            raise SpecError(f"{one} and {other} have the same table {second.table}")


def _store(sink: Sink) -> str:
    """The folder that a sink writes, or the catalog of its table; empty for a topic."""
    if sink.table and "uri" in sink.options:
        return sink.options["uri"]
    return sink.path if not sink.path or "://" in sink.path else os.path.realpath(sink.path)


def _check_topics(pipeline: Pipeline) -> None:
    # pyspark takes half a second to import; the checks above do not need it.
    from sparkraft.pipeline.source import Lookup

    for source in pipeline.sources:
        options = source_options(source.options, streaming=True)
        read = Lookup(options).partitions()
        if options.starting and _is_new(pipeline):
            places(options.starting, read, "startingOffsets")
        topics = {topic for topic, _ in read}
        _check_dead_letter(pipeline, source, topics)
        _check_batches_topic(pipeline, source, topics)


def _is_new(pipeline: Pipeline) -> bool:
    """Whether the query is known to begin at its starting offsets: later, topics may have grown."""
    checkpoint = pipeline.checkpoint
    return status.is_local(checkpoint) and not Path(checkpoint, "offsets").exists()


def notes(pipeline: Pipeline, schema: StructType) -> list[str]:
    """Return what may be a mistake, and often is none."""
    return [
        *_notes_on_keys(pipeline, schema),
        *_notes_on_loops(pipeline),
        *collected(pipeline, schema.names),
    ]


def collected(pipeline: Pipeline, columns: Sequence[str]) -> list[str]:
    """Return a sentence for each table whose batches the driver must collect, with the reason."""
    limits = ", ".join(_limit(pipeline, source) for source in pipeline.sources)
    return [
        f"the delta sink {sink.path}: the driver collects each batch and writes it alone, because "
        f"the table {why}; its memory must hold the rows of a batch ({limits})"
        for sink in pipeline.sinks
        if sink.kind == "delta"
        for why in filter(None, [_why_collected(sink, columns)])
    ]


def _why_collected(sink: Sink, columns: Sequence[str]) -> str | None:
    from deltalake.exceptions import DeltaError

    try:
        return sinks.delta_sink(sink).why_collected(columns)
    except (DeltaError, OSError):
        # Perhaps only a Spark Connect server reaches it. Otherwise the first batch reports it.
        return None


def _limit(pipeline: Pipeline, source: Source) -> str:
    options = batch_limit(pipeline, source)
    said = " and ".join(f"{name} {value}" for name, value in options.items()) or "no limit"
    return f"{source.place} has {said}"


def _notes_on_keys(pipeline: Pipeline, schema: StructType) -> list[str]:
    nullable = {field.name.lower() for field in schema.fields if field.nullable}
    keyed = [sink for sink in pipeline.sinks if sink.keys]
    deletes = [source.place for source in pipeline.sources if source.is_envelope]
    kept = (
        []
        if TOMBSTONE in schema.names
        else [
            f"{place} has deletes, and the result has no column {TOMBSTONE}: the {sink.kind} sink "
            "keeps deleted rows"
            for place in deletes
            for sink in keyed
        ]
    )
    return kept + [
        f"the {sink.kind} sink: key column {key} may be null; "
        + (
            "rows with a null key become records without a key"
            if sink.kind == "topic" and len(sink.keys) == 1
            else "rows with null keys replace others"
        )
        for sink in pipeline.sinks
        for key in sink.keys
        if key.lower() in nullable
    ]


def _notes_on_loops(pipeline: Pipeline) -> list[str]:
    if pipeline.connector != "sparkraft":
        return []
    return [
        f"the topic sink writes to {sink.topic}, which {source.place} reads: the pipeline "
        "processes its own results, without an end unless it leaves rows out"
        for sink in pipeline.sinks
        if sink.kind == "topic"
        for source in pipeline.sources
        if _servers(sink, pipeline) == source.options["kafka.bootstrap.servers"]
        and source_options(source.options, streaming=True).subscription.includes(sink.topic)
    ]


def _servers(sink: Sink, pipeline: Pipeline) -> str:
    return sinks.topic_options(sink, pipeline)["kafka.bootstrap.servers"]


def _check_batches_topic(pipeline: Pipeline, source: Source, topics: set[str]) -> None:
    servers = {each.options["kafka.bootstrap.servers"] for each in (source, pipeline.sources[0])}
    if pipeline.batches_topic in topics and len(servers) == 1:
        raise SpecError(
            f"batches_topic {pipeline.batches_topic} is read by the pipeline itself: every batch "
            "would cause another one"
        )


def _check_dead_letter(pipeline: Pipeline, source: Source, topics: set[str]) -> None:
    dead_letter = pipeline.dead_letter
    if dead_letter is None or dead_letter.topic not in topics:
        return
    if _servers(dead_letter, pipeline) == source.options["kafka.bootstrap.servers"]:
        raise SpecError(
            f"[dead_letter] topic {dead_letter.topic} is read by the pipeline itself: every dead "
            "letter would become another one"
        )


def _check_intervals(pipeline: Pipeline) -> None:
    if not is_available_now(pipeline.trigger):
        _check_interval("trigger", pipeline.trigger, _UNITS)
    for source in pipeline.sources:
        if source.watermark:
            _check_interval("[source.watermark] delay", source.watermark.delay, _UNITS + _CALENDAR)


def _check_topic_sinks(pipeline: Pipeline, topic_sinks: Sequence[Sink]) -> None:
    prefixes = set()
    for sink in topic_sinks:
        options = sink_options(sinks.topic_options(sink, pipeline))
        prefix = options.transactional_id_prefix
        if not prefix:
            continue
        if sink.delivery != "exactly_once":
            raise SpecError('transactionalIdPrefix needs delivery = "exactly_once" in a topic sink')
        checked_prefix(prefix)
        _check_timeout(pipeline.trigger, options.transaction_timeout_ms)
        if prefix in prefixes:
            raise SpecError(
                f"two topic sinks have the transactionalIdPrefix {prefix}: each one would skip the "
                "batches that the other has written; set different ones in their options"
            )
        prefixes.add(prefix)


def _check_timeout(trigger: str, timeout_ms: int) -> None:
    """Refuse a transaction timeout that a slow batch or a short outage could exceed."""
    if is_available_now(trigger):
        return
    least = _TRIGGERS_PER_TIMEOUT * _interval_ms(trigger)
    if timeout_ms < least:
        raise SpecError(
            f"kafka.transaction.timeout.ms is {timeout_ms}, below {_TRIGGERS_PER_TIMEOUT} times "
            f"the trigger {trigger!r}: set at least {least:.0f}, or slow batches are aborted"
        )


def _interval_ms(text: str) -> float:
    found = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?\b", text, re.IGNORECASE)
    return sum(float(number) * _UNIT_MS[unit.lower()] for number, unit in found)


def _check_interval(name: str, text: str, units: Sequence[str]) -> None:
    one = rf"\d+(\.\d+)?\s*({'|'.join(units)})s?"
    if not re.fullmatch(rf"\s*(interval\s+)?{one}(\s+{one})*\s*", text, re.IGNORECASE):
        raise SpecError(
            f'{name} must be an interval, such as "2 seconds" or "1 hour 30 minutes", not {text!r}'
        )


def _check_writable(name: str, path: str) -> None:
    """Create and delete a folder in the nearest folder of a local path that exists."""
    if not path or "://" in path:
        return
    folder = status.nearest_folder(path)
    try:
        Path(tempfile.mkdtemp(prefix=".sparkraft-check-", dir=folder)).rmdir()
    except OSError as error:
        raise SpecError(f"{name} cannot be written to {path}: {error.strerror}") from error
