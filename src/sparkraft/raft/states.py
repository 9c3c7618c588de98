"""The states of a quorum member; each holds its own data and deadlines (KIP-595, KIP-996).

    Unattached  --election deadline--> Prospective --majority of pre-votes--> Candidate
    Candidate   --majority of votes--> Leader      --requested, or majority silent--> Resigned
    Prospective --lost or timed out--> Follower of the leader it had, else Unattached
    Candidate   --election deadline--> Prospective
    Resigned    --election deadline--> Unattached in the next epoch
    any         --leader discovered--> Follower    --fetch deadline--> Prospective
    any         --a higher epoch-->    Unattached

An observer is only ever Unattached or Follower, and neither times out. After a restart a leader is
Resigned, and a candidate is Candidate in the same epoch.

Deadlines are on the clock of `now`. Not here: the transitions (`replica`).
"""

from dataclasses import dataclass

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.voters import Endpoint, ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattached:
    """Knows no leader to fetch from. Ends: election deadline (voters), a leader, a larger epoch."""

    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    """Use: the leader of `epoch`, if known, while its endpoints are not; no other leader of this
    epoch is accepted, and no vote is granted."""
    voted: ReplicaKey | None = None
    """Use: the candidate that has this replica's vote in `epoch`.
    Invariant: once set, it does not change within the epoch."""
    election_deadline: Millis | None = None
    """Use: when to become prospective. Invariant: None for observers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospective:
    """Sends pre-votes to learn whether it would win, without raising the epoch.

    Ends: majority for or against, election deadline, a leader, a larger epoch.
    """

    epoch: LeaderEpoch
    leader_id: BrokerId | None
    """Use: the leader it had; followed again if the pre-vote fails."""
    leader_endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None
    """As in `Unattached`: a prospective voter may still grant its vote of this epoch."""
    granted_by: frozenset[BrokerId]
    """Use: a majority makes it a candidate. Invariant: contains this replica, and is disjoint from
    `rejected_by`; the first response of each voter counts."""
    rejected_by: frozenset[BrokerId]
    election_deadline: Millis
    deferred_until: Millis | None = None
    """Use: before this time it does not become a candidate, because it granted a pre-vote to a
    voter that has priority."""
    retry_voters: frozenset[BrokerId] = frozenset()
    """Use: voters with shorter logs that have sent us a pre-vote since; one rejection by each is
    ignored, because it may be older than their request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Sends votes. Ends: majority, election deadline, a leader, a larger epoch."""

    epoch: LeaderEpoch
    """Invariant: this replica's own vote in this epoch is for itself."""
    granted_by: frozenset[BrokerId]
    """Use: a majority makes it the leader. Invariant: contains this replica."""
    rejected_by: frozenset[BrokerId]
    election_deadline: Millis


NO_RESPONSE = "no response from the leader within the fetch timeout"
REFUSED = "the leader's port refuses connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Fetches from a known leader. Ends: fetch deadline (voters), a larger epoch."""

    epoch: LeaderEpoch
    leader_id: BrokerId
    """Invariant: another replica, with at least one endpoint."""
    leader_endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None
    """As in `Unattached`: kept, so that a restart still knows it."""
    fetch_deadline: Millis
    """Use: when a voter becomes prospective; every successful Fetch moves it a fetch timeout
    ahead. Observers ignore it."""
    update_voter_at: Millis
    """Use: when to check next whether this replica should send UpdateRaftVoter, AddRaftVoter or
    RemoveRaftVoter instead of a Fetch (KIP-853); once per fetch timeout."""
    deadline_reason: str = NO_RESPONSE
    """Use: the reason for the election at `fetch_deadline`, for logs and the election journal."""
    deferred_until: Millis | None = None
    """Use: it granted a pre-vote, so it starts no election before this time, even if
    `fetch_deadline` has passed."""
    leader_resigned: bool = False
    """Use: EndQuorumEpoch has arrived, so later Fetch responses do not move `fetch_deadline`.

    Kafka's followers count a Fetch response that was under way as a sign of life, and wait for
    another fetch timeout.
    """
    has_fetched: bool = False
    """Use: a Fetch to this leader has succeeded, so pre-votes of others are refused. Cleared when
    the leader resigned or its port refuses connections."""
    has_updated_leader: bool = False
    """Use: under kraft.version 0, the leader has our endpoints and directory id (UpdateRaftVoter).
    Later versions compare with the voter set in the log instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Alone appends to the log in `epoch`. Ends: resignation, a silent majority, a larger epoch."""

    epoch: LeaderEpoch
    epoch_start_offset: Offset
    """Use: the offset of the LeaderChange record. Invariant: nothing is committed in this epoch
    before the high watermark has passed it."""
    granted_by: frozenset[BrokerId]
    """Use: the voters that elected it, for the LeaderChange record."""
    check_quorum_deadline: Millis
    """Use: it resigns at this time; moved ahead whenever a majority has fetched."""
    begin_epoch_at: Millis
    """Use: when to send BeginQuorumEpoch next to voters that do not fetch."""
    resign_reason: str | None = None
    """Use: set while it is about to resign. It refuses new records and waits for those it has to
    be committed, so that its best successor has the whole log and can win its vote.

    Kafka's leaders resign at once; a successor that lacks their last records is then rejected, and
    the election takes longer.
    """
    resign_by: Millis | None = None
    """Use: it resigns at this time even if records are uncommitted: the followers may be down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigned:
    """Led `epoch` and sends EndQuorumEpoch. Ends: election deadline, a larger epoch."""

    epoch: LeaderEpoch
    unacknowledged: frozenset[BrokerId]
    """Use: voters that have not responded to EndQuorumEpoch yet."""
    preferred_successors: tuple[ReplicaKey, ...]
    """Use: voters by log length, longest first; their order sets their election backoffs. Empty
    after a restart."""
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
"""Allowed transitions. Resigned becomes Prospective only at the start of a quorum of one."""
