"""The state of one partition, as the controller decides it and every node reads it."""

from typing import NamedTuple

from sparkraft.base.ids import Uuid

NO_LEADER = -1
"""Leader of a partition without a leader."""

RECOVERED = 0
"""Leader recovery state: elected cleanly, or recovery has completed."""

RECOVERING = 1
"""Leader recovery state: elected uncleanly, recovery not yet completed."""


class PartitionState(NamedTuple):
    """Replicas, leader and in-sync replicas of a partition (KIP-966 for the ELR)."""

    replicas: tuple[int, ...]
    """Use: assigned broker ids, the preferred leader first.
    Invariant: no duplicates; includes the adding and the removing replicas."""
    isr: tuple[int, ...]
    """Use: in-sync replicas. Invariant: contains the leader, if there is one."""
    elr: tuple[int, ...]
    """Use: eligible leader replicas, which have all committed records but may lag.
    Invariant: disjoint from the ISR; empty once the ISR has min.insync.replicas members."""
    last_known_elr: tuple[int, ...]
    """Use: the last leader of a partition whose ISR and ELR are empty; at most one id."""
    leader: int
    """Use: broker id of the leader, or `NO_LEADER`."""
    leader_epoch: int
    """Invariant: grows by one whenever a leader is written, also the same leader again."""
    partition_epoch: int
    """Invariant: grows by one with every change of this state."""
    directories: tuple[Uuid, ...]
    """Use: log directory id of each replica, in the order of `replicas`."""
    adding_replicas: tuple[int, ...]
    """Use: replicas that the reassignment in progress adds."""
    removing_replicas: tuple[int, ...]
    """Use: replicas that the reassignment in progress removes."""
    leader_recovery_state: int
    """Use: `RECOVERED` or `RECOVERING`. Invariant: RECOVERING implies a single ISR member."""

    @property
    def preferred_leader(self) -> int:
        """The first replica, or `NO_LEADER` if there are none."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, replica: int) -> Uuid:
        """Log directory id of a replica.

        Raises:
            ValueError: `replica` is not assigned.
        """
        return self.directories[self.replicas.index(replica)]
