"""The actions of each state as time passes, and the next wake-up time.

Run after every event: a deadline may have passed, and a peer may be ready for its next request.
"""

from dataclasses import replace
from typing import assert_never

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis
from sparkraft.raft import following, reconfiguration, votes
from sparkraft.raft.epoch_guard import EPOCH_LAST
from sparkraft.raft.events import (
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    PeerRequest,
    VoteRequest,
)
from sparkraft.raft.replica import Replica
from sparkraft.raft.states import (
    REFUSED,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from sparkraft.raft.voters import Voter

PROBE_EVERY_MS = 100
"""Interval at which a stopping leader checks whether any other voter is still running."""

RESIGN_WAIT_MS_MAX = 500
"""How long a resigning leader waits for its last records to be committed.

Longer than fetching followers need, short enough not to delay the election noticeably.
"""

_ROUNDS_MAX = 16
"""Bound of the transitions that one event may cause here; more would be an endless loop."""


def run(replica: Replica, now: Millis) -> Millis | None:
    """Apply timers until the state is stable; returns the next wake-up time, None for never."""
    for _ in range(_ROUNDS_MAX):
        before = replica.state
        wakes = _run_state(replica, now)
        if type(before) is type(replica.state) and before.epoch == replica.epoch:
            wakes += [parked.deadline for parked in replica.parked.values()]
            return min((wake for wake in wakes if wake is not None), default=None)
    raise InvariantBroken(f"the timers of {replica.state} do not settle")


def _run_state(replica: Replica, now: Millis) -> list[Millis | None]:
    state = replica.state
    match state:
        case Unattached():
            return _unattached(replica, state, now)
        case Prospective():
            return _prospective(replica, state, now)
        case Candidate():
            return _candidate(replica, state, now)
        case Follower():
            return _follower(replica, state, now)
        case Leader():
            return _leader(replica, state, now)
        case Resigned():
            return _resigned(replica, state, now)
        case _:
            assert_never(state)


def _unattached(replica: Replica, state: Unattached, now: Millis) -> list[Millis | None]:
    if replica.shutting_down:
        return []
    deadline = state.election_deadline
    if replica.is_voter and deadline is not None and deadline <= now:
        replica.become_prospective("no leader within the election timeout", now)
        return []
    again = following.fetch_from_bootstrap(replica, now) if following.may_fetch(replica) else None
    return [again, deadline if replica.is_voter else None]


def _prospective(replica: Replica, state: Prospective, now: Millis) -> list[Millis | None]:
    if replica.shutting_down:
        return []
    if state.election_deadline <= now:
        votes.end_pre_vote(replica, "no majority of pre-votes in time", now)
        return []
    replica.maybe_win(now)  # Its deferral may just have ended.
    if replica.state is not state:
        return []
    deferred = state.deferred_until
    wakes = [
        state.election_deadline,
        deferred if deferred is not None and deferred > now else None,
    ]
    return [*wakes, *_request_votes(replica, state, now)]


def _candidate(replica: Replica, state: Candidate, now: Millis) -> list[Millis | None]:
    if replica.shutting_down:
        return []
    if state.election_deadline <= now:
        replica.become_prospective("no majority of votes in time", now)
        return []
    return [state.election_deadline, *_request_votes(replica, state, now)]


def _request_votes(
    replica: Replica, state: Prospective | Candidate, now: Millis
) -> list[Millis | None]:
    if replica.is_rejected(state.rejected_by):
        return []
    # Only records on disk may be claimed: a restart must be able to claim the same.
    end = replica.log.durable_point
    responded = state.granted_by | state.rejected_by
    voters = [voter for voter in replica.log.voters.voters if voter.key.id not in responded]

    def build(voter: Voter) -> VoteRequest:
        return VoteRequest(
            cluster_id=replica.config.cluster_id,
            voter=voter.key,
            candidate=replica.local,
            epoch=state.epoch,
            last_epoch=end.epoch,
            last_offset=end.offset,
            pre_vote=isinstance(state, Prospective),
        )

    return [_send_if_ready(replica, voter, build(voter), now) for voter in voters]


def _send_if_ready(
    replica: Replica, voter: Voter, request: PeerRequest, now: Millis
) -> Millis | None:
    """Send a request to a voter if it is ready; returns when it is ready next."""
    node = replica.voter_node(voter)
    if node is None:
        return None
    if replica.connections.ready_at(node.id, now) <= now:
        replica.send(node, request, now)
    return replica.connections.ready_at(node.id, now)


def expect_leader_by(replica: Replica, state: Follower, deadline: Millis) -> None:
    """The leader's port refuses connections: start an election at `deadline` unless it responds.

    Until then grant pre-votes as if we had not fetched in this epoch. Kafka's followers grant none
    before the fetch timeout, so the first prospective voter would be refused.
    """
    if state.deadline_reason == REFUSED:
        return  # Another random delay at each refusal would pull the deadlines together.
    doubting = replace(state, has_fetched=False)
    if deadline < state.fetch_deadline:
        doubting = replace(doubting, fetch_deadline=deadline, deadline_reason=REFUSED)
    replica.update(doubting)


def _follower(replica: Replica, state: Follower, now: Millis) -> list[Millis | None]:
    if replica.shutting_down:
        return []
    if not replica.is_voter:
        return [_fetch(replica, state, now)]
    election_at = max(state.fetch_deadline, state.deferred_until or state.fetch_deadline)
    if election_at <= now:
        replica.become_prospective(state.deadline_reason, now)
        return []
    return [election_at, _fetch(replica, state, now)]


def _fetch(replica: Replica, state: Follower, now: Millis) -> Millis | None:
    """Fetch from the leader, and from bootstrap servers while it does not respond."""
    if not following.may_fetch(replica):
        return None
    connections = replica.connections
    leader = replica.node(state.leader_id, state.leader_endpoints)
    if leader is None:
        return following.fetch_from_bootstrap(replica, now)
    if connections.has_timed_out(leader.id, now):
        connections.drop(leader.id)
        connections.back_off(leader.id, now)
    again = connections.ready_at(leader.id, now)
    if again > now:
        if not connections.is_backing_off(leader.id, now):
            return again
        other = following.fetch_from_bootstrap(replica, now)
        return again if other is None else min(again, other)
    # A request to a bootstrap server may be in flight: its response can do no harm.
    replica.send(leader, following.next_request(replica, state, now), now)
    return connections.ready_at(leader.id, now)


def _leader(replica: Replica, state: Leader, now: Millis) -> list[Millis | None]:
    alone = replica.is_only_voter
    if replica.shutting_down and not alone:
        state = replica.start_resigning("shutting down")
    if state.resign_reason is not None:
        resign_by = state.resign_by or Millis(now + RESIGN_WAIT_MS_MAX)
        if resign_by <= now or replica.is_all_committed:
            replica.become_resigned(state.resign_reason, now)
            return []
        state = replace(state, resign_by=resign_by)
        replica.update(state)
    if not alone and state.check_quorum_deadline <= now:
        replica.become_resigned("no majority has fetched in time", now)
        return []
    reconfiguration.maybe_expire(replica, now)
    wakes: list[Millis | None] = [None if alone else state.check_quorum_deadline, state.resign_by]
    if replica.pending is not None:
        wakes.append(replica.pending.deadline)
    if not alone:
        wakes.append(_announce(replica, state, now))
    return wakes


def _announce(replica: Replica, state: Leader, now: Millis) -> Millis:
    """Send BeginQuorumEpoch to the voters that do not fetch, every half fetch timeout."""
    if state.begin_epoch_at > now:
        return state.begin_epoch_at
    period = replica.config.fetch_timeout_ms // 2
    assert replica.progress is not None
    for voter in replica.progress.silent_voters(Millis(now - period)):
        request = BeginQuorumEpochRequest(
            cluster_id=replica.config.cluster_id,
            voter=voter.key,
            leader_id=replica.local.id,
            epoch=state.epoch,
            leader_endpoints=replica.config.endpoints,
        )
        _send_if_ready(replica, voter, request, now)
    again = Millis(now + max(period, 1))
    replica.update(replace(state, begin_epoch_at=again))
    return again


def _resigned(replica: Replica, state: Resigned, now: Millis) -> list[Millis | None]:
    wakes = [_end_epoch(replica, state, voter_id, now) for voter_id in sorted(state.unacknowledged)]
    if replica.shutting_down:
        return [*wakes, _look_for_successors(replica, state, now)]
    if state.election_deadline <= now:
        if state.epoch >= EPOCH_LAST:
            deadline = replica.random_election_timeout(now)
            replica.update(replace(state, election_deadline=deadline))
            return [deadline, *wakes]
        # The next epoch, because this replica must not vote in an epoch that it led.
        epoch = LeaderEpoch(state.epoch + 1)
        replica.become_unattached(epoch, None, "resigned an election timeout ago", now)
        return []
    return [state.election_deadline, *wakes]


def _look_for_successors(replica: Replica, state: Resigned, now: Millis) -> Millis:
    """Probe the voters that acknowledged the resignation: they may be stopping, too."""
    if replica.probe_at <= now:
        replica.probe_at = Millis(now + PROBE_EVERY_MS)
        for voter in replica.log.voters.voters:
            if voter.key.id not in state.unacknowledged | {replica.local.id}:
                _send_if_ready(replica, voter, ApiVersionsRequest(), now)
    return replica.probe_at


def _end_epoch(replica: Replica, state: Resigned, voter_id: BrokerId, now: Millis) -> Millis | None:
    voter = replica.log.voters.get(voter_id)
    if voter is None:
        return None
    request = EndQuorumEpochRequest(
        cluster_id=replica.config.cluster_id,
        leader_id=replica.local.id,
        epoch=state.epoch,
        preferred_successors=state.preferred_successors,
        leader_endpoints=replica.config.endpoints,
    )
    return _send_if_ready(replica, voter, request, now)
