"""The cluster as its znodes describe it, for checkers: read as JSON, not by the product's decoders.

A partition is in the image once it has a state. Registered brokers are not fenced, and their epoch
is the czxid of their registration (KIP-380).
"""

import json
from typing import Any

from immutables import Map

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.metadata.image import (
    DIRECTORY_UNASSIGNED,
    EMPTY_IMAGE,
    BrokerRegistration,
    ClusterImage,
    Topic,
)
from sparkraft.metadata.partition_state import RECOVERED, PartitionState
from sparkraft.simulation.world.znodes import RefusedError, Znode, Znodes

TOPICS = "/brokers/topics"
BROKER_IDS = "/brokers/ids"


def find(znodes: Znodes, path: str) -> Znode | None:
    """Return a znode; None if it does not exist."""
    try:
        return znodes.get(path)
    except RefusedError:
        return None


def read_json(znodes: Znodes, path: str) -> Any:
    """Return the decoded data of a znode; None if it does not exist or has no data."""
    found = find(znodes, path)
    return json.loads(found.data) if found is not None and found.data else None


def children(znodes: Znodes, path: str) -> list[str]:
    """Return the names below a znode in order; none if it does not exist."""
    found = find(znodes, path)
    return [] if found is None else sorted(found.children)


def state_path(topic: str, index: int) -> str:
    """Return the path of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def image_of_znodes(znodes: Znodes) -> ClusterImage:
    """Return brokers, topics and partitions as an image."""
    topics = [topic for name in children(znodes, TOPICS) for topic in _topic(znodes, name)]
    ids = [int(name) for name in children(znodes, BROKER_IDS)]
    return EMPTY_IMAGE._replace(
        brokers=Map({each: _broker(znodes, each) for each in ids}),
        topics_by_id=Map({topic.id: topic for topic in topics}),
        topics_by_name=Map({topic.name: topic.id for topic in topics}),
    )


def _topic(znodes: Znodes, name: str) -> list[Topic]:
    """The topic; none while it has no id."""
    stored = read_json(znodes, f"{TOPICS}/{name}")
    if not stored or "topic_id" not in stored:
        return []
    partitions: dict[int, PartitionState] = {}
    for text in stored["partitions"]:
        found = find(znodes, state_path(name, int(text)))
        if found is not None:
            partitions[int(text)] = _partition(stored, text, json.loads(found.data), found.version)
    return [Topic(name=name, id=Uuid.parse(stored["topic_id"]), partitions=Map(partitions))]


def _partition(stored: Any, index: str, state: Any, version: int) -> PartitionState:
    replicas = tuple(stored["partitions"][index])
    return PartitionState(
        replicas=replicas,
        isr=tuple(state["isr"]),
        elr=(),
        last_known_elr=(),
        leader=state["leader"],
        leader_epoch=state["leader_epoch"],
        partition_epoch=version,
        directories=(DIRECTORY_UNASSIGNED,) * len(replicas),
        adding_replicas=tuple(stored.get("adding_replicas", {}).get(index, ())),
        removing_replicas=tuple(stored.get("removing_replicas", {}).get(index, ())),
        leader_recovery_state=RECOVERED,
    )


def _broker(znodes: Znodes, broker: int) -> BrokerRegistration:
    return BrokerRegistration(
        id=BrokerId(broker),
        epoch=znodes.get(f"{BROKER_IDS}/{broker}").czxid,
        incarnation_id=Uuid.ZERO,
        endpoints=(),
        supported_features=Map(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(),
        cordoned_directories=None,
        is_migrating_zk_broker=False,
    )
