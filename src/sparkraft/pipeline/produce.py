"""A blocking idempotent producer for Spark's writers, with or without a transaction (KIP-98).

One batch per partition is in flight, and it is retried with the same sequence numbers until the
broker acknowledges it, so a lost response does not duplicate a record. Encoding continues while the
brokers store sent batches.

Invariants:
    * A partition's batches leave in order, each after the one before it is acknowledged.
    * After `flush`, everything added is stored with acks=all, or an error was raised.

Not here: ending the transaction (`exactly_once`); which columns become what (`sink`); encoding
columns (`encode`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import by_topic
from sparkraft.client.partitioner import partition_of_key
from sparkraft.pipeline import encode, partition_keys
from sparkraft.pipeline.wire import check
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.transactions import OpenTransaction
    from sparkraft.pipeline.wire import Cluster, Connection

_NAMES_VERSION_MAX: Final = 12
"""Produce names topics up to this version and uses topic ids from the next one."""

_TRANSACTION_VERSION_MAX: Final = 11
"""From the next version on, Produce itself adds partitions to the transaction (KIP-890)."""

Ints = npt.NDArray[np.int64]

_SEQUENCE_MODULUS: Final = 1 << 31

_partition_of_key = lru_cache(maxsize=1 << 16)(partition_of_key)
"""Keys repeat, and hashing one in Python takes microseconds."""
_ALL_IN_SYNC: Final = -1


@dataclass(slots=True)
class _Open:
    """A partition's batch that still takes records."""

    builder: BatchBuilder
    size: int = 0


@dataclass(slots=True)
class _InFlight:
    """Batches sent to one broker, not yet acknowledged."""

    connection: Connection
    batches: dict[TopicPartition, bytes]


class Producer:
    """Sends records; `flush` before letting it go.

    Raises `KafkaError` for what can't be stored; after that it is of no more use.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        spread_from: int = 0,
        transaction: OpenTransaction | None = None,
    ) -> None:
        """Records without a key are distributed round-robin, from partition `spread_from` on.

        With a transaction, its id and epoch are those of the records.
        """
        self._cluster = cluster
        self._transaction = transaction
        self._options = cluster.options
        self._codec = Codec[self._options.compression.upper()]
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._open: dict[TopicPartition, _Open] = {}
        self._full: dict[TopicPartition, bytes] = {}
        self._full_bytes = 0
        self._in_flight: list[_InFlight] = []
        self._partition_counts: dict[str, int] = {}
        self._turn = spread_from
        self._spread_bytes = 0
        self.records = 0

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add a record; it leaves when its batch is full or at `flush`.

        Without `partition`, Kafka's default: by the key's murmur2, else one partition for a while.
        """
        if partition is None:
            partition = self._partition_for(topic, key)
        each = topic, partition
        size = len(key or b"") + len(value or b"") + encode.RECORD_OVERHEAD
        size += sum(len(name) + len(text or b"") for name, text in headers)
        if size > self._options.batch_bytes_max and each in self._open:
            self._close_batch(each)
        current = self._open.get(each) or self._start(each)
        current.builder.append(timestamp_ms, key, value, headers)
        current.size += size
        self.records += 1
        if current.size >= self._options.batch_bytes_max:
            self._turn += 1
            self._close_batch(each)

    def send_rows(
        self,
        topic: str,
        rows: encode.Rows,
        *,
        partitions: pa.Array[Any] | None = None,
        timestamp_ms: int,
    ) -> None:
        """Add many records at once, all with one timestamp; each partition gets its in order.

        Args:
            topic: of all rows.
            rows: at least one.
            partitions: of type int32; for null, Kafka's default applies, as in `send`.
            timestamp_ms: of all rows.
        """
        sizes = rows.field_bytes()
        chosen = self._partitions_for(topic, rows, sizes, partitions)
        order = None
        if (np.diff(chosen) < 0).any():
            order = np.argsort(chosen, kind="stable")
            chosen, sizes = chosen[order], sizes[order]
        limit = self._options.batch_bytes_max
        pieces = encode.cut(chosen, sizes, lambda number: self._filled((topic, number)), limit)
        deltas = [self._timestamp_delta((topic, p.partition), p, timestamp_ms) for p in pieces]
        spans = encode.encode(rows, order, pieces, np.array(deltas))
        # One batch of each partition after another: a request takes one of each.
        for piece, span in sorted(zip(pieces, spans, strict=True), key=_by_batch):
            self._extend((topic, piece.partition), piece, span, timestamp_ms)
        self.records += len(chosen)

    def flush(self) -> None:
        """Return when everything is stored."""
        for each in list(self._open):
            self._close_batch(each)
        self._dispatch()
        self._settle()

    def _partition_for(self, topic: str, key: bytes | None) -> int:
        count = self._partition_count(topic)
        if key is None:
            return self._turn % count
        return _partition_of_key(key, count)

    def _partitions_for(
        self, topic: str, rows: encode.Rows, sizes: Ints, given: pa.Array[Any] | None
    ) -> Ints:
        """The partition of each row: the given one, else as `_partition_for`."""
        count = self._partition_count(topic)
        chosen = partition_keys.partitions_of(rows.key, count)
        keyless = partition_keys.null_rows(rows.key)
        if given is not None:
            is_given = ~partition_keys.null_rows(given)
            chosen[is_given] = given.drop_null().to_numpy()
            keyless &= ~is_given
        if keyless.any():
            chosen[keyless] = self._spread(sizes[keyless]) % count
        return chosen

    def _spread(self, sizes: Ints) -> Ints:
        """Partitions of rows without a key, modulo their number: a batch's worth of bytes each."""
        limit = self._options.batch_bytes_max
        before = self._spread_bytes + np.cumsum(sizes) - sizes
        turns: Ints = self._turn + before // limit
        after = int(before[-1] + sizes[-1])
        self._turn, self._spread_bytes = self._turn + after // limit, after % limit
        return turns

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._count_partitions(topic)
        return count

    def _count_partitions(self, topic: str) -> int:
        def attempt() -> int:
            known = self._cluster.topics([topic]).get(topic)
            if known is None or not known.leaders:
                # Just being made, perhaps by this very question.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
            return len(known.leaders)

        return self._cluster.retrying(attempt)

    def _filled(self, each: TopicPartition) -> tuple[int, int]:
        """Bytes and records of a partition's open batch."""
        current = self._open.get(each)
        return (0, 0) if current is None else (current.size, current.builder.count)

    def _timestamp_delta(self, each: TopicPartition, piece: encode.Piece, timestamp: int) -> int:
        return timestamp - self._open[each].builder.base_timestamp if piece.first_delta else 0

    def _extend(
        self, each: TopicPartition, piece: encode.Piece, records: memoryview, timestamp_ms: int
    ) -> None:
        if not piece.first_delta and each in self._open:
            self._close_batch(each)
        current = self._open.get(each) or self._start(each)
        current.builder.extend(records, count=piece.end - piece.start, timestamp=timestamp_ms)
        current.size += piece.size
        if current.size >= self._options.batch_bytes_max:
            self._close_batch(each)

    def _start(self, each: TopicPartition) -> _Open:
        transaction = self._transaction
        if self._producer is None:
            self._producer = (transaction.begin if transaction else self._cluster.new_producer_id)()
        producer_id, epoch = self._producer
        builder = BatchBuilder(
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[each],
            transactional=transaction is not None,
        )
        self._open[each] = opened = _Open(builder)
        return opened

    def _close_batch(self, each: TopicPartition) -> None:
        """The batch is full: send it, with what else is full, once a request's worth is there."""
        if each in self._full:
            self._dispatch()
        closed = self._open.pop(each)
        count = closed.builder.count
        self._sequences[each] = (self._sequences[each] + count) % _SEQUENCE_MODULUS
        self._full[each] = batch = closed.builder.build()
        self._full_bytes += len(batch)
        if self._full_bytes >= self._options.request_bytes_max:
            self._dispatch()

    def _dispatch(self) -> None:
        """Send the full batches, when those before them are acknowledged."""
        self._settle()
        batches, self._full, self._full_bytes = self._full, {}, 0
        if batches and self._transaction:
            self._transaction.add(batches)
        if batches:
            self._cluster.retrying(lambda: self._send(batches))

    def _send(self, batches: dict[TopicPartition, bytes]) -> None:
        version_max = _TRANSACTION_VERSION_MAX if self._transaction else _NAMES_VERSION_MAX
        for leader, partitions in sorted(self._cluster.by_leader(batches).items()):
            connection = self._cluster.broker(leader)
            mine = {each: batches[each] for each in partitions}
            connection.send(self._request(mine), version_max=version_max)
            self._in_flight.append(_InFlight(connection, mine))

    def _request(self, batches: dict[TopicPartition, bytes]) -> Any:
        from sparkraft.protocol.messages import k00_produce as message

        topics = [
            message.TopicProduceData(
                name=topic,
                partition_data=[
                    message.PartitionProduceData(
                        index=number, records=memoryview(batches[topic, number])
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(batches).items()
        ]
        return message.ProduceRequest(
            transactional_id=self._transaction.transactional_id if self._transaction else None,
            acks=_ALL_IN_SYNC,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=topics,
        )

    def _settle(self) -> None:
        """Wait for the answers due, and send again what may be sent again."""
        for attempt in range(self._options.retries_max + 1):
            failed, error = self._collect()
            if error is None:
                return
            if attempt == self._options.retries_max or not error.code.is_retriable:
                raise error
            self._cluster.forget()
            time.sleep(self._options.retry_pause_ms / 1000)
            self._cluster.retrying(lambda left=failed: self._send(left))  # type: ignore[misc]

    def _collect(self) -> tuple[dict[TopicPartition, bytes], KafkaError | None]:
        """The batches that are not stored, and why the worst of them is not."""
        failed: dict[TopicPartition, bytes] = {}
        worst: KafkaError | None = None
        for sent in self._in_flight:
            try:
                answer = sent.connection.receive()
            except KafkaError as error:
                failed |= sent.batches
                worst = worst or error
                continue
            for each, refused in _refusals(answer):
                failed[each] = sent.batches[each]
                worst = refused if worst is None or worst.code.is_retriable else worst
        self._in_flight = []
        return failed, worst


def _by_batch(span: tuple[encode.Piece, memoryview]) -> tuple[int, int]:
    return span[0].nth, span[0].partition


def _refusals(answer: Any) -> list[tuple[TopicPartition, KafkaError]]:
    """Partitions whose batch was not stored; a duplicate was stored before."""
    refused = []
    for topic in answer.responses:
        for each in topic.partition_responses:
            if each.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                continue
            try:
                check(
                    each.error_code, each.error_message or f"produce to {topic.name}-{each.index}"
                )
            except KafkaError as error:
                refused.append(((topic.name, each.index), error))
    return refused
