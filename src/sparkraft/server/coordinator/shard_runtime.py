"""Execute the decisions of one shard: its log, its timer, its effects and its parked requests.

    request → shard decides → one batch appended → shard replays → batch committed → response

A response is sent when everything written up to its decision is committed (below the high
watermark), even if the decision wrote nothing: it may depend on state that is not committed yet.
After loading, the first responses also wait until the loaded log is committed: a new leader may
have records that its predecessor never committed, and neither an offset nor a generation that a
client has seen may be reverted. (Kafka returns generations as soon as they are loaded.)

The shard is called from the event loop only and never awaits; only responses and effects do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.coordinator.runtime import (
    NO_PRODUCER_ID,
    AppendCallback,
    CoordinatorShard,
    Decision,
    Effect,
    Instant,
    MetadataDelta,
    ProducerEpoch,
    ReplyTo,
)
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.control import parse_end_transaction
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.server.coordinator.host import ShardHost
from sparkraft.server.coordinator.responses import Response

log = logging.getLogger(__name__)

LOAD_STEP_BYTES = 256 * 1024
"""Bytes read at a time while a log is loaded; at least a batch."""

LOAD_STEP_RECORDS: LoopBound = 500
"""Records loaded per event-loop iteration: about 3 ms."""

S = TypeVar("S", bound=CoordinatorShard[Any])
R = TypeVar("R")
T = TypeVar("T")

EffectExecutor = Callable[[Any], Awaitable[Any]]
"""Executes effects of one class; returns the result, or raises KafkaError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec(Generic[S, R]):
    """The parts of a runtime that depend on the kind of coordinator.

    Attributes:
        topic: the internal topic.
        new_shard: makes a shard without state, for a leader epoch of its partition.
        encode: a record to its key and value.
        decode: a record of a key and a value; None if its type is unknown.
        translate_error: of a failed append, to one that clients of this coordinator handle.
        write_timeout_ms: limit for a response to wait for commits.
        compression: codec number of the batches.
        executors: by the class of effect.
    """

    topic: str
    new_shard: Callable[[int], S]
    encode: Callable[[R], tuple[bytes, bytes | None]]
    decode: Callable[[bytes, bytes | None], R | None]
    translate_error: Callable[[ErrorCode], ErrorCode]
    write_timeout_ms: int
    compression: int
    executors: Mapping[type[Effect], EffectExecutor] = field(default_factory=dict)


class ShardRuntime(Generic[S, R]):
    """The shard of one partition, from becoming the leader to resigning.

    Attributes:
        leader_epoch: of the partition.
    """

    def __init__(
        self, spec: ShardSpec[S, R], host: ShardHost, index: int, leader_epoch: int
    ) -> None:
        self.leader_epoch = leader_epoch
        self._spec = spec
        self._host = host
        self._clock = host.clock
        self._name = f"{spec.topic}-{index}"
        self._shard = spec.new_shard(leader_epoch)
        self._timeout_s = spec.write_timeout_ms / 1000
        self._parked: dict[ReplyTo, asyncio.Future[Any]] = {}
        self._last_reply_to = 0
        self._uncommitted: asyncio.Future[None] | None = None
        """Ends when everything written so far is committed. Use: later responses wait for it."""
        self._progress_at = Millis(0)
        """The last commit, or the first write since everything was committed."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._loaded = False
        self._closed = False
        self._load_error: ErrorCode | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it is loaded and has not resigned."""
        return self._loaded and not self._closed

    @property
    def shard(self) -> S:
        """The shard, for reads that need not be committed."""
        return self._shard

    # Loading and resigning

    @property
    def must_load(self) -> bool:
        """Whether the log has records."""
        start, end = self._host.log_range()
        return end > start

    def start(self, end: int = 0) -> None:
        """Serve: the log up to `end` is loaded. Responses wait until that much is committed."""
        self._loaded = True
        self._note_uncommitted(self._host.committed_up_to(end))
        self._execute_or_log(self._shard.loaded(self._host.metadata.image, self._now()))

    async def load(self) -> None:
        """Replay the log, a part per event-loop iteration, then serve."""
        started_ms = self._clock.mono_ms()
        try:
            end = await self._replay_log()
        except (KafkaError, DecodeError):
            if self._closed:
                return  # Leadership moved during the load.
            # As in Kafka: serving a part of the log would lose offsets. Clients look up the
            # coordinator again.
            log.exception("Failed to load %s", self._name)
            self._load_error = ErrorCode.NOT_COORDINATOR
            return
        if self._closed:
            return
        log.info("Loaded %s in %d ms", self._name, self._clock.mono_ms() - started_ms)
        self.start(end)

    def close(self) -> None:
        """Resign: parked requests fail with NOT_COORDINATOR."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._shard.unload(self._now())
        self._send_replies()
        self._fail_parked()

    def check_loaded(self) -> None:
        """Raise KafkaError unless the log has been loaded."""
        if self._load_error is not None:
            raise KafkaError(self._load_error, f"{self._name} could not be loaded")
        if not self._loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator is loading")

    # Requests

    def execute_write(self, handle: Callable[[S, Instant], Decision[R, T]]) -> Response[T]:
        """Let the shard decide; returns the response once the decision is committed.

        Raises:
            KafkaError: rejected by the shard, or the records could not be appended.
        """
        try:
            decision = handle(self._shard, self._now())
        except KafkaError as error:
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and self._is_overdue:
                # Kafka's coordinator drops a transition that is not committed in time, and its
                # next request gets this error. Clients then look for another coordinator; with
                # the first error they would wait for one that lost its leadership unnoticed.
                detail = "an earlier write is not committed within the write timeout"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail) from error
            raise
        try:
            self._execute(decision)
        except KafkaError as error:
            raise self._translated(error) from error
        return self._when_committed(decision.response)

    def execute_read(self, read: Callable[[S, Instant], T]) -> Response[T]:
        """Return what `read` finds, once the state that it saw is committed."""
        return self._when_committed(read(self._shard, self._now()))

    def execute_parked(
        self,
        response_class: type[T],
        handle: Callable[[S, ReplyTo, Instant], Decision[R, None]],
    ) -> Response[T]:
        """Let the shard decide about a request that it may park, possibly for long.

        Args:
            response_class: the type of the response, which the shard sends by `take_replies`.
            handle: passes the number of the parked request to the shard.

        Raises:
            KafkaError: the records could not be appended.
        """
        del response_class
        self._last_reply_to += 1
        reply_to = self._last_reply_to
        parked: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._parked[reply_to] = parked
        decision = handle(self._shard, reply_to, self._now())
        try:
            self._execute(decision)
        except KafkaError as error:
            if not parked.done():  # Otherwise the shard has replied already.
                self._parked.pop(reply_to, None)
                raise self._translated(error) from error
        return self._when_committed(parked.result()) if parked.done() else self._unparked(parked)

    async def _unparked(self, parked: "asyncio.Future[T]") -> T:
        response = self._when_committed(await parked)
        return await response if isinstance(response, Awaitable) else response

    async def end_transaction(self, marker: bytes, producer_id: int, *, committed: bool) -> None:
        """Append a transaction marker and replay it; returns once it is committed.

        Raises:
            KafkaError: NOT_COORDINATOR, or the log rejected the marker.
        """
        self._check_open()
        appended = self._host.append(marker)
        self._shard.replay_end_of_transaction(producer_id, committed=committed)
        future = self._host.committed(appended)
        if future is not None:
            self._note_uncommitted(future)
            await self._wait_committed(future, None)

    def on_image(self, delta: MetadataDelta) -> None:
        """Pass new metadata to the shard; a shard that is loading gets it when it is loaded."""
        if self.is_serving:
            self._execute_or_log(self._shard.on_image(delta, self._now()))

    # Decisions

    def _execute(self, decision: Decision[R, Any]) -> None:
        """Execute a decision; raises KafkaError if the records could not be appended."""
        try:
            if decision.records:
                self._append(decision)
            elif decision.effects:
                self._start_after(self._uncommitted, decision)
        except KafkaError as error:
            if decision.append_callback is not None:
                self._complete_append(decision.append_callback, error.code)
            raise
        finally:
            self._send_replies()
            self._arm_timer()

    def _execute_or_log(self, decision: Decision[R, Any]) -> None:
        try:
            self._execute(decision)
        except KafkaError as error:
            log.warning("Failed to append to %s: %s", self._name, error)

    def _append(self, decision: Decision[R, Any]) -> None:
        self._check_open()
        producer = decision.producer
        appended = self._host.append(self._batch(decision.records, producer))
        if decision.replay:
            producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
            for at, record in enumerate(decision.records):
                self._shard.replay(Offset(appended.base_offset + at), record, producer_id)
        future = self._host.committed(appended)
        if future is not None:
            self._note_uncommitted(future)
        self._start_after(future, decision)

    def _note_uncommitted(self, future: "asyncio.Future[None] | None") -> None:
        if self._uncommitted is None or self._uncommitted.done():
            self._progress_at = self._clock.mono_ms()
        self._uncommitted = future

    @property
    def _is_overdue(self) -> bool:
        """Whether nothing was committed within the write timeout, although something waits."""
        waits = self._uncommitted is not None and not self._uncommitted.done()
        return waits and self._clock.mono_ms() - self._progress_at >= self._timeout_s * 1000

    def _start_after(
        self, future: "asyncio.Future[None] | None", decision: Decision[R, Any]
    ) -> None:
        if future is None:
            self._on_committed(decision, None)
        else:
            future.add_done_callback(lambda done: self._on_committed_later(done, decision))

    def _on_committed_later(
        self, future: "asyncio.Future[None]", decision: Decision[R, Any]
    ) -> None:
        self._progress_at = self._clock.mono_ms()
        if self._uncommitted is future:
            self._uncommitted = None
        if self._closed or (decision.append_callback is None and not decision.effects):
            return
        self._on_committed(decision, _error_of(future))
        self._send_replies()
        self._arm_timer()

    def _on_committed(self, decision: Decision[R, Any], error: ErrorCode | None) -> None:
        if decision.append_callback is not None:
            self._complete_append(decision.append_callback, error)
        if error is None:
            for effect in decision.effects:
                self._host.spawn(self._execute_effect(effect), f"{effect} of {self._name}"[:200])

    def _complete_append(self, callback: AppendCallback, error: ErrorCode | None) -> None:
        self._execute_or_log(self._shard.on_append_completed(callback, error, self._now()))

    async def _execute_effect(self, effect: Effect) -> None:
        """Execute one effect and return its result to the shard, unless it has been closed."""
        result: Any
        try:
            result = await self._spec.executors[type(effect)](effect)
        except KafkaError as error:
            result = error
        if not self._closed:
            self._execute_or_log(self._shard.on_effect_completed(effect, result, self._now()))

    def _batch(self, records: tuple[R, ...], producer: ProducerEpoch | None) -> bytes:
        if producer is None:
            batch = BatchBuilder(codec=self._spec.compression)
        else:
            batch = BatchBuilder(
                codec=self._spec.compression,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
        now_ms = self._clock.wall_ms()
        encode = self._spec.encode
        for record in records:
            key, value = encode(record)
            batch.append(now_ms, key, value)
        return batch.build()

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    # Responses

    def _when_committed(self, response: T) -> Response[T]:
        if self._uncommitted is None or self._uncommitted.done():
            return response
        return self._wait_committed(self._uncommitted, response)

    async def _wait_committed(self, future: "asyncio.Future[None]", response: T) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                # Shielded: other responses wait for the same future.
                await asyncio.shield(future)
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed within the write timeout"
            ) from error
        except KafkaError as error:
            raise self._translated(error) from error
        return response

    def _send_replies(self) -> None:
        for reply_to, response in self._shard.take_replies():
            parked = self._parked.pop(reply_to, None)
            if parked is not None and not parked.done():
                parked.set_result(response)

    def _fail_parked(self) -> None:
        """Fail the requests that wait for an append, whose end the shard does not learn."""
        parked, self._parked = self._parked, {}
        for future in parked.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _translated(self, error: KafkaError) -> KafkaError:
        return KafkaError(self._spec.translate_error(error.code), error.detail)

    # Timer

    def _arm_timer(self) -> None:
        if self._closed or not self._loaded:
            return
        wake_at = self._shard.wake_at
        if self._timer is not None and self._timer_at is not None:
            if wake_at is not None and wake_at >= self._timer_at:
                return  # Firing early and re-arming is cheaper than re-arming on every heartbeat.
            self._timer.cancel()
        self._timer, self._timer_at = None, wake_at
        if wake_at is not None:
            delay_s = max(0, wake_at - self._clock.mono_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        """After a stall, first process what the sockets hold: it may include heartbeats."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._fire)

    def _fire(self) -> None:
        self._timer = self._timer_at = None
        if self._closed:
            return
        for decision in self._shard.on_timers(self._now()):
            self._execute_or_log(decision)
        self._arm_timer()

    def _now(self) -> Instant:
        return Instant(self._clock.mono_ms(), self._clock.wall_ms())

    # Loading

    async def _replay_log(self) -> int:
        """Replay the whole log, committed or not; returns its end."""
        at, end = self._host.log_range()
        while at < end and not self._closed:
            batches = self._host.read(at, end=end, max_bytes=LOAD_STEP_BYTES)
            if not batches:
                break
            loaded = 0
            for header, batch in iter_batches(batches):
                for _ in self._replay_batch(header, batch):
                    loaded += 1
                    if not loaded % LOAD_STEP_RECORDS:
                        await asyncio.sleep(0)
                at = header.next_offset
            await asyncio.sleep(0)
        return int(end)

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        """Replay a batch's records one by one; yields after each."""
        if header.is_control:
            end = parse_end_transaction(batch)
            if end is not None:
                committed = not end.aborted
                self._shard.replay_end_of_transaction(header.producer_id, committed=committed)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in decode_records(batch):
            yield
            if record.key is None:
                continue
            decoded = self._spec.decode(record.key, record.value)
            if decoded is None:
                log.warning("Skipped a record of unknown type in %s", self._name)
                continue
            self._shard.replay(Offset(record.offset), decoded, producer_id)


def _error_of(future: "asyncio.Future[None]") -> ErrorCode | None:
    """The error of a future that has ended; failures that are not KafkaErrors are disk errors."""
    if future.cancelled():
        return ErrorCode.KAFKA_STORAGE_ERROR
    failure = future.exception()
    if failure is None:
        return None
    return failure.code if isinstance(failure, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
