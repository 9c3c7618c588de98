"""Runs the raft core: its files, its peers, its clock, and those who replay its log (KIP-595, 630).

    append, requests, answers, timers ──▶ Quorum.step ──▶ Ready, carried out in its order:
        quorum-state on disk ▸ log in the page cache ▸ fsync begun ▸ requests, answers ▸ listeners

Invariants:
    * `Ready`s are carried out one after another, in the order the core made them; the core itself
      never waits: a step taken while one is being carried out queues its work behind it.
    * Nothing of a `Ready` is visible before its election state is on disk.
    * One fsync of the log at a time; what is appended meanwhile shares the next one. A leader's
      waits for more records only where `controller.quorum.append.linger.ms` is set, and never with
      control records: elections and changes of voters don't linger (as in Kafka).

A failed disk or a record we don't understand ends the node: `on_fatal` is called once.

Not here: what to decide (`sparkraft.raft`), when to snapshot (`server.controller`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.raft import events
from sparkraft.raft.events import EpochAndOffset, LeaderAndEpoch, QuorumConfig, Ready
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import Node, VoterSet
from sparkraft.server.raft import records as log_records
from sparkraft.server.raft.answering import on_wall_clock
from sparkraft.server.raft.commits import Commits
from sparkraft.server.raft.listener import CommittedBatch, Listener
from sparkraft.server.raft.peers import Peers
from sparkraft.server.raft.watching import Watch
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.quorum_state import read_quorum_state, write_quorum_state
from sparkraft.storage.raft_log import RaftLog
from sparkraft.storage.snapshot_files import BATCH_BYTES_MAX, SnapshotFile, snapshot_batches

if TYPE_CHECKING:
    from sparkraft.server.env import Env
    from sparkraft.server.raft.history import PastReader
    from sparkraft.server.raft.journal import QuorumJournal

BATCH_RECORDS_MAX = 10_000
"""Records in one append; more would hold up every loop that replays them."""

CLEAN_EVERY_MS = 60_000
"""How often old segments and snapshots are looked at; Kafka's value."""

SNAPSHOT_SLICE = 500
"""Records of a snapshot encoded before the loop gets its turn: some milliseconds of work."""

HANDOVER_MS_MAX = 5_000
"""A stopping leader waits no longer for someone to take over; Kafka's value."""

log = logging.getLogger("sparkraft.raft")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Payload:
    """What one of our own appends carries through the core."""

    values: list[bytes]
    messages: list[Any]


class RaftDriver:
    """This node's member of the metadata quorum: voter, or observer."""

    def __init__(
        self,
        config: QuorumConfig,
        env: "Env",
        raft_log: RaftLog,
        *,
        static_voters: VoterSet,
        on_fatal: Callable[[BaseException], None],
        linger_ms: int = 0,
    ) -> None:
        """Take over an opened log; `start` sets it going.

        `linger_ms`: how long a leader's records wait for more before they are brought to disk.
        """
        self._env = env
        self._clock = env.clock
        self._config = config
        self._log = raft_log
        self._on_fatal = on_fatal
        state = read_quorum_state(env.disk, raft_log.directory)
        self._quorum = Quorum(
            config,
            log_records.recover(raft_log),
            None if state is None else log_records.election_of(state),
            static_voters=static_voters,
            entropy=env.entropy,
        )
        self._watch = Watch(env, raft_log.log_dir, self)
        client_id = f"raft-client-{config.local.id}"
        self._peers = Peers(config.listener, client_id, self._on_outcome)
        self._commits = Commits(raft_log, config.local.id, self._fail)
        self._waiting: dict[int, asyncio.Future[events.Answer]] = {}
        self._next_request_id = 0
        self._readies: deque[Ready] = deque()
        self._carrying_out = False
        self._flushing = False
        self._next_flush: events.Flush | None = None
        self._linger_s = linger_ms / 1000
        self._urgent = asyncio.Event()
        """Something waits for an fsync that mustn't linger."""
        self._timer: asyncio.TimerHandle | None = None
        self._clean_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetched: SnapshotFile | None = None
        self._changed = asyncio.Event()
        self._past: PastReader | None = None
        self._stopped = False
        self._closed = False
        self._snapshotting = False

    # ---- what others look at

    @property
    def node_id(self) -> BrokerId:
        """This node."""
        return self._config.local.id

    @property
    def directory_id(self) -> Uuid:
        """Of the directory that holds the log."""
        return self._config.local.directory_id or Uuid.ZERO

    @property
    def cluster_id(self) -> str:
        """Of the cluster this log belongs to."""
        return self._config.cluster_id

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Who leads, as far as this node knows."""
        return self._quorum.leader_and_epoch

    @property
    def leader_node(self) -> Node | None:
        """Where the active controller listens for us; this node's own address where that leads."""
        return self._quorum.leader_node

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the quorum."""
        return self._quorum.is_leader

    @property
    def high_watermark(self) -> Offset:
        """The first offset not known to be committed; -1 until one is known."""
        known = self._quorum.log.high_watermark
        return Offset(-1) if known is None else known

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._quorum.log.end

    @property
    def recovery_point(self) -> Offset:
        """Everything below it is on disk and committed: damage there is no crash's doing."""
        return self._log.recovery_point

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._quorum.log.voters

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force."""
        return self._quorum.log.kraft_version

    @property
    def latest_snapshot(self) -> EpochAndOffset | None:
        """The newest snapshot on this node."""
        return self._quorum.log.latest_snapshot

    @property
    def leaderless_ms(self) -> int:
        """For how long this node has been in touch with no leader; 0 while it is."""
        return self._watch.leaderless_ms(self._quorum)

    @property
    def has_met_leader(self) -> bool:
        """Whether this node has been in touch with a leader since it started."""
        return self._watch.has_met_leader(self._quorum)

    @property
    def log(self) -> RaftLog:
        """The log's files, for reading what is committed."""
        return self._log

    @property
    def past(self) -> "PastReader":
        """Answers questions about the past; loaded at the first one."""
        if self._past is None:
            from sparkraft.server.raft.history import PastReader

            self._past = PastReader(self)
        return self._past

    @property
    def journal(self) -> "QuorumJournal":
        """What this node saw of elections."""
        return self._watch.journal

    @property
    def state_name(self) -> str:
        """`Leader`, `Follower`, `Candidate` and so on, for logs and metrics."""
        return type(self._quorum.state).__name__

    def describe(self) -> events.Description | None:
        """The replicas' progress with wall-clock times; None where this node doesn't lead."""
        now = self._clock.mono_ms()
        found = self._quorum.describe(now)
        return found and on_wall_clock(found, now=now, wall=self._clock.wall_ms())

    # ---- what others ask for

    async def start(self) -> None:
        """Take part; a quorum of one leads when this returns, though nothing is committed yet."""
        ready = self._quorum.start(self._clock.mono_ms())
        self._schedule_clean()
        self._carrying_out = True
        self._readies.append(ready)
        await self._carry_out_rest()

    def register(self, listener: Listener) -> None:
        """Replay the log to `listener` from its latest snapshot on; calls may begin at once."""
        self._commits.register(listener)

    async def append(self, records: list[tuple[Any, int]], *, epoch: int) -> Offset:
        """Append (message, version)s as one atomic batch; the offset of the last, uncommitted.

        Raises:
            KafkaError: NOT_CONTROLLER where this node doesn't lead `epoch`, or not any more.
        """
        return self.append_now(records, epoch=epoch)

    def append_now(self, records: list[tuple[Any, int]], *, epoch: int) -> Offset:
        """As `append`, at once: nothing can come between a decision and its append."""
        if not 0 < len(records) <= BATCH_RECORDS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{len(records)} records in one batch; there may be 1 to {BATCH_RECORDS_MAX}",
            )
        values = [encode_metadata_record(message, version) for message, version in records]
        size = sum(map(len, values))
        if size > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed {BATCH_BYTES_MAX}"
            )
        payload = _Payload(values, [message for message, _ in records])
        request = events.Append(epoch=LeaderEpoch(epoch), count=len(values), payload=payload)
        answer = self._ask_now(request)
        if isinstance(answer, events.Appended):
            return answer.last_offset
        assert isinstance(answer, events.Refusal)
        raise KafkaError(answer.error, answer.detail)

    def _ask_now(self, request: events.Request) -> events.Answer:
        """For requests that the core answers in the same step."""
        self._next_request_id += 1
        request_id = self._next_request_id
        event = events.RequestReceived(request_id=request_id, request=request)
        ready = self._quorum.step(event, self._clock.mono_ms())
        answers = [r.answer for r in ready.respond if r.request_id == request_id]
        self._take(ready)
        return answers[0]

    def request(self, request: events.Request) -> asyncio.Future[events.Answer]:
        """Have the core answer a peer's or client's request; cancel it if nobody waits any more."""
        self._next_request_id += 1
        request_id = self._next_request_id
        future: asyncio.Future[events.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        future.add_done_callback(lambda done: self._on_answered(request_id, done))
        self._step(events.RequestReceived(request_id=request_id, request=request))
        return future

    def _on_answered(self, request_id: int, future: asyncio.Future[events.Answer]) -> None:
        self._waiting.pop(request_id, None)
        if future.cancelled() and not self._stopped:
            self._step(events.RequestDropped(request_id=request_id))

    def read_log(self, wanted: events.LogRange) -> list[bytes]:
        """The bytes of a Fetch answer, as pieces."""
        start, up_to = wanted.start, min(wanted.up_to, self._log.end)
        if not self._log.start <= start < up_to:
            return []
        return self._log.read(start, up_to=up_to, max_bytes=wanted.max_bytes)

    def read_snapshot(self, answer: events.FetchSnapshotResponse) -> events.FetchSnapshotResponse:
        """A FetchSnapshot answer with its bytes; SNAPSHOT_NOT_FOUND where it is gone meanwhile."""
        if answer.snapshot is None:
            return answer
        try:
            chunk = self._log.read_snapshot(
                log_records.file_id(answer.snapshot),
                answer.position,
                min(answer.max_bytes, self._config.fetch_max_bytes),
            )
        except FileNotFoundError:
            return replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND, snapshot=None)
        return replace(answer, chunk=chunk)

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`; nothing happens where this node doesn't hold it."""
        self._step(events.ResignRequested(epoch=LeaderEpoch(epoch)))

    async def stop(self, timeout_ms: int = HANDOVER_MS_MAX) -> None:
        """Hand leadership over where there is someone to take it, then close everything."""
        if self._stopped:
            return await self._close()
        self._step(events.ShutdownRequested())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._quorum.may_stop:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("nobody took over the quorum within %d ms", timeout_ms)
        return await self._close()

    async def _close(self) -> None:
        if self._closed:
            return
        self._stopped = self._closed = True
        self._watch.stop()
        for timer in (self._timer, self._clean_timer):
            if timer is not None:
                timer.cancel()
        await self._peers.close()
        # Not cancelled: an fsync under way must not outlive the log it works on. None lingers.
        self._linger_s = 0.0
        self._urgent.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for future in list(self._waiting.values()):
            if not future.done():
                error = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is stopping")
                future.set_exception(error)
        try:
            self._log.close()
        except StorageFault as fault:  # what is acknowledged is synced: the next start recovers
            self._on_fatal(fault)

    # ---- snapshots

    async def create_snapshot(
        self, offset: int, epoch: int, records: Iterable[tuple[Any, int]]
    ) -> bool:
        """Write a snapshot of the state before `offset`, whose last record was of `epoch`.

        `records` are (message, version)s of an old image; they are taken in slices, so the loop
        goes on meanwhile. False where there is such a snapshot already, or one is being written.

        Raises:
            KafkaError: INVALID_REQUEST where `offset` is not committed or inside a batch.
        """
        snapshot = log_records.file_id(EpochAndOffset(LeaderEpoch(epoch), Offset(offset)))
        timestamp = self._check_snapshot(Offset(offset), LeaderEpoch(epoch))
        file = self._log.new_snapshot(snapshot)
        if file is None or self._snapshotting:
            return False
        self._snapshotting = True
        try:
            await self._write_snapshot(file, records, timestamp)
        finally:
            self._snapshotting = False
        self._env.fault_point("snapshot_made_before_kept")
        self._log.keep_snapshot(snapshot, file.size)
        created = events.SnapshotCreated(snapshot=log_records.core_id(snapshot), size=file.size)
        self._step(created)
        self._clean()
        return True

    async def _write_snapshot(
        self, file: SnapshotFile, records: Iterable[tuple[Any, int]], timestamp: Millis
    ) -> None:
        voters, level = self._quorum.log.voters_at(file.id.offset)
        framed: list[bytes] = []
        for count, (message, version) in enumerate(records):
            framed.append(encode_metadata_record(message, version))
            if count % SNAPSHOT_SLICE == SNAPSHOT_SLICE - 1:
                await asyncio.sleep(0)
        batches = snapshot_batches(
            framed,
            epoch=file.id.epoch,
            now=self._clock.wall_ms(),
            last_contained_log_timestamp=timestamp,
            controls=log_records.snapshot_controls(level, voters),
        )

        def write() -> None:
            for batch in batches:
                file.append(batch)
            file.freeze()

        try:
            await self._in_executor(write)
        except BaseException:
            file.discard()
            raise

    def _check_snapshot(self, offset: Offset, epoch: LeaderEpoch) -> Millis:
        """The append time of the last record below `offset`."""
        if not self._log.start < offset <= self.high_watermark:
            detail = f"{offset} is not within ({self._log.start}, {self.high_watermark}]"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no snapshot: {detail}")
        last = Offset(offset - 1)
        header, _ = next(self._log.batches(last, offset), (None, None))
        if header is None or header.last_offset != last or header.partition_leader_epoch != epoch:
            detail = f"no snapshot: no batch of epoch {epoch} ends at {last}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        return Millis(header.max_timestamp)

    def _schedule_clean(self) -> None:
        loop = asyncio.get_running_loop()
        self._clean_timer = loop.call_later(CLEAN_EVERY_MS / 1000, self._on_clean_timer)

    def _on_clean_timer(self) -> None:
        self._schedule_clean()
        self._clean()

    def _clean(self) -> None:
        try:
            cleaned = self._log.clean(self._clock.wall_ms())
        except Exception as error:
            self._fail(error)
            return
        if cleaned:
            self._step(events.LogCleaned(log_start_offset=self._log.start))

    # ---- running the core

    def _step(self, event: events.Event) -> None:
        if not self._stopped:
            self._take(self._quorum.step(event, self._clock.mono_ms()))

    def _on_outcome(self, event: events.ResponseReceived | events.RequestFailed) -> None:
        self._watch.note_outcome(event)
        self._step(event)

    def _take(self, ready: Ready) -> None:
        """Carry out now what needs no waiting, unless older work is still under way."""
        self._readies.append(ready)
        if self._carrying_out:
            return  # Whoever is at it, perhaps our own caller, will come to this as well.
        self._carrying_out = True
        while self._readies and self._readies[0].persist is None:
            self._carry_out(self._readies.popleft())
        if self._readies:
            self._spawn(self._carry_out_rest())
        else:
            self._carrying_out = False

    async def _carry_out_rest(self) -> None:
        try:
            while self._readies:
                ready = self._readies.popleft()
                if ready.persist is not None:
                    await self._persist(ready.persist)
                self._carry_out(ready)
        except Exception as error:
            self._fail(error)
        finally:
            self._carrying_out = False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The set keeps the task alive; `_close` waits for what is left.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_executor(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._env.executor, work)

    async def _persist(self, election: events.ElectionState) -> None:
        state = log_records.quorum_state_of(election)
        disk, directory = self._env.disk, self._log.directory
        self._env.fault_point("after_vote_before_fsync")
        await self._in_executor(lambda: write_quorum_state(disk, directory, state))
        self._env.fault_point("after_vote_before_answer")

    def _carry_out(self, ready: Ready) -> None:
        """Everything of `ready` but its election state, which is on disk."""
        try:
            self._carry_out_log(ready.log)
            if ready.log:
                self._env.fault_point("after_append_before_fsync")
            if ready.flush is not None:
                self._begin_flush(ready.flush)
        except Exception as error:
            self._fail(error)
            return
        for send in ready.send:
            self._peers.send(send)
        if ready.respond:
            self._env.fault_point("before_answering_a_peer")
        for respond in ready.respond:
            future = self._waiting.get(respond.request_id)
            if future is not None and not future.done():
                future.set_result(respond.answer)
        self._tell(ready)
        self._set_timer(ready.wake_at)

    def _tell(self, ready: Ready) -> None:
        self._watch.note_states(self._quorum)
        if ready.high_watermark is not None:
            self._env.fault_point("after_commit_before_told")
            self._log.set_high_watermark(ready.high_watermark)
            self._commits.set_high_watermark(ready.high_watermark)
        if ready.leader is not None:
            state = self._quorum.state
            start = state.epoch_start_offset if isinstance(state, Leader) else Offset(0)
            self._commits.set_leader(ready.leader, start)
        if ready.leader is not None or ready.high_watermark is not None:
            self._commits.advance()
        self._changed.set()

    def _carry_out_log(self, effects: Iterable[events.LogEffect]) -> None:
        run: list[memoryview] = []
        for effect in effects:
            if isinstance(effect, events.AppendBatch) and effect.batch.controls:
                self._watch.note_batch(effect.batch)
            if isinstance(effect, events.AppendBatch) and isinstance(
                effect.batch.payload, memoryview
            ):
                run.append(effect.batch.payload)
                continue
            self._append_fetched(run)
            run = []
            self._carry_out_effect(effect)
        self._append_fetched(run)

    def _append_fetched(self, run: list[memoryview]) -> None:
        if run:
            self._log.append(run[0] if len(run) == 1 else b"".join(run))
            self._urgent.set()

    def _carry_out_effect(self, effect: events.LogEffect) -> None:
        match effect:
            case events.AppendBatch(batch=batch):
                self._append_own(batch)
            case events.TruncateTo(offset=offset):
                self._commits.forget()
                self._log.truncate_to(offset)
                self._urgent.set()
                self._env.fault_point("after_truncation")
                log.info("cut the log at %d", offset)
            case events.WriteSnapshotChunk(snapshot=snapshot, position=position, chunk=chunk):
                if position == 0 or self._fetched is None:
                    self._fetched = self._log.new_snapshot(log_records.file_id(snapshot))
                assert self._fetched is not None
                self._fetched.append(chunk)
                self._env.fault_point("between_snapshot_chunks")
            case events.InstallSnapshot():
                self._spawn(self._install())

    def _append_own(self, batch: events.LogBatch) -> None:
        payload, now = batch.payload, self._clock.wall_ms()
        values = payload.values if isinstance(payload, _Payload) else []
        raw = log_records.encode_batch(batch, values, now)
        self._log.append(raw)
        if not isinstance(payload, _Payload):
            self._urgent.set()
        else:
            self._commits.remember(
                CommittedBatch(
                    batch.base_offset,
                    batch.last_offset,
                    batch.epoch,
                    now,
                    len(raw),
                    payload.messages,
                )
            )

    async def _install(self) -> None:
        """A fetched snapshot is complete: check it, bring it to disk, start the log at it."""
        file, self._fetched = self._fetched, None
        assert file is not None
        try:
            content = await self._in_executor(file.verify)
            level, voters = log_records.read_snapshot_controls(content)
            await self._in_executor(file.freeze)
            self._env.fault_point("snapshot_fetched_before_install")
            self._start_at(file)
        except DecodeError as error:
            log.warning("the leader's snapshot %s is damaged and fetched anew: %s", file.id, error)
            file.discard()
            self._step(events.SnapshotDiscarded())
            return
        except Exception as error:
            self._fail(error)
            return
        log.info("loaded snapshot %s of %d bytes from the leader", file.id, file.size)
        installed = events.SnapshotInstalled(
            snapshot=log_records.core_id(file.id),
            size=file.size,
            kraft_version=level,
            voters=voters,
        )
        self._step(installed)

    def _start_at(self, file: SnapshotFile) -> None:
        self._commits.forget()
        self._log.install_snapshot(file.id, file.size)
        self._env.fault_point("snapshot_installed_before_told")

    # ---- fsync

    def _begin_flush(self, flush: events.Flush) -> None:
        self._next_flush = flush
        if not self._flushing:
            self._flushing = True
            self._spawn(self._flush())

    async def _flush(self) -> None:
        try:
            while self._next_flush is not None:
                await self._linger()
                flush, self._next_flush = self._next_flush, None
                await self._in_executor(partial(self._log.flush, flush.up_to))
                self._env.fault_point("after_fsync_before_counted")
                self._step(events.LogFlushed(up_to=flush.up_to, generation=flush.generation))
        except Exception as error:
            self._fail(error)
        finally:
            self._flushing = False

    async def _linger(self) -> None:
        """Let records accumulate, unless something is there that can't wait."""
        if self._linger_s and not self._urgent.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), self._linger_s)
        self._urgent.clear()

    # ---- time

    def _set_timer(self, wake_at: Millis | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at is None or self._stopped:
            return
        delay = max(0, wake_at - self._clock.mono_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._step(events.TimerFired())

    def _fail(self, error: BaseException) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._on_fatal(error)
