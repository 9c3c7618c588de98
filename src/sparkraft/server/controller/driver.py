"""Runs the controller core on the metadata log.

    request → queue → core.decide → records → raft.append → core.replay → … commit → response

The steps from the decision to the replay are carried out before the next decision begins, which
sees the effects of this one (`decision_queue`). Short decisions take one event-loop iteration. Long
ones, such as the fencing of a broker with thousands of partitions, are made in slices, and their
records are appended and replayed in batches. A response is sent when the records are committed;
without records, when everything that the decision could have read is committed. If this controller
is deposed, waiting requests fail with NOT_CONTROLLER, and their clients find the new controller.
The rest of a decision in progress is dropped, as if a controller of Kafka were deposed between two
batches.

Timers, as in Kafka: write a record every `metadata.max.idle.interval.ms` to an idle log, expire
broker sessions, and less often elect preferred leaders and leaders of partitions without one, and
remove expired delegation tokens. After a stall of this process, sessions expire only after waiting
heartbeats have been read from sockets.
"""

import asyncio
import heapq
import itertools
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.env import no_faults
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.base.steps import complete
from sparkraft.controller.activation import default_bootstrap
from sparkraft.controller.call import Call, no_quota
from sparkraft.controller.decision import RECORDS_PER_BATCH, Decision
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord
from sparkraft.raft.events import Refusal, UpgradeKRaftVersion
from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.server.controller.decision_queue import DecisionQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparkraft.base.env import Clock, FaultPoint
    from sparkraft.controller.controller import Controller
    from sparkraft.controller.decision import VersionedRecord
    from sparkraft.controller.leader_election import Election
    from sparkraft.controller.steps import Steps
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.loop_turns import Turn
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.raft.metadata_log_listener import CommittedBatch

_log = logging.getLogger(__name__)

T = TypeVar("T")

COMMIT_WAIT_MS_MAX = 60_000
"""Maximum wait for a commit; a quorum this slow has lost its majority."""

RECORD_UNITS = 5
"""Units of work of a record that is appended and replayed, or of an election that is logged."""

LEADER_CHECK_MS = 300_000
"""Default interval of the checks for preferred leaders and partitions without a leader."""

TOKEN_CHECK_MS = 3_600_000
"""Default interval of the removal of expired delegation tokens."""

TICK_MS_MAX = 500
"""Maximum pause between two checks of the timers; less if idle records need it."""

STALL_MS = 2_000
"""A tick this late means that the process stalled, and may have unread heartbeats."""


class DurationStat:
    """Count, sum and maximum of durations, in ms."""

    __slots__ = ("count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.max_ms = 0

    def add(self, duration_ms: int) -> None:
        self.count += 1
        self.total_ms += duration_ms
        self.max_ms = max(self.max_ms, duration_ms)


class RequestTimings:
    """Durations of requests on the active controller, for the metrics."""

    __slots__ = ("committing", "processing", "queued")

    def __init__(self) -> None:
        self.queued = DurationStat()
        self.processing = DurationStat()
        self.committing = DurationStat()


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals of the active controller's periodic work, in ms.

    Attributes:
        idle_ms: `metadata.max.idle.interval.ms`; 0 for no idle records.
        balance_ms: `leader.imbalance.check.interval.seconds`; None if
            `auto.leader.rebalance.enable` is false.
        unclean_ms: `unclean.leader.election.interval.ms`.
        tokens_ms: `delegation.token.expiry.check.interval.ms`.
    """

    idle_ms: int = TICK_MS_MAX
    balance_ms: int | None = LEADER_CHECK_MS
    unclean_ms: int = LEADER_CHECK_MS
    tokens_ms: int = TOKEN_CHECK_MS


@dataclass(slots=True)
class _Check:
    """A periodic decision; if it did not finish, it is repeated at the next tick."""

    decide: "Callable[[], Steps[Decision]]"
    interval_ms: int
    last_ms: int = 0

    def mark_done(self, now: Millis) -> None:
        """Wait for a whole interval from `now` on."""
        self.last_ms = now


class ControllerDriver:
    """The only task that touches a `Controller`; a `MetadataLogListener`."""

    def __init__(  # noqa: PLR0913 (made in one place)
        self,
        raft: "RaftDriver",
        controller: "Controller",
        clock: "Clock",
        new_turn: "Callable[[], Turn]",
        *,
        bootstrap: "Sequence[VersionedRecord] | None" = None,
        intervals: "Intervals | None" = None,
        fault_point: "FaultPoint" = no_faults,
    ) -> None:
        """Drive `controller` on `raft`; call `raft.register(driver)` before raft starts.

        Args:
            raft: the metadata log.
            controller: the core.
            clock: monotonic time for sessions, wall time for the journal.
            new_turn: begins work on the event loop.
            bootstrap: first records of an empty log; default: the features of Kafka 4.3.
            intervals: intervals of the timers; default: those of Kafka.
            fault_point: fault points.
        """
        self._fault_point = fault_point
        self._raft = raft
        self._core = controller
        self._clock = clock
        self._bootstrap = list(bootstrap) if bootstrap else default_bootstrap()
        every = intervals or Intervals()
        self._idle_interval_ms = every.idle_ms
        self._checks = [_Check(controller.elect_uncleanly_where_allowed, every.unclean_ms)]
        if every.balance_ms is not None:
            self._checks.append(_Check(controller.balance_leaders, every.balance_ms))
        self._checks.append(_Check(self._remove_expired_tokens, every.tokens_ms))
        self._queue = DecisionQueue(new_turn)
        self._epoch: LeaderEpoch | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()
        self._committed = -1
        self._last_append_ms = Millis(0)
        self._last_tick_ms = Millis(0)
        self._timers: asyncio.Task[None] | None = None
        self.timings = RequestTimings()
        self._on_role: Callable[..., None] | None = None
        """Called with `active=True` on becoming active and `active=False` on being deposed."""

    # Queries and requests.

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller."""
        return self._epoch is not None

    @property
    def epoch(self) -> LeaderEpoch | None:
        """The epoch in which this is the active controller; None if it is not."""
        return self._epoch

    @property
    def core(self) -> "Controller":
        """The core, for its images and its journal; decisions go through `submit`."""
        return self._core

    def heartbeat_ages(self) -> "list[tuple[tuple[str], int]]":
        """Broker id as text and ms since the last heartbeat; empty if not active."""
        now = self._clock.mono_ms()
        contacts = sorted(self._core.sessions.contact_ms.items())
        return [((str(broker_id),), now - last) for (broker_id, _), last in contacts]

    @property
    def image(self) -> "ClusterImage":
        """The latest committed image outside a transaction."""
        return self._core.stable

    async def submit(
        self,
        key: "ApiKey",
        request: Any,
        *,
        version: int,
        principal: KafkaPrincipal = ANONYMOUS,
        received_ms: int | None = None,
        apply_partition_change_quota: "Callable[[int], None]" = no_quota,
    ) -> Any:
        """Decide a request and return its response once the decision's records are committed.

        Args:
            key: API key, one of `sparkraft.controller.decisions.DECISIONS`.
            request: the decoded request.
            version: its API version.
            principal: the client's.
            received_ms: when its last byte arrived, on the node's monotonic clock.
            apply_partition_change_quota: see `Call`.

        Raises:
            KafkaError: NOT_CONTROLLER if this node is not the active controller or loses that
                role before the commit; REQUEST_TIMED_OUT if the commit takes longer than
                `COMMIT_WAIT_MS_MAX`; any error that rejects the request as a whole.
        """
        if self._epoch is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        if self._queue.is_busy and key is ApiKey.BROKER_HEARTBEAT:
            self._core.track_heartbeat(request, self._clock.mono_ms())

        def call() -> "Call[Any]":
            return Call(
                request=request,
                version=version,
                now=self._clock.mono_ms(),
                wall_ms=self._clock.wall_ms(),
                next_offset=Offset(self._next_offset()),
                principal=principal,
                apply_partition_change_quota=apply_partition_change_quota,
            )

        decision, offset = await self._in_order(self._decided(key, call, self._epoch, received_ms))
        self._fault_point("decided_before_committed")
        appended = self._clock.mono_ms()
        await self._committed_up_to(offset)
        if decision.records:
            self.timings.committing.add(self._clock.mono_ms() - appended)
            self._fault_point("before_answering_a_create")
        return decision.response

    async def append(self, records: "Sequence[VersionedRecord]", *, epoch: LeaderEpoch) -> int:
        """Append records that no request decided, such as those of a migration from ZooKeeper.

        They may be split into several batches. Returns the offset of the last one, once committed.

        Raises:
            KafkaError: NOT_CONTROLLER if this controller is not active in `epoch`;
                REQUEST_TIMED_OUT.
        """
        if self._epoch != epoch:
            raise _deposed()
        decision = Decision(records=tuple(records), atomic=False)
        offset = await self._in_order(self._carry_out(decision, epoch))
        await self._committed_up_to(offset)
        return offset

    async def elect_after_copy(self, *, epoch: LeaderEpoch) -> None:
        """Elect leaders of partitions that a migration has copied without one.

        Raises:
            KafkaError: see `append`.
        """
        has_more = True
        while has_more:
            if self._epoch != epoch:
                raise _deposed()
            has_more, offset = await self._in_order(self._elect_after_copy(epoch))
            await self._committed_up_to(offset)

    def _elect_after_copy(self, epoch: LeaderEpoch) -> "Steps[tuple[bool, int]]":
        decision = yield from self._core.elect_after_copy()
        offset = yield from self._carry_out(decision, epoch, to_log=True)
        return bool(decision.response), offset

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise kraft.version and wait for the commit (KIP-853).

        Raises:
            KafkaError: NOT_CONTROLLER, INVALID_UPDATE_VERSION, REQUEST_TIMED_OUT.
        """
        epoch = self._epoch
        if epoch is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        upgrade = UpgradeKRaftVersion(epoch=epoch, kraft_version=level, validate_only=validate_only)
        outcome = await self._raft.handle_request(upgrade)
        assert isinstance(outcome, Refusal)
        if outcome.error is not ErrorCode.NONE:
            raise KafkaError(outcome.error, outcome.detail)
        if not validate_only:
            await self._committed_up_to(self._raft.log_end_offset - 1)

    def _update_voter_ids(self) -> None:
        """Pass changes of the voter set to the core."""
        ids = tuple(self._raft.voters.ids)
        if ids != self._core.config.voter_ids:
            self._core.set_voter_ids(ids)

    async def fence_refused(self, broker_id: int, is_certain: "Callable[[], bool]") -> None:
        """Fence a broker whose process has stopped (`processes`), if `is_certain` holds then."""
        if self._epoch is not None:
            with suppress(KafkaError):
                await self._in_order(self._fence_refused(broker_id, is_certain, self._epoch))

    def set_role_listener(self, on_role: "Callable[..., None]") -> None:
        """Call `on_role(active=...)` when this controller becomes active or is deposed."""
        self._on_role = on_role

    def start(self) -> None:
        """Start the timers; needs a running event loop."""
        if self._timers is None:
            self._timers = asyncio.get_running_loop().create_task(
                self._run_timers(), name="controller timers"
            )

    async def stop(self) -> None:
        """Stop the timers and fail all waiting requests with NOT_CONTROLLER."""
        if self._timers is not None:
            self._timers.cancel()
            await asyncio.gather(self._timers, return_exceptions=True)
            self._timers = None
        self._give_up()
        await self._queue.stop()

    # The raft listener.

    def on_commit(self, batch: "CommittedBatch") -> None:
        """Replay records of another controller; commit those of this one."""
        if batch.last_offset > self._core.latest.offset:
            self._core.replay_committed(
                batch.records,
                base_offset=batch.base_offset,
                last_offset=batch.last_offset,
                epoch=batch.epoch,
            )
        else:
            self._core.commit(batch.last_offset)
        self._release(batch.last_offset)

    def prepare_commit(self, batch: "CommittedBatch") -> "Iterator[int]":
        """Replay records of another controller in pieces."""
        if batch.last_offset > self._core.latest.offset:
            yield from self._core.prepare_batch(batch.records)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Complete requests that wait for offsets which hold raft's own records."""
        self._release(high_watermark - 1)

    def prepare_snapshot(self, image: "ClusterImage") -> "Iterator[None]":
        """Compute the HMACs of delegation tokens."""
        return self._core.prepare(image)

    def on_snapshot(self, image: "ClusterImage") -> None:
        """Replace the image by that of a snapshot."""
        self._core.load(image)
        self._release(image.offset)

    def on_leader_change(self, leader_id: "BrokerId | None", epoch: LeaderEpoch) -> None:
        """Become active, or stop being active."""
        mine = leader_id == self._core.config.node_id
        if self._epoch is not None and not (mine and self._epoch == epoch):
            _log.info("Controller %s resigns.", self._core.config.node_id)
            self._give_up()
        if mine and self._epoch is None:
            now = self._clock.mono_ms()
            self._last_append_ms = self._last_tick_ms = now
            for check in self._checks:
                check.mark_done(now)
            self._fault_point("elected_before_active")
            decision = self._core.activate(self._bootstrap, epoch, now)
            self._epoch = epoch
            _log.info("Controller %s is active in epoch %s.", self._core.config.node_id, epoch)
            try:
                complete(self._carry_out(decision, epoch))
            except KafkaError as error:
                _log.info("Controller %s resigns: %s", self._core.config.node_id, error)
                self._give_up()
                return
            if self._on_role is not None:
                self._on_role(active=True)

    def _give_up(self) -> None:
        self._epoch = None
        self._core.deactivate()
        if self._on_role is not None:
            self._on_role(active=False)
        self._queue.abandon(_deposed)
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(_deposed())
                future.exception()  # Retrieve it: the waiting task may be cancelled.

    # Carrying out decisions.

    def _next_offset(self) -> int:
        """The lowest offset of the next record; raft's own records take offsets, too."""
        return max(int(self._raft.log_end_offset), self._core.latest.offset + 1)

    async def _in_order(self, steps: "Steps[T]") -> T:
        """Carry out a decision after those before it; NOT_CONTROLLER if deposed meanwhile."""
        made = self._queue.run(steps)
        return await made if isinstance(made, asyncio.Future) else made

    def _decided(
        self,
        key: "ApiKey",
        call: "Callable[[], Call[Any]]",
        epoch: LeaderEpoch,
        received_ms: int | None,
    ) -> "Steps[tuple[Decision, int]]":
        """Decide a request and append the records; also returns the offset to wait for."""
        self._update_voter_ids()
        begun = self._clock.mono_ms()
        if received_ms is not None:
            self.timings.queued.add(begun - received_ms)
        decision = yield from self._core.decide(key, call())
        offset = yield from self._carry_out(decision, epoch)
        self.timings.processing.add(self._clock.mono_ms() - begun)
        return decision, offset

    def _carry_out_unasked(
        self, decision: "Decision", epoch: LeaderEpoch, *, to_log: bool = False
    ) -> "Steps[bool]":
        """Carry out a decision without a request; return whether still active afterwards."""
        try:
            yield from self._carry_out(decision, epoch, to_log=to_log)
        except KafkaError as error:
            _log.info(
                "Controller %s failed to write a periodic decision: %s",
                self._core.config.node_id,
                error,
            )
        return self._epoch == epoch

    def _carry_out(
        self, decision: "Decision", epoch: LeaderEpoch, *, to_log: bool = False
    ) -> "Steps[int]":
        """Append a decision's records and replay them, batch by batch.

        A batch is appended and takes effect in one event-loop iteration. The records of a large
        one, which is atomic, are encoded and replayed before.

        Returns the last offset that the decision has written or could have read. `to_log` logs the
        elections.

        Raises:
            KafkaError: NOT_CONTROLLER if this controller was deposed, possibly while it appended
                (a process that stalled past the quorum's timeout detects it then). The records may
                be committed or not; only the log can show it.
        """
        records, elections = decision.records, deque(decision.elections)
        size = len(records) if decision.atomic else RECORDS_PER_BATCH
        if len(records) >= RECORDS_PER_BATCH:  # this slice frees the decision's image
            yield RECORDS_PER_BATCH * RECORD_UNITS
        for start in range(0, len(records), max(size, 1)):
            part = list(records[start : start + size])
            messages = [record for record, _ in part]
            encoded = None
            if len(part) > RECORDS_PER_BATCH:
                encoded = yield from self._raft.encode(part)
                yield from self._core.prepare_batch(messages)
            offset = self._raft.append_now(part, epoch=epoch, encoded=encoded)
            if self._epoch != epoch:
                raise _deposed()
            elected = _elections_in(part, elections)
            self._core.replay_appended(
                messages,
                last_offset=offset,
                epoch=epoch,
                elections=elected,
                wall_ms=self._clock.wall_ms(),
            )
            self._last_append_ms = self._clock.mono_ms()
            for election in elected if to_log else ():
                _log_election(election)
                yield RECORD_UNITS
            if start + size < len(records):
                yield len(part) * RECORD_UNITS
        return self._core.latest.offset

    async def _committed_up_to(self, offset: int) -> None:
        if offset <= self._committed:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._tickets), future))
        try:
            async with asyncio.timeout(COMMIT_WAIT_MS_MAX / 1000):
                await future
        except TimeoutError as error:
            wrong = "the metadata log did not commit in time"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, wrong) from error

    def _release(self, offset: int) -> None:
        self._committed = max(self._committed, offset)
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._committed:
            _, _, future = heapq.heappop(waiting)
            if not future.done():
                future.set_result(None)

    # Timers.

    async def _run_timers(self) -> None:
        pause_ms = min(TICK_MS_MAX, self._idle_interval_ms or TICK_MS_MAX)
        while True:
            await asyncio.sleep(pause_ms / 1000)
            # Read heartbeats that have arrived before any session expires.
            await asyncio.sleep(0)
            if (done := self.tick()) is not None:
                with suppress(KafkaError):  # deposed
                    await done
                self._last_tick_ms = self._clock.mono_ms()

    def tick(self) -> "asyncio.Future[None] | None":
        """Do the periodic work that is due; a future if it does not end now."""
        now = self._clock.mono_ms()
        stalled = now - self._last_tick_ms > STALL_MS
        self._last_tick_ms = now
        if self._epoch is None:
            return None
        judges = not stalled and not self._fault_point("sessions_judged_late")
        return self._queue.run(self._periodic(now, self._epoch, judges_sessions=judges))

    def _periodic(self, now: Millis, epoch: LeaderEpoch, *, judges_sessions: bool) -> "Steps[None]":
        if judges_sessions and not (yield from self._fence_stale(now, epoch)):
            return
        for check in self._checks:
            if now - check.last_ms >= check.interval_ms:
                decision = yield from check.decide()
                if not (yield from self._carry_out_unasked(decision, epoch)):
                    return
                if not decision.response:
                    check.mark_done(now)
        if self._idle_interval_ms and now - self._last_append_ms >= self._idle_interval_ms:
            yield from self._carry_out_unasked(self._core.no_op(), epoch)

    def _remove_expired_tokens(self) -> "Steps[Decision]":
        yield from ()
        return self._core.remove_expired_tokens(self._clock.wall_ms())

    def _fence_stale(self, now: Millis, epoch: LeaderEpoch) -> "Steps[bool]":
        """Fence brokers whose sessions have expired; return whether still active afterwards."""
        while (decision := (yield from self._core.fence_one_stale_broker(now))) is not None:
            if not (yield from self._carry_out_unasked(decision, epoch, to_log=True)):
                return False
            self._fault_point("one_broker_fenced_before_the_next")
        return True

    def _fence_refused(
        self, broker_id: int, is_certain: "Callable[[], bool]", epoch: LeaderEpoch
    ) -> "Steps[None]":
        decision = None
        if is_certain():
            decision = yield from self._core.fence_refused_broker(broker_id)
        if decision is not None:
            _log.info("Fencing broker %s: its process has stopped", broker_id)
            yield from self._carry_out_unasked(decision, epoch, to_log=True)


def _deposed() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "leadership was lost")


def _elections_in(part: "Sequence[VersionedRecord]", left: "deque[Election]") -> "list[Election]":
    """Take the elections that these records contain; both are in the order of the decision."""
    taken = []
    for record, _ in part:
        if not left:
            break
        at = left[0]
        if (
            type(record) is PartitionChangeRecord
            and (record.topic_id, record.partition_id) == (at.topic_id, at.partition)
            and record.leader == at.leader
        ):
            taken.append(left.popleft())
    return taken


def _log_election(election: "Election") -> None:
    _log.info(
        "%s-%s: leader %s → %s, %s",
        election.topic,
        election.partition,
        election.previous,
        election.leader,
        election.reason.cause.text,
    )
