"""Elections: Vote, BeginQuorumEpoch and EndQuorumEpoch, both ways (KIP-595, KIP-853, KIP-996).

Behaviour:
    * Any replica responds to a Vote by epoch and log, for any candidate; only responses of voters
      count.
    * Another cluster: INCONSISTENT_CLUSTER_ID. Meant for another replica: INVALID_VOTER_KEY.
      A negative id, or a log newer than the epoch of the request: INVALID_REQUEST. An older epoch:
      FENCED_LEADER_EPOCH. A higher epoch is adopted, unless `epoch_guard` refuses it.
    * EndQuorumEpoch counts only from the leader that this replica follows, in its epoch. In Kafka
      any sender with a higher epoch can end a leadership.
    * A pre-vote is granted if the candidate's log is up to date and this replica has not fetched
      from a leader of this epoch. It changes no vote.
    * Not in Kafka: a voter that grants a pre-vote defers its own candidacy for a moment. Of two
      voters that request pre-votes of each other, the one with the longer log has priority, else
      the lower id. In Kafka both become candidates and split the votes.
"""

from dataclasses import replace

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis
from sparkraft.raft.events import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochAndOffset,
    FetchResponse,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from sparkraft.raft.replica import Ballot, Replica
from sparkraft.raft.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from sparkraft.raft.voters import Endpoint, ReplicaKey

DEFERRAL_DIVISOR = 10
"""A candidacy is deferred by the election timeout divided by this: 100 ms by default, far longer
than the other voter's pre-votes and votes take, far shorter than the timeout a split vote costs."""


def wrong_cluster(replica: Replica, cluster_id: str | None) -> bool:
    """Whether a request is for another cluster; a request without a cluster id is accepted."""
    return cluster_id is not None and cluster_id != replica.config.cluster_id


def _meant_for_another(replica: Replica, voter: ReplicaKey | None) -> bool:
    if voter is None:
        return False
    if voter.id != replica.local.id:
        return True
    return voter.directory_id is not None and voter.directory_id != replica.local.directory_id


def maybe_transition(
    replica: Replica,
    epoch: LeaderEpoch,
    leader_id: BrokerId | None,
    endpoints: tuple[Endpoint, ...],
    now: Millis,
    *,
    by_leader: bool = False,
) -> bool:
    """Adopt an epoch and perhaps its leader; False if that contradicts what is known.

    `by_leader`: the leader itself sent it, so a replica that doubts its leader follows again.
    """
    if not _is_consistent(replica, epoch, leader_id):
        return False
    known = leader_id is not None and bool(endpoints)
    if epoch > replica.epoch:
        if known:
            assert leader_id is not None
            replica.become_follower(epoch, leader_id, endpoints, now)
        else:
            replica.become_unattached(epoch, None, f"epoch {epoch} seen", now)
    elif epoch == replica.epoch and known and not isinstance(replica.state, Leader | Resigned):
        assert leader_id is not None
        # A prospective doubts the leader it knows: only the leader itself can end that.
        lacks_endpoints = len(replica.leader_endpoints) < len(endpoints)
        doubted = by_leader and not isinstance(replica.state, Follower)
        if replica.leader_id is None or lacks_endpoints or doubted:
            replica.become_follower(epoch, leader_id, endpoints, now)
    return True


def _is_consistent(replica: Replica, epoch: LeaderEpoch, leader_id: BrokerId | None) -> bool:
    if leader_id is not None and leader_id == replica.local.id:
        return isinstance(replica.state, Leader | Resigned) and epoch == replica.epoch
    if epoch != replica.epoch or leader_id is None or replica.leader_id is None:
        return True
    return leader_id == replica.leader_id


# ---- Vote


def on_vote_request(replica: Replica, request: VoteRequest, now: Millis) -> VoteResponse:
    """Grant or refuse a vote or pre-vote."""
    if wrong_cluster(replica, request.cluster_id):
        return _vote_response(replica, ErrorCode.INCONSISTENT_CLUSTER_ID)
    error = _check_vote_request(replica, request)
    if error is not None:
        return _vote_response(replica, error)
    outside = replica.guard.why_not_vote(
        replica.local_view(now), request.candidate, request.epoch, _claim(request)
    )
    if outside is None and request.epoch > replica.epoch:
        replica.become_unattached(
            request.epoch, None, f"{request.candidate} is in epoch {request.epoch}", now
        )
    if _meant_for_another(replica, request.voter):
        return _vote_response(replica, ErrorCode.INVALID_VOTER_KEY)
    if outside is not None:
        _note_ballot(replica, request, outside)
        return _vote_response(replica, ErrorCode.NONE)
    why_not = _why_not(replica, request)
    granted = why_not is None
    if granted and not request.pre_vote and replica.voted is None:
        replica.add_vote(request.candidate, now)
    if request.pre_vote and replica.log.voters.is_voter(request.candidate):
        if granted:
            _defer_to(replica, request, now)
        else:
            _maybe_retry(replica, request)
    _note_ballot(replica, request, why_not)
    return _vote_response(replica, ErrorCode.NONE, granted=granted)


def _note_ballot(replica: Replica, request: VoteRequest, why_not: str | None) -> None:
    ballot = Ballot(request.candidate, request.epoch, request.pre_vote, why_not)
    replica.outbox.ballots.append(ballot)


def _check_vote_request(replica: Replica, request: VoteRequest) -> ErrorCode | None:
    newer = (
        request.last_epoch > request.epoch
        if request.pre_vote
        else request.last_epoch >= request.epoch
    )
    if request.last_offset < 0 or request.last_epoch < 0 or newer:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not replica.guard.is_reachable(replica.epoch, request.epoch):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_REQUEST if request.candidate.id < 0 else None


def _why_not(replica: Replica, request: VoteRequest) -> str | None:
    """The reason to refuse the vote; None if it is granted."""
    theirs = _claim(request)
    ours = replica.log.end_point
    behind = None
    if theirs < ours:
        behind = (
            f"its log ends at {theirs.offset} of epoch {theirs.epoch}, "
            f"ours at {ours.offset} of epoch {ours.epoch}"
        )
    match replica.state:
        case Leader():
            return "we lead this epoch"
        case Follower(leader_id=leader_id, has_fetched=has_fetched):
            if request.pre_vote and not has_fetched:
                return behind
            return f"we follow {leader_id} in this epoch"
        case Candidate() | Resigned():
            return behind if request.pre_vote else "we stood or led in this epoch ourselves"
        case Unattached() | Prospective():
            if request.pre_vote:
                return behind
            return _why_no_vote(replica, request.candidate, behind)


def _why_no_vote(replica: Replica, candidate: ReplicaKey, behind: str | None) -> str | None:
    """As `_why_not`, for a vote (not a pre-vote), in Unattached or Prospective."""
    voted = replica.voted
    if candidate.id == replica.local.id:
        return "it has our own id"
    if voted is not None:
        again = voted.id == candidate.id and voted.directory_id in (None, candidate.directory_id)
        return None if again else f"we voted for {voted} in this epoch"
    if replica.leader_id is not None:
        return f"{replica.leader_id} leads this epoch"
    return behind


def _defer_to(replica: Replica, request: VoteRequest, now: Millis) -> None:
    """Defer our own candidacy to the voter we granted a pre-vote. Safe: it only delays us."""
    state = replica.state
    until = Millis(now + replica.config.election_timeout_ms // DEFERRAL_DIVISOR)
    match state:
        case Unattached(election_deadline=deadline) if deadline is not None and deadline < until:
            replica.update(replace(state, election_deadline=until))
        case Follower():
            replica.update(replace(state, deferred_until=until))
        case Prospective() if _has_priority(replica, request):
            replica.update(replace(state, deferred_until=until))
        case _:
            pass


def _has_priority(replica: Replica, request: VoteRequest) -> bool:
    """Whether the candidate precedes this replica; both compute the same order."""
    theirs, ours = _claim(request), replica.log.durable_point
    return theirs > ours or (theirs == ours and request.candidate.id < replica.local.id)


def _maybe_retry(replica: Replica, request: VoteRequest) -> None:
    """Send a voter with a shorter log another pre-vote: it has lost its leader since it refused.

    That refusal is void; it may have arrived already, or may still be on its way.
    """
    state, voter = replica.state, frozenset({request.candidate.id})
    if isinstance(state, Prospective) and _claim(request) < replica.log.durable_point:
        rejected_by, retry = state.rejected_by - voter, state.retry_voters | voter
        replica.update(replace(state, rejected_by=rejected_by, retry_voters=retry))


def _claim(request: VoteRequest) -> EpochAndOffset:
    return EpochAndOffset(request.last_epoch, request.last_offset)


def _vote_response(replica: Replica, error: ErrorCode, *, granted: bool = False) -> VoteResponse:
    return VoteResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=replica.leader_id,
        leader_endpoints=replica.leader_endpoints,
        granted=granted,
    )


def on_vote_response(
    replica: Replica,
    request: VoteRequest,
    voter_id: BrokerId,
    response: VoteResponse,
    now: Millis,
) -> bool:
    """Count a response to our candidacy; False if the voter needs a backoff."""
    state = replica.state
    if response.error is ErrorCode.UNSUPPORTED_VERSION:
        if isinstance(state, Prospective) and request.pre_vote:
            replica.become_candidate(f"{voter_id} does not support pre-votes", now)
            return True
        return False
    refused = response.error is ErrorCode.NONE and not response.granted
    if refused and response.epoch < request.epoch == replica.epoch:
        # It refuses us as an outsider and keeps its own epoch: count that as a rejection.
        response = VoteResponse(error=ErrorCode.NONE, epoch=request.epoch)
    handled = on_common_response(replica, response.error, response, now)
    if handled is not None:
        return handled
    if response.error is not ErrorCode.NONE:
        return False
    wanted = isinstance(state, Prospective) if request.pre_vote else isinstance(state, Candidate)
    if not wanted or request.epoch != replica.epoch:
        return True
    if isinstance(state, Prospective) and not response.granted and voter_id in state.retry_voters:
        replica.update(replace(state, retry_voters=state.retry_voters - {voter_id}))
    else:
        replica.record_vote(voter_id, granted=response.granted, now=now)
        maybe_lose(replica, now)
    return True


def maybe_lose(replica: Replica, now: Millis) -> None:
    """End a pre-vote that cannot be won any more; a candidate waits for its timeout."""
    state = replica.state
    if isinstance(state, Prospective) and replica.is_rejected(state.rejected_by):
        who = ", ".join(str(voter) for voter in sorted(state.rejected_by))
        end_pre_vote(replica, f"pre-votes refused by {who}", now)


def end_pre_vote(replica: Replica, reason: str, now: Millis) -> None:
    """Follow the previous leader again, if its endpoints are known."""
    state = replica.state
    assert isinstance(state, Prospective)
    if state.leader_id is not None and state.leader_endpoints:
        replica.become_follower(state.epoch, state.leader_id, state.leader_endpoints, now)
    else:
        replica.become_unattached(state.epoch, state.leader_id, reason, now)


# ---- BeginQuorumEpoch and EndQuorumEpoch


def on_begin_request(
    replica: Replica, request: BeginQuorumEpochRequest, now: Millis
) -> QuorumEpochResponse:
    """Follow a leader that announces itself."""
    error = _check_leader_request(replica, request.cluster_id, request.leader_id, request.epoch)
    if error is not None:
        return epoch_response(replica, error)
    endpoints = request.leader_endpoints or replica.log.voters.endpoints(request.leader_id)
    view, leader, guard = replica.local_view(now), ReplicaKey(request.leader_id), replica.guard
    refused = (
        not guard.is_reachable(replica.epoch, request.epoch)
        or guard.why_not_follow(view, leader, request.epoch) is not None
    )
    if refused or not maybe_transition(
        replica, request.epoch, request.leader_id, endpoints, now, by_leader=True
    ):
        return epoch_response(replica, ErrorCode.INVALID_REQUEST)
    if _meant_for_another(replica, request.voter):
        return epoch_response(replica, ErrorCode.INVALID_VOTER_KEY)
    return epoch_response(replica, ErrorCode.NONE)


def on_end_request(
    replica: Replica, request: EndQuorumEpochRequest, now: Millis
) -> QuorumEpochResponse:
    """Our leader resigned: start an election after a backoff by our place among the successors."""
    error = _check_leader_request(replica, request.cluster_id, request.leader_id, request.epoch)
    if error is not None:
        return epoch_response(replica, error)
    if not _counts_resignation(replica, request):
        known = request.epoch == replica.epoch and replica.leader_id in (None, request.leader_id)
        return epoch_response(replica, ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST)
    endpoints = request.leader_endpoints or replica.log.voters.endpoints(request.leader_id)
    if not maybe_transition(replica, request.epoch, request.leader_id, endpoints, now):
        return epoch_response(replica, ErrorCode.INVALID_REQUEST)
    state = replica.state
    if isinstance(state, Follower) and state.leader_id == request.leader_id:
        backoff = _succession_backoff(replica, request.preferred_successors)
        # The leader itself has ended its leadership, so others may have our pre-vote.
        resigned = replace(
            state,
            fetch_deadline=Millis(now + backoff),
            deadline_reason=f"leader {request.leader_id} resigned",
            leader_resigned=True,
            has_fetched=False,
        )
        replica.update(resigned)
    return epoch_response(replica, ErrorCode.NONE)


def _counts_resignation(replica: Replica, request: EndQuorumEpochRequest) -> bool:
    state = replica.state
    follows = isinstance(state, Follower) and state.leader_id == request.leader_id
    return replica.guard.is_reachable(
        replica.epoch, request.epoch
    ) and replica.guard.counts_resignation(
        follows_sender=follows, ours=replica.epoch, epoch=request.epoch
    )


def _succession_backoff(replica: Replica, successors: tuple[ReplicaKey, ...]) -> int:
    """Milliseconds to wait, by position in the list: 0 for the first, then doubling to the maximum.

    A leader that was restarted names no successors: then every voter may start an election at
    once, as in Kafka (`KafkaRaftClient.endEpochElectionBackoff`).
    """
    if not successors:
        return 0
    longest = replica.config.election_backoff_max_ms
    for place, key in enumerate(successors):
        if key.id == replica.local.id and key.directory_id in (None, replica.local.directory_id):
            if place == 0:
                return 0
            shortest = longest >> (len(successors) - 1)
            return min(longest, shortest << (place - 1))
    return longest


def _check_leader_request(
    replica: Replica, cluster_id: str | None, leader_id: BrokerId, epoch: LeaderEpoch
) -> ErrorCode | None:
    if wrong_cluster(replica, cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if leader_id < 0 else None


def epoch_response(replica: Replica, error: ErrorCode) -> QuorumEpochResponse:
    """A response with `error` and the epoch and leader known here."""
    return QuorumEpochResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=replica.leader_id,
        leader_endpoints=replica.leader_endpoints,
    )


def on_epoch_response(
    replica: Replica, voter_id: BrokerId, response: QuorumEpochResponse, now: Millis
) -> bool:
    """Process a response to BeginQuorumEpoch or EndQuorumEpoch."""
    handled = on_common_response(replica, response.error, response, now)
    if handled is not None:
        return handled
    if response.error is not ErrorCode.NONE:
        return False
    state = replica.state
    if isinstance(state, Resigned):
        replica.update(replace(state, unacknowledged=state.unacknowledged - {voter_id}))
    return True


# ---- all responses


def on_common_response(
    replica: Replica,
    error: ErrorCode,
    response: VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse,
    now: Millis,
) -> bool | None:
    """Process the epoch and leader of a response.

    Returns None if the caller must process the rest; otherwise the response is done, and the peer
    may get its next request at once (True) or after a backoff (False).
    """
    epoch, leader_id, endpoints = response.epoch, response.leader_id, response.leader_endpoints
    if leader_id is not None and not endpoints:
        endpoints = replica.log.voters.endpoints(leader_id)
    if error in _TOP_LEVEL or not replica.guard.is_reachable(replica.epoch, epoch, responded=True):
        return False
    if epoch < replica.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        # The peer has an older epoch: its response is stale, and an immediate retry would not help.
        return error is ErrorCode.NONE
    if epoch > replica.epoch or error in _LEADER_ERRORS:
        before = replica.state
        maybe_transition(replica, epoch, leader_id, endpoints, now)
        return before is not replica.state
    if leader_id is not None and _lacks_leader(replica):
        maybe_transition(replica, epoch, leader_id, endpoints, now)
        return None if error is ErrorCode.NONE else True
    if error is ErrorCode.INVALID_VOTER_KEY:
        return False
    return None


def _lacks_leader(replica: Replica) -> bool:
    """Whether it cannot fetch from the leader of its epoch: the id or the endpoints are unknown.

    A replica that has lost its log knows its leader from quorum-state, but the voters with their
    endpoints were in the log. (Kafka's client fails in this state: it expects to be a follower.)
    """
    return replica.leader_id is None or isinstance(replica.state, Unattached)


_LEADER_ERRORS = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_TOP_LEVEL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
