"""The states of a quorum member; each holds its own data and deadlines (KIP-595, KIP-996).

    Unattached  --election deadline--> Prospective --majority of pre-votes--> Candidate
    Candidate   --majority of votes--> Leader      --asked to, or majority silent--> Resigned
    Prospective --lost or timed out--> Follower of the leader it had, else Unattached
    Candidate   --election deadline--> Prospective
    Resigned    --election deadline--> Unattached in the next epoch
    any         --a leader is known--> Follower    --fetch deadline--> Prospective
    any         --a higher epoch-->    Unattached

An observer is only ever Unattached or Follower, and neither times out. A restart makes of a
leader Resigned, of a candidate Candidate in the same epoch.

Deadlines are on the clock of `now`. Not here: who moves between states (`replica`).
"""

from dataclasses import dataclass

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.voters import Endpoint, ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattached:
    """Knows no leader to fetch from. Ends: election deadline (voters), a leader, a larger epoch."""

    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    voted: ReplicaKey | None = None
    election_deadline: Millis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospective:
    """Asks whether it would win (pre-vote), without raising the epoch.

    Ends: majority for or against, election deadline, a leader, a larger epoch.
    """

    epoch: LeaderEpoch
    leader_id: BrokerId | None
    leader_endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None
    granted_by: frozenset[BrokerId]
    rejected_by: frozenset[BrokerId]
    election_deadline: Millis
    deferred_until: Millis | None = None
    """It granted a pre-vote to one who goes first: before then it is no candidate itself."""
    retry_voters: frozenset[BrokerId] = frozenset()
    """Voters with shorter logs that have asked us since: one refusal of each is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Asks for votes. Ends: majority, election deadline, a leader, a larger epoch."""

    epoch: LeaderEpoch
    granted_by: frozenset[BrokerId]
    rejected_by: frozenset[BrokerId]
    election_deadline: Millis


NO_RESPONSE = "no answer of the leader within the fetch timeout"
REFUSED = "the leader's port refuses connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Fetches from a known leader. Ends: fetch deadline (voters), a larger epoch."""

    epoch: LeaderEpoch
    leader_id: BrokerId
    leader_endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None
    fetch_deadline: Millis
    update_voter_at: Millis
    deadline_reason: str = NO_RESPONSE
    """Why it stands for election once `fetch_deadline` has come."""
    deferred_until: Millis | None = None
    """It granted a pre-vote: before then it does not stand, whatever `fetch_deadline` says."""
    leader_resigned: bool = False
    """`leader_id` said itself that it no longer leads: what else it had said comes too late.

    Kafka's followers take an answer that was under way for a sign of life, and wait another fetch
    timeout.
    """
    has_fetched: bool = False
    has_updated_leader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Owns the log of `epoch`. Ends: resignation, a silent majority, a larger epoch."""

    epoch: LeaderEpoch
    epoch_start_offset: Offset
    granted_by: frozenset[BrokerId]
    check_quorum_deadline: Millis
    begin_epoch_at: Millis
    resign_reason: str | None = None
    """Why it is about to resign. It takes no more records, and sees that those it has commit.

    So the best placed successor has all that this log has, and has its vote. Kafka's leaders
    resign at once: a successor that lacks their last records is refused, and time runs out.
    """
    resign_by: Millis | None = None
    """It waits no longer: whoever is to copy its records may be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigned:
    """Was leader of `epoch` and tells the voters so. Ends: election deadline, a larger epoch."""

    epoch: LeaderEpoch
    unacknowledged: frozenset[BrokerId]
    preferred_successors: tuple[ReplicaKey, ...]
    election_deadline: Millis


State = Unattached | Prospective | Candidate | Follower | Leader | Resigned

NEXT_STATES: dict[type[State], frozenset[type[State]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Unattached, Prospective, Candidate, Follower}),
    Candidate: frozenset({Unattached, Prospective, Leader, Follower}),
    Follower: frozenset({Unattached, Prospective, Follower}),
    Leader: frozenset({Unattached, Resigned, Follower}),
    Resigned: frozenset({Unattached, Prospective, Follower}),
}
"""What may follow what. Prospective follows Resigned only at the start of a quorum of one."""
