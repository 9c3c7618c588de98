"""Rows that a topic cannot store, found before any row of their batch is written.

A row does not fit a topic sink if the schema of its values or keys refuses it; if its record is
larger than `max.message.bytes` of the topic, also when it is compressed; if it has no key and the
topic is compacted; if its column `partition` names none of the topic; or if a header has no key.
With `on_error = "stop"` nothing is looked for here: the encoder or the broker refuses such a row.

The rows are encoded once and kept by Spark until the batch is written.

Not here: encoding (`registered_values`), writing (`sink`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkraft.base.errors import ErrorCode
from sparkraft.pipeline.table_files import MisfitRow
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from sparkraft.pipeline.options import SinkOptions
    from sparkraft.pipeline.wire import Cluster

ROW: Final = "__sparkraft_row"
"""A column with all columns of the row, for its dead letter."""

REASON: Final = "__sparkraft_reason"
"""A column with the reason that the encoder has refused the row; null otherwise."""

_MISFIT: Final = "__sparkraft_misfit"

_MESSAGE_BYTES_MAX: Final = 1_048_588
"""Kafka's default of `max.message.bytes`, for a topic whose settings are hidden or that is new."""

_TOPIC: Final = 2
"""The type of the resource in DescribeConfigs."""

_RECORD_BYTES: Final = 100
"""Upper bound of a batch with one record, besides key, value and headers."""

_HEADER_BYTES: Final = 10
"""Upper bound of the lengths of a header's parts."""

_NOT_COMPRESSED: Final = 0.75
"""Compression can make a record larger, but not by a third."""

_PLACES: Final = {"topic": "string", "partition": "int", "offset": "bigint"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """The sizes that a topic takes.

    Args:
        topic: its name.
        bytes_max: of a batch.
        needs_keys: whether it is compacted.
        partitions: their number; None if it does not exist yet.
        codec: of the writer.
    """

    topic: str
    bytes_max: int
    needs_keys: bool
    partitions: int | None
    codec: Codec

    @property
    def batch_bytes_max(self) -> int:
        """`kafka.batch.size` with which no batch of several records exceeds `bytes_max`.

        A batch is full with the record that exceeds its size, and no record in it is larger.
        """
        return max(1, (self.bytes_max - _RECORD_BYTES) // 2)


def limits_of(cluster: Cluster, options: SinkOptions) -> TopicLimits:
    """Look up what the topic of a sink takes; Kafka's defaults without permission to see it."""
    from sparkraft.protocol.messages import k32_describe_configs as message

    assert options.topic is not None
    names = ["max.message.bytes", "cleanup.policy"]
    resource = message.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=options.topic, configuration_keys=names
    )
    request = message.DescribeConfigsRequest(resources=[resource])
    (answer,) = cluster.retrying(lambda: cluster.any_broker().ask(request)).results
    found: dict[str, str] = {}
    if answer.error_code == ErrorCode.NONE:
        found = {each.name: each.value for each in answer.configs if each.value is not None}
    known = cluster.topics([options.topic]).get(options.topic)
    return TopicLimits(
        topic=options.topic,
        bytes_max=int(found.get("max.message.bytes", _MESSAGE_BYTES_MAX)),
        needs_keys="compact" in found.get("cleanup.policy", ""),
        partitions=len(known.leaders) if known is not None and known.leaders else None,
        codec=Codec[options.client.compression.upper()],
    )


def separated(records: DataFrame, limits: TopicLimits) -> tuple[DataFrame, list[MisfitRow]]:
    """Records that fit, and the rows that do not.

    Args:
        records: in a sink's columns, with `ROW`, and `REASON` if they were encoded. They must be
            kept by Spark: they are computed here, and read again by the writer.
        limits: of the topic.
    """
    from pyspark.sql import functions as f

    wrong = f.col(_MISFIT).isNotNull()
    marked = records.withColumn(_MISFIT, f.coalesce(*_reasons(records, limits)))
    places = dict(records.select(f"{ROW}.*").dtypes)
    named = [
        f.col(f"{ROW}.{name}") if places.get(name) == kind else f.lit(None).cast(kind)
        for name, kind in _PLACES.items()
    ]
    row = f.to_json(f.col(ROW), {"ignoreNullFields": "false"})
    found = marked.where(wrong).select(*named, row, f.col(_MISFIT)).collect()
    stored = [name for name in records.columns if name not in {ROW, REASON}]
    return marked.where(~wrong).select(*stored), [MisfitRow(*each) for each in found]


def _reasons(records: DataFrame, limits: TopicLimits) -> list[Column]:
    """The reason for which a row does not fit, or null, in order of priority."""
    from pyspark.sql import functions as f

    topic, names = limits.topic, records.columns
    found = [f.col(REASON)] if REASON in names else []
    if limits.needs_keys:
        no_key = f.col("key").isNull() if "key" in names else f.lit(True)  # noqa: FBT003
        found.append(f.when(no_key, f"the row has no key, and topic {topic} is compacted"))
    if "partition" in names and limits.partitions is not None:
        number = f.col("partition")
        is_there = number.isNull() | number.between(0, limits.partitions - 1)
        said = f"topic {topic} has {limits.partitions} partitions, none is "
        found.append(f.when(~is_there, f.concat(f.lit(said), number.cast("string"))))
    if "headers" in names:
        nameless = f.exists("headers", lambda each: each["key"].isNull() & each.isNotNull())
        found.append(f.when(nameless, "a header has no key"))
    return [*found, _oversized(records, limits)]


def _oversized(records: DataFrame, limits: TopicLimits) -> Column:
    """The reason if a record is too large. Only large ones are handed to Python, and measured."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    names = [name for name in ("key", "value", "headers") if name in records.columns]
    parts = [f.coalesce(f.octet_length(each), f.lit(0)) for each in names if each != "headers"]
    if "headers" in names:
        size = f.transform("headers", _header_bytes)
        total = f.aggregate(size, f.lit(0), lambda sum_, each: sum_ + each)
        parts.append(f.coalesce(total, f.lit(0)))
    bytes_max = sum(parts, f.lit(_RECORD_BYTES))
    certain = limits.bytes_max * (1 if limits.codec is Codec.NONE else _NOT_COMPRESSED)
    large = f.when(bytes_max > int(certain), f.struct(*names))

    def measured(rows: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        found: list[Any] = rows.to_pylist()
        return pa.array([each and _why_too_large(each, limits) for each in found], pa.string())

    make: Any = arrow_udf
    made: Callable[[Column], Column] = make(measured, "string")
    return made(large)


def _header_bytes(header: Column) -> Column:
    from pyspark.sql import functions as f

    parts = [f.coalesce(f.octet_length(header[name]), f.lit(0)) for name in ("key", "value")]
    return parts[0] + parts[1] + f.lit(_HEADER_BYTES)


def _why_too_large(row: dict[str, Any], limits: TopicLimits) -> str | None:
    """The reason if the batch with this record alone exceeds the limit."""
    pairs = [each for each in row.get("headers") or () if each is not None]
    headers = [(str(each["key"]), each["value"]) for each in pairs]
    builder = BatchBuilder(codec=limits.codec)
    builder.append(0, _bytes(row.get("key")), _bytes(row["value"]), headers)
    size = len(builder.build())
    if size <= limits.bytes_max:
        return None
    return (
        f"the record has {size:,} bytes with the header of its batch, and topic {limits.topic} "
        f"takes {limits.bytes_max:,} (max.message.bytes)"
    )


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
