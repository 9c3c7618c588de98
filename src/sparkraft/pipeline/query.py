"""The query of a pipeline file: sources, decoded values, watermarks and stages, as DataFrames.

Nothing is read here; Spark analyzes the plan, so mistakes in schemas, SQL and columns are found.

Not here: starting it and its sinks (`run`, `sinks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkraft.pipeline import json_values
from sparkraft.pipeline.functions import load_function
from sparkraft.pipeline.worker_python import ship_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkraft.pipeline.spec import Pipeline, Source, Stage, Watermark

_BYTES_PER_TRIGGER: Final = "64m"
"""Default bound of a batch of one source: the driver collects batches for some tables."""

_LIMITS: Final = frozenset({"maxoffsetspertrigger", "maxbytespertrigger"})


def result(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """The rows for the sinks: of the last stage, else of the only source."""
    frames = {source.name: _read(pipeline, source, spark) for source in pipeline.sources}
    return transformed(pipeline, frames, spark)


def transformed(pipeline: Pipeline, frames: dict[str, DataFrame], spark: SparkSession) -> DataFrame:
    """Run the stages over the sources' rows, which are given by their names."""
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    last = next(iter(frames.values()))
    for stage in pipeline.stages:
        last = frames[stage.name] = _stage(pipeline, stage, frames, spark)
        last.createOrReplaceTempView(stage.name)
    return last


def _stage(
    pipeline: Pipeline, stage: Stage, frames: dict[str, DataFrame], spark: SparkSession
) -> DataFrame:
    if stage.sql:
        return spark.sql(stage.sql)
    assert stage.function is not None
    ship_functions(stage.function, pipeline.folder, spark)
    run = load_function(stage.function, pipeline.folder)
    made: DataFrame = run(*(frames[name] for name in stage.inputs))
    return made


def batch_limit(pipeline: Pipeline, source: Source) -> dict[str, str]:
    """The options that limit a batch of a source; empty without a limit."""
    given = {name: text for name, text in source.options.items() if name.lower() in _LIMITS}
    if given or pipeline.connector != "sparkraft":
        return given
    return {"maxBytesPerTrigger": _BYTES_PER_TRIGGER}


def _read(pipeline: Pipeline, source: Source, spark: SparkSession) -> DataFrame:
    options = {**source.options, **batch_limit(pipeline, source)}
    return decoded(source, spark.readStream.format(pipeline.connector).options(**options).load())


def decoded(source: Source, records: DataFrame) -> DataFrame:
    """Records with their values decoded, the watermark set, and repetitions dropped."""
    if source.is_decoded:
        records = json_values.decoded(records, source)
    if source.watermark:
        records = _watermarked(records, source.watermark)
    return records


def _watermarked(records: DataFrame, watermark: Watermark) -> DataFrame:
    from pyspark.sql.functions import expr

    records = records.withColumn("event_time", expr(watermark.event_time))
    records = records.withWatermark("event_time", watermark.delay)
    if not watermark.deduplicate_by:
        return records
    keys = {f"__sparkraft_key_{n}": expr(each) for n, each in enumerate(watermark.deduplicate_by)}
    keyed = records.withColumns(keys)
    if records.isStreaming:
        return keyed.dropDuplicatesWithinWatermark(list(keys)).drop(*keys)
    return keyed.dropDuplicates(list(keys)).drop(*keys)
