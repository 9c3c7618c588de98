"""Values of the controller: brokers, replica assignments, leadership of a partition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.metadata.partition_state import NO_LEADER, RECOVERED, RECOVERING

LEADER_DURING_DELETE = -2
"""Leader in UpdateMetadata of a partition whose topic is being deleted."""

EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica of a partition whose topic is being deleted (KIP-570)."""

NO_EPOCH = -1
"""Leader epoch in StopReplica of a partition without leadership information."""


class Endpoint(NamedTuple):
    """An advertised listener."""

    listener: str
    host: str
    port: int
    security_protocol: str


class Broker(NamedTuple):
    """A registered broker: the data of its znode, and its epoch."""

    id: int
    epoch: int
    """czxid of its znode (KIP-380)."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()
    """Supported features: name, lowest and highest level."""


class ReplicaAssignment(NamedTuple):
    """Assigned replicas of a partition, with those of a reassignment in progress (KIP-455)."""

    replicas: tuple[int, ...]
    """Use: broker ids, the preferred leader first; the adding and the removing ones included."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Iterable[int]) -> "ReplicaAssignment":
        """Return the assignment while replicas move to `target`.

        A reassignment that is replaced by another keeps the original replicas.
        """
        wanted = tuple(target)
        union = tuple(dict.fromkeys((*wanted, *self.origin)))
        return ReplicaAssignment(
            replicas=union,
            adding=tuple(replica for replica in union if replica not in self.origin),
            removing=tuple(replica for replica in union if replica not in wanted),
        )

    def without(self, replica: int) -> "ReplicaAssignment":
        """Return the assignment without one replica."""
        return ReplicaAssignment(*(tuple(r for r in part if r != replica) for part in self))


class LeaderAndIsr(NamedTuple):
    """Leader and in-sync replicas of a partition, as its state znode has them."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    """Version of the state znode; each write increments it."""
    recovery_state: int = RECOVERED

    def elect(self, leader: int, isr: tuple[int, ...]) -> "LeaderAndIsr":
        """Return the state under another leader, or the same again: the next leader epoch."""
        return self._replace(leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1)

    def elect_unclean(self, leader: int) -> "LeaderAndIsr":
        """Return the state under a leader that may lack committed records (KIP-704)."""
        return self.elect(leader, (leader,))._replace(recovery_state=RECOVERING)

    def without(self, replica: int) -> "LeaderAndIsr":
        """Return the state without an ISR member: without a leader if it was the leader.

        The last member stays in the ISR, which records that it has all committed records.
        """
        isr = self.isr if len(self.isr) == 1 else tuple(r for r in self.isr if r != replica)
        return self.elect(NO_LEADER if replica == self.leader else self.leader, isr)

    def during_delete(self) -> "LeaderAndIsr":
        """Return the state that UpdateMetadata shows while the topic is being deleted."""
        return LeaderAndIsr(leader=LEADER_DURING_DELETE, isr=self.isr)


class Leadership(NamedTuple):
    """A partition's leader and ISR, with the epoch of the controller that wrote them."""

    state: LeaderAndIsr
    controller_epoch: int


class Replica(NamedTuple):
    """One replica of a partition."""

    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChangeRequest:
    """AlterPartition of one broker.

    Attributes:
        broker: the sender, which leads the partitions.
        broker_epoch: its epoch.
        version: of the request.
        states: the requested states, with the epochs that the sender knows.
    """

    broker: int
    broker_epoch: int
    version: int
    states: Mapping[TopicPartition, LeaderAndIsr]
