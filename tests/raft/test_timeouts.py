"""How long a voter waits before it stands for election: by dice, or by its place in a list.

Both rules are Kafka's: `QuorumState.randomElectionTimeoutMs`, and of a leader that resigns
`KafkaRaftClient.endEpochElectionBackoff`. A candidate that is refused has no back-off of its own
since KIP-996: it waits its election timeout out.
"""

import random
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis
from sparkraft.raft.events import (
    ElectionState,
    EndQuorumEpochRequest,
    QuorumConfig,
    Ready,
    RequestReceived,
    ResponseReceived,
    TimerFired,
    VoteResponse,
)
from sparkraft.raft.log_view import RecoveredLog
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.states import Candidate, Follower, Prospective, Unattached
from sparkraft.raft.voters import ReplicaKey, VoterSet, without_directories
from sparkraft.simulation.world.core_node import (
    LISTENER,
    SeededEntropy,
    directory_of,
    endpoint_of,
    voter_of,
)

TIMEOUT_MS = 1000
EPOCH = LeaderEpoch(4)
LEADER = BrokerId(2)
VOTERS = without_directories(VoterSet.of(voter_of(node_id) for node_id in range(1, 6)))


class OneFace:
    """Dice that always show the least there is, or the most."""

    def __init__(self, *, most: bool) -> None:
        self.most = most

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def below(self, bound: int) -> int:
        return bound - 1 if self.most else 0


def voter(dice: Any, leader_id: BrokerId | None = None, **settings: int) -> Quorum:
    """Voter 1 of five, before it starts."""
    config = QuorumConfig(
        cluster_id="c",
        local=ReplicaKey(BrokerId(1), directory_of(1)),
        listener=LISTENER,
        endpoints=(endpoint_of(1),),
        election_timeout_ms=TIMEOUT_MS,
        **settings,  # type: ignore[arg-type]
    )
    election = ElectionState(epoch=EPOCH, leader_id=leader_id)
    return Quorum(config, RecoveredLog(), election, static_voters=VOTERS, entropy=dice)


def grant_pre_votes(quorum: Quorum, asked: Ready, now: Millis) -> None:
    """Answer what it asks in `asked` until it has a majority."""
    for send in asked.send:
        answer = VoteResponse(error=ErrorCode.NONE, epoch=quorum.state.epoch, granted=True)
        event = ResponseReceived(correlation_id=send.correlation_id, response=answer)
        quorum.step(event, now)
        if not isinstance(quorum.state, Prospective):
            return


def deadline_as(kind: type[Any], quorum: Quorum) -> Millis:
    """When its time is up in the state that it must be in."""
    state: Any = quorum.state
    assert isinstance(state, kind)
    deadline: Millis = state.election_deadline
    return deadline


@pytest.mark.parametrize(("most", "wait_ms"), [(False, TIMEOUT_MS), (True, 2 * TIMEOUT_MS - 1)])
def test_every_deadline_of_an_election_is_one_to_two_timeouts_away(
    most: bool, wait_ms: int
) -> None:
    quorum = voter(OneFace(most=most))
    first, second = Millis(wait_ms), Millis(2 * wait_ms)
    quorum.start(Millis(0))
    assert deadline_as(Unattached, quorum) == first
    quorum.step(TimerFired(), Millis(first - 1))
    assert deadline_as(Unattached, quorum) == first
    asked = quorum.step(TimerFired(), first)
    assert deadline_as(Prospective, quorum) == second
    grant_pre_votes(quorum, asked, first)
    assert deadline_as(Candidate, quorum) == second
    quorum.step(TimerFired(), Millis(second - 1))
    assert deadline_as(Candidate, quorum) == second
    quorum.step(TimerFired(), second)
    assert deadline_as(Prospective, quorum) == second + wait_ms


def test_timeouts_are_spread_over_all_they_may_be() -> None:
    """While nobody answers, it asks for pre-votes again after each of them."""
    quorum = voter(SeededEntropy(random.Random(1)))
    quorum.start(Millis(0))
    now = deadline_as(Unattached, quorum)
    waits: list[int] = []
    for _ in range(300):
        quorum.step(TimerFired(), now)
        deadline = deadline_as(Prospective, quorum)
        waits.append(deadline - now)
        now = deadline
    assert TIMEOUT_MS <= min(waits) < 1.1 * TIMEOUT_MS
    assert 1.9 * TIMEOUT_MS < max(waits) < 2 * TIMEOUT_MS
    assert len(set(waits)) > 200, "hardly one comes twice"


@pytest.mark.parametrize(
    ("successors", "longest_ms", "wait_ms"),
    [
        ([1, 3, 4, 5], 1000, 0),
        ([3, 1, 4, 5], 1000, 125),
        ([3, 4, 1, 5], 1000, 250),
        ([3, 4, 5, 1], 1000, 500),
        ([3, 4, 5], 1000, 1000),  # not named
        ([3, 1], 300, 150),
        ([3, 4], 300, 300),
        ([], 1000, 0),  # a leader that was started again: whoever hears of it may stand
    ],
)
def test_who_is_named_later_by_a_leader_that_resigns_waits_twice_as_long_up_to_a_limit(
    successors: list[int], longest_ms: int, wait_ms: int
) -> None:
    quorum = voter(OneFace(most=False), LEADER, election_backoff_max_ms=longest_ms)
    quorum.start(Millis(0))
    resigns = EndQuorumEpochRequest(
        cluster_id="c",
        leader_id=LEADER,
        epoch=EPOCH,
        preferred_successors=tuple(ReplicaKey(BrokerId(node_id)) for node_id in successors),
        leader_endpoints=(endpoint_of(LEADER),),
    )
    ready = quorum.step(RequestReceived(request_id=1, request=resigns), Millis(0))
    if wait_ms:
        assert isinstance(quorum.state, Follower)
        assert ready.wake_at is not None
        assert ready.wake_at <= wait_ms
        quorum.step(TimerFired(), Millis(wait_ms - 1))
        assert isinstance(quorum.state, Follower)
        quorum.step(TimerFired(), Millis(wait_ms))
    assert isinstance(quorum.state, Prospective)
