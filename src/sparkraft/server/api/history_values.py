"""Partitions and brokers of an image, and reasons of elections, as values of DescribeHistory."""

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from sparkraft.base.loop_work import LoopBound
from sparkraft.base.ordering import in_order
from sparkraft.controller.decision_context import why_not_leader
from sparkraft.controller.leader_election import Reason
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages import k10002_describe_history as k10002

OUT_OF_SYNC_MAX = 100
"""Partitions listed that a broker is not in sync with."""

PARTITIONS: LoopBound = 250
"""Partitions of the image that are counted for the requested brokers at once."""

T = TypeVar("T")
Work: TypeAlias = Generator[Any, Any, T]


def is_in(partitions: list[int] | None, index: int) -> bool:
    return partitions is None or index in partitions


def state_of(partition: PartitionState | None) -> k10002.PartitionState | None:
    if partition is None:
        return None
    return k10002.PartitionState(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        elr=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        adding=list(partition.adding_replicas),
        removing=list(partition.removing_replicas),
        leader_recovery_state=partition.leader_recovery_state,
        directories=list(partition.directories),
    )


def offline_replicas(image: ClusterImage, partition: PartitionState | None) -> list[int]:
    if partition is None:
        return []
    why_not = why_not_leader(image, partition, {})
    return [replica for replica in partition.replicas if why_not(replica) is not None]


def reason_of(reason: Reason, *, from_journal: bool, is_derived: bool) -> k10002.ElectionReason:
    return k10002.ElectionReason(
        kind=reason.name,
        chosen_by=reason.chosen_by.value,
        candidates=list(reason.candidates),
        isr=list(reason.isr),
        elr=list(reason.elr),
        live=list(reason.live),
        ruled_out=[k10002.RuledOut(replica=r, why=why) for r, why in reason.ruled_out],
        from_journal=from_journal,
        is_derived=is_derived,
    )


def broker_of(image: ClusterImage, broker_id: int) -> k10002.HistoryBroker:
    known = image.brokers.get(broker_id)
    described = k10002.HistoryBroker(
        broker_id=broker_id, rack=None, is_registered=known is not None
    )
    if known is not None:
        described.broker_epoch = known.epoch
        described.is_fenced = known.fenced
        described.is_shutting_down = known.in_controlled_shutdown
        described.rack = known.rack
        described.directories = list(known.directories)
        described.cordoned_directories = list(known.cordoned_directories or ())
    return described


def count_partitions(image: ClusterImage, found: dict[int, k10002.HistoryBroker]) -> Work[None]:
    names = yield from in_order(image.topics_by_name)
    topics = (image.topics_by_id[image.topics_by_name[name]] for name in names)
    partitions = ((topic, one) for topic in topics for one in topic.in_order())
    for number, (topic, (index, partition)) in enumerate(partitions):
        for broker_id in partition.replicas:
            if broker_id in found:
                _count(found[broker_id], topic.name, index, partition)
        if number % PARTITIONS == PARTITIONS - 1:
            yield PARTITIONS // 4


def _count(
    described: k10002.HistoryBroker, topic: str, index: int, partition: PartitionState
) -> None:
    broker_id = described.broker_id
    described.replicas += 1
    described.leads += partition.leader == broker_id
    described.preferred += partition.preferred_leader == broker_id
    described.in_sync += broker_id in partition.isr
    described.eligible += broker_id in partition.elr
    if broker_id not in partition.isr and len(described.out_of_sync) < OUT_OF_SYNC_MAX:
        described.out_of_sync.append(k10002.LaggingPartition(topic=topic, partition=index))
