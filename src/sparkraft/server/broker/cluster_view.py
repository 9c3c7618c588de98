"""The image as seen by a client of one listener: live brokers, leaders, topic names.

Fenced brokers and brokers without that listener are left out.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import BrokerRegistration, ClusterImage, Endpoint
    from sparkraft.metadata.partition_state import PartitionState

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that clients see as internal and may not write to."""

TOPIC_NAME_MAX = 249
"""Leaves room for `-` and a partition number in a directory name of 255 bytes."""

TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
"""Every operation on a topic, as KIP-430's bit field; an unsecured broker allows all of them."""

CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
"""The same for the cluster."""

GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
"""The same for a group."""

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_problem(name: str) -> str | None:
    """Why a topic's name is invalid; None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return "'.' or '..' is not allowed"
    if len(name) > TOPIC_NAME_MAX:
        return f"the length of '{name[:40]}…' is longer than the max allowed length 249"
    if not _NAME_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than letters, digits, '.', '_', '-'"
    return None


def live_endpoint(
    image: "ClusterImage", broker_id: int, listener: str
) -> "tuple[BrokerRegistration, Endpoint] | None":
    """An unfenced broker and its endpoint on `listener`; None if it lacks either."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return None
    endpoint = broker.endpoint(listener)
    return None if endpoint is None else (broker, endpoint)


def live_brokers(
    image: "ClusterImage", listener: str
) -> "list[tuple[BrokerRegistration, Endpoint]]":
    """Every unfenced broker with an endpoint on `listener`, by id."""
    found = (live_endpoint(image, broker_id, listener) for broker_id in sorted(image.brokers))
    return [pair for pair in found if pair is not None]


def offline_replicas(
    image: "ClusterImage", partition: "PartitionState", listener: str
) -> list[int]:
    """Replicas on brokers that are not live, or in an offline directory."""
    offline = []
    for replica, directory in zip(partition.replicas, partition.directories, strict=False):
        pair = live_endpoint(image, replica, listener)
        if pair is None or not pair[0].has_online_directory(directory):
            offline.append(replica)
    return offline


def offline_among(
    live: "Mapping[int, BrokerRegistration]", partition: "PartitionState"
) -> list[int]:
    """As `offline_replicas`; `live`: the brokers that are live for the client's listener, by id."""
    return [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=False)
        if (broker := live.get(replica)) is None or not broker.has_online_directory(directory)
    ]


def leader_hint(image: "ClusterImage", topic_id: "Uuid", index: int) -> tuple[int, int]:
    """Leader id and epoch in the image (KIP-951); -1 and -1 if unknown."""
    partition = image.partition(topic_id, index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def add_node_endpoint(
    image: "ClusterImage", endpoints: "list[Any]", endpoint_class: type, leader: int, listener: str
) -> None:
    """Add the endpoint of `leader` to a response's `node_endpoints`, once."""
    if any(endpoint.node_id == leader for endpoint in endpoints):
        return
    pair = live_endpoint(image, leader, listener)
    if pair is not None:
        broker, at = pair
        endpoints.append(
            endpoint_class(node_id=leader, host=at.host, port=at.port, rack=broker.rack)
        )


def leaderless_error(image: "ClusterImage", leader: int, *, version: int) -> ErrorCode:
    """The error for a missing leader: there is none, or it lacks the client's listener."""
    broker = image.brokers.get(leader)
    listener_missing = broker is not None and version >= 6  # noqa: PLR2004 (Metadata v6)
    return ErrorCode.LISTENER_NOT_FOUND if listener_missing else ErrorCode.LEADER_NOT_AVAILABLE
