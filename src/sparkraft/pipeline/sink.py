"""Spark's side of the sink: rows become records, at-least-once or exactly-once.

Columns, as the official connector has them: `value` (string or binary), and optionally `key`
(string or binary), `topic`, `partition`, and `headers`, which is written whenever it exists,
whatever the value of `includeHeaders`, as in the official connector. The option `topic` goes before
the column. Other columns are left out.

Without `transactionalIdPrefix`, a task that fails is run again by Spark and its records are written
again; within a task nothing is doubled. With it, a writer takes part in the protocol of
`exactly_once`: Spark pickles a writer for the tasks before each batch, and at no other time, so the
driver opens the batch then.

Spark aborts a stream's batch with a writer that it builds again in another process, and hands over
the results of finished tasks only. So the driver leaves its ticket in a file (`driver_ticket`).
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
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

from sparkraft.pipeline import driver_ticket, encode, lag_group
from sparkraft.pipeline.decisions import QueryBatch, Slot, Ticket, checked_prefix
from sparkraft.pipeline.exactly_once import Committer, SlotWriter, patient
from sparkraft.pipeline.places import OptionError
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.transactions import TransactionCalls
from sparkraft.pipeline.wire import shared_cluster
from sparkraft.pipeline.worker_python import PickledElsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from sparkraft.pipeline.options import SinkOptions

log = logging.getLogger(__name__)

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
    """The result of a task; with exactly-once, its open transaction."""

    records: int
    batch: QueryBatch | None = None
    ticket: Ticket | None = None
    slot: Slot | None = None


class _Writer(PickledElsewhere):
    """The common part of both writers."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        """Check the columns."""
        if options.transactional_id_prefix:
            checked_prefix(options.transactional_id_prefix)
        self._options = options
        self._columns = checked_columns(schema, options)
        self._ticket: Ticket | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._options.transactional_id_prefix and self._ticket is None:
            self._ticket = self._opened()
        return self.__dict__

    def _opened(self) -> Ticket:
        return Committer.of(self._options).open()

    def _write(self, rows: Iterator[pa.RecordBatch], batch: Callable[[], QueryBatch]) -> Written:
        if self._ticket is None:
            return _write(rows, self._columns, self._options)
        name = batch()
        slot = write_slot(rows, self._columns, self._options, self._ticket, name)
        return Written(slot.records if slot else 0, name, self._ticket, slot)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """For `df.write.format("sparkraft").mode("append")`."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        """Check the columns."""
        super().__init__(schema, options)
        if options.publish_group_id:
            raise OptionError("publishGroupId means nothing to a batch write")
        self._batch = QueryBatch(f"append-{uuid4()}", 0)

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write one task's rows."""
        return self._write(iterator, lambda: self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible."""
        if self._ticket is not None:
            slots = [each.slot for each in messages if isinstance(each, Written) and each.slot]
            Committer.of(self._options).commit(self._ticket, self._batch, slots)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort all transactions, also of tasks that still run."""
        del messages
        if self._ticket is not None:
            Committer.of(self._options).abort(self._ticket)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """For `df.writeStream.format("sparkraft")`."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        """Check the columns, and whether the offsets of batches can be shown."""
        super().__init__(schema, options)
        lag_group.check_writer(options)

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write one task's rows of one batch."""
        return self._write(iterator, _running_batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Make a batch visible."""
        del batchId
        written = [each for each in messages if isinstance(each, Written) and each.ticket]
        if not written:
            return
        batch, ticket = written[0].batch, written[0].ticket
        assert batch is not None
        assert ticket is not None
        if not ticket.has(batch):
            slots = [each.slot for each in written if each.slot]
            shown = lag_group.of_writer(self._options, batch.number)
            Committer.of(self._options).commit(ticket, batch, slots, shown)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Abort the transactions of a batch that failed, also of tasks that still run."""
        if not self._options.transactional_id_prefix:
            return
        tickets = [each.ticket for each in messages if isinstance(each, Written) and each.ticket]
        ticket = tickets[0] if tickets else driver_ticket.kept(self._options)
        if ticket is None:
            log.warning("Batch %d is aborted when the query starts again", batchId)
        else:
            Committer.of(self._options).abort(ticket)

    def _opened(self) -> Ticket:
        ticket = super()._opened()
        driver_ticket.keep(ticket, self._options)
        return ticket


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


def write_slot(
    rows: Iterable[pa.RecordBatch],
    columns: tuple[str, ...],
    options: SinkOptions,
    ticket: Ticket,
    batch: QueryBatch,
) -> Slot | None:
    """Write a task's rows in a transaction that stays open; None without rows or if they are there.

    Spark's task determines slot and attempt.
    """
    if ticket.has(batch):
        return None
    context = TaskContext.get()
    assert context is not None, "not in a task"
    cluster = shared_cluster(patient(options.client))
    writer = SlotWriter(
        TransactionCalls(cluster, timeout_ms=options.transaction_timeout_ms),
        ticket,
        batch,
        slot=context.partitionId(),
        attempt=context.attemptNumber(),
    )
    try:
        for each in rows:
            _send_rows(writer.producer, each, columns, options.topic)
        return writer.finish()
    finally:
        cluster.drop_half_used()


def write_in_tasks(
    rows: DataFrame, options: SinkOptions, ticket: Ticket, batch: QueryBatch
) -> list[Slot]:
    """Run a job that writes rows in transactions; return those of the attempts that count."""
    columns = checked_columns(rows.schema, options)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slot = write_slot(batches, columns, options, ticket, batch)
        made = [json.dumps(slot.to_json())] if slot else []
        yield pa.RecordBatch.from_arrays([pa.array(made, pa.string())], names=["slot"])

    found = rows.select(*columns).mapInArrow(write, "slot STRING").collect()
    return [Slot.from_json(json.loads(row["slot"])) for row in found]


def _running_batch() -> QueryBatch:
    """The batch of the streaming query whose task runs here, from Spark's local properties."""
    context = TaskContext.get()
    assert context is not None, "not in a task"
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None
    assert number is not None
    return QueryBatch(query, int(number))


def _task_number() -> int:
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
