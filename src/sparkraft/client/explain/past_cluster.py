"""The cluster as of an earlier offset, in the form of responses that describe the present."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.base.ids import Uuid
from sparkraft.client.cluster import Node, PartitionInfo, TopicInfo
from sparkraft.client.explain.cluster import AsOf, ClusterFacts

if TYPE_CHECKING:
    from sparkraft.client.past.state import PastBroker, PastPartition, PastState, PastTopic

MIN_ISR = "min.insync.replicas"

TOPIC, BROKER = 2, 4

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def facts_of(state: PastState, cluster_id: str) -> ClusterFacts:
    """The facts of `cluster_document`; past metadata does not contain the quorum."""
    topics = {topic.name: topic_info(topic) for topic in state.topics.values()}
    return ClusterFacts(
        cluster_id=cluster_id,
        brokers=tuple(_node(state.brokers[broker_id]) for broker_id in sorted(state.brokers)),
        topics=topics,
        min_isr={name: min_isr_of(state, name) for name in topics},
        as_of=AsOf(
            offset=state.offset, epoch=state.epoch, at_ms=state.at_ms, leader_id=state.leader_id
        ),
    )


def min_isr_of(state: PastState, topic: str) -> int:
    """min.insync.replicas by dynamic configs; those of properties files are not in the log."""
    for key in ((TOPIC, topic), (BROKER, "")):
        text = state.configs.get(key, {}).get(MIN_ISR)
        if text is not None and text.strip().isdigit():
            return int(text)
    return 1


def _node(broker: PastBroker) -> Node:
    _, host, port, _ = broker.endpoints[0] if broker.endpoints else ("", "unknown", 0, 0)
    return Node(id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=broker.is_fenced)


def topic_info(topic: PastTopic) -> TopicInfo:
    """A topic in the shape of the client's requests."""
    return TopicInfo(
        name=topic.name,
        id=Uuid(topic.id),
        is_internal=topic.name in INTERNAL,
        partitions={i: _partition(i, p) for i, p in topic.partitions.items()},
    )


def _partition(index: int, partition: PastPartition) -> PartitionInfo:
    return PartitionInfo(
        index=index,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        offline=(),
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )
