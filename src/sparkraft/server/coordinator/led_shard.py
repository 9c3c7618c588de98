"""One shard of the group coordinator at work: its log, its timer and the requests it parked.

    request → core decides → one batch appended → core replays → batch durable → answer

An answer leaves when everything written up to its decision is durable, also where the decision
itself wrote nothing: it may rest on what is not durable yet (D7). Durable is what is below the
partition's high watermark; what a shard loads is so only once its followers have told their new
leader, so the first answers wait for that: neither an offset nor a generation that was told goes
back (G4, G5), while Kafka tells generations as soon as they are loaded. The core is called from the
loop alone and never awaits; only the answers wait.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import Offset
from sparkraft.coordinator.group.decision import GroupDecision
from sparkraft.coordinator.group.records import GroupRecord, decode_record, encode_record
from sparkraft.coordinator.group.shard import GroupShard, as_group_error
from sparkraft.coordinator.runtime import AppendCallback, Instant, MetadataDelta, ReplyTo
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.control import parse_end_transaction
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.records.validate import Origin
from sparkraft.server.coordinator.answers import Answer, is_later

if TYPE_CHECKING:
    from sparkraft.coordinator.group.config import GroupConfig
    from sparkraft.coordinator.group.journal import JournalEntry
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

log = logging.getLogger(__name__)

TOPIC = "__consumer_offsets"

LOAD_STEP_BYTES = 256 * 1024
"""Log read between two rounds of the loop while loading: a few milliseconds of decoding."""


class LedShard:
    """The shard of one partition, from leadership gained to leadership lost."""

    def __init__(
        self, broker: "BrokerServices", index: int, epoch: int, config: "GroupConfig"
    ) -> None:
        """Lead partition `index` in leader epoch `epoch`; nothing is loaded yet."""
        self._broker = broker
        self._clock = broker.env.clock
        self._index = index
        self._epoch = epoch
        self._shard = GroupShard(config, broker.env.entropy)
        self._timeout_s = broker.config.number("offsets.commit.timeout.ms") / 1000
        self._codec = broker.config.number("offsets.topic.compression.codec")
        self._parked: dict[ReplyTo, asyncio.Future[Any]] = {}
        self._next_reply_to = 0
        self._not_durable: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._loaded = False
        self._closed = False
        self._failed: ErrorCode | None = None

    # Life

    @property
    def must_load(self) -> bool:
        """Whether there is anything in the log."""
        found = self._broker.replica_manager.get_log(TOPIC, self._index)
        return found is not None and found.log_end_offset > found.log_start_offset

    def start(self, end: int = 0) -> None:
        """The log up to `end` is in memory: serve; answers wait until that much is committed."""
        self._loaded = True
        self._not_durable = self._led_partition().committed(end)
        self._carry_out_or_log(self._shard.loaded(self._broker.image, self._now()))

    async def load(self) -> None:
        """Replay the log, a little in each round of the loop, then serve."""
        started_ms = self._clock.mono_ms()
        try:
            end = await self._replay_log()
        except (KafkaError, DecodeError):
            if self._closed:
                return  # the leadership went meanwhile, and the log with it
            # Kafka too gives the partition's groups up here: serving half of them would
            # forget offsets. Clients are sent to look for the coordinator again.
            log.exception("Can't load %s-%d", TOPIC, self._index)
            self._failed = ErrorCode.NOT_COORDINATOR
            return
        if self._closed:
            return
        took_ms = self._clock.mono_ms() - started_ms
        log.info("Loaded %s-%d in %d ms", TOPIC, self._index, took_ms)
        self.start(end)

    def close(self) -> None:
        """Leadership ended: parked requests are answered NOT_COORDINATOR."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._shard.unload(self._now())
        self._send_replies()

    def check_loaded(self) -> None:
        """Refuse while the log is being read, or could not be."""
        if self._failed is not None:
            raise KafkaError(self._failed, "this partition of the offsets topic can't be read")
        if not self._loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator is loading")

    def decisions(self, group_id: str | None) -> "list[JournalEntry]":
        """What was decided in this shard lately, and why."""
        return self._shard.journal.entries(group_id)

    # Requests

    def ask(self, handle: Callable[[GroupShard, Instant], GroupDecision[Any]]) -> Answer:
        """Let the core decide; gives its response, or a future where that must wait.

        Raises:
            KafkaError: refused by the core, or the records could not be written.
        """
        decision = handle(self._shard, self._now())
        try:
            self._carry_out(decision)
        except KafkaError as error:
            raise KafkaError(as_group_error(error.code), error.detail) from error
        return self._when_durable(decision.response)

    def read(self, look: Callable[[GroupShard, Instant], Any]) -> Answer:
        """Give what `look` finds; as a future where something it saw is not durable yet."""
        return self._when_durable(look(self._shard, self._now()))

    def ask_parked(
        self, handle: Callable[[GroupShard, ReplyTo, Instant], GroupDecision[Any]]
    ) -> Answer:
        """Let the core decide; gives its response, or a future of it, which may take long.

        Raises:
            KafkaError: the records could not be written.
        """
        self._next_reply_to += 1
        reply_to = self._next_reply_to
        parked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._parked[reply_to] = parked
        decision = handle(self._shard, reply_to, self._now())
        try:
            self._carry_out(decision)
        except KafkaError as error:
            if not parked.done():  # The core answered it already where it could.
                self._parked.pop(reply_to, None)
                raise KafkaError(as_group_error(error.code), error.detail) from error
        return self._when_durable(parked.result()) if parked.done() else self._parked_until(parked)

    async def _parked_until(self, parked: "asyncio.Future[Any]") -> Any:
        answer = self._when_durable(await parked)
        return await answer if is_later(answer) else answer

    def on_image(self, delta: MetadataDelta) -> None:
        """Let the shard react to new metadata."""
        if self._loaded and not self._closed:
            self._carry_out_or_log(self._shard.on_image(delta, self._now()))

    # Outcomes

    def _carry_out(self, decision: GroupDecision[Any]) -> None:
        """Do what the core says; raises KafkaError where the records could not be written."""
        try:
            if decision.records:
                self._write(decision)
        except KafkaError as error:
            if decision.append_callback is not None:
                self._stored(decision.append_callback, error.code)
            raise
        finally:
            self._send_replies()
            self._arm_timer()

    def _carry_out_or_log(self, decision: GroupDecision[Any]) -> None:
        try:
            self._carry_out(decision)
        except KafkaError as error:
            log.warning("Can't write to %s-%d: %s", TOPIC, self._index, error)

    def _write(self, decision: GroupDecision[Any]) -> None:
        partition = self._led_partition()
        info = self._broker.replica_manager.append_to(
            partition, self._batch(decision.records), acks=-1, origin=Origin.COORDINATOR
        )
        if decision.replay:
            for at, record in enumerate(decision.records):
                self._shard.replay(Offset(info.base_offset + at), record)
        durable = partition.durable(info, acks=-1)
        if durable is None:
            if decision.append_callback is not None:
                self._stored(decision.append_callback, None)
            return
        self._not_durable = durable
        durable.add_done_callback(lambda done: self._on_durable(done, decision.append_callback))

    async def end_transaction(self, marker: bytes, producer_id: int, *, committed: bool) -> None:
        """Append a transaction's marker and publish or drop its offsets; returns when durable.

        Raises:
            KafkaError: NOT_COORDINATOR, or the log refused the marker.
        """
        partition = self._led_partition()
        info = self._broker.replica_manager.append_to(
            partition, marker, acks=-1, origin=Origin.COORDINATOR
        )
        self._shard.replay_end_of_transaction(producer_id, committed=committed)
        durable = partition.durable(info, acks=-1)
        if durable is not None:
            self._not_durable = durable
            await self._wait_durable(durable, None)

    def _led_partition(self) -> "HostedPartition":
        if self._closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        partition = self._broker.replica_manager.leader(TOPIC, self._index)
        if partition.leader_epoch != self._epoch:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition

    def _batch(self, records: tuple[GroupRecord, ...]) -> bytes:
        batch = BatchBuilder(codec=self._codec)
        now_ms = self._clock.wall_ms()
        for record in records:
            key, value = encode_record(record)
            batch.append(now_ms, key, value)
        return batch.build()

    def _on_durable(self, done: "asyncio.Future[None]", stored: AppendCallback | None) -> None:
        if self._not_durable is done:
            self._not_durable = None
        if stored is None or self._closed:
            return
        error = None
        if done.cancelled():
            error = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            failure = done.exception()
            if failure is not None:
                error = ErrorCode.KAFKA_STORAGE_ERROR
                if isinstance(failure, KafkaError):
                    error = failure.code
        self._stored(stored, error)
        self._send_replies()
        self._arm_timer()

    def _stored(self, stored: AppendCallback, error: ErrorCode | None) -> None:
        self._carry_out_or_log(self._shard.on_append_completed(stored, error, self._now()))

    def _when_durable(self, response: Any) -> Answer:
        if self._not_durable is None or self._not_durable.done():
            return response
        return self._wait_durable(self._not_durable, response)

    async def _wait_durable(self, durable: "asyncio.Future[None]", response: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                # Shielded: others wait for the same fsync.
                await asyncio.shield(durable)
        except TimeoutError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not durable in time") from error
        except KafkaError as error:
            raise KafkaError(as_group_error(error.code), error.detail) from error
        return response

    def _send_replies(self) -> None:
        for reply_to, response in self._shard.take_replies():
            parked = self._parked.pop(reply_to, None)
            if parked is not None and not parked.done():
                parked.set_result(response)

    # Timer

    def _arm_timer(self) -> None:
        wake_at = self._shard.wake_at
        if self._closed or not self._loaded:
            return
        if self._timer is not None and self._timer_at is not None:
            if wake_at is not None and wake_at >= self._timer_at:
                return  # The timer fires early and is set anew: cheaper than at every heartbeat.
            self._timer.cancel()
        self._timer, self._timer_at = None, wake_at
        if wake_at is not None:
            delay_s = max(0, wake_at - self._clock.mono_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        """After a stall, let what the sockets hold be heard first: it may be a heartbeat (D2)."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._fire)

    def _fire(self) -> None:
        self._timer = self._timer_at = None
        if self._closed:
            return
        for decision in self._shard.on_timers(self._now()):
            self._carry_out_or_log(decision)
        self._arm_timer()

    def _now(self) -> Instant:
        return Instant(self._clock.mono_ms(), self._clock.wall_ms())

    # Loading

    async def _replay_log(self) -> int:
        """Replay the whole log, committed or not; where it ends."""
        partition = self._broker.replica_manager.leader(TOPIC, self._index)
        at, end = partition.log.log_start_offset, partition.log.log_end_offset
        while at < end and not self._closed:
            found = partition.log.read(at, max_bytes=LOAD_STEP_BYTES, up_to=end)
            if not found.size:
                break
            for header, batch in iter_batches(b"".join(found.pieces)):
                self._replay_batch(header, batch)
                at = header.next_offset
            await asyncio.sleep(0)
        return int(end)

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            end = parse_end_transaction(batch)
            if end is not None:
                committed = not end.aborted
                self._shard.replay_end_of_transaction(header.producer_id, committed=committed)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in decode_records(batch):
            if record.key is None:
                continue
            decoded = decode_record(record.key, record.value)
            if decoded is None:
                log.warning("Skipped a record of unknown type in %s-%d", TOPIC, self._index)
                continue
            self._shard.replay(Offset(record.offset), decoded, producer_id)
