"""What state a partition and each of its replicas is in, and which state may follow which.

The names are those of Kafka's PartitionStateMachine and ReplicaStateMachine. There a controller
holds the states and drives brokers through them; under KRaft nobody holds them: they follow from
the metadata log and from what lies on a broker's disk, so they are computed here, from facts.

    partition   NON_EXISTENT ▶ ONLINE ◀▶ OFFLINE, and both ▶ NON_EXISTENT
    replica     NON_EXISTENT ▶ NEW ▶ ONLINE ◀▶ OFFLINE ▶ DELETION_INELIGIBLE ◀▶ DELETION_STARTED
                NEW and ONLINE ▶ DELETION_STARTED ▶ NON_EXISTENT; the tables have the rest

What has no place here: Kafka's NewPartition (a partition is born with its leader, in one record)
and ReplicaDeletionSuccessful (a broker tells nobody that a folder is gone).

Topic deletion: under ZooKeeper a topic with an offline replica or a move under way was ineligible
and waited. Here it is gone with one record; the copies that could not be deleted at once are
DELETION_INELIGIBLE, and their broker sets them aside as strays when it returns.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from sparkraft.metadata.partition_state import NO_LEADER


class PartitionMachineState(Enum):
    """Whether a partition can be written and read."""

    NON_EXISTENT = "NonExistentPartition"
    """Never made, or its topic deleted. Ends with the topic's creation."""
    ONLINE = "OnlinePartition"
    """Has a leader. Ends when nobody may lead it, or with its topic."""
    OFFLINE = "OfflinePartition"
    """Has none: clients get LEADER_NOT_AVAILABLE. Ends when one who may lead it returns."""


class ReplicaState(Enum):
    """How one broker's copy of a partition is."""

    NON_EXISTENT = "NonExistentReplica"
    """Neither assigned nor stored."""
    NEW = "NewReplica"
    """Added by a reassignment and not in sync yet: may not lead."""
    ONLINE = "OnlineReplica"
    """Assigned, its broker and log directory alive; in the ISR or on its way back to it."""
    OFFLINE = "OfflineReplica"
    """Assigned, but its broker is fenced, leaving or unregistered, or its directory failed."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """No longer assigned; its broker is alive and deletes it."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """No longer assigned, and its broker is away: it stays on disk until that returns."""


PARTITION_NEXT_STATES: dict[PartitionMachineState, frozenset[PartitionMachineState]] = {
    PartitionMachineState.NON_EXISTENT: frozenset({PartitionMachineState.ONLINE}),
    PartitionMachineState.ONLINE: frozenset(
        {PartitionMachineState.OFFLINE, PartitionMachineState.NON_EXISTENT}
    ),
    PartitionMachineState.OFFLINE: frozenset(
        {PartitionMachineState.ONLINE, PartitionMachineState.NON_EXISTENT}
    ),
}

REPLICA_NEXT_STATES: dict[ReplicaState, frozenset[ReplicaState]] = {
    # Born in the ISR, or born while its broker is away.
    ReplicaState.NON_EXISTENT: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE}
    ),
    ReplicaState.NEW: frozenset(
        {ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    # Back to NEW: it fell behind before the reassignment that added it was done.
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.NEW, ReplicaState.DELETION_STARTED}
    ),
    # To nothing at all: it was assigned while its broker was away, which never stored it.
    ReplicaState.OFFLINE: frozenset(
        {
            ReplicaState.ONLINE,
            ReplicaState.NEW,
            ReplicaState.DELETION_INELIGIBLE,
            ReplicaState.NON_EXISTENT,
        }
    ),
    # Assigned again before it was deleted: by a reassignment back, so it is added.
    ReplicaState.DELETION_STARTED: frozenset(
        {ReplicaState.NON_EXISTENT, ReplicaState.DELETION_INELIGIBLE, ReplicaState.NEW}
    ),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.DELETION_STARTED, ReplicaState.OFFLINE}
    ),
}


class ReplicaFacts(NamedTuple):
    """What a replica's state follows from.

    Attributes:
        assigned: it is among the partition's replicas.
        caught_up: it is in the ISR, or was never a newcomer of the present reassignment.
        alive: its broker serves and its log directory is online.
        stored: its broker has a copy of it on disk.
    """

    assigned: bool
    caught_up: bool
    alive: bool
    stored: bool


def partition_state(leader: int | None) -> PartitionMachineState:
    """The state of a partition led by `leader`, -1 for nobody; None: there is no such partition."""
    if leader is None:
        return PartitionMachineState.NON_EXISTENT
    return PartitionMachineState.OFFLINE if leader == NO_LEADER else PartitionMachineState.ONLINE


def replica_state(facts: ReplicaFacts) -> ReplicaState:
    """The state that these facts make."""
    if facts.assigned:
        if not facts.alive:
            return ReplicaState.OFFLINE
        return ReplicaState.ONLINE if facts.caught_up else ReplicaState.NEW
    if not facts.stored:
        return ReplicaState.NON_EXISTENT
    return ReplicaState.DELETION_STARTED if facts.alive else ReplicaState.DELETION_INELIGIBLE


def outlive_deletion(replicas: Iterable[tuple[int, ReplicaState]]) -> list[int]:
    """Brokers whose copy would stay on disk for now if the topic were deleted."""
    return sorted(broker for broker, state in replicas if state is ReplicaState.OFFLINE)
