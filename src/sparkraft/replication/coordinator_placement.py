"""Keeps partitions led by brokers that serve what their leader has to serve.

Who leads a partition of `__transaction_state` or `__share_group_state` is the coordinator of what
hashes to it. In a cluster with Apache Kafka's brokers some replicas may lie on brokers that don't
serve that coordinator. They copy the records like any other, but should not lead:

    replicas [ours, k1, k2]  leader ours   → the order [k1, k2, ours], then a preferred election
    replicas [k1, ours, k2]  leader k1     → the order [k1, k2, ours]: elections go by the order
    replicas [ours]          leader ours   → [k1]: it is moved, or nobody could ever serve it

An able replica that is in sync always goes first, so ours leads only while no able one is in sync,
which keeps the records: without it nobody would lead. All of it are requests that any controller
serves, Kafka's too; nothing else in an election knows of ability.

Not here: asking what brokers serve, sending (`sparkraft.server.broker.coordinators_elsewhere`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class PlacedPartition(Protocol):
    """A partition as the metadata tell."""

    @property
    def replicas(self) -> Sequence[int]:
        """The assignment; the first is preferred as the leader."""

    @property
    def isr(self) -> Sequence[int]:
        """In sync."""

    @property
    def leader(self) -> int:
        """-1 for nobody."""

    @property
    def adding_replicas(self) -> Sequence[int]:
        """Of a move under way."""

    @property
    def removing_replicas(self) -> Sequence[int]:
        """Of a move under way."""


class Reassign(NamedTuple):
    """Ask for AlterPartitionReassignments to these."""

    replicas: tuple[int, ...]


class ElectPreferred(NamedTuple):
    """Ask for a preferred leader election."""


def next_reassignment(
    partition: PlacedPartition, index: int, *, able: Sequence[int], local_id: int
) -> Reassign | ElectPreferred | None:
    """What the broker `local_id`, which is not able, should ask of the controller now.

    Of several unable replicas one speaks: the leader if it is unable, else the first of them.

    Args:
        partition: as the newest image has it.
        index: of the partition; moves go to the able brokers in turn.
        able: live brokers that serve the coordinator, rising.
        local_id: this broker.
    """
    replicas = tuple(partition.replicas)
    unable = [replica for replica in replicas if replica not in able]
    if not able or not unable or partition.adding_replicas or partition.removing_replicas:
        return None
    if local_id != (partition.leader if partition.leader in unable else unable[0]):
        return None
    wanted = _preferred_order(partition, index, able=able, unable=unable)
    if wanted != replicas:
        return Reassign(wanted)
    if partition.leader in unable and wanted[0] in able and wanted[0] in partition.isr:
        return ElectPreferred()
    return None


def _preferred_order(
    partition: PlacedPartition, index: int, *, able: Sequence[int], unable: Sequence[int]
) -> tuple[int, ...]:
    replicas = partition.replicas
    first = [replica for replica in replicas if replica in able]
    if not first:
        return (able[index % len(able)], *replicas[:-1])
    if partition.leader in unable:  # it has to give way now, so to one that can take over
        first.sort(key=lambda replica: replica not in partition.isr)
    return (*first, *unable)
