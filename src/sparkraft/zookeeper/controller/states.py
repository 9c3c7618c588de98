"""States of partitions and replicas, and which state may follow which.

The tables are those of Kafka 3.9's PartitionState and ReplicaState, which list the previous states
of each target (`validPreviousStates`). Any other transition is reported and skipped.

    partition   NON_EXISTENT ─► NEW ─► ONLINE ⇄ OFFLINE ─► NON_EXISTENT
    replica     NON_EXISTENT ─► NEW ─► ONLINE ⇄ OFFLINE ─► DELETION_STARTED ─► DELETION_SUCCESSFUL
                    ─► NON_EXISTENT; a deletion that cannot proceed is DELETION_INELIGIBLE until
                    the replica is OFFLINE or ONLINE again
"""

from enum import Enum


class PartitionStatus(Enum):
    """Whether a partition has a leader."""

    NEW = "NewPartition"
    """Has replicas, but no leader and no state znode yet. Ends when a replica is live."""
    ONLINE = "OnlinePartition"
    """Has a leader. Ends when the leader is not online, or with the topic."""
    OFFLINE = "OfflinePartition"
    """The leader is not online. Ends with an election, or with the topic."""
    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted."""


class ReplicaStatus(Enum):
    """How far a broker's replica of a partition is."""

    NEW = "NewReplica"
    """Assigned by a creation or reassignment; may only become a follower."""
    ONLINE = "OnlineReplica"
    """Assigned, and its broker and log directory are online."""
    OFFLINE = "OfflineReplica"
    """Its broker is not registered or shuts down, or its log directory failed."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was sent StopReplica with deletion. Ends with the response."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker deleted it. Ends when all replicas of the topic are deleted."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Its broker cannot delete it now. Ends when the broker returns."""
    NON_EXISTENT = "NonExistentReplica"
    """Never assigned, or deleted."""


PARTITION_NEXT_STATES: dict[PartitionStatus, frozenset[PartitionStatus]] = {
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.NEW}),
    PartitionStatus.NEW: frozenset({PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset(
        {PartitionStatus.ONLINE, PartitionStatus.OFFLINE, PartitionStatus.NON_EXISTENT}
    ),
}

_TO_ONLINE_OR_OFFLINE = frozenset({ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE})

REPLICA_NEXT_STATES: dict[ReplicaStatus, frozenset[ReplicaStatus]] = {
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.NEW}),
    ReplicaStatus.NEW: _TO_ONLINE_OR_OFFLINE,
    ReplicaStatus.ONLINE: _TO_ONLINE_OR_OFFLINE,
    ReplicaStatus.OFFLINE: _TO_ONLINE_OR_OFFLINE
    | {ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_INELIGIBLE},
    ReplicaStatus.DELETION_STARTED: frozenset(
        {ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE}
    ),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.DELETION_INELIGIBLE: _TO_ONLINE_OR_OFFLINE,
}
