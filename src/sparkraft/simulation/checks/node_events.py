"""Invariants of whole nodes after every event: elections, epochs, votes and commits.

    Q1  one leader per epoch; it has everything committed in earlier epochs (Q6)
    Q2  one vote per epoch, on disk before it is granted
    Q3  epochs on disk never decrease, and a node sends only epochs that are on its disk
    Q4  an offset and epoch are the same bytes on every disk, after the same batch
    Q5  committed batches are the same bytes everywhere and are not truncated, except by a node
        in an epoch before the commit
    Q7  the high watermark is on disk at a majority, advances only to records of the leader's
        epoch, and never decreases

    Q8, Q9, Q11: voter changes, pre-votes, leaders without a majority: `quorum_rules`
    Q10: snapshots: `snapshot_checks`

`watched` observes the raft core and its driver. Disk contents are read from the simulated disk, in
the state that survives a power loss, because the product's own view may be wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from sparkraft.controller.controller import Controller
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.raft import events
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.ready_queue import ReadyQueue
from sparkraft.raft.replica import Transition
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import ReplicaKey
from sparkraft.records.batch import BATCH_OVERHEAD, crc_ok, parse_header
from sparkraft.records.control import ControlType
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.raft.driver import RaftDriver
from sparkraft.simulation.checks.probe import Probe, Require, current_machine
from sparkraft.simulation.checks.quorum_rules import Member, QuorumRules, Step
from sparkraft.simulation.checks.snapshot_checks import SnapshotChecks
from sparkraft.simulation.world.node_trace import tell_log, tell_ready, tell_transition
from sparkraft.simulation.world.violation import Violation
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.names import METADATA_DIR, METADATA_TOPIC
from sparkraft.storage.quorum_state import QuorumState
from sparkraft.storage.snapshot_files import parse_snapshot_name

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.memory_disk import MemoryDisk

LOG = f"/data/{METADATA_DIR}"
_NOBODY = QuorumState(leader_epoch=0, leader_id=-1, voted_id=-1)  # type: ignore[arg-type]


class Batch(NamedTuple):
    """Identity of a committed batch."""

    epoch: int
    crc: int
    last_offset: int


class DurableLog:
    """The durable part of a machine's metadata log; reads each synced byte once.

    `on_batch` is called for each batch read with its header and (base offset, epoch) of its
    predecessor.
    """

    def __init__(self, on_batch: Callable[[Any, tuple[int, int] | None], None]) -> None:
        self._on_batch = on_batch
        self._names_seen = -1
        self._segments: list[str] = []
        self._held = 0
        self._path = ""
        self._position = self._last_at = 0
        self._last = b""
        """Bytes of the last batch read; if they have changed on disk, the log was truncated."""
        self._link: tuple[int, int] | None = None
        """Base offset and epoch of that batch."""
        self._end = 0

    def end(self, disk: "MemoryDisk") -> int:
        """Return the offset after the last batch that survives a power loss."""
        if self._names_seen != disk.names_changed:
            self._names_seen = disk.names_changed
            names = disk.listdir(LOG) if disk.is_dir(LOG) else []
            snapshots = [parse_snapshot_name(name) for name in names]
            self._held = max((s.offset for s, whole in filter(None, snapshots) if whole), default=0)
            self._segments = [name for name in names if name.endswith(".log")]
        return max(self._held, self._read(disk))

    def _read(self, disk: "MemoryDisk") -> int:
        if self._path in self._segments[:-1]:  # appended before the log rolled
            self._go_on(self._path, disk.synced(f"{LOG}/{self._path}"))
        path, data = "", b""
        for name in reversed(self._segments):
            path, data = name, disk.synced(f"{LOG}/{name}")
            if data:
                break
        if not data:
            return 0
        self._go_on(path, data)
        return self._end

    def _go_on(self, path: str, data: bytes) -> None:
        if path != self._path or data[self._last_at : self._position] != self._last:
            base = int(path.partition(".")[0])
            follows = self._path in self._segments and path > self._path and base == self._end
            self._link = self._link if follows else None
            self._path, self._position, self._end = path, 0, base
        while self._position + BATCH_OVERHEAD <= len(data):
            try:
                header = parse_header(data, self._position)
            except CorruptRecords:
                break  # zeros after a torn write
            after = self._position + header.size_in_bytes
            if after > len(data) or not crc_ok(memoryview(data)[self._position : after]):
                break
            self._on_batch(header, self._link)
            self._link = (header.base_offset, header.partition_leader_epoch)
            self._last_at, self._last = self._position, data[self._position : after]
            self._position = after
            self._end = header.last_offset + 1


class NodeEvents:
    """See the module docstring; keeps the history of the whole run."""

    def __init__(self, probe: Probe, require: Require, snapshots: SnapshotChecks) -> None:
        self.probe = probe
        self._require = require
        self._snapshots = snapshots
        self.committed: dict[int, Batch] = {}
        """By base offset."""
        self.committed_end = 0
        self.on_committed: Callable[[int, Any, memoryview], None] = lambda *_: None
        """Called once per committed batch, in order, with base offset, header and bytes."""
        self._committed_in: dict[int, int] = {}
        self._leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._reached: dict[str, int] = {}
        self._published: dict[str, int] = {}
        self._durable: dict[tuple[str, int], DurableLog] = {}
        self._lost: list[tuple[ReplicaKey, int]] = []
        self._requests: dict[tuple[str, int], dict[int, Any]] = {}
        self._states: dict[bytes, QuorumState] = {}
        self.rules = QuorumRules(require, probe.counts, lambda: probe.now)

    # ---- start and disk loss

    def on_start(self, machine: "Machine") -> None:
        """A new incarnation starts without the old one's memory."""
        self._reached[machine.name] = self._published[machine.name] = 0
        self.rules.on_start(machine.id)

    def on_wipe(self, machine: "Machine") -> None:
        """Keep the lost disk's end: its records may have counted toward a majority."""
        self._lost.append((_key(machine), self.durable_end(machine)))

    # ---- disk contents

    def durable_end(self, machine: "Machine") -> int:
        """Return the offset up to which the machine's log would survive a power loss now."""
        return self._durable_log(machine).end(machine.disk)

    def _durable_log(self, machine: "Machine") -> DurableLog:
        key = (machine.name, machine.disks)
        known = self._durable.get(key)
        if known is None:
            known = self._durable[key] = DurableLog(
                lambda header, link: self._on_durable(machine.name, header, link)
            )
        return known

    def _on_durable(self, name: str, header: Any, link: tuple[int, int] | None) -> None:
        place = (header.base_offset, header.partition_leader_epoch)
        self.rules.on_batch(name, place, (header.crc, header.last_offset), link)

    def election(self, machine: "Machine") -> QuorumState:
        """Return the election state that would survive a power loss."""
        raw = machine.disk.synced(f"{LOG}/quorum-state")
        known = self._states.get(raw)
        if known is None:
            known = self._states[raw] = QuorumState.parse(raw) if raw else _NOBODY
        return known

    # ---- the core

    def on_step(
        self, machine: "Machine", core: Quorum, step: Step, transitions: Sequence[Transition]
    ) -> None:
        """Check a step before its `Ready` is carried out."""
        state, ready = core.state, step.ready
        member = _member(machine, core)
        if isinstance(step.event, events.LogFlushed):
            self.probe.note(
                f"{machine.name} has synced up to {step.event.up_to}", "does", node=machine.name
            )
        for transition in transitions:
            self.probe.note(
                tell_transition(machine.name, transition),
                "becomes",
                node=machine.name,
                state=type(transition.new).__name__.lower(),
                epoch=transition.new.epoch,
            )
            self.rules.on_transition(member, transition.old, transition.new)
        self.rules.on_step(member, step)
        self.rules.check_voted_out(member)
        if isinstance(state, Leader):
            self._on_leader(machine, core, state)
            if ready.high_watermark is not None and ready.high_watermark > self.committed_end:
                self._check_majority(machine, core, ready.high_watermark)

    def _on_leader(self, machine: "Machine", core: Quorum, state: Leader) -> None:
        known = self._leaders.get(state.epoch)
        if known == machine.name:
            return
        self._leaders[state.epoch] = machine.name
        self.probe.counts["elections won"] += 1
        self._require(known is None, "Q1", f"{known} and {machine.name} lead epoch {state.epoch}")
        last = self._last_committed_before(state.epoch)
        self._require(
            last < core.log.end,
            "Q6",
            f"{machine.name} leads epoch {state.epoch} with LEO={core.log.end}, committed {last}",
        )

    def _last_committed_before(self, epoch: int) -> int:
        for base in reversed(self.committed):
            if self._committed_in[base] < epoch:
                return self.committed[base].last_offset
        return -1

    def _check_majority(self, machine: "Machine", core: Quorum, reached: int) -> None:
        voters, state = core.log.voters, core.state
        self._require(
            isinstance(state, Leader) and reached > state.epoch_start_offset,
            "Q7",
            f"{machine.name} commits up to {reached} by counting replicas of older epochs",
        )
        ends = [(_key(m), self.durable_end(m)) for m in self.probe.controllers]
        holders = {
            int(key.id)
            for key, end in [*ends, *self._lost]
            if end >= reached and _counts(voters, key)
        }
        self._require(
            len(holders) >= voters.majority,
            "Q7",
            f"{machine.name} has HW={reached}, on disk only at {sorted(holders)} of {voters.ids}",
        )

    # ---- the driver

    def on_request(self, machine: "Machine", request_id: int, request: Any) -> None:
        """Remember a vote request until its response."""
        if isinstance(request, events.VoteRequest):
            pending = self._requests.setdefault((machine.name, machine.life), {})
            pending[request_id] = request

    def before_ready(self, machine: "Machine", driver: Any, ready: events.Ready) -> None:
        """Check a `Ready` after its election state is persisted and before the rest is done."""
        for line in tell_ready(machine.name, ready):
            self.probe.note(line, "does", node=machine.name)
        election = self.election(machine)
        self._check_epoch(machine, election)
        for send in ready.send:
            self._on_send(machine, driver, send.request, election)
        for respond in ready.respond:
            self._on_respond(machine, respond, election)
        for effect in ready.log:
            self._on_effect(machine, driver, effect)

    def _check_epoch(self, machine: "Machine", election: QuorumState) -> None:
        key = (machine.name, machine.disks)
        before = self._epochs.get(key, 0)
        self._require(
            election.leader_epoch >= before,
            "Q3",
            f"{machine.name} persists epoch {election.leader_epoch} after {before}",
        )
        self._epochs[key] = election.leader_epoch
        if election.voted_id >= 0:
            self._on_vote(machine, election.leader_epoch, election.voted_id)

    def _on_vote(self, machine: "Machine", epoch: int, candidate: int) -> None:
        known = self._votes.setdefault((machine.name, machine.disks, epoch), candidate)
        self._require(
            known == candidate,
            "Q2",
            f"{machine.name} votes for n{candidate} and n{known} in epoch {epoch}",
        )

    def _on_send(
        self, machine: "Machine", driver: Any, request: Any, election: QuorumState
    ) -> None:
        self._speaks(machine, getattr(request, "epoch", 0), election)
        if isinstance(request, events.VoteRequest):
            end = self.durable_end(machine)
            self._require(
                request.last_offset <= end,
                "Q6",
                f"candidate {machine.name} claims LEO={request.last_offset}, on disk LEO={end}",
            )
        if isinstance(request, events.FetchRequest) and driver._quorum.is_voter:  # noqa: SLF001
            end = self.durable_end(machine)
            self._require(
                request.fetch_offset <= end,
                "Q7",
                f"voter {machine.name} acknowledges {request.fetch_offset}, on disk LEO={end}",
            )

    def _speaks(self, machine: "Machine", epoch: int, election: QuorumState) -> None:
        on_disk = election.leader_epoch
        self._require(
            epoch <= on_disk,
            "Q3",
            f"{machine.name} sends epoch {epoch}, on disk is epoch {on_disk}",
        )

    def _on_respond(
        self, machine: "Machine", respond: events.Respond, election: QuorumState
    ) -> None:
        response = respond.response
        self._speaks(machine, getattr(response, "epoch", 0), election)
        pending = self._requests.get((machine.name, machine.life), {})
        request = pending.pop(respond.request_id, None)
        if request is None or request.pre_vote or not getattr(response, "granted", False):
            return
        candidate = int(request.candidate.id)
        on_disk = election.leader_epoch > request.epoch or (
            election.leader_epoch == request.epoch and election.voted_id == candidate
        )
        self._require(
            on_disk,
            "Q2",
            f"{machine.name} votes for n{candidate} in epoch {request.epoch}, on disk {election}",
        )
        self._on_vote(machine, request.epoch, candidate)

    def _on_effect(self, machine: "Machine", driver: Any, effect: events.LogEffect) -> None:
        match effect:
            case events.TruncateTo(offset=offset):
                self._on_truncate(machine, driver, offset)
            case events.WriteSnapshotChunk():
                self._snapshots.on_chunk(machine, effect)
            case events.InstallSnapshot():
                self._snapshots.on_install(machine, leads=driver.is_leader)
            case _:
                pass

    def _on_truncate(self, machine: "Machine", driver: Any, offset: int) -> None:
        epoch = driver._quorum.state.epoch  # noqa: SLF001 (a checker looks inside)
        published = self._published.get(machine.name, 0)
        for header, _ in driver._log.batches(offset, driver._log.end):  # noqa: SLF001 (likewise)
            base = header.base_offset
            known = self.committed.get(base)
            may_know = epoch >= self._committed_in.get(base, 0) or base < published
            same = known is not None and known.epoch == header.partition_leader_epoch
            self._require(
                not (same and may_know),
                "Q5",
                f"{machine.name} truncates {known} at {base}",
            )

    def after_ready(self, machine: "Machine", driver: Any, ready: events.Ready) -> None:
        """Check the high watermark after the synchronous part of a `Ready`."""
        reached = ready.high_watermark
        if reached is None:
            return
        before = self._published.get(machine.name, 0)
        self._require(
            reached >= before, "Q7", f"the high watermark of {machine.name} decreases to {reached}"
        )
        self._published[machine.name] = reached
        self.probe.note(
            tell_log(machine.name, driver),
            "log",
            node=machine.name,
            epoch=driver.leader_and_epoch.epoch,
            end=driver.log_end_offset,
            highWatermark=driver.high_watermark,
        )
        self._on_reached(machine, driver)

    def _on_reached(self, machine: "Machine", driver: Any) -> None:
        log, up_to = driver._log, self._published[machine.name]  # noqa: SLF001 (a checker looks inside)
        first = max(self._reached.get(machine.name, 0), log.start)
        up_to = min(up_to, log.end)
        if up_to <= first:
            return
        for header, view in log.batches(first, up_to):
            if header.last_offset >= up_to:
                break
            self._on_batch(machine, driver, header, view)
            self._reached[machine.name] = header.last_offset + 1

    def _on_batch(self, machine: "Machine", driver: Any, header: Any, view: memoryview) -> None:
        base = header.base_offset
        batch = Batch(header.partition_leader_epoch, header.crc, header.last_offset)
        known = self.committed.get(base)
        if known is None and base >= self.committed_end:
            self.committed[base] = known = batch
            self._committed_in[base] = driver._quorum.state.epoch  # noqa: SLF001 (likewise)
            self.committed_end = header.last_offset + 1
            self.on_committed(base, header, view)
        self._require(
            known == batch, "Q5", f"{machine.name} commits {batch} at {base}, committed is {known}"
        )

    # ---- every second

    def every_second(self) -> None:
        """Check the invariants that concern all machines."""
        for machine in self.probe.machines:
            self.durable_end(machine)  # checks Q4 for everything synced since
            raft = machine.raft
            if raft is not None and raft.is_leader:
                self.rules.check_quorum(_member(machine, raft._quorum))  # noqa: SLF001 (a look)


def _member(machine: "Machine", core: Quorum) -> Member:
    return Member(machine.name, _key(machine), core, lambda below: _voters_below(machine, below))


def _voters_below(machine: "Machine", below: int) -> int:
    """Read the leader's log again instead of using the core's state."""
    known = -1
    for offset, kind, _ in machine.raft.log.control_records():
        if offset < below and kind is ControlType.KRAFT_VOTERS:
            known = offset
    return known


def _key(machine: "Machine") -> ReplicaKey:
    return ReplicaKey(machine.id, machine.directory_id)  # type: ignore[arg-type]


def _counts(voters: Any, key: ReplicaKey) -> bool:
    known = voters.get(key.id)
    return known is not None and known.key.directory_id in (None, key.directory_id)


@contextmanager
def watched(
    probe: Probe,
    checks: NodeEvents,
    *,
    on_truncate: Callable[["Machine", Any, int], None],
    on_fence_refused: Callable[[int, Any], None],
    on_registration: Callable[[Any, Any, int | None], None],
    silent_ms: Callable[[Any, int, int], int | None],
) -> Iterator[None]:
    """Observe every step of every core and its execution within this context.

    Args:
        probe: the world.
        checks: the checkers to call.
        on_truncate: called with the machine, the log of a partition and the offset.
        on_fence_refused: called with the id of a broker to fence, and its registration.
        on_registration: called with the controller's core, an accepted registration request and
            the result of `silent_ms` before it.
        silent_ms: returns the ms since the last heartbeat of a broker at a controller's core.
    """
    seen = _seen(probe)
    with (
        truncations_watched(probe, on_truncate),
        patch.object(Quorum, "step", _step(Quorum.step, checks, seen)),
        patch.object(Quorum, "start", _step(Quorum.start, checks, seen)),
        patch.object(ReadyQueue, "carry_out", _carry_out(checks, seen)),
        patch.object(RaftDriver, "handle_request", _request(checks, seen)),
        patch.object(Controller, "fence_refused_broker", _fence_refused(on_fence_refused, seen)),
        patch.object(Controller, "decide", _registration(on_registration, silent_ms, seen)),
    ):
        yield


@contextmanager
def truncations_watched(
    probe: Probe, on_truncate: Callable[["Machine", Any, int], None]
) -> Iterator[None]:
    """Observe the truncation of partitions within this context; see `watched`."""
    replacement = _truncate(on_truncate, _seen(probe))
    with patch.object(PartitionLog, "truncate_to", replacement):
        yield


def _seen(probe: Probe) -> Callable[[Callable[["Machine"], None]], None]:
    """Return a function that calls a checker with the machine whose process is executing."""

    def seen(call: Callable[["Machine"], None]) -> None:
        machine = current_machine(probe)
        if machine is None:
            return
        try:
            call(machine)
        except Violation as violation:  # not through the product, which would think it its own
            probe.fail(violation)

    return seen


def _step(original: Any, checks: NodeEvents, seen: Any) -> Any:
    @wraps(original)
    def step(self: Quorum, *arguments: Any) -> Any:
        before, reached, known = self.state, self.log.high_watermark, len(self._transitions)
        ready = original(self, *arguments)
        event = arguments[0] if len(arguments) > 1 else None  # `start` has none
        taken = Step(event, before, reached, ready)
        seen(lambda machine: checks.on_step(machine, self, taken, self._transitions[known:]))
        return ready

    return step


def _carry_out(checks: NodeEvents, seen: Any) -> Any:
    original = ReadyQueue.carry_out

    @wraps(original)
    def carry_out(self: ReadyQueue, ready: events.Ready) -> None:
        seen(lambda machine: checks.before_ready(machine, self.duties, ready))
        original(self, ready)
        seen(lambda machine: checks.after_ready(machine, self.duties, ready))

    return carry_out


def _truncate(on_truncate: Callable[["Machine", Any, int], None], seen: Any) -> Any:
    original = PartitionLog.truncate_to

    @wraps(original)
    def truncate_to(self: PartitionLog, offset: int) -> bool:
        if self.topic != METADATA_TOPIC:
            seen(lambda machine: on_truncate(machine, self, offset))
        return original(self, offset)

    return truncate_to


def _fence_refused(on_fence_refused: Callable[[int, Any], None], seen: Any) -> Any:
    original = Controller.fence_refused_broker

    @wraps(original)
    def fence_refused(self: Controller, broker_id: int) -> Any:
        registered = self.latest.brokers.get(broker_id)
        seen(lambda _: on_fence_refused(broker_id, registered))
        return (yield from original(self, broker_id))

    return fence_refused


def _registration(
    on_registration: Callable[[Any, Any, int | None], None],
    silent_ms: Callable[[Any, int, int], int | None],
    seen: Any,
) -> Any:
    original = Controller.decide

    @wraps(original)
    def decide(self: Controller, key: ApiKey, call: Any) -> Any:
        if key is not ApiKey.BROKER_REGISTRATION:
            return (yield from original(self, key, call))
        request = call.request
        silent = silent_ms(self, request.broker_id, call.now)
        decision = yield from original(self, key, call)
        seen(lambda _: on_registration(self, request, silent))
        return decision

    return decide


def _request(checks: NodeEvents, seen: Any) -> Any:
    original = RaftDriver.handle_request

    @wraps(original)
    def request(self: RaftDriver, asked: Any) -> Any:
        number = self._requests.last_id + 1
        seen(lambda machine: checks.on_request(machine, number, asked))
        return original(self, asked)

    return request
