"""Topics, partitions and configs.

/brokers/topics/T                       version 3; 1 and 2 lack what KIP-455 and KIP-516 added
/brokers/topics/T/partitions/P/state    version 1
/config/TYPE/NAME                       version 1; TYPE topics, brokers, clients, users, ips
"""

from typing import NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.zookeeper.znodes.json_form import Fields, ZnodeError, encode

TOPICS = "/brokers/topics"
CONFIG = "/config"

RECOVERED, RECOVERING = 0, 1


class Assignment(NamedTuple):
    """The replicas of a partition; during a reassignment also those that come and leave."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class Topic(NamedTuple):
    """A topic's id and assignments."""

    id: Uuid | None
    """None if inter.broker.protocol.version is below 2.8."""
    partitions: dict[int, Assignment]


def encode_topic(topic: Topic) -> bytes:
    parts = topic.partitions.items()
    fields: dict[str, object] = {"partitions": {str(at): each.replicas for at, each in parts}}
    if topic.id is not None:
        fields["topic_id"] = str(topic.id)
    fields["adding_replicas"] = {str(at): each.adding for at, each in parts if each.adding}
    fields["removing_replicas"] = {str(at): each.removing for at, each in parts if each.removing}
    return encode(fields | {"version": 3})


def decode_topic(path: str, data: bytes) -> Topic:
    fields = Fields.decode(path, data)
    topic_id = None
    if "topic_id" in fields.values:
        try:
            topic_id = Uuid.parse(fields.text("topic_id"))
        except ValueError as error:
            raise ZnodeError(path, f"malformed topic_id: {error}") from error
    if "partitions" not in fields.values:
        return Topic(topic_id, {})
    replicas, adding, removing = (
        fields.object(name) if name in fields.values else Fields(path, {})
        for name in ("partitions", "adding_replicas", "removing_replicas")
    )
    partitions = {}
    for name in replicas.values:
        if not name.isascii() or not name.isdigit():
            raise ZnodeError(path, f"expected the number of a partition, got {name[:60]!r}")
        moving = (each.integers(name) if name in each.values else () for each in (adding, removing))
        partitions[int(name)] = Assignment(replicas.integers(name), *moving)
    return Topic(topic_id, partitions)


class PartitionState(NamedTuple):
    """Leader and ISR; the partition epoch is the znode's version."""

    leader: int
    """-1: none."""
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    """Of the controller that wrote it."""
    recovery_state: int = RECOVERED
    """RECOVERING after an unclean election (KIP-704)."""


def encode_state(state: PartitionState) -> bytes:
    fields = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.recovery_state != RECOVERED:
        fields["leader_recovery_state"] = state.recovery_state
    return encode(fields)


def decode_state(path: str, data: bytes) -> PartitionState:
    fields = Fields.decode(path, data)
    has_recovery = "leader_recovery_state" in fields.values
    recovery = fields.integer("leader_recovery_state") if has_recovery else RECOVERED
    if recovery not in (RECOVERED, RECOVERING):
        raise ZnodeError(path, f"malformed leader_recovery_state {recovery}")
    return PartitionState(
        leader=fields.integer("leader"),
        leader_epoch=fields.integer("leader_epoch"),
        isr=fields.integers("isr"),
        controller_epoch=fields.integer("controller_epoch"),
        recovery_state=recovery,
    )


def encode_configs(configs: dict[str, str]) -> bytes:
    return encode({"version": 1, "config": configs})


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    """Decode the configs of an entity; none without data, or without `config` in it."""
    if not data:
        return {}
    fields = Fields.decode(path, data)
    if not isinstance(fields.values.get("config"), dict):
        return {}
    configs = fields.object("config")
    return {name: configs.text(name) for name in configs.values}
