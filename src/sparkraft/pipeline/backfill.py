"""`pipeline backfill`: records of a past time through a pipeline's stages into its tables.

A batch query reads the records between two times and merges the result by the sinks' keys. So
rows that the running pipeline wrote from the same records are replaced by equal ones, and a
repeated backfill changes nothing. Other sinks would have rows twice, and are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkraft.pipeline import json_values, query, sinks
from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkraft.pipeline.spec import Pipeline

_OF_STREAMS: Final = (
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxbytespertrigger",
    "maxtriggerdelay",
    "publishgroupid",
)


def check(pipeline: Pipeline) -> None:
    """Refuse pipelines whose tables would differ from those of a single run."""
    if pipeline.connector != "sparkraft":
        raise SpecError('backfill needs connector = "sparkraft"')
    if pipeline.output_mode != "append":
        raise SpecError(
            'backfill needs output_mode = "append": aggregations over a part of the records would '
            "replace those over all"
        )
    for sink in pipeline.sinks:
        if sink.kind not in {"delta", "iceberg"} or not sink.keys:
            raise SpecError(
                f"backfill cannot write the {sink.kind} sink: only tables with keys have no row "
                "twice"
            )


def run(pipeline: Pipeline, spark: SparkSession, *, start_ms: int, end_ms: int) -> int:
    """Process the records with `start_ms` <= timestamp < `end_ms`; return their number.

    Args:
        pipeline: that `check` accepts.
        spark: a session.
        start_ms: in milliseconds since 1970.
        end_ms: likewise.
    """
    frames, letters, records = {}, [], 0
    for source in pipeline.sources:
        options = {k: v for k, v in source.options.items() if k.lower() not in _OF_STREAMS}
        options |= {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
        options["startingOffsetsByTimestampStrategy"] = "latest"
        read = spark.read.format("sparkraft").options(**options).load()
        # A record may be older than those before it.
        read = read.where(f"timestamp >= timestamp_millis({start_ms})")
        read = read.where(f"timestamp < timestamp_millis({end_ms})").persist()
        records += read.count()
        if source.on_error == "dead_letter":
            letters += json_values.damaged_records(read, source)
        frames[source.name] = query.decoded(source, read)
    rows = query.transformed(pipeline, frames, spark)
    name = f"backfill-{pipeline.name}-{start_ms}-{end_ms}"
    sinks.write_once(pipeline, rows, letters, name)
    return records
