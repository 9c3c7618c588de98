"""The states of a classic group and their transitions."""

from enum import Enum


class GroupState(Enum):
    """State of a classic group; the value is its name on the wire."""

    EMPTY = "Empty"
    """No members; commits from outside a group are accepted. Ends: a join, or expiry."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Collects joins: they are parked; Heartbeat and SyncGroup get REBALANCE_IN_PROGRESS.
    Ends: all known members joined, or the rebalance timeout passes."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment: SyncGroup is parked, commits get
    REBALANCE_IN_PROGRESS. Ends: the assignment is committed, a join, a leave, or a timeout."""
    STABLE = "Stable"
    """Every member has an assignment. Ends: a join that changes something, a leave, a timeout."""
    DEAD = "Dead"
    """Unloaded: every request gets COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR. Ends: never."""


NEXT_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
