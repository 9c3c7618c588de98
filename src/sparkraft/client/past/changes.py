"""Describes the change that a metadata record makes, in words, by the state before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.client.past.state import PastPartition, entity_of, merged
from sparkraft.protocol import codec
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.protocol.messages.raft_records import LeaderChangeMessage
from sparkraft.records.control import ControlType, parse_control_key
from sparkraft.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.client.past.state import PastState

_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

_RESOURCES = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}

RECOVERING = 1


class Change(NamedTuple):
    """A change in words.

    Attributes:
        kind: topic, partition, broker, controller, config, feature, acl, user, quota, producer or
            transaction.
        subject: the name of what changed.
        text: a sentence without a final period.
    """

    kind: str
    subject: str
    text: str


def leader_of(key: bytes | None, value: bytes | None) -> int | None:
    """The leader that a control record announces; None for other control records."""
    try:
        if parse_control_key(key) is not ControlType.LEADER_CHANGE or not value:
            return None
        version = int.from_bytes(value[:2], "big")
        return codec.decode(LeaderChangeMessage, min(version, 1), value).leader_id
    except DecodeError:
        return None


def leader_change(leader_id: int, epoch: int) -> Change:
    """The change that a new leader epoch is."""
    text = f"controller {leader_id} was elected in epoch {epoch}"
    return Change("controller", str(leader_id), text)


def change_of(state: PastState, record: Any) -> Change | None:
    """Describe `record`, which follows `state`; None if it changes nothing that is known."""
    describe = _DESCRIBE.get(type(record))
    return None if describe is None else describe(state, record)


# ---- topics and partitions


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _leader(leader: int) -> str:
    return str(leader) if leader >= 0 else "none"


def _topic(state: PastState, record: Any) -> Change:
    del state
    text = f"topic {record.name} was created with id {Uuid(record.topic_id)}"
    return Change("topic", record.name, text)


def _remove_topic(state: PastState, record: Any) -> Change | None:
    topic = state.topics.get(record.topic_id)
    if topic is None:
        return None
    return Change("topic", topic.name, f"topic {topic.name} was deleted")


def _partition(state: PastState, record: Any) -> Change | None:
    topic = state.topics.get(record.topic_id)
    if topic is None:
        return None
    name = f"{topic.name}-{record.partition_id}"
    isr = "" if list(record.isr) == list(record.replicas) else f", ISR {_listed(record.isr)}"
    text = (
        f"partition {name} was created on {_listed(record.replicas)}, "
        f"leader {_leader(record.leader)}{isr}"
    )
    return Change("partition", name, text)


def _partition_change(state: PastState, record: Any) -> Change | None:
    topic = state.topics.get(record.topic_id)
    before = None if topic is None else topic.partitions.get(record.partition_id)
    if topic is None or before is None:
        return None
    name = f"{topic.name}-{record.partition_id}"
    text = "; ".join(partition_differences(before, merged(before, record)))
    return Change("partition", name, f"{name}: {text or 'nothing changed'}")


def partition_differences(before: PastPartition, after: PastPartition) -> list[str]:
    """Each difference of two states of a partition, in words."""
    found = []
    if after.leader != before.leader:
        found.append(
            f"leader {_leader(before.leader)} → {_leader(after.leader)}, "
            f"leader epoch {after.leader_epoch}"
        )
    elif after.leader_epoch != before.leader_epoch:
        found.append(f"leader epoch {before.leader_epoch} → {after.leader_epoch}")
    for label, old, new in (
        ("ISR", before.isr, after.isr),
        ("ELR", before.elr, after.elr),
        ("last known ELR", before.last_known_elr, after.last_known_elr),
        ("replicas", before.replicas, after.replicas),
        ("adding", before.adding, after.adding),
        ("removing", before.removing, after.removing),
    ):
        if old != new:
            found.append(f"{label} {_listed(old)} → {_listed(new)}")
    if after.recovery != before.recovery:
        found.append(
            "the leader recovers from an unclean election"
            if after.recovery == RECOVERING
            else "the leader has recovered from an unclean election"
        )
    if after.directories != before.directories and after.replicas == before.replicas:
        moved = [
            f"{replica} in {Uuid(new)}"
            for replica, old, new in zip(
                after.replicas, before.directories, after.directories, strict=False
            )
            if old != new
        ]
        found.append(f"log directory of replica {', '.join(moved)}")
    return found


def _clear_elr(state: PastState, record: Any) -> Change:
    del state
    if not record.topic_name:
        return Change("topic", "", "the ELRs of all topics were cleared")
    text = f"the ELRs of topic {record.topic_name} were cleared"
    return Change("topic", record.topic_name, text)


# ---- nodes


def _register_broker(state: PastState, record: Any) -> Change:
    known = state.brokers.get(record.broker_id)
    if known is not None and known.incarnation == record.incarnation_id:
        what = "changed its registration"
    else:
        what = "registered" if known is None else "registered again after a restart"
    address = ", ".join(f"{e.name}://{e.host}:{e.port}" for e in record.end_points)
    fenced = ", fenced" if record.fenced else ""
    text = f"broker {record.broker_id} {what} at {address or 'no address'}{fenced}"
    return Change("broker", str(record.broker_id), text)


def _unregister_broker(state: PastState, record: Any) -> Change:
    del state
    return Change("broker", str(record.broker_id), f"broker {record.broker_id} was unregistered")


def _registration_change(state: PastState, record: Any) -> Change:
    broker_id = record.broker_id
    known = state.brokers.get(broker_id)
    what = []
    if record.fenced:
        what.append("was fenced" if record.fenced > 0 else "was unfenced")
    if record.in_controlled_shutdown:
        what.append("began its controlled shutdown")
    if record.log_dirs:
        had = () if known is None else known.directories
        lost = [str(Uuid(d)) for d in had if d not in record.log_dirs]
        gone = f": {', '.join(lost)} went offline" if lost else ""
        what.append(f"has {len(record.log_dirs)} online log directories{gone}")
    if record.cordoned_log_dirs is not None:
        what.append(f"has {len(record.cordoned_log_dirs)} cordoned log directories")
    text = f"broker {broker_id} {', '.join(what) or 'did not change'}"
    return Change("broker", str(broker_id), text)


def _fence(state: PastState, record: Any) -> Change:
    del state
    what = "fenced" if isinstance(record, records.FenceBrokerRecord) else "unfenced"
    return Change("broker", str(record.id), f"broker {record.id} was {what}")


def _register_controller(state: PastState, record: Any) -> Change:
    known = state.controllers.get(record.controller_id)
    again = "" if known is None else " again"
    address = ", ".join(f"{e.name}://{e.host}:{e.port}" for e in record.end_points)
    text = f"controller {record.controller_id} registered{again} at {address}"
    return Change("controller", str(record.controller_id), text)


# ---- everything else


def resource_text(kind: int, name: str) -> str:
    """A config resource in words."""
    if kind == 4 and not name:  # noqa: PLR2004 (the type of brokers)
        return "all brokers"
    return f"{_RESOURCES.get(kind, f'resource type {kind}')} {name}"


def _config(state: PastState, record: Any) -> Change:
    resource = resource_text(record.resource_type, record.resource_name)
    before = state.configs.get((record.resource_type, record.resource_name), {}).get(record.name)
    was = "" if before is None else f" (was {before})"
    if record.value is None:
        text = f"config {record.name} of {resource} was removed{was}"
    else:
        text = f"config {record.name} of {resource} was set to {record.value}{was}"
    return Change("config", f"{resource} {record.name}", text)


def _feature(state: PastState, record: Any) -> Change:
    before = state.features.get(record.name, 0)
    text = f"feature {record.name} was set to level {record.feature_level} (was {before})"
    return Change("feature", record.name, text)


def number_text(value: float) -> str:
    """The value of a quota with all its digits."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def acl_text(acl: Any) -> str:
    """An access control entry in words."""
    permission = _name(AclPermissionType, acl.permission).lower()
    operation = _name(AclOperation, acl.operation)
    kind = _name(AclResourceType, acl.resource_type).lower()
    pattern = " and its prefixes" if acl.pattern_type == PatternType.PREFIXED else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return f"{permission} {acl.principal}{host} to {operation} {kind} {acl.resource_name}{pattern}"


def _name(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name)
    except ValueError:
        return str(number)


class _AclOf(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


def _acl(state: PastState, record: Any) -> Change:
    del state
    acl = _AclOf(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    return Change("acl", record.principal, f"access control entry added: {acl_text(acl)}")


def _remove_acl(state: PastState, record: Any) -> Change:
    known = state.acls.get(record.id)
    if known is None:
        return Change("acl", "", f"access control entry {Uuid(record.id)} removed")
    return Change("acl", known.principal, f"access control entry removed: {acl_text(known)}")


def _scram(state: PastState, record: Any) -> Change:
    mechanism = _SCRAM.get(record.mechanism, f"mechanism {record.mechanism}")
    again = "changed" if (record.mechanism, record.name) in state.scram else "added"
    text = f"{mechanism} credential of user {record.name} {again}, {record.iterations} iterations"
    return Change("user", record.name, text)


def _remove_scram(state: PastState, record: Any) -> Change:
    del state
    mechanism = _SCRAM.get(record.mechanism, f"mechanism {record.mechanism}")
    return Change("user", record.name, f"{mechanism} credential of user {record.name} removed")


def entity_text(entity: tuple[tuple[str, str | None], ...]) -> str:
    """A quota's entity in words."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _quota(state: PastState, record: Any) -> Change:
    entity = entity_of(record)
    before = state.quotas.get(entity, {}).get(record.key)
    was = "" if before is None else f" (was {number_text(before)})"
    done = "was removed" if record.remove else f"was set to {number_text(record.value)}"
    name = entity_text(entity)
    return Change("quota", name, f"quota {record.key} of {name} {done}{was}")


def _producer_ids(state: PastState, record: Any) -> Change:
    del state
    text = f"producer ids below {record.next_producer_id} were given to broker {record.broker_id}"
    return Change("producer", str(record.broker_id), text)


def _begin(state: PastState, record: Any) -> Change:
    del state
    name = "" if record.name is None else f": {record.name}"
    return Change("transaction", record.name or "", f"metadata transaction began{name}")


def _end(state: PastState, record: Any) -> Change:
    del state, record
    return Change("transaction", "", "metadata transaction ended: its records take effect")


def _abort(state: PastState, record: Any) -> Change:
    del state
    why = "" if record.reason is None else f": {record.reason}"
    return Change("transaction", "", f"metadata transaction aborted{why}")


_DESCRIBE: dict[type, Callable[[PastState, Any], Change | None]] = {
    records.TopicRecord: _topic,
    records.RemoveTopicRecord: _remove_topic,
    records.PartitionRecord: _partition,
    records.PartitionChangeRecord: _partition_change,
    records.ClearElrRecord: _clear_elr,
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.BrokerRegistrationChangeRecord: _registration_change,
    records.FenceBrokerRecord: _fence,
    records.UnfenceBrokerRecord: _fence,
    records.RegisterControllerRecord: _register_controller,
    records.ConfigRecord: _config,
    records.FeatureLevelRecord: _feature,
    records.AccessControlEntryRecord: _acl,
    records.RemoveAccessControlEntryRecord: _remove_acl,
    records.UserScramCredentialRecord: _scram,
    records.RemoveUserScramCredentialRecord: _remove_scram,
    records.ClientQuotaRecord: _quota,
    records.ProducerIdsRecord: _producer_ids,
    records.BeginTransactionRecord: _begin,
    records.EndTransactionRecord: _end,
    records.AbortTransactionRecord: _abort,
}
"""NoOpRecord, delegation tokens and ZkMigrationStateRecord describe no visible change."""
