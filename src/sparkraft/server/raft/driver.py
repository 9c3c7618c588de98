"""Runs the raft core on a node: its files, peers, clock, callers and listeners (KIP-595, KIP-630).

    appends, requests, responses, timers ──▶ Quorum.step ──▶ Ready ──▶ ReadyQueue ──▶ duties:
        quorum-state on disk ▸ log in the page cache ▸ fsync begun ▸ requests, responses ▸ listeners

The core never waits: a step taken while a `Ready` is being carried out queues its work after it
(`sparkraft.raft.ready_queue`). Each duty has a part of its own:

    log, flush                    `log_writer`, `snapshot_installer`
    send                          `peers`, `calls`
    respond                       `pending_requests`
    leader, high_watermark        `commit_publisher` (listeners), `quorum_monitor` (journal, logs)

A failed disk, or a record this version does not understand, ends the node: `on_fatal` is called
once, and nothing is carried out any more.

Not here: decisions (`sparkraft.raft`), when to take a snapshot (`server.controller`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.base.steps import complete
from sparkraft.raft import events
from sparkraft.raft.events import LeaderAndEpoch, QuorumConfig, Ready
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.ready_queue import ReadyQueue
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import VoterSet
from sparkraft.server.raft import records as log_records
from sparkraft.server.raft.commit_publisher import CommitPublisher
from sparkraft.server.raft.log_writer import LogWriter, OwnRecords
from sparkraft.server.raft.metadata_log_listener import MetadataLogListener
from sparkraft.server.raft.peers import Peers
from sparkraft.server.raft.pending_requests import PendingRequests, ResponseFuture
from sparkraft.server.raft.quorum_monitor import QuorumMonitor
from sparkraft.server.raft.snapshot_load import RECORDS_PER_ITERATION as SNAPSHOT_RECORDS
from sparkraft.server.raft.snapshot_writer import SnapshotWriter
from sparkraft.server.raft.status import QuorumStatus
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.quorum_state import read_quorum_state, write_quorum_state
from sparkraft.storage.raft_log import RaftLog

if TYPE_CHECKING:
    from sparkraft.metadata.snapshot import VersionedRecord
    from sparkraft.security.login import Credentials
    from sparkraft.server.env import Env
    from sparkraft.server.raft.past_images import PastImages
    from sparkraft.server.raft.past_reader import PastReader
    from sparkraft.server.raft.past_topic_names import PastTopicNames
    from sparkraft.tls.dialing import Connect

BATCH_RECORDS_MAX = 10_000
"""Records in one append; more would delay every event loop that replays them."""

HANDOVER_MS_MAX = 5_000
"""How long a stopping leader waits for a new leader; Kafka's value."""

log = logging.getLogger("sparkraft.raft")

NEEDS_REPAIR = (
    "The quorum is in epoch %d, and few epochs are left for elections. Unless there were that many "
    "elections, a forged request to a controller listener has raised it. Stop the cluster and run "
    "`sparkraft metadata-quorum repair --command-config FILE` on every node; it explains the steps."
)

T = TypeVar("T")


class RaftDriver(QuorumStatus):
    """This node's member of the metadata quorum, voter or observer; owns the core."""

    def __init__(  # noqa: PLR0913 (made in one place)
        self,
        config: QuorumConfig,
        env: "Env",
        raft_log: RaftLog,
        *,
        static_voters: VoterSet,
        on_fatal: Callable[[BaseException], None],
        connect: "Connect | None" = None,
        linger_ms: int = 0,
        login: "Credentials | None" = None,
    ) -> None:
        """Take over an opened log; `start` comes next.

        `linger_ms`: how long a leader's records wait for more before an fsync. `connect` opens
        connections to other members, those of `env` by default; `login` authenticates them.
        """
        self._env = env
        self._config = config
        self._on_fatal = on_fatal
        state = read_quorum_state(env.disk, raft_log.directory)
        quorum = Quorum(
            config,
            log_records.recover(raft_log),
            None if state is None else log_records.election_of(state),
            static_voters=static_voters,
            entropy=env.entropy,
        )
        monitor = QuorumMonitor(env, raft_log.log_dir, quorum)
        super().__init__(quorum, raft_log, monitor, env.clock)
        self._queue = ReadyQueue(self)
        self._requests = PendingRequests(self._on_cancelled)
        client_id = f"raft-client-{config.local.id}"
        self._peers = Peers(
            config.listener,
            client_id,
            self._on_peer_response,
            connect=connect or env.network.connect,
            login=login,
            traffic=monitor.traffic.channel,
        )
        self._commits = CommitPublisher(
            raft_log,
            config.local.id,
            self.fail,
            monitor.traffic.on_applied,
            snapshot_records_max=min(SNAPSHOT_RECORDS, env.work_max.partitions),
        )
        self._log_writer = LogWriter(
            raft_log,
            env,
            self,
            commits=self._commits,
            monitor=monitor,
            linger_ms=linger_ms,
        )
        self._snapshots = SnapshotWriter(raft_log, env, self, quorum.log)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._past: PastReader | None = None
        self._past_images: PastImages | None = None
        self._past_topic_names: PastTopicNames | None = None
        self._stopped = False
        self._closed = False

    # ---- start and stop

    async def start(self) -> None:
        """Join the quorum; a quorum of one leads when this returns, with nothing committed yet."""
        ready = self._quorum.start(self._clock.mono_ms())
        if self._quorum.needs_repair:
            log.error(NEEDS_REPAIR, self._quorum.state.epoch)
        self._snapshots.start_cleaning()
        await self._persist_all(self._queue.add(ready))

    async def stop(self, timeout_ms: int = HANDOVER_MS_MAX) -> None:
        """Hand leadership over if another voter can take it, then close everything."""
        if self._stopped:
            return await self._close()
        self.step(events.ShutdownRequested())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._quorum.may_stop:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("no voter took over the quorum within %d ms", timeout_ms)
        return await self._close()

    async def _close(self) -> None:
        if self._closed:
            return
        self._stopped = self._closed = True
        self._monitor.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._snapshots.stop_cleaning()
        if self._past_images is not None:
            self._past_images.forget()
        await self._peers.close()
        # Not cancelled: an fsync under way must not outlive the log it works on.
        self._log_writer.stop_lingering()
        self._commits.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._requests.fail_all(
            lambda: KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is stopping")
        )
        try:
            self._log.close()
        except StorageFault as fault:  # acknowledged records are synced: the next start recovers
            self._on_fatal(fault)

    # ---- calls from the rest of the server

    def register(self, listener: MetadataLogListener) -> None:
        """Replay the log to `listener` from its latest snapshot on; calls may begin at once."""
        self._commits.register(listener)

    async def append(self, records: list[tuple[Any, int]], *, epoch: int) -> Offset:
        """Append (message, version)s as one atomic batch; returns the last offset, uncommitted.

        Raises:
            KafkaError: NOT_CONTROLLER if this node is not, or no longer, the leader of `epoch`.
        """
        return self.append_now(records, epoch=epoch)

    def encode(self, records: list[tuple[Any, int]]) -> "Generator[int, None, OwnRecords]":
        """Encode a batch for `append_now` in pieces; yields their records.

        Raises:
            KafkaError: RECORD_LIST_TOO_LARGE.
        """
        return OwnRecords.of(records, self._clock.wall_ms())

    def append_now(
        self,
        records: list[tuple[Any, int]],
        *,
        epoch: int,
        encoded: OwnRecords | None = None,
    ) -> Offset:
        """As `append`, synchronously: nothing can come between a decision and its append.

        `encoded` is what `encode` has made of the records.
        """
        if not 0 < len(records) <= BATCH_RECORDS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a batch holds 1 to {BATCH_RECORDS_MAX} records, not {len(records)}",
            )
        payload = encoded or complete(self.encode(records))
        request = events.Append(epoch=LeaderEpoch(epoch), count=len(records), payload=payload)
        response = self._handle_now(request)
        if isinstance(response, events.Appended):
            return response.last_offset
        assert isinstance(response, events.Refusal)
        raise KafkaError(response.error, response.detail)

    def _handle_now(self, request: events.Request) -> events.Response:
        """For requests that the core responds to in the same step."""
        request_id = self._requests.next_id()
        event = events.RequestReceived(request_id=request_id, request=request)
        ready = self._quorum.step(event, self._clock.mono_ms())
        responses = [r.response for r in ready.respond if r.request_id == request_id]
        self._take(ready)
        return responses[0]

    def handle_request(self, request: events.Request) -> ResponseFuture:
        """Pass a request of a peer, a client or this node to the core.

        Cancel the future, or the task that awaits it, to drop the request.
        """
        request_id, future = self._requests.add()
        self.step(events.RequestReceived(request_id=request_id, request=request))
        return future

    def _on_cancelled(self, request_id: int) -> None:
        self.step(events.RequestDropped(request_id=request_id))

    def read_log(self, wanted: events.LogRange) -> list[bytes]:
        """The bytes of a Fetch response, in pieces."""
        start, up_to = wanted.start, min(wanted.up_to, self._log.end)
        if not self._log.start <= start < up_to:
            return []
        return self._log.read(start, up_to=up_to, max_bytes=wanted.max_bytes)

    def read_snapshot(self, response: events.FetchSnapshotResponse) -> events.FetchSnapshotResponse:
        """The response with its bytes; SNAPSHOT_NOT_FOUND if the file has been deleted since."""
        if response.snapshot is None:
            return response
        try:
            chunk = self._log.read_snapshot(
                log_records.file_id(response.snapshot),
                response.position,
                min(response.max_bytes, self._config.fetch_max_bytes),
            )
        except FileNotFoundError:
            return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND, snapshot=None)
        return replace(response, chunk=chunk)

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`; does nothing if this node does not hold it."""
        self.step(events.ResignRequested(epoch=LeaderEpoch(epoch)))

    async def create_snapshot(
        self, offset: int, epoch: int, records: "Iterable[VersionedRecord | None]"
    ) -> bool:
        """Write a snapshot of the state before `offset`, whose last record was of `epoch`.

        `records` are those of an immutable image, as `records_in_pieces` has them. They are encoded
        in slices, so that the event loop keeps running. Returns False if the snapshot exists
        already, or if another one is being written.

        Raises:
            KafkaError: INVALID_REQUEST if `offset` is not committed or lies inside a batch.
        """
        return await self._snapshots.create(offset, epoch, records)

    @property
    def past(self) -> "PastReader":
        """Reads earlier metadata; its code is loaded on first use."""
        if self._past is None:
            from sparkraft.server.raft.past_reader import PastReader

            self._past = PastReader(self)
        return self._past

    @property
    def past_images(self) -> "PastImages":
        """Makes images as of earlier offsets; its code is loaded on first use."""
        if self._past_images is None:
            from sparkraft.server.raft.past_images import PastImages

            self._past_images = PastImages(self)
        return self._past_images

    @property
    def past_topic_names(self) -> "PastTopicNames":
        """Finds the names of topics in the log; its code is loaded on first use."""
        if self._past_topic_names is None:
            from sparkraft.server.raft.past_topic_names import PastTopicNames

            self._past_topic_names = PastTopicNames(self)
        return self._past_topic_names

    # ---- running the core (`CoreHost`)

    def step(self, event: events.Event) -> None:
        """Feed the core and carry out the result; does nothing after a stop or a failure."""
        if not self._stopped:
            self._take(self._quorum.step(event, self._clock.mono_ms()))

    def _on_peer_response(self, event: events.ResponseReceived | events.RequestFailed) -> None:
        self._monitor.note_response(event)
        self.step(event)

    def _take(self, ready: Ready) -> None:
        """Carry out now what need not wait for a disk, unless older work is still under way."""
        try:
            election = self._queue.add(ready)
        except Exception as error:
            self.fail(error)
            return
        if election is not None:
            self.spawn(self._persist_all(election))

    async def _persist_all(self, election: events.ElectionState | None) -> None:
        """Bring election states to disk, each before the rest of its `Ready`."""
        try:
            while election is not None:
                await self._persist(election)
                election = self._queue.resume()
        except Exception as error:
            self.fail(error)

    async def _persist(self, election: events.ElectionState) -> None:
        state = log_records.quorum_state_of(election)
        disk, directory = self._env.disk, self._log.directory
        self._env.fault_point("after_vote_before_fsync")
        await self.in_executor(lambda: write_quorum_state(disk, directory, state))
        self._env.fault_point("after_vote_before_answer")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background; `stop` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        # The set keeps the task from being garbage collected.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def in_executor(self, work: Callable[[], T]) -> T:
        """Run blocking disk work off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._env.executor, work)

    def fail(self, error: BaseException) -> None:
        """Report an error that ends the node; only the first one counts."""
        if self._stopped:
            return
        self._stopped = True
        self._on_fatal(error)

    # ---- the fields of `Ready` (`Duties`), called by the queue in the order that it guarantees

    def write_log(self, effects: Sequence[events.LogEffect]) -> None:
        self._log_writer.write(effects)

    def begin_flush(self, flush: events.Flush) -> None:
        self._log_writer.begin_flush(flush)

    def send(self, requests: Sequence[events.Send]) -> None:
        for request in requests:
            self._peers.send(request)

    def respond(self, responses: Sequence[events.Respond]) -> None:
        self._env.fault_point("before_answering_a_peer")
        self._requests.complete(responses)

    def publish(self, leader: LeaderAndEpoch | None, high_watermark: Offset | None) -> None:
        self._monitor.note_states()
        if high_watermark is not None:
            self._env.fault_point("after_commit_before_told")
            self._log.set_high_watermark(high_watermark)
            self._commits.set_high_watermark(high_watermark)
            self._monitor.traffic.on_commit(high_watermark)
        if leader is not None:
            self._monitor.traffic.on_leader(leader.leader_id)
            state = self._quorum.state
            start = state.epoch_start_offset if isinstance(state, Leader) else Offset(0)
            self._commits.set_leader(leader, start)
        if leader is not None or high_watermark is not None:
            self._commits.advance()
        self._changed.set()

    def set_timer(self, wake_at: Millis | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at is None or self._stopped:
            return
        delay = max(0, wake_at - self._clock.mono_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.step(events.TimerFired())
