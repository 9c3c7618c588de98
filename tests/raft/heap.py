"""A quorum under a bare event heap: seeded delays, losses, kills, cuts; checks at each step.

Only what a `SimDisk` holds survives a kill: the election state, the log as far as it was flushed
(and sometimes more: an unsynced tail may have reached the disk too), and finished snapshots.
"""

import heapq
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.raft.events import (
    BOOTSTRAP_SNAPSHOT,
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Append,
    AppendBatch,
    Appended,
    ElectionState,
    EpochAndOffset,
    Failure,
    FetchResponse,
    FetchSnapshotResponse,
    Flush,
    InstallSnapshot,
    KRaftVersionChange,
    LogBatch,
    LogCleaned,
    LogFlushed,
    QuorumConfig,
    QuorumEpochResponse,
    Ready,
    Refusal,
    RemoveVoterRequest,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    Respond,
    ResponseReceived,
    Send,
    SnapshotCreated,
    SnapshotInstalled,
    TimerFired,
    TruncateTo,
    VotersChange,
    WriteSnapshotChunk,
)
from sparkraft.raft.log_view import RecoveredLog
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet, without_directories

LISTENER = "CONTROLLER"


class SeededEntropy:
    def __init__(self, source: random.Random) -> None:
        self._source = source

    def random_bytes(self, count: int) -> bytes:
        return self._source.randbytes(count)

    def below(self, bound: int) -> int:
        return self._source.randrange(bound)


def directory_of(node_id: int, life: int = 0) -> Uuid:
    return Uuid(bytes([life, *[0] * 13, 1, node_id & 0xFF]))


def endpoint_of(node_id: int) -> Endpoint:
    return Endpoint(LISTENER, f"node{node_id}", 9000 + node_id)


def voter_of(node_id: int, life: int = 0) -> Voter:
    return Voter(
        key=ReplicaKey(BrokerId(node_id), directory_of(node_id, life)),
        endpoints=(endpoint_of(node_id),),
    )


@dataclass
class SimDisk:
    election: ElectionState | None = None
    start: int = 0
    batches: list[LogBatch] = field(default_factory=list)
    durable_end: int = 0
    snapshots: dict[EpochAndOffset, bytes] = field(default_factory=dict)
    partial: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start

    def crash(self, dice: random.Random) -> None:
        lost = [batch for batch in self.batches if batch.next_offset > self.durable_end]
        kept = dice.randint(0, len(lost)) if dice.random() < 0.5 else 0
        del self.batches[len(self.batches) - len(lost) + kept :]
        self.durable_end = self.end
        self.partial = bytearray()

    def recover(self) -> RecoveredLog:
        epochs: list[tuple[LeaderEpoch, Offset]] = []
        voters: list[tuple[Offset, VoterSet]] = []
        versions: list[tuple[Offset, int]] = []
        if self.snapshots:
            first = min(self.snapshots)
            _, level, members = pickle.loads(self.snapshots[first])
            if level:
                voters.append((Offset(first.offset - 1), members))
                versions.append((Offset(first.offset - 1), level))
        for batch in self.batches:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
            for delta, control in enumerate(batch.controls):
                at = Offset(batch.base_offset + delta)
                if isinstance(control, VotersChange):
                    voters.append((at, control.voters))
                elif isinstance(control, KRaftVersionChange):
                    versions.append((at, control.kraft_version))
        return RecoveredLog(
            start=Offset(self.start),
            end=Offset(self.end),
            epochs=tuple(epochs),
            snapshots={key: len(raw) for key, raw in self.snapshots.items()},
            voters=tuple(voters),
            kraft_versions=tuple(versions),
        )


class SimNode:
    def __init__(self, sim: "Simulation", node_id: int) -> None:
        self.sim = sim
        self.id = node_id
        self.life = 0
        self.disk = SimDisk()
        self.quorum: Quorum | None = None
        self.incarnation = 0
        self.flushing: Flush | None = None
        self.next_flush: Flush | None = None
        self.wake_at: Millis | None = None
        self.waiting: dict[int, Callable[[Any], None]] = {}
        self.next_request_id = 0

    def start(self) -> None:
        assert self.quorum is None
        self.incarnation += 1
        sim = self.sim
        config = QuorumConfig(
            cluster_id="sim",
            local=ReplicaKey(BrokerId(self.id), directory_of(self.id, self.life)),
            listener=LISTENER,
            endpoints=(endpoint_of(self.id),),
            bootstrap=sim.bootstrap,
            fetch_max_bytes=64,
        )
        static = sim.static_voters
        self.quorum = Quorum(
            config,
            self.disk.recover(),
            self.disk.election,
            static_voters=static,
            entropy=SeededEntropy(sim.dice),
        )
        self.flushing = self.next_flush = None
        self.wake_at = None
        self.do(self.quorum.start(sim.now))

    def kill(self) -> None:
        self.quorum = None
        waiting, self.waiting = self.waiting, {}
        for reply in waiting.values():
            reply(None)
        self.disk.crash(self.sim.dice)

    def wipe(self) -> None:
        self.life += 1
        self.disk = SimDisk()

    def step(self, event: Any) -> None:
        assert self.quorum is not None
        self.do(self.quorum.step(event, self.sim.now))

    def later(self, delay: int, action: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.quorum is not None and self.incarnation == incarnation:
                action()

        self.sim.after(delay, run)

    # ---- the driver's duties, in the order of Ready

    def do(self, ready: Ready) -> None:
        sim = self.sim
        if ready.persist is not None:
            sim.on_persist(self, ready.persist)
            self.disk.election = ready.persist
        for effect in ready.log:
            self.do_log(effect)
        if ready.flush is not None:
            self.begin_flush(ready.flush)
        for send in ready.send:
            sim.transmit(self, send)
        for respond in ready.respond:
            self.do_respond(respond)
        if ready.high_watermark is not None:
            sim.on_high_watermark(self, ready.high_watermark)
        self.set_wake(ready.wake_at)
        sim.check(self)

    def do_log(self, effect: Any) -> None:
        disk = self.disk
        match effect:
            case AppendBatch(batch=batch):
                self.sim.on_append(self, batch)
                disk.batches.append(batch)
            case TruncateTo(offset=offset):
                while disk.batches and disk.batches[-1].next_offset > offset:
                    self.sim.on_truncate(self, disk.batches.pop())
                assert disk.end == offset
                disk.durable_end = min(disk.durable_end, offset)
            case WriteSnapshotChunk(position=position, chunk=chunk):
                assert position == len(disk.partial) or position == 0
                if position == 0:
                    disk.partial = bytearray()
                disk.partial += chunk
            case InstallSnapshot(snapshot=snapshot):
                raw = bytes(disk.partial)
                disk.partial = bytearray()
                self.sim.on_install(self, snapshot, raw)
                disk.snapshots = {snapshot: raw}
                disk.batches = []
                disk.start = disk.durable_end = snapshot.offset
                _, level, members = pickle.loads(raw)
                event = SnapshotInstalled(
                    snapshot=snapshot,
                    size=len(raw),
                    kraft_version=level,
                    voters=members if level else None,
                )
                self.later(1, lambda: self.step(event))

    def begin_flush(self, flush: Flush) -> None:
        if self.flushing is not None:
            self.next_flush = flush
            return
        self.flushing = flush
        self.later(self.sim.dice.randint(1, 15), self.end_flush)

    def end_flush(self) -> None:
        done, self.flushing = self.flushing, None
        assert done is not None
        assert self.quorum is not None
        if done.generation == self.quorum.log.generation:
            self.disk.durable_end = max(self.disk.durable_end, min(done.up_to, self.disk.end))
        if self.next_flush is not None:
            waiting, self.next_flush = self.next_flush, None
            self.begin_flush(waiting)
        self.step(LogFlushed(up_to=done.up_to, generation=done.generation))

    def do_respond(self, respond: Respond) -> None:
        answer: Any = respond.answer
        if isinstance(answer, FetchResponse) and answer.read is not None:
            answer = replace(answer, read=None, batches=self.read(answer.read.start))
        elif isinstance(answer, FetchSnapshotResponse) and answer.snapshot is not None:
            raw = self.disk.snapshots[answer.snapshot]
            chunk = raw[answer.position : answer.position + answer.max_bytes]
            answer = replace(answer, chunk=chunk)
        reply = self.waiting.pop(respond.request_id, None)
        if reply is not None:
            reply(answer)

    def read(self, start: int) -> tuple[LogBatch, ...]:
        found = [batch for batch in self.disk.batches if batch.base_offset >= start]
        return tuple(found[: self.sim.dice.randint(1, 6)])

    def ask(self, request: Any, reply: Callable[[Any], None]) -> None:
        self.next_request_id += 1
        self.waiting[self.next_request_id] = reply
        self.step(RequestReceived(request_id=self.next_request_id, request=request))

    def set_wake(self, wake_at: Millis | None) -> None:
        self.wake_at = wake_at
        if wake_at is None:
            return
        delay = max(0, wake_at - self.sim.now)

        def wake() -> None:
            if self.wake_at == wake_at:
                self.wake_at = None
                self.step(TimerFired())

        self.later(delay, wake)


class InvariantError(AssertionError):
    """An invariant does not hold."""


@dataclass
class Faults:
    loss: float = 0.02
    duplicate: float = 0.02
    delay_ms: int = 25


class Simulation:
    """See the module docstring."""

    def __init__(self, seed: int, nodes: int = 3, *, dynamic: bool = False) -> None:
        self.dice = random.Random(seed)
        self.seed = seed
        self.now = Millis(1_000)
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.sequence = 0
        self.faults = Faults()
        self.broken = True
        self.cut: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        voters = VoterSet.of(voter_of(node_id) for node_id in range(1, nodes + 1))
        self.static_voters = VoterSet() if dynamic else without_directories(voters)
        self.bootstrap: tuple[Node, ...] = ()
        if dynamic:
            self.bootstrap = tuple(
                Node(BrokerId(-1 - i), f"node{i}", 9000 + i) for i in range(1, nodes + 1)
            )
        self.nodes = {node_id: SimNode(self, node_id) for node_id in range(1, nodes + 1)}
        if dynamic:
            checkpoint = pickle.dumps(((), 1, voters))
            for node in self.nodes.values():
                node.disk.snapshots = {BOOTSTRAP_SNAPSHOT: checkpoint}
        # Ghosts: what has ever been true, whoever has forgotten it.
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int, int], ReplicaKey] = {}
        self.written: dict[tuple[int, int], tuple[object, tuple[int, int] | None]] = {}
        self.committed: list[LogBatch] = []
        self.committed_end = 0
        self.acknowledged = 0
        self.node_high_watermarks: dict[tuple[int, int], int] = {}
        self.next_value = 0
        self.trace: list[str] = []

    # ---- time

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (self.now + delay, self.sequence, action))

    def run_for(self, millis: int, until: Callable[[], bool] | None = None) -> bool:
        end = self.now + millis
        while self.heap and self.heap[0][0] <= end:
            at, _, action = heapq.heappop(self.heap)
            self.now = Millis(at)
            self.counts["events"] += 1
            action()
            if until is not None and until():
                return True
        self.now = Millis(end)
        return False

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:>7} {text}")

    def fail(self, text: str) -> None:
        tail = "\n".join(self.trace[-40:])
        raise InvariantError(f"seed {self.seed} at {self.now}: {text}\n{tail}")

    # ---- network

    def transmit(self, sender: SimNode, send: Send) -> None:  # noqa: C901 (one message's fate)
        target_id = send.to.port - 9000
        faults, dice = self.faults, self.dice
        incarnation = sender.incarnation

        def fail(failure: Failure, delay: int) -> None:
            sender.later(
                delay,
                lambda: sender.step(
                    RequestFailed(correlation_id=send.correlation_id, failure=failure)
                ),
            )

        def reply(answer: Any) -> None:
            if (target_id, sender.id) in self.cut or dice.random() < faults.loss:
                return
            if answer is None:
                fail(Failure.DISCONNECTED, 1)
                return
            answer = _as_peer_answer(answer)

            def deliver() -> None:
                if sender.quorum is not None and sender.incarnation == incarnation:
                    event = ResponseReceived(correlation_id=send.correlation_id, response=answer)
                    sender.step(event)

            self.after(dice.randint(1, faults.delay_ms), deliver)

        def arrive() -> None:
            target = self.nodes.get(target_id)
            if (sender.id, target_id) in self.cut or dice.random() < faults.loss:
                fail(Failure.TIMED_OUT, send.timeout_ms)
            elif target is None or target.quorum is None:
                fail(dice.choice([Failure.REFUSED, Failure.DISCONNECTED]), 1)
            elif isinstance(send.request, ApiVersionsRequest):
                reply(ApiVersionsResponse(error=ErrorCode.NONE, max_kraft_version=1))
            else:
                target.ask(send.request, reply)

        self.after(dice.randint(1, faults.delay_ms), arrive)
        if dice.random() < faults.duplicate:
            self.after(dice.randint(1, 10 * faults.delay_ms), arrive)

    # ---- clients

    def leader(self) -> SimNode | None:
        """The live leader of the highest epoch."""
        leaders = [n for n in self.nodes.values() if n.quorum is not None and n.quorum.is_leader]
        return max(leaders, key=lambda n: n.quorum.state.epoch, default=None)

    def append_somewhere(self) -> None:
        leaders = [n for n in self.nodes.values() if n.quorum is not None and n.quorum.is_leader]
        for node in leaders:
            assert node.quorum is not None
            self.next_value += 1
            count = self.dice.randint(1, 3)
            request = Append(
                epoch=node.quorum.state.epoch, count=count, payload=(self.next_value, count)
            )
            node.ask(request, self.on_appended)

    def on_appended(self, answer: Any) -> None:
        """None where the node was killed before it answered."""
        if isinstance(answer, Appended):
            self.counts["appends"] += 1

    def snapshot_somewhere(self) -> None:
        alive = [n for n in self.nodes.values() if n.quorum is not None]
        if not alive:
            return
        node = self.dice.choice(alive)
        assert node.quorum is not None
        committed = node.quorum.log.high_watermark
        fit = [b for b in node.disk.batches if committed is not None and b.next_offset <= committed]
        if not fit:
            return
        last = self.dice.choice(fit)
        key = EpochAndOffset(last.epoch, last.next_offset)
        if key in node.disk.snapshots:
            return
        members, level = node.quorum.log.voters_at(key.offset)
        held = [b for b in self.committed if b.next_offset <= key.offset]
        raw = pickle.dumps((tuple((b.base_offset, b.epoch) for b in held), level, members))
        node.disk.snapshots[key] = raw
        self.counts["snapshots"] += 1
        node.step(SnapshotCreated(snapshot=key, size=len(raw)))
        if self.dice.random() < 0.7:
            newest = max(node.disk.snapshots)
            node.disk.start = newest.offset
            node.disk.snapshots = {newest: node.disk.snapshots[newest]}
            node.disk.batches = [b for b in node.disk.batches if b.base_offset >= newest.offset]
            node.step(LogCleaned(log_start_offset=newest.offset))

    def change_voters(self) -> None:
        leader = self.leader()
        if leader is None or leader.quorum is None:
            return
        voters = leader.quorum.log.voters
        outside = [
            n for n in self.nodes.values() if n.id not in voters.ids and n.quorum is not None
        ]
        request: Any
        if len(voters) > 2 and self.dice.random() < 0.5:
            request = RemoveVoterRequest(
                cluster_id="sim", voter=self.dice.choice(voters.voters).key
            )
        elif outside:
            chosen = self.dice.choice(outside)
            request = AddVoterRequest(
                cluster_id="sim",
                voter=ReplicaKey(BrokerId(chosen.id), directory_of(chosen.id, chosen.life)),
                endpoints=(endpoint_of(chosen.id),),
            )
        else:
            return
        leader.ask(request, self.on_voters_changed)

    def on_voters_changed(self, answer: Any) -> None:
        if answer is not None:
            self.counts[f"voters {answer.error.name}"] += 1

    # ---- invariants (facts: Q1 to Q7, Q10)

    def on_persist(self, node: SimNode, election: ElectionState) -> None:
        before = node.disk.election
        if before is not None and election.epoch < before.epoch:
            self.fail(f"Q3: node {node.id} goes from epoch {before.epoch} to {election.epoch}")
        known = before.leader_id if before is not None and before.epoch == election.epoch else None
        if known is not None and election.leader_id not in (None, known):
            self.fail(f"Q3: node {node.id}: leader changes within epoch {election.epoch}")
        if election.voted is not None:
            key = (node.id, node.life, election.epoch)
            if self.votes.setdefault(key, election.voted) != election.voted:
                self.fail(f"Q2: node {node.id} votes twice in {election.epoch}")
        self.note(f"node {node.id} persists {election}")

    def on_append(self, node: SimNode, batch: LogBatch) -> None:
        previous = node.disk.batches[-1] if node.disk.batches else None
        key = (batch.base_offset, batch.epoch)
        before = (previous.base_offset, previous.epoch) if previous else None
        content = (batch.last_offset, batch.payload, batch.controls)
        known = self.written.setdefault(key, (content, before))
        if known[0] != content or (before is not None and known[1] not in (None, before)):
            self.fail(f"Q4: node {node.id} writes {batch} after {before}, known {known}")
        if known[1] is None and before is not None:
            self.written[key] = (content, before)
        if batch.base_offset != node.disk.end:
            self.fail(f"node {node.id} writes {batch} at end {node.disk.end}")

    def on_truncate(self, node: SimNode, batch: LogBatch) -> None:
        if any(
            b.base_offset == batch.base_offset and b.epoch == batch.epoch for b in self.committed
        ):
            self.fail(f"Q5: node {node.id} cuts committed {batch}")

    def on_install(self, node: SimNode, snapshot: EpochAndOffset, raw: bytes) -> None:
        assert node.quorum is not None
        held, _, _ = pickle.loads(raw)
        want = [
            (b.base_offset, b.epoch) for b in self.committed if b.next_offset <= snapshot.offset
        ]
        if list(held) != want:
            self.fail(f"Q10: node {node.id} installs a snapshot that is not the committed prefix")
        if node.quorum.is_leader:
            self.fail(f"Q10: leader {node.id} loads a snapshot")
        self.counts["installed"] += 1

    def on_high_watermark(self, node: SimNode, high_watermark: int) -> None:
        assert node.quorum is not None
        key = (node.id, node.incarnation)
        if high_watermark < self.node_high_watermarks.get(key, 0):
            self.fail(f"Q7: high watermark of node {node.id} goes back to {high_watermark}")
        self.node_high_watermarks[key] = high_watermark
        for batch in node.disk.batches:
            if batch.next_offset <= high_watermark:
                self.on_committed(node, batch)
        if isinstance(node.quorum.state, Leader):
            self.check_majority(node, high_watermark)

    def check_majority(self, node: SimNode, high_watermark: int) -> None:
        assert node.quorum is not None
        voters = node.quorum.log.voters
        durable = [
            n.id
            for n in self.nodes.values()
            if voters.is_voter(ReplicaKey(BrokerId(n.id), directory_of(n.id, n.life)))
            and n.disk.durable_end >= high_watermark
        ]
        if len(durable) < voters.majority:
            self.fail(f"Q7: high watermark {high_watermark} of {node.id} is on disk at {durable}")

    def on_committed(self, node: SimNode, batch: LogBatch) -> None:
        if batch.base_offset >= self.committed_end:
            if batch.base_offset != self.committed_end:
                self.fail(f"node {node.id} commits {batch} behind {self.committed_end}")
            self.committed.append(batch)
            self.committed_end = batch.next_offset
            return
        match = [b for b in self.committed if b.base_offset == batch.base_offset]
        if not match or match[0].epoch != batch.epoch or match[0].payload != batch.payload:
            self.fail(f"Q5: node {node.id} has committed {batch}, known {match}")

    def check(self, node: SimNode) -> None:
        quorum = node.quorum
        if quorum is None:
            return
        for transition in quorum.take_transitions():
            self.counts[type(transition.new).__name__] += 1
            new = transition.new
            self.note(f"node {node.id}: {type(new).__name__} {new.epoch} ({transition.reason})")
            if isinstance(new, Leader):
                self.on_leader(node, new.epoch)
        assert node.disk.election is not None
        if node.disk.election.epoch != quorum.state.epoch:
            self.fail(f"Q3: node {node.id} is in {quorum.state.epoch} before its disk is")

    def on_leader(self, node: SimNode, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node.id) != node.id:
            self.fail(f"Q1: {self.leaders[epoch]} and {node.id} lead epoch {epoch}")
        held = {(b.base_offset, b.epoch) for b in node.disk.batches}
        for batch in self.committed:
            if batch.base_offset < node.disk.start:
                continue
            if (batch.base_offset, batch.epoch) not in held:
                self.fail(f"Q6: leader {node.id} of {epoch} lacks committed {batch}")


def _as_peer_answer(answer: Any) -> Any:
    """What the wire makes of answers that are only an error."""
    if isinstance(answer, Refusal):
        return QuorumEpochResponse(error=answer.error, epoch=LeaderEpoch(0))
    return answer


def resign(node: SimNode) -> None:
    assert node.quorum is not None
    node.step(ResignRequested(epoch=node.quorum.state.epoch))
