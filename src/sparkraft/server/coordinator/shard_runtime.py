"""Execute the decisions of one shard: its requests, its timer and its effects.

    request → shard decides → one batch appended → shard replays → batch committed → response

A response is sent when everything written up to its decision is committed (below the high
watermark), even if the decision wrote nothing: it may depend on state that is not committed yet.
After loading, the first responses also wait until the loaded log is committed: a new leader may
have records that its predecessor never committed, and neither an offset nor a generation that a
client has seen may be reverted. (Kafka returns generations as soon as they are loaded.)

The shard is called from the event loop only and never awaits; only responses and effects do.

A decision may come in steps, and the records of a large one are encoded and replayed in steps. The
first piece runs at once, so most decisions are executed without a detour. The others take turns
with everything else on the loop. Meanwhile nothing else reaches the shard: requests, timers, images
and results wait, and are executed in their order afterwards (`work_queue`), as Kafka's coordinators
execute the events of a partition one by one.

Not here: the batches of the log (`shard_log`), and the wait for commits (`uncommitted_writes`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.coordinator.runtime import (
    AppendCallback,
    CoordinatorShard,
    Decision,
    Effect,
    Instant,
    MetadataDelta,
    ReplyTo,
)
from sparkraft.coordinator.steps import PIECE_UNITS, Deciding, Steps
from sparkraft.server.coordinator.host import ShardHost
from sparkraft.server.coordinator.parked_requests import ParkedRequests
from sparkraft.server.coordinator.responses import Response
from sparkraft.server.coordinator.shard_log import ShardLog
from sparkraft.server.coordinator.shard_spec import ShardSpec
from sparkraft.server.coordinator.uncommitted_writes import UncommittedWrites
from sparkraft.server.coordinator.work_queue import WorkQueue

if TYPE_CHECKING:
    from sparkraft.server.loop_turns import Turn

log = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard[Any])
R = TypeVar("R")
T = TypeVar("T")


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
        self._parked = ParkedRequests()
        self._uncommitted = UncommittedWrites(spec, host.clock)
        self._log = ShardLog(self._name, spec, host, self._shard, self._uncommitted)
        self._queue = WorkQueue(host, self._name)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._loaded = False
        self.is_resigning = False
        """Whether it replies to the rest of its parked requests in later iterations."""
        self._load_error: ErrorCode | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it is loaded and has not resigned."""
        return self._loaded and not self._log.is_closed

    @property
    def is_busy(self) -> bool:
        """Whether steps are in progress, so that the shard may be between two states."""
        return self._queue.is_busy

    @property
    def is_readable(self) -> bool:
        """Whether the shard serves, is between no two states, and all it knows is committed."""
        return self.is_serving and not self._queue.is_busy and self._uncommitted.is_empty

    @property
    def shard(self) -> S:
        """The shard, for reads that need not be committed."""
        return self._shard

    # Loading and resigning

    @property
    def must_load(self) -> bool:
        """Whether the log has records."""
        return not self._log.is_empty

    def start(self, end: int = 0) -> None:
        """Serve: the log up to `end` is loaded. Responses wait until that much is committed."""
        self._loaded = True
        self._uncommitted.note(self._host.committed_up_to(end))
        self._execute_or_log(self._shard.loaded(self._host.metadata.image, self._now()))

    async def load(self) -> None:
        """Replay the log, a part per event-loop iteration, then serve."""
        started_ms = self._clock.mono_ms()
        try:
            end = await self._log.replay()
        except (KafkaError, DecodeError):
            if self._log.is_closed:
                return  # Leadership moved during the load.
            # As in Kafka: serving a part of the log would lose offsets. Clients look up the
            # coordinator again.
            log.exception("Failed to load %s", self._name)
            self._load_error = ErrorCode.NOT_COORDINATOR
            return
        if self._log.is_closed:
            return
        log.info("Loaded %s in %d ms", self._name, self._clock.mono_ms() - started_ms)
        self.start(end)

    def close(self) -> None:
        """Resign: parked requests fail with NOT_COORDINATOR, many of them in later iterations."""
        self._log.close()
        self._queue.close()
        if self._timer is not None:
            self._timer.cancel()
        turn, steps = self._host.turn(), self._resign()
        for units in steps:
            if turn.is_over(units):
                self.is_resigning = True
                self._host.spawn(self._finish(steps, turn), f"resignation of {self._name}")
                return

    def _resign(self) -> Steps[None]:
        unloading = self._shard.unload(self._now())
        if unloading is not None:
            yield from unloading
        yield from self._send_replies_in_steps()
        # Also those that wait for an append, whose end the shard does not learn.
        yield from self._parked.fail()

    async def _finish(self, steps: Steps[None], turn: "Turn") -> None:
        await turn.next()
        await turn.carry_out(steps)
        self.is_resigning = False

    def turn(self) -> "Turn":
        """For long work on the event loop that reads no state of the shard."""
        return self._host.turn()

    def check_loaded(self) -> None:
        """Raise KafkaError unless the log has been loaded."""
        if self._load_error is not None:
            raise KafkaError(self._load_error, f"{self._name} could not be loaded")
        if not self._loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator is loading")

    # Requests

    def execute_write(
        self, handle: Callable[[S, Instant], Deciding[Decision[R, T]]]
    ) -> Response[T]:
        """Let the shard decide; returns the response once the decision is committed.

        Raises:
            KafkaError: rejected by the shard, or the records could not be appended.
        """
        if self._queue.is_busy:
            return self._queue.later(lambda: self.execute_write(handle))
        deciding = self._decide(handle)
        if self._is_long(deciding):
            started = self._queue.run(self._write_in_steps(deciding))
            if isinstance(started, asyncio.Future):
                return self._unparked(started)
            return self._uncommitted.when_committed(started)
        decision = cast("Decision[R, T]", deciding)
        try:
            self._execute(decision)
        except KafkaError as error:
            raise self._spec.translated(error) from error
        return self._uncommitted.when_committed(decision.response)

    def _decide(self, handle: Callable[[S, Instant], T]) -> T:
        try:
            return handle(self._shard, self._now())
        except KafkaError as error:
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and self._uncommitted.is_overdue:
                # Kafka's coordinator drops a transition that is not committed in time, and its
                # next request gets this error. Clients then look for another coordinator; with
                # the first error they would wait for one that lost its leadership unnoticed.
                detail = "an earlier write is not committed within the write timeout"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail) from error
            raise

    def _is_long(self, deciding: Deciding[Decision[R, T]]) -> bool:
        """Whether a decision comes in steps, or takes steps to execute."""
        if not isinstance(deciding, Decision) or len(deciding.records) > PIECE_UNITS:
            return True
        is_long = self._spec.is_long
        return is_long is not None and any(map(is_long, deciding.records))

    def _write_in_steps(self, deciding: Deciding[Decision[R, T]]) -> Steps[T]:
        decision = yield from _decided(deciding)
        try:
            yield from self._execute_in_steps(decision)
        except KafkaError as error:
            raise self._spec.translated(error) from error
        return decision.response

    def execute_read(self, read: Callable[[S, Instant], T]) -> Response[T]:
        """Return what `read` finds, once the state that it saw is committed.

        Raises:
            KafkaError: NOT_COORDINATOR if this broker has resigned: another one may have written
                since. Raised by `read` otherwise.
        """
        self._log.check_open()
        if self._queue.is_busy:
            return self._queue.later(lambda: self.execute_read(read))
        return self._uncommitted.when_committed(read(self._shard, self._now()))

    def execute_parked(
        self,
        response_class: type[T],
        handle: Callable[[S, ReplyTo, Instant], Deciding[Decision[R, None]]],
    ) -> Response[T]:
        """Let the shard decide about a request that it may park, possibly for long.

        Args:
            response_class: the type of the response, which the shard sends by `take_replies`.
            handle: passes the number of the parked request to the shard.

        Raises:
            KafkaError: the records could not be appended.
        """
        if self._queue.is_busy:
            return self._queue.later(lambda: self.execute_parked(response_class, handle))
        reply_to, parked = self._parked.park()
        deciding = handle(self._shard, reply_to, self._now())
        if self._is_long(deciding):
            started = self._queue.run(self._park_in_steps(reply_to, parked, deciding))
            if isinstance(started, asyncio.Future):
                return self._parked_after(started, parked)
        else:
            try:
                self._execute(cast("Decision[R, None]", deciding))
            except KafkaError as error:
                self._unpark(reply_to, parked, error)
        if parked.done():
            return self._uncommitted.when_committed(parked.result())
        return self._unparked(parked)

    def _park_in_steps(
        self, reply_to: ReplyTo, parked: "asyncio.Future[T]", deciding: Deciding[Decision[R, None]]
    ) -> Steps[None]:
        decision = yield from _decided(deciding)
        try:
            yield from self._execute_in_steps(decision)
        except KafkaError as error:
            self._unpark(reply_to, parked, error)

    def _unpark(self, reply_to: ReplyTo, parked: "asyncio.Future[Any]", error: KafkaError) -> None:
        """Raise the error of a request's records, unless the shard has replied already."""
        if not parked.done():
            self._parked.forget(reply_to)
            raise self._spec.translated(error) from error

    async def _parked_after(
        self, started: "asyncio.Future[None]", parked: "asyncio.Future[T]"
    ) -> T:
        try:
            await started
        except KafkaError:
            if parked.done():
                parked.exception()  # the same error, retrieved
            raise
        return await self._unparked(parked)

    async def _unparked(self, parked: "asyncio.Future[T]") -> T:
        response = self._uncommitted.when_committed(await parked)
        return await response if isinstance(response, Awaitable) else response

    def end_transaction(
        self, marker: bytes, producer_id: int, *, committed: bool, check: Callable[[], None]
    ) -> Response[None]:
        """Append a transaction marker and replay it; an awaitable unless it is committed then.

        `check` refuses a marker that does not fit the log. It is called right before the append:
        the producer may have begun another transaction while the marker waited for its turn.

        Raises:
            KafkaError: NOT_COORDINATOR, or `check` or the log rejected the marker.
        """

        def end() -> Response[None]:
            self._log.check_open()
            check()
            future = self._log.append_marker(marker)
            replay = self._shard.replay_end_of_transaction(producer_id, committed=committed)
            replayed = self._queue.run(replay)
            return None if replayed is None and future is None else self._ended(replayed, future)

        return self._queue.later(end) if self._queue.is_busy else end()

    async def _ended(
        self, replayed: "asyncio.Future[None] | None", committed: "asyncio.Future[None] | None"
    ) -> None:
        if replayed is not None:
            await replayed
        if committed is not None:
            await self._uncommitted.committed(committed)

    def on_image(self, delta: MetadataDelta) -> None:
        """Pass new metadata to the shard; a shard that is loading gets it when it is loaded."""
        if self._queue.is_busy:
            self._queue.later_event(lambda: self.on_image(delta))
        elif self.is_serving:
            self._execute_or_log(self._shard.on_image(delta, self._now()))

    # Decisions

    def _execute(self, decision: Decision[R, Any]) -> None:
        """Execute a decision; raises KafkaError if the records could not be appended."""
        try:
            if decision.records:
                self._start_after(self._log.append(decision), decision)
            elif decision.effects:
                self._start_after(self._uncommitted.last, decision)
        except KafkaError as error:
            if decision.append_callback is not None:
                self._complete_append(decision.append_callback, error.code)
            raise
        finally:
            self._send_replies()
            self._arm_timer()

    def _execute_in_steps(self, decision: Decision[R, Any]) -> Steps[None]:
        """The same in pieces, for decisions with many or long records or many replies."""
        try:
            if decision.records:
                future = yield from self._log.append_in_steps(decision)
                yield from self._start_after_in_steps(future, decision)
            elif decision.effects:
                self._start_after(self._uncommitted.last, decision)
        except KafkaError as error:
            if decision.append_callback is not None:
                yield from self._complete_append_in_steps(decision.append_callback, error.code)
            yield from self._send_replies_in_steps()
            self._arm_timer()
            raise
        yield from self._send_replies_in_steps()
        self._arm_timer()

    def _execute_or_log(self, deciding: Deciding[Decision[R, Any]]) -> None:
        """Execute a decision that no client waits for; the queue must not be busy."""
        if self._is_long(deciding):
            self._queue.run_event(self._execute_or_log_in_steps(deciding))
            return
        try:
            self._execute(cast("Decision[R, Any]", deciding))
        except KafkaError as error:
            self._log_failure(error)

    def _execute_or_log_in_steps(self, deciding: Deciding[Decision[R, Any]]) -> Steps[None]:
        try:
            decision = yield from _decided(deciding)
            yield from self._execute_in_steps(decision)
        except KafkaError as error:
            self._log_failure(error)

    def _log_failure(self, error: KafkaError) -> None:
        log.warning("Failed to append to %s: %s", self._name, error)

    def _start_after(
        self, future: "asyncio.Future[None] | None", decision: Decision[R, Any]
    ) -> None:
        if future is None:
            self._on_committed(decision, None)
        else:
            future.add_done_callback(lambda done: self._on_committed_later(done, decision))

    def _start_after_in_steps(
        self, future: "asyncio.Future[None] | None", decision: Decision[R, Any]
    ) -> Steps[None]:
        """The same as part of steps: a decision that follows continues them."""
        if future is not None:
            self._start_after(future, decision)
            return
        if decision.append_callback is not None:
            yield from self._complete_append_in_steps(decision.append_callback, None)
        self._spawn_effects(decision)

    def _on_committed_later(
        self, future: "asyncio.Future[None]", decision: Decision[R, Any]
    ) -> None:
        self._uncommitted.on_commit(future)
        if self._log.is_closed or (decision.append_callback is None and not decision.effects):
            return
        if self._queue.is_busy:
            self._queue.later_event(lambda: self._on_committed_later(future, decision))
            return
        self._on_committed(decision, _error_of(future))

    def _on_committed(self, decision: Decision[R, Any], error: ErrorCode | None) -> None:
        if decision.append_callback is not None:
            self._complete_append(decision.append_callback, error)
        if error is None:
            self._start_effects(decision)

    def _start_effects(self, decision: Decision[R, Any]) -> None:
        """Start effects; no steps may be in progress, since a result may be available at once."""
        if len(decision.effects) != 1:  # those of a load may be many
            self._spawn_effects(decision)
            return
        effect = decision.effects[0]
        result = self._begin_effect(effect)
        if isinstance(result, Awaitable):
            self._spawn(self._end_effect(effect, result), effect)
        else:
            self._on_effect(effect, result)

    def _spawn_effects(self, decision: Decision[R, Any]) -> None:
        for effect in decision.effects:
            self._spawn(self._execute_effect(effect), effect)

    def _spawn(self, work: Coroutine[Any, Any, None], effect: Effect) -> None:
        self._host.spawn(work, f"{type(effect).__name__} of {self._name}")

    def _complete_append(self, callback: AppendCallback, error: ErrorCode | None) -> None:
        """Execute the decision; no steps may be in progress."""
        self._execute_or_log(self._shard.on_append_completed(callback, error, self._now()))

    def _complete_append_in_steps(
        self, callback: AppendCallback, error: ErrorCode | None
    ) -> Steps[None]:
        """The same as part of steps."""
        deciding = self._shard.on_append_completed(callback, error, self._now())
        yield from self._execute_or_log_in_steps(deciding)

    async def _execute_effect(self, effect: Effect) -> None:
        """Execute one effect and return its result to the shard, unless it has been closed."""
        await self._end_effect(effect, self._begin_effect(effect))

    def _begin_effect(self, effect: Effect) -> Response[Any]:
        """The result of an effect, possibly a KafkaError, or an awaitable of it."""
        try:
            return self._spec.executors[type(effect)](effect)
        except KafkaError as error:
            return error

    async def _end_effect(self, effect: Effect, result: Response[Any]) -> None:
        if isinstance(result, Awaitable):
            try:
                result = await result
            except KafkaError as error:
                result = error
        self._on_effect(effect, result)

    def _on_effect(self, effect: Effect, result: Any) -> None:
        if self._queue.is_busy:
            self._queue.later_event(lambda: self._on_effect(effect, result))
        elif not self._log.is_closed:
            self._execute_or_log(self._shard.on_effect_completed(effect, result, self._now()))

    # Responses

    def _send_replies(self) -> None:
        for reply_to, response in self._shard.take_replies():
            self._parked.reply(reply_to, response)

    def _send_replies_in_steps(self) -> Steps[None]:
        return self._parked.reply_in_steps(self._shard.take_replies())

    # Timer

    def _arm_timer(self) -> None:
        if self._log.is_closed or not self._loaded:
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
        if self._queue.is_busy:
            self._queue.later_event(self._fire)
            return
        self._timer = self._timer_at = None
        if not self._log.is_closed:
            self._queue.run_timer(self._fire_in_steps())

    def _fire_in_steps(self) -> Steps[None]:
        for deciding in self._shard.on_timers(self._now()):
            yield from self._execute_or_log_in_steps(deciding)
            yield 1
        self._arm_timer()

    def _now(self) -> Instant:
        return Instant(self._clock.mono_ms(), self._clock.wall_ms())


def _decided(deciding: Deciding[Decision[R, T]]) -> Steps[Decision[R, T]]:
    return deciding if isinstance(deciding, Decision) else (yield from deciding)


def _error_of(future: "asyncio.Future[None]") -> ErrorCode | None:
    """The error of a future that has ended; failures that are not KafkaErrors are disk errors."""
    if future.cancelled():
        return ErrorCode.KAFKA_STORAGE_ERROR
    failure = future.exception()
    if failure is None:
        return None
    return failure.code if isinstance(failure, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
