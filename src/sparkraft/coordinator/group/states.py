"""The states of a classic group, and which may follow which."""

from enum import Enum


class GroupState(Enum):
    """What a classic group is doing; the value is the name on the wire."""

    EMPTY = "Empty"
    """No members; commits from outside a group are accepted. Ends: a join, or expiry."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Gathers joins: they are parked, Heartbeat and SyncGroup answer REBALANCE_IN_PROGRESS.
    Ends: all known members joined, or the rebalance timeout passes."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment: SyncGroup is parked, commits answer
    REBALANCE_IN_PROGRESS. Ends: the assignment is stored, a join, a leave, or a timeout."""
    STABLE = "Stable"
    """Every member has an assignment. Ends: a join that changes something, a leave, a timeout."""
    DEAD = "Dead"
    """Unloaded or deleted; everything answers that the coordinator is elsewhere. Ends: never."""


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
