"""Planted bugs of the raft core: each is a plausible mistake that an invariant must report."""

from dataclasses import replace
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import LeaderEpoch, Offset
from sparkraft.raft import connections, following, leading, progress, reconfiguration, timers, votes
from sparkraft.raft.events import Appended, EpochAndOffset, LogBatch, LogRange, Ready
from sparkraft.raft.log_view import LogView
from sparkraft.raft.replica import Replica
from sparkraft.raft.states import Candidate, Follower, Leader, Prospective, Unattached
from sparkraft.raft.voters import VoterSet
from sparkraft.simulation.checks.invariants import Invariants
from sparkraft.simulation.world.core_disk import fold
from sparkraft.simulation.world.core_node import FETCH_BYTES_MAX, CoreNode
from tests.mutants.mutant import BOTH, CORES, Mutant, Patches, registrar

CORE_MUTANTS: dict[str, Mutant] = {}

_mutant = registrar(CORE_MUTANTS, tiers=CORES)


# ---- votes and epochs


@_mutant("a vote is granted before it is on disk", "Q2", tiers=BOTH)
def _vote_not_persisted() -> Patches:
    original = Replica.add_vote

    def add_vote(self: Replica, *args: Any) -> None:
        before = self.outbox.persist
        original(self, *args)
        self.outbox.persist = before

    return [(Replica, "add_vote", add_vote)]


@_mutant("the election state is written without fsync", "Q2", "Q3")
def _election_state_not_synced() -> Patches:
    original = CoreNode.persist

    def persist(self: CoreNode, ready: Ready) -> None:
        before = self.disk.unsynced_election or self.disk.election
        original(self, ready)
        self.disk.unsynced_election = before

    return [(CoreNode, "persist", persist)]


@_mutant("a new epoch is used before it is on disk", "Q3")
def _epoch_not_persisted() -> Patches:
    original = Replica.become_unattached

    def become_unattached(self: Replica, *args: Any) -> None:
        before = self.outbox.persist
        original(self, *args)
        self.outbox.persist = before

    return [(Replica, "become_unattached", become_unattached)]


@_mutant("a second candidate of the same epoch gets a vote as well", "Q2", tiers=BOTH)
def _votes_twice() -> Patches:
    def answer(replica: Replica, request: Any, now: Any) -> Any:
        state, again = replica.state, request.epoch == replica.epoch and not request.pre_vote
        if again and isinstance(state, Unattached | Prospective):
            replica.update(replace(state, voted=None))
        return original(replica, request, now)

    original = votes.on_vote_request
    return [(votes, "on_vote_request", answer)]


@_mutant("a vote is given to a candidate with a shorter log", "Q6", tiers=BOTH)
def _votes_for_a_shorter_log() -> Patches:
    def why_not(replica: Replica, request: Any) -> str | None:
        longer = replace(request, last_epoch=replica.epoch)
        reason: str | None = original(replica, longer)
        return reason

    original = votes._why_not
    return [(votes, "_why_not", why_not)]


@_mutant(
    "a candidate claims records that are not on its disk",
    "Q6",
    scenario="candidates-stand-with-slow-disks",
    tiers=BOTH,
)
def _candidate_claims_unsynced_records() -> Patches:
    return [(LogView, "durable_point", LogView.end_point)]


@_mutant("a candidate stands without raising the epoch", "Q1", "Q2", "Q3")
def _candidate_keeps_the_epoch() -> Patches:
    def become_candidate(self: Replica, reason: str, now: Any) -> None:
        state = Candidate(
            epoch=LeaderEpoch(max(self.epoch, 1)),
            granted_by=frozenset({self.local.id}),
            rejected_by=frozenset(),
            election_deadline=self.random_election_timeout(now),
        )
        self._become(state, reason, now, durable=True)
        self.maybe_win(now)

    return [(Replica, "become_candidate", become_candidate)]


@_mutant(
    "one vote less than a majority wins",
    "Q1",
    scenario="candidates-meet-behind-slow-links",
)
def _a_minority_wins() -> Patches:
    def maybe_win(self: Replica, now: Any) -> None:
        state = self.state
        nearly = self.log.voters.majority - 1
        if isinstance(state, Candidate) and 0 < nearly == len(state.granted_by):
            self._become_leader("nearly a majority", now)
        else:
            original(self, now)

    original = Replica.maybe_win
    return [(Replica, "maybe_win", maybe_win)]


@_mutant(
    "a restarted leader forgets that it led, and votes in its own epoch",
    "Q2",
    scenario="candidates-meet-behind-slow-links",
)
def _a_restarted_leader_votes_again() -> Patches:
    original = CoreNode.start

    def start(self: CoreNode) -> None:
        election = self.disk.election
        if self.core is None and election is not None and election.leader_id == self.id:
            self.disk.election = replace(election, leader_id=None)
        original(self)

    return [(CoreNode, "start", start)]


# ---- pre-vote


@_mutant("asking for pre-votes raises the epoch", "Q9", tiers=BOTH)
def _pre_vote_raises_the_epoch() -> Patches:
    def become_prospective(self: Replica, reason: str, now: Any) -> None:
        state = Prospective(
            epoch=LeaderEpoch(self.epoch + 1),
            leader_id=None,
            leader_endpoints=(),
            voted=None,
            granted_by=frozenset({self.local.id}),
            rejected_by=frozenset(),
            election_deadline=self.random_election_timeout(now),
        )
        self._become(state, reason, now, durable=True)
        self.maybe_win(now)

    return [(Replica, "become_prospective", become_prospective)]


@_mutant("a follower with a live leader grants pre-votes", "Q9", tiers=BOTH)
def _pre_vote_granted_despite_a_leader() -> Patches:
    def why_not(replica: Replica, request: Any) -> str | None:
        reason: str | None = original(replica, request)
        theirs = EpochAndOffset(request.last_epoch, request.last_offset)
        follows = isinstance(replica.state, Follower) and request.pre_vote
        return None if follows and theirs >= replica.log.end_point else reason

    original = votes._why_not
    return [(votes, "_why_not", why_not)]


@_mutant("a granted pre-vote binds like a vote", "Q9")
def _pre_vote_binds() -> Patches:
    def answer(replica: Replica, request: Any, now: Any) -> Any:
        response = original(replica, request, now)
        free = isinstance(replica.state, Unattached | Prospective) and replica.voted is None
        if request.pre_vote and response.granted and free and replica.leader_id is None:
            replica.add_vote(request.candidate, now)
        return response

    original = votes.on_vote_request
    return [(votes, "on_vote_request", answer)]


# ---- the log and the high watermark


@_mutant("a leader counts records that are not on its disk", "Q7")
def _leader_counts_unsynced_records() -> Patches:
    def on_fetch(replica: Replica, *args: Any) -> None:
        if replica.progress is not None and replica.progress.on_local_flush(replica.log.end):
            leading.on_high_watermark(replica)
        original(replica, *args)

    original = leading.on_fetch
    return [(leading, "on_fetch", on_fetch)]


@_mutant("a voter acknowledges records that are not on its disk", "Q7")
def _follower_acknowledges_unsynced_records() -> Patches:
    return [(following, "may_fetch", lambda replica: replica.fetching_snapshot is None)]


@_mutant("records of older epochs are committed by counting them", "Q7")
def _high_watermark_over_old_epochs() -> Patches:
    original = progress.LeaderProgress.__init__

    def init(self: Any, local: Any, voters: Any, epoch_start: Any) -> None:
        _ = epoch_start
        original(self, local, voters, Offset(0))

    return [(progress.LeaderProgress, "__init__", init)]


@_mutant("the high watermark is what a minority has", "Q7")
def _high_watermark_of_a_minority() -> Patches:
    def maybe_advance(self: Any) -> bool:
        ends = self._by_length()
        reached = ends[max(len(ends) // 2 - 1, 0)].end if ends else None
        low = max(self._epoch_start, self.high_watermark or 0)
        if reached is None or reached <= low:
            return False
        self.high_watermark = reached
        return True

    return [(progress.LeaderProgress, "_maybe_advance", maybe_advance)]


@_mutant(
    "a wiped disk counts as the voter it was",
    "Q2",
    "Q7",
    scenario="a-wiped-voter-does-not-count",
)
def _directory_ids_are_ignored() -> Patches:
    def is_voter(self: VoterSet, key: Any) -> bool:
        return self.get(key.id) is not None

    return [(VoterSet, "is_voter", is_voter)]


@_mutant("an observer counts towards the high watermark", "Q7")
def _observers_are_counted() -> Patches:
    def on_fetch(self: Any, key: Any, fetch_offset: Any, leader_end: Any, now: Any) -> bool:
        moved: bool = original(self, key, fetch_offset, leader_end, now)
        if key.id < 0 or self.is_voter(key) or self._voter_set.get(key.id) is not None:
            return moved
        slowest = min(self._voters.values(), key=lambda state: state.end or -1)
        if slowest.key.id != self._local.id and (slowest.end or -1) < fetch_offset:
            slowest.end = fetch_offset
        return bool(self._maybe_advance()) or moved

    original = progress.LeaderProgress.on_fetch
    return [(progress.LeaderProgress, "on_fetch", on_fetch)]


@_mutant("a follower truncates one batch too many", "Q5", tiers=BOTH)
def _truncates_too_far() -> Patches:
    def truncation_point(self: LogView, diverging: Any) -> Offset:
        return Offset(max(original(self, diverging) - 2, self.start))

    original = LogView.truncation_point
    return [
        (LogView, "truncation_point", truncation_point),
        (following, "_truncate", _truncate_blindly),
        (LogView, "truncate_to", _cut_blindly),
    ]


def _truncate_blindly(replica: Replica, diverging: EpochAndOffset) -> bool:
    replica.truncate_to(replica.log.truncation_point(diverging))
    return True


def _cut_blindly(self: LogView, offset: Offset) -> None:
    self.end = min(self.end, offset)
    self.durable_end = min(self.durable_end, self.end)
    if self.high_watermark is not None:
        self.high_watermark = min(self.high_watermark, self.end)
    self.generation += 1
    self._epochs = [entry for entry in self._epochs if entry[1] < offset]
    self._voters = [entry for entry in self._voters if entry[0] < offset]
    self._kraft_versions = [entry for entry in self._kraft_versions if entry[0] < offset]


@_mutant("a leader doesn't notice that a follower's log differs", "Q4", tiers=BOTH)
def _divergence_is_not_seen() -> Patches:
    def build(replica: Replica, request: Any) -> Any:
        response = original(replica, request)
        if response.diverging is None:
            return response
        read = LogRange(
            start=request.fetch_offset, up_to=replica.log.end, max_bytes=request.max_bytes
        )
        more = request.fetch_offset < replica.log.end
        return replace(response, diverging=None, read=read if more else None)

    original = leading._build
    return [(leading, "_build", build)]


@_mutant("a follower appends whatever comes, wherever its log ends", "Q4")
def _fetched_batches_are_renumbered() -> Patches:
    def append(replica: Replica, batches: tuple[LogBatch, ...]) -> None:
        for batch in batches:
            if replica.log.last_epoch <= batch.epoch <= replica.epoch:
                base = replica.log.end
                last = Offset(base + batch.last_offset - batch.base_offset)
                replica.append(replace(batch, base_offset=base, last_offset=last))

    def take(self: Any, correlation_id: int) -> Any:
        asked = self._in_flight.get(correlation_id)
        if asked is not None and asked.to.id in self._peers:
            self._peers[asked.to.id].correlation_id = None
        return asked

    return [(following, "_append", append), (connections.Connections, "complete", take)]


@_mutant("a deposed controller still appends and responds after it lost leadership", "Q4")
def _a_stale_controller_answers() -> Patches:
    def on_append(replica: Replica, request_id: int, append: Any) -> None:
        base = replica.log.end
        batch = LogBatch(
            base_offset=base,
            last_offset=Offset(base + append.count - 1),
            epoch=replica.epoch,
            payload=append.payload,
        )
        replica.append(batch)
        replica.respond(request_id, Appended(last_offset=batch.last_offset))

    def is_leader(self: CoreNode) -> bool:
        invariants = self.world.invariants
        assert isinstance(invariants, Invariants)
        led = self.id in invariants.rules.leading_since
        return self.core is not None and (self.core.is_leader or led)

    return [(leading, "on_append", on_append), (CoreNode, "is_leader", property(is_leader))]


# ---- voters


@_mutant(
    "a voter change doesn't wait for the one before",
    "Q8",
    scenario="voters-are-changed-without-pause",
)
def _two_voter_changes_at_once() -> Patches:
    def check_change(replica: Replica, cluster_id: Any) -> Any:
        replica.pending = None
        return original(replica, cluster_id)

    original = reconfiguration._check_change
    return [
        (reconfiguration, "_check_change", check_change),
        (reconfiguration, "_check_dynamic", lambda _: None),
    ]


@_mutant("voters are changed before the epoch's start is committed", "Q8", tiers=BOTH)
def _voters_change_before_the_epoch_has_begun() -> Patches:
    def check_change(replica: Replica, cluster_id: Any) -> Any:
        found = original(replica, cluster_id)
        early = (
            found is not None
            and found.error is ErrorCode.REQUEST_TIMED_OUT
            and replica.pending is None
        )
        return None if early else found

    original = reconfiguration._check_change
    return [
        (reconfiguration, "_check_change", check_change),
        (reconfiguration, "_check_dynamic", lambda _: None),
    ]


@_mutant("a leader voted out leads on", "Q8", tiers=BOTH)
def _a_removed_leader_leads_on() -> Patches:
    def on_commit(replica: Replica) -> None:
        state = replica.state
        original(replica)
        stays = isinstance(state, Leader) and state.resign_reason is None
        if stays and isinstance(replica.state, Leader):
            replica.update(replace(replica.state, resign_reason=None))

    original = reconfiguration.on_commit
    return [(reconfiguration, "on_commit", on_commit)]


# ---- snapshots


@_mutant("a snapshot holds what is not committed", "Q10")
def _snapshot_of_uncommitted_state() -> Patches:
    def snapshot_points(self: CoreNode) -> list[int]:
        state = self.fold
        for batch in self.disk.batches[self.disk.index_of(self.folded_to) :]:
            state = fold(state, batch)
            self.folds[batch.next_offset] = state
        return [offset for offset in self.folds if offset > self.disk.start]

    return [(CoreNode, "snapshot_points", snapshot_points)]


@_mutant("the log is cleaned beyond its snapshot", "Q10")
def _cleaned_beyond_the_snapshot() -> Patches:
    def clean(self: CoreNode) -> None:
        original(self)
        committed = self.disk.index_of(self.high_watermark)
        if 0 < committed < len(self.disk.batches):
            self.disk.batches = self.disk.batches[committed:]
            self.disk.start = self.disk.batches[0].base_offset

    original = CoreNode.clean
    return [(CoreNode, "clean", clean)]


@_mutant("a fetched snapshot is loaded before its last piece has come", "Q10")
def _snapshot_loaded_in_part() -> Patches:
    def take(replica: Replica, response: Any, now: Any) -> bool:
        so_far = response.position + len(response.chunk)
        smaller = max(response.size - FETCH_BYTES_MAX, so_far)
        return original(replica, replace(response, size=smaller), now)

    original = following.on_fetch_snapshot_response
    return [(following, "on_fetch_snapshot_response", take)]


# ---- liveness


@_mutant(
    "a leader that no majority hears leads on",
    "Q11",
    scenario="can-elect-new-leader-after-old-leader-partitioned-away",
    tiers=BOTH,
)
def _no_check_quorum() -> Patches:
    def leader(replica: Replica, state: Leader, now: Any) -> Any:
        far = replace(state, check_quorum_deadline=now + 1_000_000)
        replica.update(far)
        return original(replica, far, now)

    original = timers._leader
    return [(timers, "_leader", leader)]


@_mutant(
    "a follower waits for its leader forever",
    "Q11",
    scenario="can-elect-new-leader-after-old-leader-partitioned-away",
)
def _a_follower_waits_forever() -> Patches:
    def follower(replica: Replica, state: Follower, now: Any) -> Any:
        patient = replace(state, fetch_deadline=now + 1_000_000)
        replica.update(patient)
        return original(replica, patient, now)

    original = timers._follower
    return [(timers, "_follower", follower)]


@_mutant("after a refused connection a peer is never asked again", "Q11")
def _a_failed_peer_is_given_up() -> Patches:
    def back_off(self: Any, peer_id: Any, now: Any) -> None:
        original(self, peer_id, now + 10_000_000)

    original = connections.Connections.back_off
    return [
        (connections.Connections, "back_off", back_off),
        (connections.Connections, "reset", lambda self: self._in_flight.clear()),
    ]
