"""One replica's state, and the only code that assigns it: transitions and the work they cause.

The handlers (`votes`, `leading`, `following`, `reconfiguration`) are functions over a `Replica`;
`quorum.Quorum` runs them and returns the content of the `Outbox`.

Invariants:
    * `epoch` never goes back; a replica votes at most once in an epoch.
    * Every state change that must survive a restart is in `outbox.persist` before any message that
      depends on it.
"""

from dataclasses import dataclass, field, replace

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, InvariantBroken
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.connections import Connections
from sparkraft.raft.epoch_guard import EPOCH_LAST, EpochGuard, LocalView
from sparkraft.raft.events import (
    AppendBatch,
    ControlRecord,
    ElectionState,
    EpochAndOffset,
    FetchRequest,
    Flush,
    KRaftVersionChange,
    LeaderAndEpoch,
    LeaderChange,
    LogBatch,
    LogEffect,
    PeerRequest,
    QuorumConfig,
    Refusal,
    Respond,
    Response,
    Send,
    TruncateTo,
    VotersChange,
)
from sparkraft.raft.log_view import LogView
from sparkraft.raft.progress import LeaderProgress
from sparkraft.raft.states import (
    NEXT_STATES,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet, address

CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns after this many fetch timeouts without a majority; Kafka's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A state transition and its reason, for the log and the election journal."""

    old: State
    new: State
    reason: str
    at: Millis


@dataclass(frozen=True, slots=True)
class Ballot:
    """This replica's response to a Vote request; `why_not` is None if it granted its vote."""

    candidate: ReplicaKey
    epoch: LeaderEpoch
    pre_vote: bool
    why_not: str | None


@dataclass(slots=True)
class Outbox:
    """The `Ready` under construction, and what the election journal wants to know."""

    persist: ElectionState | None = None
    log: list[LogEffect] = field(default_factory=list)
    flush: Flush | None = None
    send: list[Send] = field(default_factory=list)
    respond: list[Respond] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    ballots: list[Ballot] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ParkedFetch:
    """A Fetch that waits for records, a new high watermark or its deadline."""

    request: FetchRequest
    deadline: Millis


@dataclass(slots=True, kw_only=True)
class PendingVoterChange:
    """A voter change in progress: waits for ApiVersions, then for its record's commit."""

    request_id: int | None
    deadline: Millis
    added: Voter | None = None
    ack_when_committed: bool = True
    last_offset: Offset | None = None


@dataclass(slots=True, kw_only=True)
class FetchingSnapshot:
    """A snapshot being fetched; `installing` once its last chunk was passed to the driver."""

    snapshot: EpochAndOffset
    position: int = 0
    installing: bool = False


class Replica:
    """See the module docstring."""

    def __init__(
        self,
        config: QuorumConfig,
        log: LogView,
        state: State,
        entropy: Entropy,
        guard: EpochGuard | None = None,
    ) -> None:
        self.config = config
        self.guard = guard or EpochGuard(config.election_timeout_ms)
        self.log = log
        self.entropy = entropy
        self.connections = Connections(config.request_timeout_ms, config.retry_backoff_ms)
        self.outbox = Outbox()
        self.progress: LeaderProgress | None = None
        self.parked: dict[int, ParkedFetch] = {}
        self.pending: PendingVoterChange | None = None
        self.volatile_voters: VoterSet | None = None
        self.fetching_snapshot: FetchingSnapshot | None = None
        self.leader_high_watermark = Offset(-1)
        self.shutting_down = False
        self.refusing_voters: set[BrokerId] = set()
        """Voters whose ports refused connections while this replica was shutting down."""
        self.probe_at = Millis(0)
        self._state: State = state

    # ---- reading

    @property
    def state(self) -> State:
        """The current state; immutable, so safe to keep."""
        return self._state

    @property
    def epoch(self) -> LeaderEpoch:
        """The highest epoch this replica knows of."""
        return self._state.epoch

    @property
    def local(self) -> ReplicaKey:
        return self.config.local

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        return self.local.id >= 0 and self.log.voters.is_voter(self.local)

    @property
    def is_only_voter(self) -> bool:
        """Whether this replica is a majority by itself."""
        return self.local.id >= 0 and self.log.voters.is_only_voter(self.local)

    @property
    def leader_id(self) -> BrokerId | None:
        """The leader of `epoch`, if known; a resigned leader still counts."""
        match self._state:
            case Leader() | Resigned():
                return self.local.id
            case Candidate():
                return None
            case Unattached() | Prospective() | Follower():
                return self._state.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of that leader."""
        match self._state:
            case Leader() | Resigned():
                return self.config.endpoints
            case Prospective() | Follower():
                return self._state.leader_endpoints
            case Candidate() | Unattached():
                return ()

    @property
    def voted(self) -> ReplicaKey | None:
        """The replica that this one voted for in `epoch`."""
        match self._state:
            case Candidate():
                return self.local
            case Unattached() | Prospective() | Follower():
                return self._state.voted
            case Leader() | Resigned():
                return None

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader as reported to listeners: none if this replica has resigned."""
        leader = None if isinstance(self._state, Resigned) else self.leader_id
        return LeaderAndEpoch(leader, self.epoch)

    def is_in_touch(self, now: Millis) -> bool:
        """Whether this replica leads, or has fetched from its leader within the fetch timeout.

        Knowing a leader is not enough: a voter that cannot win keeps its last leader's id.
        """
        match self._state:
            case Leader():
                return True
            case Follower(has_fetched=has_fetched, fetch_deadline=deadline):
                return has_fetched and now < deadline
            case _:
                return False

    def local_view(self, now: Millis) -> LocalView:
        """This replica as its guard sees it."""
        return LocalView(
            epoch=self.epoch,
            voters=self.log.voters,
            kraft_version=self.log.kraft_version,
            log_end=self.log.end_point,
            in_touch=self.is_in_touch(now),
            now=now,
        )

    @property
    def local_voter(self) -> Voter:
        """This replica's own entry for a voter set."""
        return Voter(
            key=self.local,
            endpoints=self.config.endpoints,
            min_kraft_version=self.config.min_kraft_version,
            max_kraft_version=self.config.max_kraft_version,
        )

    @property
    def flushes(self) -> bool:
        """Whether fetched records must be on disk before the next Fetch acknowledges them."""
        return self.config.can_become_voter or self.is_voter

    def election_state(self) -> ElectionState:
        """The state that a restart must find."""
        return ElectionState(
            epoch=self.epoch,
            leader_id=self.leader_id,
            voted=self.voted,
            voter_ids=self.log.voters.ids,
            kraft_version=self.log.kraft_version,
        )

    def voter_node(self, voter: Voter) -> Node | None:
        """A voter's address; None if it does not have the controller listener."""
        return self.node(voter.key.id, voter.endpoints)

    def node(self, node_id: BrokerId, endpoints: tuple[Endpoint, ...]) -> Node | None:
        """A node's address on the controller listener; None if `endpoints` lack it."""
        endpoint = address(endpoints, self.config.listener)
        return None if endpoint is None else Node(node_id, endpoint.host, endpoint.port)

    def random_election_timeout(self, now: Millis) -> Millis:
        """A deadline one to two election timeouts away."""
        base = self.config.election_timeout_ms
        return Millis(now + base + (self.entropy.below(base) if base else 0))

    def set_initial(self, state: State) -> None:
        """Replace the state; only before the first event."""
        self._state = state

    # ---- effects

    def persist(self) -> None:
        """Have the election state on disk before anything else of this `Ready`."""
        self.outbox.persist = self.election_state()

    def send(self, to: Node, request: PeerRequest, now: Millis) -> None:
        """Send a request to a peer that is ready for one."""
        self.outbox.send.append(self.connections.send(to, request, now))

    def respond(self, request_id: int, response: Response) -> None:
        self.outbox.respond.append(Respond(request_id=request_id, response=response))

    def append(self, batch: LogBatch) -> None:
        """Append a batch, own or fetched, and flush it if this replica acknowledges records."""
        self.log.append(batch)
        self.outbox.log.append(AppendBatch(batch=batch))
        if self.flushes:
            self.flush()
        else:
            self.log.durable_end = self.log.end
        if self.progress is not None:
            self.progress.set_voters(self.log.voters)

    def append_controls(self, controls: tuple[ControlRecord, ...]) -> LogBatch:
        """Append control records of our own as one batch."""
        base = self.log.end
        batch = LogBatch(
            base_offset=base,
            last_offset=Offset(base + len(controls) - 1),
            epoch=self.epoch,
            controls=controls,
        )
        self.append(batch)
        return batch

    def flush(self) -> None:
        """Have the whole log brought to disk."""
        self.outbox.flush = Flush(up_to=self.log.end, generation=self.log.generation)

    def truncate_to(self, offset: Offset) -> None:
        if offset >= self.log.end:
            return
        self.log.truncate_to(offset)
        self.outbox.log.append(TruncateTo(offset=offset))
        if self.log.durable_end < self.log.end:
            # A flush under way belongs to the old generation and does not count.
            self.flush()

    # ---- transitions

    def _become(self, state: State, reason: str, now: Millis, *, durable: bool) -> None:
        old = self._state
        if type(state) not in NEXT_STATES[type(old)] or state.epoch < old.epoch:
            raise InvariantBroken(f"{old} cannot become {state} ({reason})")
        self._state = state
        self.outbox.transitions.append(Transition(old=old, new=state, reason=reason, at=now))
        if durable:
            self.persist()
        if isinstance(old, Leader) and not isinstance(state, Leader):
            self._stop_leading()
        if not isinstance(state, Follower):
            self.fetching_snapshot = self._kept_snapshot()
        if type(old) is not type(state) or old.epoch != state.epoch:
            self.connections.reset()

    def _kept_snapshot(self) -> FetchingSnapshot | None:
        """An installation under way always completes."""
        fetching = self.fetching_snapshot
        return fetching if fetching is not None and fetching.installing else None

    def _stop_leading(self) -> None:
        self.progress = None
        self.volatile_voters = None
        for request_id in sorted(self.parked):
            self.respond(request_id, Refusal(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.parked.clear()
        if self.pending is not None and self.pending.request_id is not None:
            error = Refusal(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.respond(self.pending.request_id, error)
        self.pending = None

    def become_unattached(
        self, epoch: LeaderEpoch, leader_id: BrokerId | None, reason: str, now: Millis
    ) -> None:
        """Enter `epoch` without a leader to fetch from."""
        same = epoch == self.epoch
        state = Unattached(
            epoch=epoch,
            leader_id=leader_id,
            voted=self.voted if same else None,
            election_deadline=self._deadline_when_unattached(now),
        )
        self._become(state, reason, now, durable=True)

    def _deadline_when_unattached(self, now: Millis) -> Millis | None:
        """Keep a running election timeout: a stream of new epochs must not postpone elections."""
        if not self.is_voter:
            return None
        match self._state:
            case Candidate() | Resigned():
                return self._state.election_deadline
            case Unattached(election_deadline=deadline) if deadline is not None:
                return deadline
            case Prospective() if not self.is_rejected(self._state.rejected_by):
                return self._state.election_deadline
            case _:
                return self.random_election_timeout(now)

    def add_vote(self, candidate: ReplicaKey, now: Millis) -> None:
        """Vote for `candidate` in this epoch; there must be no vote yet."""
        state = self._state
        deadline = self.random_election_timeout(now)
        reason = f"voted for {candidate}"
        if isinstance(state, Unattached) and state.voted is None:
            new: State = replace(state, voted=candidate, election_deadline=deadline)
        elif isinstance(state, Prospective) and state.voted is None:
            new = replace(
                state,
                voted=candidate,
                granted_by=frozenset({self.local.id}),
                rejected_by=frozenset(),
                election_deadline=deadline,
            )
        else:
            raise InvariantBroken(f"{state} cannot vote for {candidate}")
        self._become(new, reason, now, durable=True)

    def become_follower(
        self,
        epoch: LeaderEpoch,
        leader_id: BrokerId,
        endpoints: tuple[Endpoint, ...],
        now: Millis,
    ) -> None:
        """Fetch from `leader_id`, which must be another replica and have endpoints."""
        if leader_id == self.local.id or not endpoints:
            raise InvariantBroken(f"cannot follow {leader_id} at {endpoints}")
        state = Follower(
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoints=endpoints,
            voted=self.voted if epoch == self.epoch else None,
            fetch_deadline=Millis(now + self.config.fetch_timeout_ms),
            update_voter_at=Millis(now + self.config.fetch_timeout_ms),
        )
        self._become(state, f"{leader_id} leads", now, durable=True)
        self.connections.reset()

    def become_prospective(self, reason: str, now: Millis) -> None:
        """Start a pre-vote; a quorum of one wins and leads at once."""
        state = Prospective(
            epoch=self.epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.leader_endpoints,
            voted=self.voted,
            granted_by=frozenset({self.local.id}),
            rejected_by=frozenset(),
            election_deadline=self.random_election_timeout(now),
        )
        self._become(state, reason, now, durable=False)
        self.maybe_win(now)

    def become_candidate(self, reason: str, now: Millis) -> None:
        """Raise the epoch, vote for this replica and request votes."""
        if self.epoch >= EPOCH_LAST:
            reason = "the epochs are used up: see `metadata-quorum repair`"
            return self.become_unattached(self.epoch, self.leader_id, reason, now)
        state = Candidate(
            epoch=LeaderEpoch(self.epoch + 1),
            granted_by=frozenset({self.local.id}),
            rejected_by=frozenset(),
            election_deadline=self.random_election_timeout(now),
        )
        self._become(state, reason, now, durable=True)
        return self.maybe_win(now)

    def record_vote(self, voter_id: BrokerId, *, granted: bool, now: Millis) -> None:
        """Count the response of a voter to a vote or pre-vote; observers do not count."""
        state = self._state
        if not isinstance(state, Prospective | Candidate) or voter_id not in self.log.voters.ids:
            return
        # The first response stands; the voter gets no second request.
        if voter_id in state.granted_by or voter_id in state.rejected_by:
            return
        voter = frozenset({voter_id})
        new = (
            replace(state, granted_by=state.granted_by | voter)
            if granted
            else replace(state, rejected_by=state.rejected_by | voter)
        )
        self._state = new
        self.maybe_win(now)

    def maybe_win(self, now: Millis) -> None:
        """Become candidate or leader if a majority has granted."""
        state = self._state
        if not isinstance(state, Prospective | Candidate):
            return
        if len(state.granted_by) < self.log.voters.majority:
            return
        if isinstance(state, Prospective) and (state.deferred_until or now) > now:
            return  # `timers` calls this again at that time.
        who = ", ".join(str(voter) for voter in sorted(state.granted_by))
        if isinstance(state, Prospective):
            self.become_candidate(f"pre-votes of {who}", now)
        else:
            self._become_leader(f"votes of {who}", now)

    def is_rejected(self, rejected_by: frozenset[BrokerId]) -> bool:
        """Whether a majority has become impossible."""
        voters = self.log.voters
        return len(voters) - len(rejected_by) < voters.majority

    def _become_leader(self, reason: str, now: Millis) -> None:
        candidate = self._state
        assert isinstance(candidate, Candidate)
        check = int(self.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        state = Leader(
            epoch=candidate.epoch,
            epoch_start_offset=self.log.end,
            granted_by=candidate.granted_by,
            check_quorum_deadline=Millis(now + check),
            begin_epoch_at=now,
        )
        self._become(state, reason, now, durable=True)
        self.progress = LeaderProgress(self.local, self.log.voters, self.log.end)
        if self.log.kraft_version == 0:
            self.volatile_voters = self.log.voters.update_ignoring_directory(self.local_voter)
        self.append_controls(self._epoch_start_controls(candidate))

    def _epoch_start_controls(self, candidate: Candidate) -> tuple[ControlRecord, ...]:
        """LeaderChange, and under kraft.version 1 the voters if the log has none or wrong ones.

        The zero checkpoint is never replicated, so the first leader writes its content to the log.
        """
        voters = self.log.voters
        change = LeaderChange(
            leader_id=self.local.id,
            voter_ids=voters.ids,
            granting_voter_ids=tuple(sorted(candidate.granted_by)),
        )
        if self.log.kraft_version == 0:
            return (change,)
        outdated = voters.needs_update(self.local_voter)
        if self.log.voters_offset != -1 and not outdated:
            return (change,)
        updated = voters.update(self.local_voter)
        assert updated is not None
        return (
            change,
            KRaftVersionChange(kraft_version=self.log.kraft_version),
            VotersChange(voters=updated),
        )

    @property
    def is_all_committed(self) -> bool:
        """Whether this replica leads and its high watermark has reached the log end."""
        return self.progress is not None and self.progress.high_watermark == self.log.end

    def start_resigning(self, reason: str) -> Leader:
        """Refuse new records, and resign once the existing ones are committed (see `timers`)."""
        state = self._state
        assert isinstance(state, Leader)
        if state.resign_reason is None:
            state = replace(state, resign_reason=reason)
            self.update(state)
        return state

    def become_resigned(self, reason: str, now: Millis) -> None:
        """Stop leading and inform the voters."""
        assert self.progress is not None
        voters = self.log.voters.ids
        state = Resigned(
            epoch=self.epoch,
            unacknowledged=frozenset(voter for voter in voters if voter != self.local.id),
            preferred_successors=self.progress.successors(),
            election_deadline=self.random_election_timeout(now),
        )
        self._become(state, reason, now, durable=False)

    def update(self, state: State) -> None:
        """Change data of the state, but neither its type nor its epoch."""
        if type(state) is not type(self._state) or state.epoch != self.epoch:
            raise InvariantBroken(f"{self._state} cannot be updated to {state}")
        self._state = state
