"""The znodes that the controller uses: paths, and their data as the controller's values.

The bytes are those of `sparkraft.zookeeper.znodes`. This module adds the state of the znode, such
as its version, and converts between both kinds of values.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.zookeeper.controller.values import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)
from sparkraft.zookeeper.requests import Stat
from sparkraft.zookeeper.znodes import changes, cluster, topics
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS, decode_registration
from sparkraft.zookeeper.znodes.cluster import (
    CONTROLLER,
    FEATURE,
    PRODUCER_IDS,
    Features,
    encode_features,
)
from sparkraft.zookeeper.znodes.json_form import decode_number, encode_number
from sparkraft.zookeeper.znodes.topics import TOPICS
from sparkraft.zookeeper.znodes.tree import CONTROLLER_EPOCH

REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
DELETE_TOPICS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
ISR_CHANGES = "/isr_change_notification"

__all__ = [
    "BROKER_IDS",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DELETE_TOPICS",
    "FEATURE",
    "ISR_CHANGES",
    "LOG_DIR_EVENTS",
    "PREFERRED_ELECTION",
    "PRODUCER_IDS",
    "REASSIGN_PARTITIONS",
    "TOPICS",
    "Features",
    "encode_features",
]


class Topic(NamedTuple):
    """A topic's znode."""

    id: Uuid | None
    """None in a cluster whose inter.broker.protocol.version is below 2.8."""
    assignments: dict[int, ReplicaAssignment]


class Registration(NamedTuple):
    """The controller."""

    broker: int
    is_kraft: bool
    """Whether it is a KRaft controller that migrates the cluster (KIP-866)."""
    since_ms: int
    """When the znode was created, by the clock of the ensemble."""


class Epoch(NamedTuple):
    """The controller epoch, and the version of its znode, which guards all writes."""

    epoch: int
    version: int


def broker_path(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def partition_of_state(path: str) -> TopicPartition | None:
    """Return the partition whose state is at `path`; None if it is another path."""
    match path.removeprefix(f"{TOPICS}/").split("/"):
        case [topic, "partitions", partition, "state"]:
            return topic, int(partition)
        case _:
            return None


def topic_config_path(topic: str) -> str:
    return f"{topics.CONFIG}/topics/{topic}"


def decode_broker(broker: int, data: bytes, stat: Stat) -> Broker:
    """Decode a registration; its epoch is the czxid of its znode."""
    found = decode_registration(broker_path(broker), data)
    endpoints = (Endpoint(e.listener, e.host, e.port, e.protocol) for e in found.endpoints)
    features = tuple((name, *levels) for name, levels in sorted(found.features.items()))
    return Broker(broker, stat.czxid, tuple(endpoints), found.rack, features)


def decode_topic(topic: str, data: bytes) -> Topic:
    found = topics.decode_topic(topic_path(topic), data)
    assignments = {at: ReplicaAssignment(*each) for at, each in found.partitions.items()}
    return Topic(found.id, assignments)


def encode_topic(topic: Topic) -> bytes:
    assigned = sorted(topic.assignments.items())
    partitions = {at: topics.Assignment(*each) for at, each in assigned}
    return topics.encode_topic(topics.Topic(topic.id, partitions))


def decode_state(path: str, data: bytes, stat: Stat) -> Leadership:
    """Decode leader and ISR; the partition epoch is the version of the znode."""
    found = topics.decode_state(path, data)
    state = LeaderAndIsr(
        leader=found.leader,
        isr=found.isr,
        leader_epoch=found.leader_epoch,
        partition_epoch=stat.version,
        recovery_state=found.recovery_state,
    )
    return Leadership(state, found.controller_epoch)


def encode_state(leadership: Leadership) -> bytes:
    state = leadership.state
    return topics.encode_state(
        topics.PartitionState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=leadership.controller_epoch,
            recovery_state=state.recovery_state,
        )
    )


def decode_config(path: str, data: bytes) -> dict[str, str]:
    return topics.decode_configs(path, data)


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    return changes.decode_reassignments(REASSIGN_PARTITIONS, data)


def encode_reassignments(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    return changes.encode_reassignments(dict(targets))


def decode_preferred_elections(data: bytes) -> list[TopicPartition]:
    return changes.decode_partitions(PREFERRED_ELECTION, data)


def encode_isr_change(partitions: Sequence[TopicPartition]) -> bytes:
    return changes.encode_partitions(list(partitions))


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    return changes.decode_partitions(path, data)


def decode_log_dir_event(path: str, data: bytes) -> int:
    return changes.decode_log_dir_event(path, data)


def encode_controller(broker: int, now_ms: int) -> bytes:
    """Encode the registration of a broker as the controller."""
    return cluster.encode_controller(cluster.Controller(broker, str(now_ms)))


def decode_controller(data: bytes, stat: Stat) -> Registration:
    found = cluster.decode_controller(CONTROLLER, data)
    return Registration(found.broker, found.kraft_epoch > 0, stat.ctime)


def next_producer_id(data: bytes) -> int:
    """Return the first id after the last allocated block; 0 if there was none."""
    return cluster.decode_producer_ids(PRODUCER_IDS, data).last + 1 if data else 0


def encode_producer_ids(broker: int, first: int, last: int) -> bytes:
    return cluster.encode_producer_ids(cluster.ProducerIdBlock(broker, first, last))


def decode_features(data: bytes) -> Features:
    return cluster.decode_features(FEATURE, data)


def encode_epoch(epoch: int) -> bytes:
    return encode_number(epoch)


def decode_epoch(data: bytes, stat: Stat) -> Epoch:
    return Epoch(decode_number(CONTROLLER_EPOCH, data), stat.version)
