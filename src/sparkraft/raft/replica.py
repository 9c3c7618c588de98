"""One replica's state, and the only code that assigns it: transitions, and the work they cause.

The handlers (`votes`, `leading`, `following`, `reconfiguration`) are functions over a `Replica`;
`quorum.Quorum` runs them and hands out what they left in the `Outbox`.

Invariants:
    * `epoch` never goes back; a replica votes at most once in an epoch.
    * Every state change that must survive is in `outbox.persist` before it is spoken of.
"""

from dataclasses import dataclass, field, replace

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, InvariantBroken
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.connections import Connections
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
    """A change of state and why it came about, for the log and the election journal."""

    old: State
    new: State
    reason: str
    at: Millis


@dataclass(frozen=True, slots=True)
class Ballot:
    """How this replica answered a Vote request; `why_not` is None where it granted."""

    candidate: ReplicaKey
    epoch: LeaderEpoch
    pre_vote: bool
    why_not: str | None


@dataclass(slots=True)
class Outbox:
    """The `Ready` being made; `transitions` and `ballots` are kept beside it."""

    persist: ElectionState | None = None
    log: list[LogEffect] = field(default_factory=list)
    flush: Flush | None = None
    send: list[Send] = field(default_factory=list)
    respond: list[Respond] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    ballots: list[Ballot] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ParkedFetch:
    """A Fetch that waits for news."""

    request: FetchRequest
    deadline: Millis


@dataclass(slots=True, kw_only=True)
class PendingVoterChange:
    """A change of the voter set that waits: for ApiVersions, then for its record's commit."""

    request_id: int | None
    deadline: Millis
    added: Voter | None = None
    ack_when_committed: bool = True
    last_offset: Offset | None = None


@dataclass(slots=True, kw_only=True)
class FetchingSnapshot:
    """A snapshot on its way from the leader; `installing` once its last byte was handed out."""

    snapshot: EpochAndOffset
    position: int = 0
    installing: bool = False


class Replica:
    """See the module docstring."""

    def __init__(self, config: QuorumConfig, log: LogView, state: State, entropy: Entropy) -> None:
        """Start in `state`, not yet persisted."""
        self.config = config
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
        """Voters whose ports refused us while we were shutting down."""
        self.probe_at = Millis(0)
        self._state: State = state

    # ---- what it is

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
        """This replica."""
        return self.config.local

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        return self.local.id >= 0 and self.log.voters.is_voter(self.local)

    @property
    def is_only_voter(self) -> bool:
        """Whether this replica decides alone."""
        return self.local.id >= 0 and self.log.voters.is_only_voter(self.local)

    @property
    def leader_id(self) -> BrokerId | None:
        """Who leads in `epoch`, as far as is known; a resigned leader still counts."""
        match self._state:
            case Leader() | Resigned():
                return self.local.id
            case Candidate():
                return None
            case Unattached() | Prospective() | Follower():
                return self._state.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where that leader listens."""
        match self._state:
            case Leader() | Resigned():
                return self.config.endpoints
            case Prospective() | Follower():
                return self._state.leader_endpoints
            case Candidate() | Unattached():
                return ()

    @property
    def voted(self) -> ReplicaKey | None:
        """Whom this replica voted for in `epoch`."""
        match self._state:
            case Candidate():
                return self.local
            case Unattached() | Prospective() | Follower():
                return self._state.voted
            case Leader() | Resigned():
                return None

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """What listeners are told; a resigned leader is none."""
        leader = None if isinstance(self._state, Resigned) else self.leader_id
        return LeaderAndEpoch(leader, self.epoch)

    @property
    def local_voter(self) -> Voter:
        """What this replica says of itself in a voter set."""
        return Voter(
            key=self.local,
            endpoints=self.config.endpoints,
            min_kraft_version=self.config.min_kraft_version,
            max_kraft_version=self.config.max_kraft_version,
        )

    @property
    def flushes(self) -> bool:
        """Whether what it fetches must be on disk before the next Fetch."""
        return self.config.can_become_voter or self.is_voter

    def election_state(self) -> ElectionState:
        """What a restart must find."""
        return ElectionState(
            epoch=self.epoch,
            leader_id=self.leader_id,
            voted=self.voted,
            voter_ids=self.log.voters.ids,
            kraft_version=self.log.kraft_version,
        )

    def voter_node(self, voter: Voter) -> Node | None:
        """Where to reach a voter; None where it does not have our listener."""
        return self.node(voter.key.id, voter.endpoints)

    def node(self, node_id: BrokerId, endpoints: tuple[Endpoint, ...]) -> Node | None:
        """Where to reach a node with these endpoints, by the controller listener."""
        endpoint = address(endpoints, self.config.listener)
        return None if endpoint is None else Node(node_id, endpoint.host, endpoint.port)

    def random_election_timeout(self, now: Millis) -> Millis:
        """A deadline one to two election timeouts away."""
        base = self.config.election_timeout_ms
        return Millis(now + base + (self.entropy.below(base) if base else 0))

    def set_initial(self, state: State) -> None:
        """Start in `state` instead; only before the first event."""
        self._state = state

    # ---- effects

    def persist(self) -> None:
        """Ask for the election state to be on disk before anything is said."""
        self.outbox.persist = self.election_state()

    def send(self, to: Node, request: PeerRequest, now: Millis) -> None:
        """Ask a peer that is ready."""
        self.outbox.send.append(self.connections.send(to, request, now))

    def respond(self, request_id: int, response: Response) -> None:
        """Answer a request."""
        self.outbox.respond.append(Respond(request_id=request_id, response=response))

    def append(self, batch: LogBatch) -> None:
        """Write a batch, ours or our leader's, and have it flushed where that counts."""
        self.log.append(batch)
        self.outbox.log.append(AppendBatch(batch=batch))
        if self.flushes:
            self.flush()
        else:
            self.log.durable_end = self.log.end
        if self.progress is not None:
            self.progress.set_voters(self.log.voters)

    def append_controls(self, controls: tuple[ControlRecord, ...]) -> LogBatch:
        """Write control records of ours as one batch."""
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
        """Ask for the whole log to be on disk."""
        self.outbox.flush = Flush(up_to=self.log.end, generation=self.log.generation)

    def truncate_to(self, offset: Offset) -> None:
        """Cut the log."""
        if offset >= self.log.end:
            return
        self.log.truncate_to(offset)
        self.outbox.log.append(TruncateTo(offset=offset))
        if self.log.durable_end < self.log.end:
            # A flush under way belongs to the old generation and will not be counted.
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
        """One that is being installed is finished whatever happens."""
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
        """Know no leader to fetch from in `epoch`."""
        same = epoch == self.epoch
        state = Unattached(
            epoch=epoch,
            leader_id=leader_id,
            voted=self.voted if same else None,
            election_deadline=self._deadline_when_unattached(now),
        )
        self._become(state, reason, now, durable=True)

    def _deadline_when_unattached(self, now: Millis) -> Millis | None:
        """A running election timeout runs on, lest news of epochs puts elections off for ever."""
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
        """Vote for `candidate` in this epoch; the state must not have voted yet."""
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
        """Fetch from `leader_id`, who must be someone else and reachable."""
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
        """Begin to ask for pre-votes; a quorum of one goes on to lead at once."""
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
        """Raise the epoch, vote for ourselves and ask for votes."""
        state = Candidate(
            epoch=LeaderEpoch(self.epoch + 1),
            granted_by=frozenset({self.local.id}),
            rejected_by=frozenset(),
            election_deadline=self.random_election_timeout(now),
        )
        self._become(state, reason, now, durable=True)
        self.maybe_win(now)

    def record_vote(self, voter_id: BrokerId, *, granted: bool, now: Millis) -> None:
        """Count a vote or a pre-vote of a member; others' answers don't count."""
        state = self._state
        if not isinstance(state, Prospective | Candidate) or voter_id not in self.log.voters.ids:
            return
        # A first answer stands: a voter that answers twice is not asked again.
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
        """Go on if a majority has granted: to Candidate, or to Leader."""
        state = self._state
        if not isinstance(state, Prospective | Candidate):
            return
        if len(state.granted_by) < self.log.voters.majority:
            return
        if isinstance(state, Prospective) and (state.deferred_until or now) > now:
            return  # `timers` asks again then.
        who = ", ".join(str(voter) for voter in sorted(state.granted_by))
        if isinstance(state, Prospective):
            self.become_candidate(f"pre-votes of {who}", now)
        else:
            self._become_leader(f"votes of {who}", now)

    def is_rejected(self, rejected_by: frozenset[BrokerId]) -> bool:
        """Whether no majority can come together any more."""
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
        """LeaderChange; and under kraft.version 1 the voters, where the log lacks or mistakes them.

        The zero checkpoint is never replicated, so the first leader writes its content down.
        """
        voters = self.log.voters
        change = LeaderChange(
            leader_id=self.local.id,
            voter_ids=voters.ids,
            granting_voter_ids=tuple(sorted(candidate.granted_by)),
        )
        if self.log.kraft_version == 0:
            return (change,)
        mistaken = voters.needs_update(self.local_voter)
        if self.log.voters_offset != -1 and not mistaken:
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
        """Whether a leader has nothing that its high watermark has not reached."""
        return self.progress is not None and self.progress.high_watermark == self.log.end

    def start_resigning(self, reason: str) -> Leader:
        """Have the leader take no more records, and resign as soon as those it has are committed.

        Which the timers see to, after every event.
        """
        state = self._state
        assert isinstance(state, Leader)
        if state.resign_reason is None:
            state = replace(state, resign_reason=reason)
            self.update(state)
        return state

    def become_resigned(self, reason: str, now: Millis) -> None:
        """Stop leading and tell the voters."""
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
        """Change data within the state: deadlines, flags, acknowledgements."""
        if type(state) is not type(self._state) or state.epoch != self.epoch:
            raise InvariantBroken(f"{self._state} is not updated by {state}")
        self._state = state
