"""Sends records: batches by partition, waits for them to fill, keeps their order across retries.

    send() → batch of its partition → sealed (full, or `linger_ms` old) → in flight → answered

Per partition at most one request is in flight, so order holds without counting sequences back on
a retry; several partitions of a leader share a request. With idempotence (the default with
acks=all) every batch carries producer id, epoch and sequence, and a retried batch keeps its own
(KIP-98), so a node drops what it has already.

Invariants:
    * A record's future ends exactly once: with its offset, or with the error that ended its batch.
    * Records of a partition are written in the order of `send`.
    * Buffered bytes stay below `buffer_bytes`; `send` waits for room.

Not here: transactions (`transactional_producer`).
Not done: bumping the epoch after an unknown outcome (the batch fails instead, and the producer
takes a new producer id).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import Cluster, check, code_of, is_worth_retrying
from sparkraft.client.outgoing import Batch, Lane, Sent
from sparkraft.client.partitioner import StickyChoice, partition_of_key
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.records.batch import SEQUENCE_MODULUS
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.ids import TopicPartition


_BATCHES_PER_PARTITION_MAX = 1_000
_REQUEST_BYTES_MAX = 1 << 20
_BY_TOPIC_ID = 13
_RECORD_OVERHEAD = 40
"""Upper estimate of what a record takes besides key, value and headers."""


class _Dice:
    """The machine's dice (`base.env.Entropy`)."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def below(self, bound: int) -> int:
        return random.randrange(bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Kafka's producer configs, by their names with the unit last."""

    acks: int = -1
    idempotence: bool = True
    """`enable.idempotence`; off unless `acks` is -1."""
    batch_bytes: int = 16_384
    linger_ms: int = 5
    codec: Codec = Codec.NONE
    level: int | None = None
    buffer_bytes: int = 32 << 20
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    retry_backoff_ms: int = 100
    transactional_id: str | None = None
    """For a `TransactionalProducer` alone."""
    transaction_timeout_ms: int = 60_000

    @property
    def is_idempotent(self) -> bool:
        """Whether batches carry a producer id."""
        return self.idempotence and self.acks == -1


class Producer:
    """Sends records over a `Cluster`, which stays the caller's to close.

    Use it as a context manager: leaving it sends what waits.
    """

    def __init__(self, cluster: Cluster, settings: ProducerSettings | None = None) -> None:
        """Prepare; nothing is sent before the first `send`."""
        self.cluster = cluster
        self.settings = settings or ProducerSettings()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._sticky = StickyChoice(_Dice(), self.settings.batch_bytes)
        self._producer: tuple[int, int] | None = None
        self._transactional_id: str | None = None
        self._buffered = 0
        self._room = asyncio.Event()
        self._room.set()
        self._wake = asyncio.Event()
        self._flushing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Start."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Send what waits, unless an exception passes; then stop."""
        await self.close(flush=kind is None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[Sent]:
        """Add a record; the future ends when it is acknowledged or has failed.

        Args:
            topic: created if it is missing and the cluster creates topics.
            value: None is a tombstone in a compacted topic.
            key: determines the partition if `partition` is None.
            headers: names and values, in order.
            partition: the destination.
            timestamp: ms since 1970; None for now.

        Raises:
            KafkaError: the topic can't be used, or no room came in `max_block_ms`.
        """
        self._require_open()
        size = len(value or b"") + len(key or b"") + _RECORD_OVERHEAD
        for name, content in headers:
            size += len(name) + len(content or b"")
        if self._buffered + size > self.settings.buffer_bytes and self._buffered:
            await self._wait_for_room(size)
        if partition is None:
            partition = await self._choose(topic, key, size)
        self._require_open()  # it may have changed in the waits above
        now_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        return self._add((topic, partition), (now_ms, key, value, headers), size)

    async def flush(self) -> None:
        """Return when everything sent so far is acknowledged or has failed."""
        waiting = [f for lane in self._lanes.values() for b in lane.batches for f in b.futures]
        self._flushing += 1
        self._wake.set()
        try:
            for future in waiting:
                await _ended(future)
        finally:
            self._flushing -= 1

    async def close(self, *, flush: bool = True) -> None:
        """Send what waits, then stop; without `flush`, what waits fails."""
        if self._is_closed:
            return
        if flush:
            await self.flush()
        self._is_closed = True
        for task in (self._loop_task, *self._tasks):
            if task is not None:
                task.cancel()
        self._fail_all(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed"))

    def _require_open(self) -> None:
        """Raise unless a record can be taken now."""
        if self._is_closed:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "this producer is closed")

    def _fail_all(self, error: KafkaError) -> None:
        for lane in self._lanes.values():
            for batch in lane.batches:
                self._finish(batch, error)
            lane.batches.clear()

    # taking records in

    async def _wait_for_room(self, size: int) -> None:
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                while self._buffered and self._buffered + size > self.settings.buffer_bytes:
                    self._room.clear()
                    self._wake.set()
                    await self._room.wait()
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no room in {self.settings.buffer_bytes} bytes of buffer within "
                f"{self.settings.max_block_ms} ms",
            ) from error

    async def _choose(self, topic: str, key: bytes | None, size: int) -> int:
        info = self.cluster.view.topics.get(topic)
        if info is None:
            info = await self.cluster.retrying(
                lambda: self.cluster.topic(topic, create=True),
                timeout_ms=self.settings.max_block_ms,
            )
        count = len(info.partitions)
        if key is not None:
            return partition_of_key(key, count)
        led = [p.index for p in info.partitions.values() if p.leader >= 0]
        return self._sticky.choose(topic, led or range(count), size)

    def _add(
        self, tp: TopicPartition, record: tuple[int, bytes | None, bytes | None, Any], size: int
    ) -> asyncio.Future[Sent]:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(tp)
        if lane is None:
            lane = self._lanes[tp] = Lane()
        batch = lane.batches[-1] if lane.batches else None
        if batch is None or batch.data is not None or self._is_full(batch, size):
            batch = Batch(loop.time())
            lane.batches.append(batch)
            self._wake.set()
        future: asyncio.Future[Sent] = loop.create_future()
        batch.records.append(record)
        batch.futures.append(future)
        batch.size += size
        self._buffered += size
        if batch.size >= self.settings.batch_bytes:
            self._wake.set()
        if self._loop_task is None:
            self._loop_task = loop.create_task(self._run())
        return future

    def _is_full(self, batch: Batch, size: int) -> bool:
        return bool(batch.records) and batch.size + size > self.settings.batch_bytes

    # sending

    async def _run(self) -> None:
        try:
            await self._send_forever()
        except Exception as error:  # the root of the task: the error would be lost otherwise
            self._is_closed = True
            self._fail_all(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"our bug: {error!r}"))
            raise

    async def _send_forever(self) -> None:
        """Send what is ready, then sleep until a batch fills or gets old."""
        while True:
            self._wake.clear()
            ready, sleep = self._ready()
            if ready:
                await self._dispatch(ready)
                continue
            try:
                async with asyncio.timeout(sleep):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _ready(self) -> tuple[list[TopicPartition], float | None]:
        """Partitions whose first batch may go; else how long until one may."""
        now = asyncio.get_running_loop().time()
        linger = self.settings.linger_ms / 1000
        ready: list[TopicPartition] = []
        sleep: float | None = None
        for tp, lane in self._lanes.items():
            if lane.sending or not lane.batches:
                continue
            batch = lane.batches[0]
            is_sealed = (
                len(lane.batches) > 1
                or batch.data is not None
                or self._flushing > 0
                or batch.size >= self.settings.batch_bytes
            )
            at = lane.retry_at if is_sealed else max(batch.created + linger, lane.retry_at)
            if at <= now:
                ready.append(tp)
            else:
                sleep = at - now if sleep is None else min(sleep, at - now)
        return ready, sleep

    async def _dispatch(self, ready: list[TopicPartition]) -> None:
        """Send the first batches of `ready`, together if they have the same leader."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in ready:
            try:
                self._drop_expired(tp)
                info = await self.cluster.leader(*tp)
                by_leader.setdefault(info.leader, []).append(tp)
            except KafkaError as error:
                self._on_failure(tp, error)
        try:
            await self._prepare([tp for group in by_leader.values() for tp in group])
        except KafkaError as error:
            for tp in ready:
                self._on_failure(tp, error)
            return
        for leader, partitions in by_leader.items():
            for group in self._split(partitions):
                for tp in group:
                    self._lanes[tp].sending = True
                task = asyncio.get_running_loop().create_task(self._send_group(leader, group))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _prepare(self, partitions: list[TopicPartition]) -> None:
        """Get what batches to `partitions` need before they are sealed: a producer id."""
        if partitions and self.settings.is_idempotent and self._producer is None:
            self._producer = await self._init_producer_id()

    def _split(self, partitions: list[TopicPartition]) -> list[list[TopicPartition]]:
        """Groups whose batches fit into one request."""
        groups: list[list[TopicPartition]] = []
        size = _REQUEST_BYTES_MAX + 1
        for tp in partitions:
            lane = self._lanes[tp]
            if not lane.batches:
                continue
            data = self._sealed(lane)
            size += len(data)
            if size > _REQUEST_BYTES_MAX:
                groups.append([])
                size = len(data)
            groups[-1].append(tp)
        return groups

    def _sealed(self, lane: Lane) -> bytes:
        """The first batch's bytes; made once, so that a retry sends the same."""
        batch = lane.batches[0]
        if batch.data is not None:
            return batch.data
        settings = self.settings
        builder = BatchBuilder(codec=settings.codec, level=settings.level)
        if self._producer is not None:
            batch.base_sequence = lane.next_sequence
            lane.next_sequence = (lane.next_sequence + len(batch.records)) % SEQUENCE_MODULUS
            builder = BatchBuilder(
                codec=settings.codec,
                level=settings.level,
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                base_sequence=batch.base_sequence,
                transactional=self._transactional_id is not None,
            )
        for timestamp, key, value, headers in batch.records:
            builder.append(timestamp, key, value, headers)
            batch.timestamps.append(timestamp)
        batch.records.clear()
        batch.data = builder.build()
        return batch.data

    async def _send_group(self, leader: int, group: list[TopicPartition]) -> None:
        try:
            answers = await self._produce(leader, group)
        except KafkaError as error:
            for tp in group:
                self._lanes[tp].sending = False
                self.cluster.forget_topic(tp[0])
                self._on_failure(tp, error)
        else:
            for tp in group:
                self._lanes[tp].sending = False
                self._on_answer(tp, answers.get(tp))
        self._wake.set()

    async def _produce(self, leader: int, group: list[TopicPartition]) -> dict[TopicPartition, Any]:
        connection = await self.cluster.connection(leader)
        limits = (
            self._produce_version_max(),
            self.cluster.view.version_by_ids(topic for topic, _ in group),
        )
        highest = min((limit for limit in limits if limit is not None), default=None)
        version = connection.version_for(ApiKey.PRODUCE, at_most=highest)
        request = self._request(group, by_id=version >= _BY_TOPIC_ID)
        if self.settings.acks == 0:
            connection.send_without_answer(request, version=version)
            return {}
        answer = await connection.send(
            request, version=version, timeout_ms=self.settings.request_timeout_ms + 1_000
        )
        names = {self.cluster.view.topics[topic].id: topic for topic, _ in group}
        return {
            (
                names.get(topic.topic_id, "") if version >= _BY_TOPIC_ID else topic.name,
                entry.index,
            ): (entry)
            for topic in answer.responses
            for entry in topic.partition_responses
        }

    def _produce_version_max(self) -> int | None:
        """The highest version of Produce that may be sent; None for the highest there is."""
        return None

    def _request(self, group: list[TopicPartition], *, by_id: bool) -> Any:
        from sparkraft.protocol.messages import k00_produce as k00

        topics: dict[str, Any] = {}
        for name, index in group:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = (
                    k00.TopicProduceData(topic_id=self.cluster.view.topics[name].id)
                    if by_id
                    else k00.TopicProduceData(name=name)
                )
            topic.partition_data.append(
                k00.PartitionProduceData(
                    index=index, records=self._lanes[name, index].batches[0].data
                )
            )
        return k00.ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self.settings.acks,
            timeout_ms=self.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    async def _init_producer_id(self) -> tuple[int, int]:
        from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest

        async def attempt() -> tuple[int, int]:
            answer = await self.cluster.ask_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            )
            check(answer.error_code)
            return answer.producer_id, answer.producer_epoch

        return await self.cluster.retrying(attempt, timeout_ms=self.settings.max_block_ms)

    # answers

    def _on_answer(self, tp: TopicPartition, entry: Any) -> None:
        lane = self._lanes[tp]
        if not lane.batches:
            return
        code = code_of(entry.error_code) if entry is not None else ErrorCode.NONE
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            batch = lane.batches.popleft()
            base = entry.base_offset if entry is not None else -1
            append_time = entry.log_append_time_ms if entry is not None else -1
            self._finish(batch, None, tp=tp, base_offset=base, append_time=append_time)
            return
        error = KafkaError(code, entry.error_message or f"{tp[0]}-{tp[1]} refused the batch")
        self.cluster.forget_topic(tp[0])
        self._on_failure(tp, error)

    def _on_failure(self, tp: TopicPartition, error: KafkaError) -> None:
        """Try the first batch again in a moment, or fail it if that is of no use."""
        lane = self._lanes[tp]
        if not lane.batches:
            return
        now = asyncio.get_running_loop().time()
        batch = lane.batches[0]
        is_late = (now - batch.created) * 1000 > self.settings.delivery_timeout_ms
        if is_worth_retrying(error) and not is_late:
            lane.retry_at = now + self.settings.retry_backoff_ms / 1000
            return
        lane.batches.popleft()
        self._finish(batch, error)
        self._on_lost(batch, error)

    def _on_lost(self, batch: Batch, error: KafkaError) -> None:
        """A batch failed. If it had a sequence, later ones would be out of order: take a new id.

        Batches that may have been written already keep theirs; they are refused or known.
        """
        if batch.base_sequence >= 0:
            self._producer = None
            self._start_sequences_over()

    def _start_sequences_over(self) -> None:
        for lane in self._lanes.values():
            lane.next_sequence = 0

    def _drop_expired(self, tp: TopicPartition) -> None:
        lane = self._lanes[tp]
        now = asyncio.get_running_loop().time()
        while lane.batches:
            age_ms = (now - lane.batches[0].created) * 1000
            if age_ms <= self.settings.delivery_timeout_ms:
                return
            detail = f"{tp[0]}-{tp[1]}: not delivered within {self.settings.delivery_timeout_ms} ms"
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail)
            batch = lane.batches.popleft()
            self._finish(batch, error)
            self._on_lost(batch, error)

    def _finish(
        self,
        batch: Batch,
        error: KafkaError | None,
        *,
        tp: TopicPartition = ("", 0),
        base_offset: int = -1,
        append_time: int = -1,
    ) -> None:
        self._buffered -= batch.size
        self._room.set()
        for delta, future in enumerate(batch.futures):
            if future.done():
                continue
            if error is not None:
                future.set_exception(type(error)(error.code, error.detail))
                if self._transactional_id is not None:
                    future.exception()  # the commit raises it: no caller has to read the future
                continue
            future.set_result(
                Sent(
                    topic=tp[0],
                    partition=tp[1],
                    offset=base_offset + delta if base_offset >= 0 else -1,
                    timestamp=append_time if append_time >= 0 else batch.timestamps[delta],
                )
            )


async def _ended(future: asyncio.Future[Sent]) -> None:
    try:
        await asyncio.shield(future)
    except KafkaError:
        # The holder of the future gets the error.
        return
