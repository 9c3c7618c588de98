"""Keep partitions of internal topics led by brokers that serve their coordinator.

The leader of a partition of `__transaction_state` or `__share_group_state` coordinates the keys
that hash to it. In a cluster with Apache Kafka's brokers, some replicas may be on brokers that do
not serve that coordinator. These replicate like any other, but should not lead:

    replicas [ours, k1, k2]  leader ours   → the order [k1, k2, ours], then a preferred election
    replicas [k1, ours, k2]  leader k1     → the order [k1, k2, ours]: elections go by the order
    replicas [ours]          leader ours   → [k1]: otherwise no broker could ever serve it

An able in-sync replica always comes first, so ours leads only while no able one is in sync; that
keeps the records available. Any controller serves these requests, Kafka's too. Elections know
nothing about ability.

Not here: learning what brokers serve, sending requests
(`sparkraft.server.coordinator.external_coordinators`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class PlacedPartition(Protocol):
    """The metadata of a partition."""

    @property
    def replicas(self) -> Sequence[int]:
        """The assignment; the first is the preferred leader."""

    @property
    def isr(self) -> Sequence[int]:
        """The in-sync replicas."""

    @property
    def leader(self) -> int:
        """-1 if there is none."""

    @property
    def adding_replicas(self) -> Sequence[int]:
        """Of a reassignment in progress."""

    @property
    def removing_replicas(self) -> Sequence[int]:
        """Of a reassignment in progress."""


class Reassign(NamedTuple):
    """Request AlterPartitionReassignments to these replicas."""

    replicas: tuple[int, ...]


class ElectPreferred(NamedTuple):
    """Request a preferred leader election."""


def next_reassignment(
    partition: PlacedPartition, index: int, *, able: Sequence[int], local_id: int
) -> Reassign | ElectPreferred | None:
    """The next request of the broker `local_id`, which is not able, to the controller.

    Of several unable replicas one sends it: the leader if it is unable, otherwise the first.

    Args:
        partition: from the newest image.
        index: the partition's; spreads moves over the able brokers.
        able: unfenced brokers that serve the coordinator, in ascending order.
        local_id: this broker.
    """
    replicas = tuple(partition.replicas)
    unable = [replica for replica in replicas if replica not in able]
    if not able or not unable or partition.adding_replicas or partition.removing_replicas:
        return None
    if local_id != (partition.leader if partition.leader in unable else unable[0]):
        return None
    target = _preferred_order(partition, index, able=able, unable=unable)
    if target != replicas:
        return Reassign(target)
    if partition.leader in unable and target[0] in able and target[0] in partition.isr:
        return ElectPreferred()
    return None


def _preferred_order(
    partition: PlacedPartition, index: int, *, able: Sequence[int], unable: Sequence[int]
) -> tuple[int, ...]:
    replicas = partition.replicas
    first = [replica for replica in replicas if replica in able]
    if not first:
        return (able[index % len(able)], *replicas[:-1])
    if partition.leader in unable:  # prefer one that can take over at once
        first.sort(key=lambda replica: replica not in partition.isr)
    return (*first, *unable)
