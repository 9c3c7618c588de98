"""The znodes that an election and a failover use: paths, and JSON from and to values.

    /brokers/ids/N                          a registered broker, versions 1 to 5
    /brokers/topics/T                       id and assignments, versions 1 to 3
    /brokers/topics/T/partitions/P/state    leader and ISR, version 1
    /config/topics/T                        configs, version 1
    /admin/reassign_partitions              targets of reassignments, version 1
    /admin/preferred_replica_election       partitions, version 1
    /log_dir_event_notification/…           a broker with a failed log directory, version 1
    /isr_change_notification/…              partitions whose leader wrote the state, version 1
    /controller                             the controller, versions 1 and 2; ephemeral
    /controller_epoch                       a decimal number

Unknown fields are ignored, as Kafka does; Kafka adds fields without a new version.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.metadata.partition_state import RECOVERED
from sparkraft.zookeeper.controller.values import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)
from sparkraft.zookeeper.requests import Stat

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
DELETE_TOPICS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
ISR_CHANGES = "/isr_change_notification"
CONTROLLER = "/controller"
LOG_DIR_FAILURE = 1
CONTROLLER_EPOCH = "/controller_epoch"


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


def topic_config_path(topic: str) -> str:
    return f"/config/topics/{topic}"


def _fields(path: str, data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise DecodeError(f"expected JSON, got {data[:60]!r}", path=path) from error
    if not isinstance(fields, dict):
        raise DecodeError(f"expected a JSON object, got {data[:60]!r}", path=path)
    return fields


def decode_broker(broker: int, data: bytes, stat: Stat) -> Broker:
    """Decode a registration; its epoch is the czxid of its znode.

    Raises:
        DecodeError: malformed, or without an endpoint.
    """
    path = broker_path(broker)
    fields = _fields(path, data)
    protocols = fields.get("listener_security_protocol_map", {})
    try:
        if fields["version"] == 1:
            endpoints = [Endpoint("PLAINTEXT", fields["host"], fields["port"], "PLAINTEXT")]
        else:
            endpoints = [_endpoint(text, protocols) for text in fields["endpoints"]]
        features = tuple(
            (name, levels["min_version"], levels["max_version"])
            for name, levels in sorted((fields.get("features") or {}).items())
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"malformed broker registration: {error!r}", path=path) from error
    return Broker(broker, stat.czxid, tuple(endpoints), fields.get("rack"), features)


def _endpoint(text: str, protocols: dict[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    parts = urlsplit(f"//{address}")
    if not listener or parts.port is None:
        raise ValueError(f"expected LISTENER://HOST:PORT, got {text!r}")
    return Endpoint(listener, parts.hostname or "", parts.port, protocols.get(listener, listener))


def decode_topic(topic: str, data: bytes) -> Topic:
    """Decode a topic.

    Raises:
        DecodeError: malformed.
    """
    path = topic_path(topic)
    fields = _fields(path, data)
    adding, removing = fields.get("adding_replicas") or {}, fields.get("removing_replicas") or {}
    try:
        assignments = {
            int(partition): ReplicaAssignment(
                tuple(map(int, replicas)),
                tuple(map(int, adding.get(partition, ()))),
                tuple(map(int, removing.get(partition, ()))),
            )
            for partition, replicas in fields["partitions"].items()
        }
        topic_id = Uuid.parse(fields["topic_id"]) if fields.get("topic_id") else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"malformed topic: {error!r}", path=path) from error
    return Topic(topic_id, assignments)


def encode_topic(topic: Topic) -> bytes:
    """Encode a topic with the fields of version 3 in the order of Kafka 3.9."""

    def replicas_of(index: int) -> dict[str, tuple[int, ...]]:
        items = sorted(topic.assignments.items())
        return {str(p): each[index] for p, each in items if each[index] or index == 0}

    fields: dict[str, Any] = {"partitions": replicas_of(0)}
    if topic.id is not None:
        fields["topic_id"] = str(topic.id)
    fields |= {"adding_replicas": replicas_of(1), "removing_replicas": replicas_of(2), "version": 3}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Decode the targets of reassignments.

    Raises:
        DecodeError: malformed.
    """
    fields = _fields(REASSIGN_PARTITIONS, data)
    try:
        return {
            (str(each["topic"]), int(each["partition"])): tuple(map(int, each["replicas"]))
            for each in fields["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            f"malformed reassignments: {error!r}", path=REASSIGN_PARTITIONS
        ) from error


def encode_reassignments(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """Encode the targets of reassignments."""
    items = targets.items()
    partitions = [{"topic": t, "partition": p, "replicas": target} for (t, p), target in items]
    fields = {"version": 1, "partitions": partitions}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_preferred_elections(data: bytes) -> list[TopicPartition]:
    """Decode partitions.

    Raises:
        DecodeError: malformed.
    """
    return _partitions(PREFERRED_ELECTION, data)


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    """Decode the partitions of a notification.

    Raises:
        DecodeError: malformed.
    """
    return _partitions(path, data)


def _partitions(path: str, data: bytes) -> list[TopicPartition]:
    fields = _fields(path, data)
    try:
        return [(str(each["topic"]), int(each["partition"])) for each in fields["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"malformed partitions: {error!r}", path=path) from error


def decode_log_dir_event(path: str, data: bytes) -> int | None:
    """Decode the broker of a notification; None if it does not report a failure.

    Raises:
        DecodeError: malformed.
    """
    fields = _fields(path, data)
    try:
        broker, event = int(fields["broker"]), int(fields["event"])
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"malformed notification: {error!r}", path=path) from error
    return broker if event == LOG_DIR_FAILURE else None


def decode_state(path: str, data: bytes, stat: Stat) -> Leadership:
    """Decode leader and ISR; the partition epoch is the version of the znode.

    Raises:
        DecodeError: malformed.
    """
    fields = _fields(path, data)
    try:
        state = LeaderAndIsr(
            leader=int(fields["leader"]),
            isr=tuple(map(int, fields["isr"])),
            leader_epoch=int(fields["leader_epoch"]),
            partition_epoch=stat.version,
            recovery_state=int(fields.get("leader_recovery_state", RECOVERED)),
        )
        return Leadership(state, int(fields["controller_epoch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"malformed partition state: {error!r}", path=path) from error


def encode_state(leadership: Leadership) -> bytes:
    """Encode leader and ISR; the recovery state only while it is RECOVERING, as Kafka does."""
    state = leadership.state
    fields = {
        "controller_epoch": leadership.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.recovery_state != RECOVERED:
        fields["leader_recovery_state"] = state.recovery_state
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode the configs of an entity.

    Raises:
        DecodeError: malformed.
    """
    config = _fields(path, data).get("config")
    if not isinstance(config, dict):
        raise DecodeError("malformed configs: expected an object in `config`", path=path)
    return {str(name): str(value) for name, value in config.items()}


def encode_controller(broker: int, now_ms: int) -> bytes:
    """Encode the registration of a broker as the controller."""
    fields = {
        "version": 2,
        "brokerid": broker,
        "timestamp": str(now_ms),
        "kraftControllerEpoch": -1,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_controller(data: bytes, stat: Stat) -> Registration:
    """Decode the registration of the controller; only its id is required.

    Raises:
        DecodeError: malformed.
    """
    fields = _fields(CONTROLLER, data)
    try:
        is_kraft = int(fields.get("kraftControllerEpoch", -1)) > 0
        return Registration(int(fields["brokerid"]), is_kraft, stat.ctime)
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"malformed registration: {error!r}", path=CONTROLLER) from error


def decode_epoch(data: bytes, stat: Stat) -> Epoch:
    """Decode the controller epoch.

    Raises:
        DecodeError: not a number.
    """
    try:
        return Epoch(int(data), stat.version)
    except ValueError as error:
        text = f"expected a number, got {data[:60]!r}"
        raise DecodeError(text, path=CONTROLLER_EPOCH) from error
