"""One raft core on the event heap, with a driver that carries out `Ready` in the required order.

The work that the real driver (`server.raft.driver`) does in executors takes time here as well: it
persists the election state with a delay while later `Ready`s wait, runs one fsync at a time, and
installs a fetched snapshot shortly after its last byte.

A node is up, paused (everything that arrives waits) or down. Its clock drifts.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, Millis, Offset, Uuid
from sparkraft.raft.events import (
    Append,
    AppendBatch,
    EpochAndOffset,
    Event,
    FetchResponse,
    FetchSnapshotResponse,
    Flush,
    InstallSnapshot,
    LogCleaned,
    LogEffect,
    LogFlushed,
    QuorumConfig,
    Ready,
    Refusal,
    RequestReceived,
    Respond,
    Send,
    SnapshotCreated,
    SnapshotInstalled,
    TimerFired,
    TruncateTo,
    VoteRequest,
    VoteResponse,
    WriteSnapshotChunk,
)
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.states import Candidate, Leader
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet
from sparkraft.simulation.world.core_disk import EMPTY_FOLD, CoreDisk, SnapshotContent, fold
from sparkraft.simulation.world.kafka_guard import KafkaGuard
from sparkraft.simulation.world.observers import CoreObserver
from sparkraft.simulation.world.trace import tell

LISTENER = "CONTROLLER"
FIRST_PORT = 9000
CLUSTER_ID = "simulated"

SNAPSHOT_PADDING = b"." * 150
FETCH_BYTES_MAX = 64
"""Small enough that a snapshot takes several chunks."""


class NodeStopped(Exception):  # noqa: N818 (not an error: it unwinds the work of a stopped node)
    """The node was stopped in the middle of its work; the world continues."""


class SeededEntropy:
    """The random generator of one incarnation."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def random_bytes(self, count: int) -> bytes:
        """See `Entropy`."""
        return self._source.randbytes(count)

    def below(self, bound: int) -> int:
        """See `Entropy`."""
        return self._source.randrange(bound)


def directory_of(node_id: int, life: int = 0) -> Uuid:
    """Return the directory id of a node's disk number `life`."""
    return Uuid(bytes([life, *[0] * 13, 1, node_id & 0xFF]))


def endpoint_of(node_id: int) -> Endpoint:
    """Return the endpoint of a node."""
    return Endpoint(LISTENER, f"node{node_id}", FIRST_PORT + node_id)


def voter_of(node_id: int, life: int = 0) -> Voter:
    """Return a node's entry in a voter set."""
    return Voter(
        key=ReplicaKey(BrokerId(node_id), directory_of(node_id, life)),
        endpoints=(endpoint_of(node_id),),
    )


@dataclass(slots=True)
class Clock:
    """A clock that runs at its own rate: local = offset + rate * world."""

    offset: int = 0
    rate: float = 1.0

    def read(self, world_ms: int) -> Millis:
        """Return the local time at a world time."""
        return Millis(self.offset + int(world_ms * self.rate))

    def until(self, local_ms: int, world_ms: int) -> int:
        """Return the world milliseconds until the local time is `local_ms`; at least 0."""
        wanted = (local_ms - self.offset) / self.rate
        delay = max(0, int(wanted - world_ms))
        while self.read(world_ms + delay) < local_ms:
            delay += 1
        return delay


class CorePoints(Protocol):
    """May stop a node at a fault point."""

    def reach(self, node: "CoreNode", name: str) -> None: ...


class CoreHost(Protocol):
    """The part of its world that a core's node uses."""

    seed: int
    dice: random.Random
    now: Millis
    counts: Counter[str]
    auto_join: bool
    adopting_any_epoch: frozenset[int]
    static_voters: VoterSet
    bootstrap: tuple[Node, ...]
    invariants: CoreObserver

    @property
    def points(self) -> CorePoints: ...
    def note(self, text: str, kind: str | None = "note", **fields: Any) -> None: ...
    def record(self, kind: str, **fields: Any) -> None: ...
    def after(self, delay_ms: int, action: Callable[[], None]) -> None: ...
    def transmit(self, sender: "CoreNode", send: Send) -> None: ...
    def summary(self) -> str: ...


class CoreNode:
    """See the module docstring; `life` counts its disks, `incarnation` its starts."""

    def __init__(self, world: "CoreHost", node_id: int, *, voter: bool) -> None:
        self.world = world
        self.id = node_id
        self.may_vote = voter
        self.life = 0
        self.incarnation = 0
        self.clock = Clock()
        self.disk = CoreDisk()
        self.core: Quorum | None = None
        self.slow_until = 0
        self.deaf_until = 0
        self.backlog: list[Callable[[], None]] | None = None
        self.in_flight: set[int] = set()
        self._clear()

    def _clear(self) -> None:
        self.readies: list[Ready] = []
        self.persisting = False
        self.flushing: Flush | None = None
        self.next_flush: Flush | None = None
        self.wake_at: Millis | None = None
        self.waiting: dict[int, tuple[Any, Callable[[Any], None]]] = {}
        self.next_request_id = 0
        self.high_watermark = 0
        self.folded_to = 0
        self.fold = EMPTY_FOLD
        self.folds: dict[int, bytes] = {}

    # ---- state for others

    @property
    def name(self) -> str:
        return f"n{self.id}"

    @property
    def key(self) -> ReplicaKey:
        """Its replica key, with its current directory id."""
        return ReplicaKey(BrokerId(self.id), directory_of(self.id, self.life))

    @property
    def is_up(self) -> bool:
        """Whether it runs or is paused."""
        return self.core is not None

    @property
    def is_leader(self) -> bool:
        """Whether it is up and considers itself the leader."""
        return self.core is not None and self.core.is_leader

    @property
    def quorum(self) -> Quorum:
        """The core of a node that is up."""
        assert self.core is not None
        return self.core

    @property
    def now(self) -> Millis:
        """The time of its own clock."""
        return self.clock.read(self.world.now)

    def summary(self) -> str:
        """Return role, LEO and HW as a line of a trace."""
        if self.core is None:
            return f"{self.name} down"
        star = "*" if self.core.is_leader else ""
        paused = " paused" if self.backlog is not None else ""
        epoch = self.core.state.epoch
        return f"{self.name}{star} e={epoch} LEO={self.disk.end} HW={self.high_watermark}{paused}"

    def _tell(self, what: str, kind: str | None = "does") -> None:
        self.world.note(f"{self.name} {what}", kind, node=self.name)

    # ---- starting and stopping

    def start(self) -> None:
        """Recover and join the quorum; do nothing if the node is up."""
        if self.core is not None:
            return
        world = self.world
        self.incarnation += 1
        self._clear()
        self.core = Quorum(
            self._config(),
            self.disk.recover(),
            self.disk.election,
            static_voters=world.static_voters,
            entropy=SeededEntropy(random.Random(f"{world.seed} {self.id} {self.incarnation}")),
            guard=KafkaGuard(0) if self.id in world.adopting_any_epoch else None,
        )
        self._fold_snapshot()
        world.note(
            f"{self.name} starts: LEO={self.disk.end} {tell_election(self.disk)}",
            "starts",
            node=self.name,
        )
        world.invariants.on_start(self)
        self.take(self.core.start(self.now))

    def _config(self) -> QuorumConfig:
        world = self.world
        return QuorumConfig(
            cluster_id=CLUSTER_ID,
            local=self.key,
            listener=LISTENER,
            endpoints=(endpoint_of(self.id),),
            bootstrap=world.bootstrap,
            can_become_voter=self.may_vote,
            auto_join=world.auto_join and self.may_vote,
            fetch_max_bytes=FETCH_BYTES_MAX,
        )

    def _fold_snapshot(self) -> None:
        if self.disk.snapshots:
            newest = max(self.disk.snapshots)
            self.folded_to = newest.offset
            self.fold = SnapshotContent.decode(self.disk.snapshots[newest]).fold

    def stop(self, *, power: bool) -> None:
        """Stop as `kill -9` does; with `power`, lose unsynced data as well."""
        if self.core is None:
            return
        how = "loses power" if power else "is killed"
        self.world.note(f"{self.name} {how}", "stops", node=self.name)
        self.core = None
        self.backlog = None
        self.in_flight.clear()
        waiting, self.waiting = self.waiting, {}
        if not power:
            # The kernel closes the connections; a machine without power stays silent.
            for _, reply in waiting.values():
                reply(None)
        else:
            self.lose_power()

    def lose_power(self) -> None:
        """Lose unsynced data, whether or not the node was running."""
        lost = self.disk.lose_power(self.world.dice)
        if lost:
            self.world.counts["batches lost"] += lost

    def pause(self) -> None:
        """Pause as SIGSTOP does."""
        if self.core is not None and self.backlog is None:
            self.world.note(f"{self.name} is paused", "pauses", node=self.name)
            self.backlog = []

    def resume(self) -> None:
        """Continue as SIGCONT does, and process everything that arrived meanwhile."""
        if self.backlog is not None:
            self.world.note(f"{self.name} resumes", "resumes", node=self.name)
            backlog, self.backlog = self.backlog, None
            for action in backlog:
                self.world.after(0, self.guarded(action))

    def wipe(self) -> None:
        """Replace the disk by an empty one; the node must be down."""
        assert self.core is None
        self.world.note(f"{self.name} gets a new disk", "fault", node=self.name)
        self.world.invariants.on_wipe(self)
        self.life += 1
        self.disk = CoreDisk()

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """Wrap `action`: run it only in this incarnation, and after the end of a pause."""
        incarnation = self.incarnation

        def run() -> None:
            if self.core is None or self.incarnation != incarnation:
                return
            if self.backlog is not None:
                self.backlog.append(action)
            else:
                action()

        return run

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run `action` after world milliseconds, unless this incarnation has ended by then."""
        self.world.after(delay_ms, self.guarded(action))

    # ---- the driver

    def step(self, event: Event) -> None:
        """Pass an event to the core and carry out the result."""
        before, high_watermark = self.quorum.state, self.quorum.log.high_watermark
        ready = self.quorum.step(event, self.now)
        self.world.invariants.on_step(self, event, before, high_watermark, ready)
        self.take(ready)

    def take(self, ready: Ready) -> None:
        """Carry out `ready` now, or after those that are still in progress."""
        self.readies.append(ready)
        if not self.persisting:
            self._carry_out_all()

    def _carry_out_all(self) -> None:
        while self.readies:
            ready = self.readies[0]
            if ready.persist is not None:
                self.persisting = True
                self.point("before_persist")
                self.later(self.disk_delay(3), self._persisted)
                return
            del self.readies[0]
            self.carry_out(ready)

    def _persisted(self) -> None:
        ready = self.readies.pop(0)
        self.persisting = False
        self.persist(ready)
        self.point("after_persist")
        if isinstance(self.quorum.state, Candidate):
            self.point("candidate_persisted")
            if self.disk.durable_end < self.disk.end:
                self.point("candidate_with_unsynced_records")
        self.carry_out(replace(ready, persist=None))
        self._carry_out_all()

    def persist(self, ready: Ready) -> None:
        """Write the election state to the disk."""
        assert ready.persist is not None
        self.world.invariants.on_persist(self, ready.persist)
        self.disk.election = ready.persist
        self._tell(f"persists {tell_election(self.disk)}")

    def disk_delay(self, longest: int) -> int:
        """Return the milliseconds an fsync takes; a slow disk takes seconds."""
        dice = self.world.dice
        if self.world.now < self.slow_until:
            return dice.randint(100, 2_500)
        return dice.randint(0, longest)

    def carry_out(self, ready: Ready) -> None:
        """Carry out all of `ready` but its election state."""
        world = self.world
        world.invariants.on_transitions(self)  # First: find a second leader before its log.
        for effect in ready.log:
            self.do_log(effect)
        if ready.flush is not None:
            self.point("before_flush")
            self.begin_flush(ready.flush)
        for place, send in enumerate(ready.send):
            if place:
                self.point("between_sends")
            world.transmit(self, send)
        for respond in ready.respond:
            self.do_respond(respond)
        if ready.high_watermark is not None:
            self.point("before_commit_is_told")
            self.commit(ready.high_watermark)
        self.set_wake(ready.wake_at)
        world.invariants.after_event(self)

    def commit(self, high_watermark: Offset) -> None:
        """Apply the committed batches."""
        self.world.invariants.on_high_watermark(self, high_watermark)
        self.high_watermark = high_watermark
        disk = self.disk
        for batch in disk.batches[disk.index_of(self.folded_to) :]:
            if batch.next_offset > high_watermark:
                break
            self.fold = fold(self.fold, batch)
            self.folded_to = batch.next_offset
            self.folds[batch.next_offset] = self.fold
        self.world.note(self.world.summary(), None)
        self.world.record(
            "log",
            node=self.name,
            epoch=self.quorum.state.epoch,
            end=disk.end,
            highWatermark=high_watermark,
            text=self.summary(),
        )

    def do_log(self, effect: LogEffect) -> None:
        """Carry out one effect on the log."""
        disk, invariants = self.disk, self.world.invariants
        match effect:
            case AppendBatch(batch=batch):
                invariants.on_append(self, batch)
                disk.batches.append(batch)
                self._tell(f"appends {tell(batch)}")
                self.point("after_append")
                if isinstance(self.quorum.state, Leader) and batch.controls:
                    self.point("after_control_record")
            case TruncateTo(offset=offset):
                for batch in disk.cut_to(offset):
                    invariants.on_truncate(self, batch)
                self.world.counts["truncations"] += 1
                self._tell(f"truncates to LEO={disk.end}")
                self.point("after_truncate")
            case WriteSnapshotChunk(position=position, chunk=chunk):
                if position == 0:
                    disk.partial = bytearray()
                invariants.on_chunk(self, position)
                disk.partial += chunk
                self.point("between_chunks")
            case InstallSnapshot(snapshot=snapshot):
                delay = self.disk_delay(60)
                self.later(delay, lambda: self._install(snapshot))

    def _install(self, snapshot: EpochAndOffset) -> None:
        self.point("before_install")
        raw = bytes(self.disk.partial)
        self.world.invariants.on_install(self, snapshot, raw)
        content = SnapshotContent.decode(raw)
        disk = self.disk
        disk.partial = bytearray()
        disk.snapshots = {snapshot: raw}
        disk.batches = []
        disk.truncations += 1
        disk.start = disk.durable_end = snapshot.offset
        self._fold_snapshot()
        self._tell(f"loads snapshot {snapshot.epoch}@{snapshot.offset}")
        self.world.counts["snapshots loaded"] += 1
        self.point("after_install")
        self.step(
            SnapshotInstalled(
                snapshot=snapshot,
                size=len(raw),
                kraft_version=content.kraft_version,
                voters=content.voters if content.kraft_version else None,
            )
        )

    # ---- fsync

    def begin_flush(self, flush: Flush) -> None:
        """Start an fsync, or let the newest request wait for the running one."""
        if self.flushing is not None:
            self.next_flush = flush
            return
        self.flushing = flush
        truncations, up_to = self.disk.truncations, min(flush.up_to, self.disk.end)
        self.later(self.disk_delay(15), lambda: self.end_flush(truncations, up_to))

    def end_flush(self, truncations: int, up_to: int) -> None:
        """Complete an fsync and start the waiting one."""
        done, self.flushing = self.flushing, None
        assert done is not None
        if truncations == self.disk.truncations:
            self.disk.durable_end = max(self.disk.durable_end, up_to)
            self._tell(f"has synced up to {self.disk.durable_end}")
        if self.next_flush is not None:
            waiting, self.next_flush = self.next_flush, None
            self.begin_flush(waiting)
        self.point("after_flush")
        self.step(LogFlushed(up_to=done.up_to, generation=done.generation))

    # ---- requests

    def ask(self, request: Any, reply: Callable[[Any], None]) -> None:
        """Receive a request; `reply` gets the response, or None if the node is killed first."""
        self.next_request_id += 1
        self.waiting[self.next_request_id] = (request, reply)
        self.step(RequestReceived(request_id=self.next_request_id, request=request))

    def do_respond(self, respond: Respond) -> None:
        """Fill in batches or snapshot bytes, and send the response."""
        answer: Any = respond.response
        request, reply = self.waiting.pop(respond.request_id, (None, None))
        if isinstance(answer, FetchResponse) and answer.read is not None:
            at = self.disk.index_of(answer.read.start)
            count = self.world.dice.randint(1, 6)
            answer = replace(answer, read=None, batches=tuple(self.disk.batches[at : at + count]))
            if self.disk.durable_end < self.disk.end:
                self.point("serving_unsynced_records")
        elif isinstance(answer, FetchSnapshotResponse) and answer.snapshot is not None:
            raw = self.disk.snapshots.get(answer.snapshot)
            answer = (
                replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND, snapshot=None)
                if raw is None
                else replace(answer, chunk=raw[answer.position :][: answer.max_bytes])
            )
        if reply is None:
            return
        self.world.invariants.on_respond(self, request, answer)
        if not isinstance(request, Append):
            self._tell(f"responds {tell(answer)}", None)
        reply(answer)
        bound = isinstance(request, VoteRequest) and not request.pre_vote
        if bound and isinstance(answer, VoteResponse) and answer.granted:
            self.point("after_vote")

    # ---- time

    def set_wake(self, wake_at: Millis | None) -> None:
        """Set the core's only timer, on this node's clock."""
        self.wake_at = wake_at
        if wake_at is None:
            return

        def wake() -> None:
            if self.wake_at == wake_at:
                self.wake_at = None
                self.step(TimerFired())

        self.later(self.clock.until(wake_at, self.world.now), wake)

    # ---- local snapshots

    def snapshot(self, *, clean: bool) -> bool:
        """Write a snapshot of some applied state, and delete the log below it if `clean`."""
        fit = self.snapshot_points()
        if self.core is None or not fit or self.persisting:
            return False
        offset = self.world.dice.choice(fit)
        below = self.disk.batch_below(offset)
        if below is None or below.next_offset != offset:
            return False
        key = EpochAndOffset(below.epoch, Offset(offset))
        latest = self.core.log.latest_snapshot
        if latest is not None and key <= latest:
            return False
        voters, level = self.core.log.voters_at(key.offset)
        raw = SnapshotContent(self.folds[offset], level, voters, SNAPSHOT_PADDING).encode()
        self.world.invariants.on_snapshot(self, key, raw)
        self.disk.snapshots[key] = raw
        self._tell(f"takes snapshot {key.epoch}@{key.offset}")
        self.step(SnapshotCreated(snapshot=key, size=len(raw)))
        if clean and self.core is not None:
            self.clean()
        return True

    def snapshot_points(self) -> list[int]:
        """Return the offsets at which it may take a snapshot: the ends of applied batches."""
        return [offset for offset in self.folds if offset > self.disk.start]

    def clean(self) -> None:
        """Delete all but the newest snapshot and the log above it."""
        disk = self.disk
        newest = max(disk.snapshots)
        disk.batches = disk.batches[disk.index_of(newest.offset) :]
        disk.start = newest.offset
        disk.durable_end = max(disk.durable_end, disk.start)
        disk.snapshots = {newest: disk.snapshots[newest]}
        self.point("after_clean")
        self.step(LogCleaned(log_start_offset=newest.offset))

    # ---- faults

    def point(self, name: str) -> None:
        """Reach a fault point; raises `NodeStopped` if a fault stops the node."""
        self.world.points.reach(self, name)


def tell_election(disk: CoreDisk) -> str:
    """Return the election state on disk as text."""
    state = disk.election
    if state is None:
        return "no election state"
    leader = f" leader=n{state.leader_id}" if state.leader_id is not None else ""
    voted = f" voted=n{state.voted.id}" if state.voted is not None else ""
    return f"e={state.epoch}{leader}{voted}"


def is_error(answer: Any) -> bool:
    """Return whether a client's request was refused."""
    return isinstance(answer, Refusal) and answer.error is not ErrorCode.NONE
