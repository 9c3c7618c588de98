"""Reassignments and their throttles of an earlier moment, as requests return them.

How many bytes had arrived is not in the metadata log. Throttles are those that were set
dynamically on single brokers and topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.client.reassignment_plans import BROKER_THROTTLES, TOPIC_THROTTLES
from sparkraft.client.values import Reassignment, ResourceType

if TYPE_CHECKING:
    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.past.state import PastState
    from sparkraft.client.values import Resource

_THROTTLES = {ResourceType.BROKER: BROKER_THROTTLES, ResourceType.TOPIC: TOPIC_THROTTLES}


def reassignments_of(state: PastState) -> dict[TopicPartition, Reassignment]:
    """The partitions with replicas that were being added or removed."""
    return {
        (topic.name, index): Reassignment(
            replicas=partition.replicas, adding=partition.adding, removing=partition.removing
        )
        for topic in state.topics.values()
        for index, partition in topic.partitions.items()
        if partition.adding or partition.removing
    }


def throttles_of(state: PastState) -> dict[Resource, list[tuple[str, str]]]:
    """The throttles that were set: broker or topic → (config, value), in order."""
    found: dict[Resource, list[tuple[str, str]]] = {}
    for kind, names in _THROTTLES.items():
        for (each, resource), configs in sorted(state.configs.items()):
            values = [(name, configs[name]) for name in sorted(names) if configs.get(name)]
            if each == kind and resource and values:
                found[kind, resource] = values
    return dict(sorted(found.items()))
