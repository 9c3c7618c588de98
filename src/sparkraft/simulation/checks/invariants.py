"""Invariants of every quorum under any faults, checked on each step of each core.

    Q1  ElectionSafety       one leader per epoch over the whole run
    Q2  DurableVote          one vote per voter and epoch, on disk before it is granted
    Q3  MonotonicEpoch       epochs on disk never decrease; a node uses only epochs on its disk;
                             the known leader of an epoch never changes
    Q4  LogMatching          same offset and epoch: same records up to there
    Q5  CommittedStability   committed records never change and are never truncated
    Q6  LeaderCompleteness   a leader has all committed records; a candidate claims only
                             records on its disk
    Q7  HighWatermark        on disk at a majority of the voters, advanced only to records of
                             the leader's epoch, never decreases
    Q8  VoterChanges         one voter at a time, after the previous set and the epoch's start
                             are committed; a removed leader resigns
    Q9  PreVote              changes no vote and no epoch; refused by voters with a leader
    Q10 Snapshots            of the committed prefix, whole, never loaded by a leader, never
                             missing below the log start
    Q11 Liveness             a healed majority elects a leader and commits; a leader without a
                             majority resigns
    Q12 Outsiders            nothing that a replica outside the voter set sends changes the epoch
                             or the leader of a replica in touch with a leader; EndQuorumEpoch
                             counts only from its leader; the limits of `raft.epoch_guard` hold

The checkers keep the history of the whole run, including what nodes have since lost.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Offset
from sparkraft.raft.events import (
    ElectionState,
    EpochAndOffset,
    Event,
    FetchRequest,
    LogBatch,
    Ready,
    Send,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from sparkraft.raft.states import Leader, State
from sparkraft.raft.voters import ReplicaKey, VoterSet
from sparkraft.simulation.checks.probe import CoreProbe
from sparkraft.simulation.checks.quorum_rules import Member, QuorumRules, Step
from sparkraft.simulation.world.core_disk import EMPTY_FOLD, SnapshotContent, fold
from sparkraft.simulation.world.violation import Violation

if TYPE_CHECKING:
    from sparkraft.simulation.world.core_node import CoreNode

NAMES = ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8", "Q9", "Q10", "Q11", "Q12")

Key = tuple[int, int]
"""A node and which of its disks."""


class Invariants:
    """See the module docstring."""

    def __init__(self, probe: CoreProbe) -> None:
        self.probe = probe
        self.checks: Counter[str] = Counter()
        self.committed: dict[int, LogBatch] = {}
        """By base offset."""
        self.committed_end = 0
        self._committed_in: dict[int, int] = {}
        """Base offset → epoch in which the batch was first known to be committed."""
        self.folds: dict[int, bytes] = {0: EMPTY_FOLD}
        self._fold = EMPTY_FOLD
        self._leaders: dict[int, Key] = {}
        self._votes: dict[tuple[int, int, int], ReplicaKey] = {}
        self._leader_of: dict[tuple[int, int, int], int] = {}
        self.rules = QuorumRules(self.require, probe.counts, lambda: probe.now)
        self._high_watermarks: dict[int, int] = {}
        self._snapshots: dict[EpochAndOffset, bytes] = {}
        self._lost_disks: list[tuple[ReplicaKey, int]] = []

    def require(self, holds: object, invariant: str, text: str) -> None:
        """Raise `Violation` unless the invariant holds."""
        self.checks[invariant] += 1
        if not holds:
            raise Violation(invariant, text)

    # ---- start and disk loss

    def on_start(self, node: "CoreNode") -> None:
        """A new incarnation starts without the old one's memory."""
        self._high_watermarks[node.id] = 0
        self.rules.on_start(node.id)

    def on_wipe(self, node: "CoreNode") -> None:
        """Keep the lost disk's end: its records may have counted toward a majority."""
        self._lost_disks.append((node.key, node.disk.durable_end))

    # ---- the election state

    def on_persist(self, node: "CoreNode", election: ElectionState) -> None:
        """Check `election` before it replaces the election state on disk."""
        before = node.disk.election
        epoch = election.epoch
        self.require(
            before is None or epoch >= before.epoch,
            "Q3",
            f"{node.name} persists epoch {epoch} after {before}",
        )
        key = (node.id, node.life, epoch)
        if election.leader_id is not None:
            known = self._leader_of.setdefault(key, election.leader_id)
            self.require(
                known == election.leader_id,
                "Q3",
                f"{node.name} has leader n{election.leader_id} in epoch {epoch}, before n{known}",
            )
        if election.voted is not None:
            self._on_vote(node, epoch, election.voted)

    def _on_vote(self, node: "CoreNode", epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((node.id, node.life, epoch), candidate)
        same = known.id == candidate.id and (
            None in (known.directory_id, candidate.directory_id)
            or known.directory_id == candidate.directory_id
        )
        self.require(
            same,
            "Q2",
            f"{node.name} votes for n{candidate.id} and n{known.id} in epoch {epoch}",
        )

    def on_transitions(self, node: "CoreNode") -> None:
        """Check the state transitions since the last call."""
        probe = self.probe
        for transition in node.quorum.take_transitions():
            old, new = transition.old, transition.new
            probe.counts[f"became {type(new).__name__}"] += 1
            probe.note(
                f"{node.name} {type(new).__name__} e={new.epoch}: {transition.reason}",
                "becomes",
                node=node.name,
                state=type(new).__name__.lower(),
                epoch=new.epoch,
            )
            self.rules.on_transition(_member(node), old, new)
            if isinstance(new, Leader) and not isinstance(old, Leader):
                self._on_leader(node, new.epoch)

    def _on_leader(self, node: "CoreNode", epoch: int) -> None:
        key = (node.id, node.life)
        known = self._leaders.setdefault(epoch, key)
        self.require(known == key, "Q1", f"n{known[0]} and {node.name} both lead epoch {epoch}")
        self.probe.on_leader(node, epoch)
        disk = node.disk
        for base, batch in self.committed.items():
            if base < disk.start or self._committed_in[base] >= epoch:
                continue
            at = disk.index_of(base)
            held = disk.batches[at] if at < len(disk.batches) else None
            self.require(
                held is not None and held.base_offset == base and held.epoch == batch.epoch,
                "Q6",
                f"{node.name} leads epoch {epoch} without the committed batch {batch.epoch}@{base}",
            )
        if disk.start:
            self._check_below_start(node)

    def _check_below_start(self, node: "CoreNode") -> None:
        disk = node.disk
        self.require(
            disk.start <= self.committed_end,
            "Q6",
            f"the log of {node.name} starts at {disk.start}, beyond the committed offset "
            f"{self.committed_end}",
        )

    # ---- each step

    def on_step(
        self,
        node: "CoreNode",
        event: Event,
        before: State,
        high_watermark: Offset | None,
        ready: Ready,
    ) -> None:
        """Check a step right after the core handled `event`, before `ready` is carried out."""
        self.rules.on_step(_member(node), Step(event, before, high_watermark, ready))

    def after_event(self, node: "CoreNode") -> None:
        """Check a node after its `Ready` is carried out."""
        self.rules.check_voted_out(_member(node))

    # ---- the log

    def on_append(self, node: "CoreNode", batch: LogBatch) -> None:
        """Check `batch` before it is written."""
        disk = node.disk
        previous = disk.batches[-1] if disk.batches else None
        link = (previous.base_offset, previous.epoch) if previous else None
        content = repr((batch.last_offset, batch.payload, batch.controls))
        self.rules.on_batch(node.name, (batch.base_offset, batch.epoch), content, link)
        self.require(
            batch.base_offset == disk.end,
            "Q4",
            f"{node.name} appends offset {batch.base_offset}, its log ends at {disk.end}",
        )

    def on_truncate(self, node: "CoreNode", batch: LogBatch) -> None:
        """Check that the truncated `batch` is not committed.

        A node that is still in an epoch before the one that committed the batch may truncate it:
        its copy did not count toward the majority.
        """
        base = batch.base_offset
        known = self.committed.get(base)
        knows = node.quorum.state.epoch >= self._committed_in.get(base, 0)
        below = base < self._high_watermarks[node.id]
        self.require(
            known is None or known.epoch != batch.epoch or not (knows or below),
            "Q5",
            f"{node.name} truncates the committed batch {batch.epoch}@{batch.base_offset}",
        )

    def on_high_watermark(self, node: "CoreNode", high_watermark: Offset) -> None:
        """Check a high watermark that a node publishes to its listeners."""
        self.require(
            high_watermark >= self._high_watermarks[node.id],
            "Q7",
            f"the high watermark of {node.name} decreases to {high_watermark}",
        )
        first = node.disk.index_of(self._high_watermarks[node.id])
        self._high_watermarks[node.id] = high_watermark
        self.require(
            high_watermark <= node.disk.end,
            "Q7",
            f"{node.name} has HW={high_watermark} beyond LEO={node.disk.end}",
        )
        state = node.quorum.state
        if isinstance(state, Leader) and high_watermark > self.committed_end:
            self._check_majority(node, state, high_watermark)
        for batch in node.disk.batches[first:]:
            if batch.next_offset > high_watermark:
                break
            self._on_committed(node, batch)

    def _check_majority(self, node: "CoreNode", state: Leader, high_watermark: Offset) -> None:
        below = node.disk.batch_below(high_watermark)
        self.require(
            below is not None and below.epoch == state.epoch,
            "Q7",
            f"{node.name} in epoch {state.epoch} commits up to {high_watermark} by counting "
            f"replicas of a record of epoch {below.epoch if below else None}",
        )
        voters = node.quorum.log.voters
        disks = [(other.key, other.disk.durable_end) for other in self.probe.nodes.values()]
        holders = sorted(
            {
                int(key.id)
                for key, end in [*disks, *self._lost_disks]
                if end >= high_watermark and _counts(voters, key)
            }
        )
        self.require(
            len(holders) >= voters.majority,
            "Q7",
            f"{node.name} has HW={high_watermark}, on disk only at {holders} of {voters.ids}",
        )

    def _on_committed(self, node: "CoreNode", batch: LogBatch) -> None:
        base = batch.base_offset
        known = self.committed.get(base)
        if known is None and base >= self.committed_end:
            self.require(
                base == self.committed_end,
                "Q5",
                f"{node.name} commits offset {base}, expected {self.committed_end}",
            )
            self.committed[base] = batch
            self._committed_in[base] = node.quorum.state.epoch
            self.committed_end = batch.next_offset
            self._fold = self.folds[batch.next_offset] = fold(self._fold, batch)
            return
        same = known is not None and (known.epoch, known.payload, known.last_offset) == (
            batch.epoch,
            batch.payload,
            batch.last_offset,
        )
        self.require(same, "Q5", f"{node.name} commits {batch}, committed is {known}")

    # ---- requests and responses

    def on_send(self, node: "CoreNode", send: Send) -> None:
        """Check a request before it is sent."""
        request = send.request
        self._check_spoken_epoch(node, getattr(request, "epoch", 0))
        if isinstance(request, VoteRequest):
            durable = node.disk.durable_end
            self.require(
                request.last_offset <= durable,
                "Q6",
                f"candidate {node.name} claims LEO={request.last_offset}, on disk LEO={durable}",
            )
        if isinstance(request, FetchRequest) and node.quorum.is_voter:
            self.require(
                request.fetch_offset <= node.disk.durable_end,
                "Q7",
                f"voter {node.name} acknowledges up to {request.fetch_offset}, "
                f"on disk LEO={node.disk.durable_end}",
            )

    def _check_spoken_epoch(self, node: "CoreNode", epoch: int) -> None:
        election = node.disk.election
        on_disk = election.epoch if election is not None else 0
        self.require(
            epoch <= on_disk, "Q3", f"{node.name} sends epoch {epoch}, on disk is epoch {on_disk}"
        )

    def on_respond(self, node: "CoreNode", request: Any, response: Any) -> None:
        """Check a response before it is sent."""
        self._check_spoken_epoch(node, getattr(response, "epoch", 0))
        if not isinstance(response, VoteResponse) or not response.granted or request.pre_vote:
            return
        election = node.disk.election
        voted = election.voted if election is not None else None
        on_disk = (
            election is not None
            and election.epoch >= request.epoch
            and (election.epoch > request.epoch or (voted and voted.id == request.candidate.id))
        )
        self.require(
            on_disk,
            "Q2",
            f"{node.name} votes for n{request.candidate.id} in epoch {request.epoch}, "
            f"on disk is {election}",
        )
        self._on_vote(node, request.epoch, request.candidate)

    # ---- snapshots

    def on_snapshot(self, node: "CoreNode", snapshot: EpochAndOffset, raw: bytes) -> None:
        """Check a snapshot that a node has taken."""
        held = SnapshotContent.decode(raw).fold
        self.require(
            snapshot.offset <= node.high_watermark,
            "Q10",
            f"{node.name} takes a snapshot at {snapshot.offset}, HW={node.high_watermark}",
        )
        self.require(
            self.folds.get(snapshot.offset) == held,
            "Q10",
            f"the snapshot of {node.name} at {snapshot.offset} is not the committed prefix",
        )
        self._snapshots.setdefault(snapshot, held)

    def on_chunk(self, node: "CoreNode", position: int) -> None:
        """Check a chunk of a fetched snapshot before it is written."""
        have = len(node.disk.partial)
        self.require(
            position in {0, have},
            "Q10",
            f"{node.name} writes a snapshot chunk at {position} after {have} bytes",
        )

    def on_install(self, node: "CoreNode", snapshot: EpochAndOffset, raw: bytes) -> None:
        """Check a fetched snapshot before it replaces the log."""
        leads = node.quorum.is_leader
        self.require(not leads, "Q10", f"leader {node.name} loads snapshot {snapshot}")
        try:
            held = SnapshotContent.decode(raw).fold
        except Exception:
            held = b"damaged"
        self.require(
            held == self.folds.get(snapshot.offset),
            "Q10",
            f"{node.name} loads snapshot {snapshot}, which is not the committed prefix",
        )

    # ---- every second, and at the end

    def every_second(self) -> None:
        """Check the invariants that compare nodes."""
        for node in self.probe.nodes.values():
            self._check_start(node)
            if node.is_leader and node.backlog is None:
                self.rules.check_quorum(_member(node))
        self._check_matching()

    def _check_start(self, node: "CoreNode") -> None:
        disk = node.disk
        if disk.start:
            self.require(
                any(snapshot.offset == disk.start for snapshot in disk.snapshots),
                "Q10",
                f"the log of {node.name} starts at {disk.start} without a snapshot at that offset",
            )

    def _check_matching(self) -> None:
        """Check that any two logs match up to the last offset with the same epoch."""
        nodes = list(self.probe.nodes.values())
        for place, one in enumerate(nodes):
            for other in nodes[place + 1 :]:
                self._check_pair(one, other)

    def _check_pair(self, one: "CoreNode", other: "CoreNode") -> None:
        theirs = {batch.base_offset: batch for batch in other.disk.batches}
        agreed = False
        for batch in reversed(one.disk.batches):
            match = theirs.get(batch.base_offset)
            if match is None:
                if batch.base_offset < other.disk.start or not agreed:
                    continue
                self.require(False, "Q4", f"{other.name} lacks {batch} of {one.name}")  # noqa: FBT003
                continue
            agreed = agreed or match.epoch == batch.epoch
            if agreed:
                same = match.epoch == batch.epoch and match.payload == batch.payload
                self.require(same, "Q4", f"{one.name} has {batch}, {other.name} has {match}")


def _member(node: "CoreNode") -> Member:
    return Member(node.name, node.key, node.quorum, lambda below: _voters_below(node, below))


def _voters_below(node: "CoreNode", below: int) -> int:
    for batch in reversed(node.disk.batches):
        for delta, control in enumerate(batch.controls):
            if isinstance(control, VotersChange) and batch.base_offset + delta < below:
                return batch.base_offset + delta
    return -1


def _counts(voters: VoterSet, key: ReplicaKey) -> bool:
    """Same as `VoterSet.is_voter`, which a planted bug may change."""
    known = voters.get(key.id)
    return known is not None and known.key.directory_id in (None, key.directory_id)
