"""Spark's side of the sink: rows become records, idempotent and at-least-once.

Columns, as the official connector has them: `value` (string or binary), and optionally `key`
(string or binary), `topic`, `partition`, and `headers`, which is written whenever it exists,
whatever the value of `includeHeaders`, as in the official connector. The option `topic` goes before
the column. Other columns are left out.

A task that fails is run again by Spark and its records are written again; within a task nothing
is doubled. Not done: transactions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from sparkraft.pipeline import encode
from sparkraft.pipeline.options import OptionError, SinkOptions
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.wire import shared_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (ArrayType(_HEADER),),
}


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of a task."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """For `df.write.format("sparkraft").mode("append")`."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        """Check the columns."""
        self._options = options
        self._columns = checked_columns(schema, options)

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write one task's rows."""
        return _write(iterator, self._columns, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream.format("sparkraft")`."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        """Check the columns."""
        self._options = options
        self._columns = checked_columns(schema, options)

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write one task's rows of one batch."""
        return _write(iterator, self._columns, self._options)


def checked_columns(schema: StructType, options: SinkOptions) -> tuple[str, ...]:
    """Return the columns to write; `OptionError` if they cannot form records."""
    types = {each.name: each.dataType for each in schema.fields}
    if "value" not in types:
        raise OptionError(f"a sink needs a column value; there are: {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise OptionError("where to write? Set option topic, or give a column topic")
    wanted = [name for name in _TYPES if name in types]
    for name in wanted:
        if not any(_is_same(types[name], each) for each in _TYPES[name]):
            expected = " or ".join(each.simpleString() for each in _TYPES[name])
            raise OptionError(
                f"column {name} is {types[name].simpleString()}; a sink takes {expected}"
            )
    return tuple(wanted)


def _is_same(given: DataType, wanted: DataType) -> bool:
    """Equal but for whether nulls may be in it, and for a text's collation."""
    if isinstance(wanted, ArrayType):
        return isinstance(given, ArrayType) and _is_same(given.elementType, wanted.elementType)
    if isinstance(wanted, StructType):
        return (
            isinstance(given, StructType)
            and given.names == wanted.names
            and all(map(_is_same, (f.dataType for f in given), (f.dataType for f in wanted)))
        )
    return isinstance(given, type(wanted))


def _write(
    batches: Iterable[pa.RecordBatch], columns: tuple[str, ...], options: SinkOptions
) -> Written:
    producer = Producer(shared_cluster(options.client), spread_from=_task_number())
    try:
        for batch in batches:
            _send_rows(producer, batch, columns, options.topic)
        producer.flush()
    finally:
        shared_cluster(options.client).drop_half_used()
    return Written(producer.records)


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context else 0


def _send_rows(
    producer: Producer, batch: pa.RecordBatch, columns: tuple[str, ...], topic: str | None
) -> None:
    now = int(time.time() * 1000)
    for part in encode.chunks(batch.select(list(columns))):
        for name, rows in _by_topic(part, topic):
            try:
                records = encode.rows_of(rows)
            except ValueError as error:
                raise OptionError(f"column headers: {error}") from error
            partitions = rows.column("partition") if "partition" in columns else None
            producer.send_rows(name, records, partitions=partitions, timestamp_ms=now)


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic: of the option, which has priority, else of the column."""
    if not batch.num_rows:
        return
    if topic:
        yield topic, batch
        return
    column = batch.column("topic")
    if column.null_count:
        raise OptionError("a row has no topic: set option topic, or fill column topic")
    names: list[Any] = column.unique().to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))
