"""Which state may follow which, and what a voter set makes of changes."""

import random
from itertools import product

import pytest

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.events import EpochAndOffset, LogBatch, QuorumConfig, VotersChange
from sparkraft.raft.log_view import LogView, RecoveredLog
from sparkraft.raft.replica import Replica
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
from sparkraft.raft.voters import ReplicaKey, Voter, VoterSet
from sparkraft.simulation.world.core_node import (
    LISTENER,
    SeededEntropy,
    directory_of,
    endpoint_of,
    voter_of,
)

VOTERS = VoterSet.of(voter_of(node_id) for node_id in (1, 2, 3))
NOBODY: frozenset[BrokerId] = frozenset()
NOW = Millis(0)


def examples(epoch: int) -> list[State]:
    e = LeaderEpoch(epoch)
    return [
        Unattached(epoch=e),
        Prospective(
            epoch=e,
            leader_id=None,
            leader_endpoints=(),
            voted=None,
            granted_by=NOBODY,
            rejected_by=NOBODY,
            election_deadline=NOW,
        ),
        Candidate(epoch=e, granted_by=NOBODY, rejected_by=NOBODY, election_deadline=NOW),
        Follower(
            epoch=e,
            leader_id=BrokerId(2),
            leader_endpoints=(endpoint_of(2),),
            voted=None,
            fetch_deadline=NOW,
            update_voter_at=NOW,
        ),
        Leader(
            epoch=e,
            epoch_start_offset=Offset(0),
            granted_by=NOBODY,
            check_quorum_deadline=NOW,
            begin_epoch_at=NOW,
        ),
        Resigned(epoch=e, unacknowledged=NOBODY, preferred_successors=(), election_deadline=NOW),
    ]


def replica_in(state: State) -> Replica:
    config = QuorumConfig(
        cluster_id="c", local=ReplicaKey(BrokerId(1), directory_of(1)), listener=LISTENER
    )
    log = LogView(RecoveredLog(), VOTERS)
    return Replica(config, log, state, SeededEntropy(random.Random(1)))


@pytest.mark.parametrize(
    ("old", "new"),
    list(product(examples(4), examples(4) + examples(5))),
    ids=lambda state: f"{type(state).__name__}{state.epoch}",
)
def test_only_listed_transitions_happen(old: State, new: State) -> None:
    replica = replica_in(old)
    if type(new) in NEXT_STATES[type(old)]:
        replica._become(new, "test", NOW, durable=True)
        assert replica.state is new
        assert replica.outbox.persist is not None
        assert replica.outbox.persist.epoch == new.epoch
    else:
        with pytest.raises(InvariantBroken):
            replica._become(new, "test", NOW, durable=True)
        assert replica.state is old


@pytest.mark.parametrize("old", examples(4), ids=lambda state: type(state).__name__)
def test_no_state_goes_back_to_an_older_epoch(old: State) -> None:
    replica = replica_in(old)
    with pytest.raises(InvariantBroken):
        replica._become(Unattached(epoch=LeaderEpoch(3)), "test", NOW, durable=True)


def test_a_voter_set_knows_directories_only_where_it_was_told() -> None:
    other_disk = ReplicaKey(BrokerId(1), directory_of(1, life=1))
    assert not VOTERS.is_voter(other_disk)
    static = VoterSet.of([Voter(key=ReplicaKey(BrokerId(1)))])
    assert static.is_voter(other_disk)
    assert static.is_only_voter(other_disk)


def test_a_voter_set_changes_by_one_voter() -> None:
    four = VOTERS.add(voter_of(4))
    assert four is not None
    assert four.ids == (1, 2, 3, 4)
    assert four.majority == 3
    assert VOTERS.add(voter_of(3)) is None
    assert four.remove(voter_of(4).key) == VOTERS
    assert VOTERS.remove(voter_of(3, life=1).key) is None
    assert VoterSet.of([voter_of(1)]).remove(voter_of(1).key) is None
    with pytest.raises(ValueError, match="duplicate voter id"):
        VoterSet.of([voter_of(1), voter_of(1, life=1)])


def log_of(*epochs: int) -> LogView:
    log = LogView(RecoveredLog(), VOTERS)
    for epoch in epochs:
        at = log.end
        log.append(LogBatch(base_offset=at, last_offset=at, epoch=LeaderEpoch(epoch)))
    return log


def test_where_an_epoch_ended() -> None:
    log = log_of(1, 1, 3, 3, 3)
    ends = [log.end_of_epoch(LeaderEpoch(epoch)) for epoch in range(5)]
    assert [(end.epoch, end.offset) for end in ends] == [(0, 0), (1, 2), (1, 2), (3, 5), (3, 5)]


def test_an_uncommitted_voter_set_counts_until_it_is_cut_off() -> None:
    log = log_of(1, 1)
    four = VOTERS.add(voter_of(4))
    assert four is not None
    at = log.end
    log.append(
        LogBatch(
            base_offset=at,
            last_offset=at,
            epoch=LeaderEpoch(1),
            controls=(VotersChange(voters=four),),
        )
    )
    assert log.voters == four
    log.truncate_to(at)
    assert log.voters == VOTERS


def test_only_what_is_on_disk_may_be_claimed_in_an_election() -> None:
    log = log_of(1, 1, 4)
    assert log.durable_point == EpochAndOffset(LeaderEpoch(0), Offset(0))
    log.durable_end = Offset(2)
    assert log.durable_point == EpochAndOffset(LeaderEpoch(1), Offset(2))
    assert log.end_point == EpochAndOffset(LeaderEpoch(4), Offset(3))


def test_a_log_is_never_cut_below_what_is_committed() -> None:
    log = log_of(1, 1, 1)
    log.advance_high_watermark(Offset(2))
    with pytest.raises(InvariantBroken):
        log.truncate_to(Offset(1))
    log.truncate_to(Offset(2))
    assert log.end == 2
