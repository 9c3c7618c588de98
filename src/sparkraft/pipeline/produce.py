"""A blocking idempotent producer for Spark's writers (KIP-98).

One batch per partition is in flight, and it is retried with the same sequence numbers until the
broker acknowledges it, so a lost response does not duplicate a record. Encoding continues while the
brokers store sent batches.

Invariants:
    * A partition's batches leave in order, each after the one before it is acknowledged.
    * After `flush`, everything added is stored with acks=all, or an error was raised.

Not here: transactions; which columns become what (`sink`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.pipeline.wire import by_topic, check
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.wire import Cluster, Connection

_NAMES_VERSION_MAX: Final = 12
"""Produce names topics up to this version and uses topic ids from the next one."""

_SEQUENCE_MODULUS: Final = 1 << 31
_RECORD_OVERHEAD: Final = 16
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

    def __init__(self, cluster: Cluster, *, spread_from: int = 0) -> None:
        """Records without a key are distributed round-robin, from partition `spread_from` on."""
        self._cluster = cluster
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
        current = self._open.get(each) or self._start(each)
        current.builder.append(timestamp_ms, key, value, headers)
        current.size += len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
        if headers:
            current.size += sum(len(name) + len(text or b"") for name, text in headers)
        self.records += 1
        if current.size >= self._options.batch_bytes_max:
            self._close_batch(each)

    def flush(self) -> None:
        """Return when everything is stored."""
        for each in list(self._open):
            self._close_batch(each)
        self._dispatch()
        self._settle()

    def _partition_for(self, topic: str, key: bytes | None) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._count_partitions(topic)
        if key is None:
            return self._turn % count
        return (murmur2(key) & 0x7FFFFFFF) % count

    def _count_partitions(self, topic: str) -> int:
        def attempt() -> int:
            known = self._cluster.topics([topic]).get(topic)
            if known is None or not known.leaders:
                # Just being made, perhaps by this very question.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
            return len(known.leaders)

        return self._cluster.retrying(attempt)

    def _start(self, each: TopicPartition) -> _Open:
        if self._producer is None:
            self._producer = self._cluster.new_producer_id()
        producer_id, epoch = self._producer
        builder = BatchBuilder(
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[each],
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
        self._turn += 1
        if self._full_bytes >= self._options.request_bytes_max:
            self._dispatch()

    def _dispatch(self) -> None:
        """Send the full batches, when those before them are acknowledged."""
        self._settle()
        batches, self._full, self._full_bytes = self._full, {}, 0
        if batches:
            self._cluster.retrying(lambda: self._send(batches))

    def _send(self, batches: dict[TopicPartition, bytes]) -> None:
        for leader, partitions in sorted(self._cluster.by_leader(batches).items()):
            connection = self._cluster.broker(leader)
            mine = {each: batches[each] for each in partitions}
            connection.send(self._request(mine), version_max=_NAMES_VERSION_MAX)
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
            for topic, numbers in by_topic(batches)
        ]
        return message.ProduceRequest(
            acks=_ALL_IN_SYNC, timeout_ms=self._options.request_timeout_ms, topic_data=topics
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


_MIX: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_WORD: Final = 0xFFFFFFFF


@lru_cache(maxsize=1 << 16)  # keys repeat, and hashing one in Python takes microseconds
def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned: all clients put a key in the same partition."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _WORD
        word ^= word >> 24
        mixed = (mixed * _MIX & _WORD) ^ (word * _MIX & _WORD)
    if length > whole:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = mixed * _MIX & _WORD
    mixed ^= mixed >> 13
    mixed = mixed * _MIX & _WORD
    return mixed ^ mixed >> 15
