"""Voters that adopt epochs as Apache Kafka's do, for quorums of both kinds.

Kafka 4.3 adopts the epoch of every Vote, BeginQuorumEpoch and EndQuorumEpoch that is well formed,
from any sender (`KafkaRaftClient.handleVoteRequest`, `maybeTransition`).
"""

from sparkraft.base.ids import LeaderEpoch
from sparkraft.raft.epoch_guard import EPOCH_LAST, EpochGuard, LocalView
from sparkraft.raft.events import EpochAndOffset
from sparkraft.raft.voters import ReplicaKey


class KafkaGuard(EpochGuard):
    """Refuses nothing but epochs that do not fit into an int32."""

    def is_reachable(
        self, ours: LeaderEpoch, epoch: LeaderEpoch, *, responded: bool = False
    ) -> bool:
        """See `EpochGuard`."""
        return 0 <= epoch <= EPOCH_LAST

    def why_not_vote(
        self, view: LocalView, candidate: ReplicaKey, epoch: LeaderEpoch, claim: EpochAndOffset
    ) -> str | None:
        """See `EpochGuard`."""
        return None

    def why_not_follow(self, view: LocalView, leader: ReplicaKey, epoch: LeaderEpoch) -> str | None:
        """See `EpochGuard`."""
        return None

    def counts_resignation(
        self, *, follows_sender: bool, ours: LeaderEpoch, epoch: LeaderEpoch
    ) -> bool:
        """See `EpochGuard`."""
        return True
