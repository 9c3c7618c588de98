"""A member of the KRaft quorum: events in, `Ready` out (KIP-595, 630, 853, 996, 1166).

    driver ──event, now──▶ step ──▶ handlers change the `Replica` ──▶ timers ──▶ Ready ──▶ driver

Serves one voter or many, static or dynamic, and observers. It has no clock, socket or disk:
`Ready` contains the work to do, in order.

Not here: the meaning of the states (`states`), elections (`votes`), replication (`leading`,
`following`), voter changes (`reconfiguration`), wire format and files (`server.raft`).
"""

from collections import deque
from typing import assert_never

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Millis
from sparkraft.raft import following, leading, reconfiguration, timers, votes
from sparkraft.raft.connections import InFlightRequest
from sparkraft.raft.epoch_guard import RESERVED_FROM, EpochGuard
from sparkraft.raft.events import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Append,
    BeginQuorumEpochRequest,
    Description,
    ElectionState,
    EndQuorumEpochRequest,
    Event,
    Failure,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderAndEpoch,
    LogCleaned,
    LogFlushed,
    PeerResponse,
    QuorumConfig,
    QuorumEpochResponse,
    Ready,
    Refusal,
    RemoveVoterRequest,
    Request,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    SnapshotCreated,
    SnapshotDiscarded,
    SnapshotInstalled,
    TimerFired,
    UpdateVoterRequest,
    UpgradeKRaftVersion,
    VoteRequest,
    VoteResponse,
)
from sparkraft.raft.log_view import LogView, RecoveredLog
from sparkraft.raft.replica import Ballot, Outbox, Replica, Transition
from sparkraft.raft.states import Candidate, Follower, Leader, Resigned, State, Unattached
from sparkraft.raft.voters import Node, VoterSet

REFUSED_JITTER_MS = 50
"""Upper bound of the random delay before a follower whose leader's port refuses connections
starts an election; without it all followers would start at once and split the votes."""

BALLOTS_MAX = 100
"""Responses to Vote requests that are kept until the election journal takes them."""

NO_VOTERS = VoterSet()
"""No static voters are configured."""


class Quorum:
    """One replica; see the module docstring. One task owns it and never awaits inside it."""

    def __init__(
        self,
        config: QuorumConfig,
        recovered: RecoveredLog,
        election: ElectionState | None,
        *,
        static_voters: VoterSet = NO_VOTERS,
        entropy: Entropy,
        guard: EpochGuard | None = None,
    ) -> None:
        """Take over the recovered state; `start` comes next.

        `static_voters` are those of `controller.quorum.voters`, without directory ids; they apply
        until the log or a snapshot has a voter set. The simulator replaces `guard` to model voters
        that adopt any epoch, as Kafka's do.
        """
        self._log = LogView(recovered, static_voters)
        initial = Unattached(epoch=self._log.last_epoch)
        self._replica = Replica(config, self._log, initial, entropy, guard)
        self._election = election or ElectionState()
        self._reported_leader: LeaderAndEpoch | None = None
        self._reported_high_watermark = self._log.high_watermark
        self._transitions: list[Transition] = []
        self._ballots: deque[Ballot] = deque(maxlen=BALLOTS_MAX)

    # ---- reading

    @property
    def state(self) -> State:
        """The current state; immutable, so safe to keep."""
        return self._replica.state

    @property
    def log(self) -> LogView:
        """The core's view of its log; read-only for callers."""
        return self._log

    @property
    def config(self) -> QuorumConfig:
        return self._replica.config

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader this replica knows."""
        return self._replica.leader_and_epoch

    @property
    def leader_node(self) -> Node | None:
        """The leader's address for controllers and brokers; None if unknown."""
        replica = self._replica
        if replica.leader_id is None or isinstance(self.state, Resigned):
            return None
        return replica.node(replica.leader_id, replica.leader_endpoints)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.state, Leader)

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        return self._replica.is_voter

    @property
    def needs_repair(self) -> bool:
        """Whether the epoch has come to the reserved end of its range (`epoch_guard`)."""
        return self._replica.epoch >= RESERVED_FROM

    def is_in_touch(self, now: Millis) -> bool:
        """Whether this replica leads, or has fetched from its leader within the fetch timeout."""
        return self._replica.is_in_touch(now)

    @property
    def may_stop(self) -> bool:
        """Whether this replica has no leadership left to hand over."""
        replica = self._replica
        remote = replica.leader_id is not None and replica.leader_id != replica.local.id
        # Without a majority of running voters no voter can take over.
        voters = replica.log.voters
        hopeless = len(set(voters.ids) - replica.refusing_voters) < voters.majority
        return not replica.is_voter or replica.is_only_voter or remote or hopeless

    def describe(self, now: Millis) -> Description | None:
        """The replicas' progress as this leader sees it; None if this replica does not lead."""
        return leading.describe(self._replica, now)

    def take_transitions(self) -> list[Transition]:
        """The state transitions since the last call, for the log and the election journal."""
        taken, self._transitions = self._transitions, []
        return taken

    def take_ballots(self) -> list[Ballot]:
        """The votes granted and refused since the last call, for the election journal."""
        taken = list(self._ballots)
        self._ballots.clear()
        return taken

    # ---- work

    def start(self, now: Millis) -> Ready:
        """Start in the state that the last run left; a quorum of one leads at once."""
        replica = self._replica
        replica.set_initial(self._initial_state(now))
        replica.persist()
        if replica.is_only_voter and not isinstance(replica.state, Candidate):
            replica.become_prospective("the only voter", now)
        else:
            replica.maybe_win(now)
        return self._finish(now)

    def _initial_state(self, now: Millis) -> State:
        replica, election = self._replica, self._election
        deadline = replica.random_election_timeout(now)
        if election.epoch < self._log.last_epoch:
            return Unattached(
                epoch=self._log.last_epoch, election_deadline=self._if_voter(deadline)
            )
        if election.leader_id is not None and election.leader_id == replica.local.id:
            others = frozenset(voter for voter in self._log.voters.ids if voter != replica.local.id)
            return Resigned(
                epoch=election.epoch,
                unacknowledged=others,
                preferred_successors=(),
                election_deadline=deadline,
            )
        if self._was_candidate() and replica.is_voter:
            return Candidate(
                epoch=election.epoch,
                granted_by=frozenset({replica.local.id}),
                rejected_by=frozenset(),
                election_deadline=deadline,
            )
        endpoints = (
            self._log.voters.endpoints(election.leader_id) if election.leader_id is not None else ()
        )
        if election.leader_id is not None and endpoints:
            timeout = Millis(now + replica.config.fetch_timeout_ms)
            return Follower(
                epoch=election.epoch,
                leader_id=election.leader_id,
                leader_endpoints=endpoints,
                voted=election.voted,
                fetch_deadline=timeout,
                update_voter_at=timeout,
            )
        return Unattached(
            epoch=election.epoch,
            leader_id=election.leader_id,
            voted=election.voted,
            election_deadline=self._if_voter(deadline),
        )

    def _if_voter(self, deadline: Millis) -> Millis | None:
        return deadline if self._replica.is_voter else None

    def _was_candidate(self) -> bool:
        voted, local = self._election.voted, self._replica.local
        if voted is None or self._election.leader_id is not None or voted.id != local.id:
            return False
        return voted.directory_id in (None, local.directory_id)

    def step(self, event: Event, now: Millis) -> Ready:
        """Process one event and return the resulting work; never blocks."""
        self._handle(event, now)
        return self._finish(now)

    def _handle(  # noqa: C901, PLR0912 (one arm an event)
        self, event: Event, now: Millis
    ) -> None:
        replica = self._replica
        match event:
            case TimerFired():
                pass  # The timers run after every event.
            case RequestReceived(request_id=request_id, request=request):
                self._on_request(request_id, request, now)
            case RequestDropped(request_id=request_id):
                replica.parked.pop(request_id, None)
            case ResponseReceived(correlation_id=correlation_id, response=response):
                in_flight = replica.connections.complete(correlation_id)
                if in_flight is not None and not self._on_response(in_flight, response, now):
                    replica.connections.back_off(in_flight.to.id, now)
            case RequestFailed(correlation_id=correlation_id, failure=failure):
                in_flight = replica.connections.complete(correlation_id)
                if in_flight is not None:
                    self._on_failure(in_flight, failure, now)
            case LogFlushed():
                self._on_flushed(event)
            case SnapshotCreated(snapshot=snapshot, size=size):
                self._log.snapshots[snapshot] = size
            case SnapshotInstalled():
                following.on_snapshot_installed(replica, event)
            case SnapshotDiscarded():
                replica.fetching_snapshot = None
            case LogCleaned(log_start_offset=log_start_offset):
                self._log.clean(log_start_offset)
            case ResignRequested(epoch=epoch):
                if isinstance(self.state, Leader) and self.state.epoch == epoch:
                    replica.start_resigning("asked to resign")
            case ShutdownRequested():
                replica.shutting_down = True
            case _:
                assert_never(event)

    def _on_request(  # noqa: C901 (one arm a request)
        self, request_id: int, request: Request, now: Millis
    ) -> None:
        replica = self._replica
        match request:
            case VoteRequest():
                replica.respond(request_id, votes.on_vote_request(replica, request, now))
            case BeginQuorumEpochRequest():
                replica.respond(request_id, votes.on_begin_request(replica, request, now))
            case EndQuorumEpochRequest():
                replica.respond(request_id, votes.on_end_request(replica, request, now))
            case FetchRequest():
                leading.on_fetch(replica, request_id, request, now)
            case FetchSnapshotRequest():
                replica.respond(request_id, leading.on_fetch_snapshot(replica, request, now))
            case AddVoterRequest():
                reconfiguration.on_add(replica, request_id, request, now)
            case RemoveVoterRequest():
                reconfiguration.on_remove(replica, request_id, request, now)
            case UpdateVoterRequest():
                replica.respond(request_id, reconfiguration.on_update(replica, request, now))
            case UpgradeKRaftVersion():
                reconfiguration.on_upgrade(replica, request_id, request)
            case Append():
                leading.on_append(replica, request_id, request)
            case ApiVersionsRequest():
                replica.respond(request_id, Refusal(error=ErrorCode.INVALID_REQUEST))
            case _:
                assert_never(request)

    def _on_response(  # noqa: PLR0911 (one arm a response)
        self, in_flight: InFlightRequest, response: PeerResponse, now: Millis
    ) -> bool:
        """Whether the peer may get its next request at once; False for a backoff."""
        replica, request = self._replica, in_flight.request
        match request, response:
            case VoteRequest(), VoteResponse():
                return votes.on_vote_response(replica, request, in_flight.to.id, response, now)
            case (BeginQuorumEpochRequest() | EndQuorumEpochRequest(), QuorumEpochResponse()):
                return votes.on_epoch_response(replica, in_flight.to.id, response, now)
            case FetchRequest(), FetchResponse():
                return following.on_fetch_response(replica, response, now)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                return following.on_fetch_snapshot_response(replica, response, now)
            case ApiVersionsRequest(), ApiVersionsResponse():
                return reconfiguration.on_api_versions(replica, in_flight.to.id, response, now)
            case (
                AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest(),
                QuorumEpochResponse() | Refusal(),
            ):
                return following.on_voter_change_response(replica, request, response, now)
            case _:
                return False  # A bare refusal, or a response that does not match the request.

    def _on_failure(self, in_flight: InFlightRequest, failure: Failure, now: Millis) -> None:
        replica, state = self._replica, self._replica.state
        replica.connections.back_off(in_flight.to.id, now)
        if isinstance(in_flight.request, ApiVersionsRequest):
            error = ApiVersionsResponse(error=ErrorCode.NETWORK_EXCEPTION)
            reconfiguration.on_api_versions(replica, in_flight.to.id, error, now)
        if failure is not Failure.REFUSED:
            return
        if replica.shutting_down:
            replica.refusing_voters.add(in_flight.to.id)
        if not isinstance(state, Follower):
            return
        if replica.is_voter and in_flight.to.id == state.leader_id:
            # Its process has stopped. Pre-vote makes this safe: voters in touch with it refuse.
            jitter = replica.entropy.below(REFUSED_JITTER_MS)
            timers.expect_leader_by(replica, state, Millis(now + jitter))

    def _on_flushed(self, event: LogFlushed) -> None:
        log = self._log
        if event.generation != log.generation or event.up_to <= log.durable_end:
            return
        log.durable_end = min(event.up_to, log.end)
        if isinstance(self.state, Leader):
            leading.on_local_flush(self._replica)
        else:
            following.advance_from_leader(self._replica)

    def _finish(self, now: Millis) -> Ready:
        replica = self._replica
        wake_at = timers.run(replica, now)
        leading.complete_parked_fetches(replica, now)
        outbox, replica.outbox = replica.outbox, Outbox()
        self._transitions += outbox.transitions
        self._ballots += outbox.ballots
        leader, high_watermark = self.leader_and_epoch, self._log.high_watermark
        moved = high_watermark != self._reported_high_watermark
        ready = Ready(
            persist=outbox.persist,
            log=outbox.log,
            flush=outbox.flush,
            send=outbox.send,
            respond=outbox.respond,
            leader=leader if leader != self._reported_leader else None,
            high_watermark=high_watermark if moved else None,
            wake_at=wake_at,
        )
        self._reported_leader, self._reported_high_watermark = leader, high_watermark
        return ready
