"""The cluster's metadata as of one offset, replayed record by record.

A `PastState` is mutable and made of built-in types, so replaying and saving are fast: tools replay
millions of records. Records come from DescribeImage and DescribeMetadataLog, so they are committed
and contain no secrets. Records of a metadata transaction count when it ends (KIP-868), as in the
images of nodes. Records of objects that the session may not see are missing: a change of an unknown
object has no effect.
"""

from __future__ import annotations

import marshal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.protocol.messages import metadata_records as records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    ToTuple = Callable[[Iterable[Any]], tuple[Any, ...]]

LEADER_UNCHANGED = -2
"""PartitionChangeRecord.leader: the leader and its epoch are unchanged."""

RECOVERY_UNCHANGED = -1

SHARED_TUPLES_MAX = 20_000
"""Of replicas and directories; more are not shared with those before."""

KRAFT_VERSION = "kraft.version"

TOPIC = 2
"""The type of a topic's configs."""


class PastPartition(NamedTuple):
    """A partition; `directories` are those of `replicas`."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    recovery: int


class PastTopic(NamedTuple):
    """A topic and its partitions by number."""

    name: str
    id: bytes
    partitions: dict[int, PastPartition]


class PastBroker(NamedTuple):
    """A registered broker; endpoints are (name, host, port, security protocol)."""

    id: int
    epoch: int
    incarnation: bytes
    endpoints: tuple[tuple[str, str, int, int], ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    is_fenced: bool
    is_shutting_down: bool
    directories: tuple[bytes, ...]
    cordoned: tuple[bytes, ...] | None

    @property
    def address(self) -> str:
        """Host and port of the first listener."""
        return f"{self.endpoints[0][1]}:{self.endpoints[0][2]}" if self.endpoints else "unknown"


class PastController(NamedTuple):
    """A registered controller (KIP-919)."""

    id: int
    incarnation: bytes
    endpoints: tuple[tuple[str, str, int, int], ...]
    features: tuple[tuple[str, int, int], ...]


class PastAcl(NamedTuple):
    """An access control entry; numbers as in the protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


_new = tuple.__new__
"""A named tuple without the call of its `__new__`: a replay makes millions."""

QuotaEntity = tuple[tuple[str, str | None], ...]


class PastState:
    """See the module docstring.

    Attributes:
        offset: the last record that counts; -1 before the first.
        epoch: its leader epoch.
        at_ms: when it was appended; -1 if that is unknown.
        leader_id: the active controller of that epoch; -1 if it is unknown.
        topics: by topic id.
        topic_ids: by name.
        configs: by type and name of the resource.
        scram: iterations by mechanism and user.
    """

    def __init__(self) -> None:
        """Start with an empty cluster, before the first record."""
        self.offset = -1
        self.epoch = -1
        self.at_ms = -1
        self.leader_id = -1
        self.features: dict[str, int] = {}
        self.brokers: dict[int, PastBroker] = {}
        self.controllers: dict[int, PastController] = {}
        self.topics: dict[bytes, PastTopic] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.acls: dict[bytes, PastAcl] = {}
        self.scram: dict[tuple[int, str], int] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.next_producer_id = -1
        self._transaction: list[Any] | None = None
        """Records of an open transaction."""
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        """Replicas and directories of partitions: a third of the memory, since few differ."""

    # ---- reading

    def topic(self, name: str) -> PastTopic | None:
        """The topic of that name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def topics_in_order(self) -> list[PastTopic]:
        """All topics by name."""
        return [self.topics[self.topic_ids[name]] for name in sorted(self.topic_ids)]

    def partition(self, topic_id: bytes, index: int) -> PastPartition | None:
        """A partition by topic id and number."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partition_count(self) -> int:
        """Partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    # ---- replaying

    def shared(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """A tuple of the values, which all partitions with equal ones share."""
        if len(self._tuples) >= SHARED_TUPLES_MAX:
            self._tuples.clear()
        made = tuple(values)
        return self._tuples.setdefault(made, made)

    def move_to(self, offset: int, epoch: int, at_ms: int) -> None:
        """Advance past records that change nothing."""
        self.offset, self.epoch, self.at_ms = offset, epoch, at_ms

    def apply(self, record: Any) -> None:
        """Apply the next record, or keep it until the end of its transaction."""
        if self._transaction is not None:
            self._in_transaction(self._transaction, record)
            return
        do = _APPLY.get(type(record))
        if do is not None:
            do(self, record)

    def _in_transaction(self, pending: list[Any], record: Any) -> None:
        if isinstance(record, records.EndTransactionRecord):
            self._transaction = None
            for each in pending:
                self.apply(each)
        elif isinstance(record, records.AbortTransactionRecord):
            self._transaction = None
        else:
            pending.append(record)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open: its records have no effect yet."""
        return self._transaction is not None

    def begin_transaction(self) -> None:
        """Keep the records that follow until the transaction ends."""
        self._transaction = []

    # ---- saving

    def saved(self) -> bytes:
        """Everything as bytes for `restored`. Must not be called inside a transaction."""
        assert self._transaction is None
        return marshal.dumps(
            (
                (self.offset, self.epoch, self.at_ms, self.leader_id, self.next_producer_id),
                self.features,
                [tuple(broker) for broker in self.brokers.values()],
                [tuple(controller) for controller in self.controllers.values()],
                [
                    (t.name, t.id, list(t.partitions), list(map(tuple, t.partitions.values())))
                    for t in self.topics.values()
                ],
                self.configs,
                [(acl_id, tuple(acl)) for acl_id, acl in self.acls.items()],
                self.scram,
                self.quotas,
            )
        )

    @classmethod
    def restored(cls, saved: bytes) -> PastState:
        """Return the state that `saved` returned in this process."""
        state = cls()
        # Only bytes that this process made: marshal is not safe for others.
        numbers, *rest = marshal.loads(saved)
        state.offset, state.epoch, state.at_ms, state.leader_id, state.next_producer_id = numbers
        state.features, brokers, controllers, topics, state.configs, acls, *last = rest
        state.scram, state.quotas = last
        state.brokers = {each[0]: PastBroker(*each) for each in brokers}
        state.controllers = {each[0]: PastController(*each) for each in controllers}
        make = partial(_new, PastPartition)
        for name, topic_id, indexes, partitions in topics:
            made = dict(zip(indexes, map(make, partitions), strict=True))
            state.topics[topic_id] = PastTopic(name, topic_id, made)
            state.topic_ids[name] = topic_id
        state.acls = {acl_id: PastAcl(*acl) for acl_id, acl in acls}
        return state


# ---- partitions


def _ids(given: Iterable[Any] | None) -> tuple[bytes, ...]:
    return tuple(map(bytes, given or ()))


def merged(partition: PastPartition, change: Any, to_tuple: ToTuple = tuple) -> PastPartition:
    """Apply a PartitionChangeRecord; its null fields leave the partition unchanged."""
    (
        replicas, isr, elr, last_known_elr, leader, leader_epoch, partition_epoch,
        directories, adding, removing, recovery,
    ) = partition  # fmt: skip
    if change.isr is not None:
        isr = to_tuple(change.isr)
    if change.replicas is not None:
        replicas = to_tuple(change.replicas)
    if change.adding_replicas is not None:
        adding = to_tuple(change.adding_replicas)
    if change.removing_replicas is not None:
        removing = to_tuple(change.removing_replicas)
    if change.eligible_leader_replicas is not None:
        elr = to_tuple(change.eligible_leader_replicas)
    if change.last_known_elr is not None:
        last_known_elr = to_tuple(change.last_known_elr)
    if change.directories is not None or len(directories) != len(replicas):
        directories = to_tuple(_ids(change.directories) or (bytes(16),) * len(replicas))
    if change.leader != LEADER_UNCHANGED:
        leader, leader_epoch = change.leader, leader_epoch + 1
    if change.leader_recovery_state != RECOVERY_UNCHANGED:
        recovery = change.leader_recovery_state
    after = (
        replicas, isr, elr, last_known_elr, leader, leader_epoch, partition_epoch + 1,
        directories, adding, removing, recovery,
    )  # fmt: skip
    return _new(PastPartition, after)


def _apply_partition_change(state: PastState, record: Any) -> None:
    topic = state.topics.get(record.topic_id)
    if topic is None:
        return
    partition = topic.partitions.get(record.partition_id)
    if partition is not None:
        topic.partitions[record.partition_id] = merged(partition, record, state.shared)


def _apply_partition(state: PastState, record: Any) -> None:
    topic = state.topics.get(record.topic_id)
    if topic is None:
        return
    replicas = state.shared(record.replicas)
    topic.partitions[record.partition_id] = PastPartition(
        replicas,
        state.shared(record.isr),
        state.shared(record.eligible_leader_replicas or ()),
        state.shared(record.last_known_elr or ()),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        state.shared(_ids(record.directories) or (bytes(16),) * len(replicas)),
        state.shared(record.adding_replicas),
        state.shared(record.removing_replicas),
        record.leader_recovery_state,
    )


def _apply_topic(state: PastState, record: Any) -> None:
    topic_id = bytes(record.topic_id)
    state.topics[topic_id] = PastTopic(record.name, topic_id, {})
    state.topic_ids[record.name] = topic_id


def _apply_remove_topic(state: PastState, record: Any) -> None:
    topic = state.topics.pop(record.topic_id, None)
    if topic is not None:
        del state.topic_ids[topic.name]
        state.configs.pop((TOPIC, topic.name), None)


def _apply_clear_elr(state: PastState, record: Any) -> None:
    names = [record.topic_name] if record.topic_name else list(state.topic_ids)
    for topic in (state.topic(name) for name in names):
        if topic is None:
            continue
        for index, partition in topic.partitions.items():
            if partition.elr or partition.last_known_elr:
                topic.partitions[index] = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )


# ---- nodes


def _endpoints(given: Iterable[Any]) -> tuple[tuple[str, str, int, int], ...]:
    return tuple((e.name, e.host, e.port, e.security_protocol) for e in given)


def _features(given: Iterable[Any]) -> tuple[tuple[str, int, int], ...]:
    found = [(f.name, f.min_supported_version, f.max_supported_version) for f in given]
    return tuple(sorted(found))


def _apply_register_broker(state: PastState, record: Any) -> None:
    cordoned = record.cordoned_log_dirs
    state.brokers[record.broker_id] = PastBroker(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation=bytes(record.incarnation_id),
        endpoints=_endpoints(record.end_points),
        features=_features(record.features),
        rack=record.rack,
        is_fenced=record.fenced,
        is_shutting_down=record.in_controlled_shutdown,
        directories=_ids(record.log_dirs),
        cordoned=None if cordoned is None else _ids(cordoned),
    )


def _apply_unregister_broker(state: PastState, record: Any) -> None:
    state.brokers.pop(record.broker_id, None)


def _apply_registration_change(state: PastState, record: Any) -> None:
    broker = state.brokers.get(record.broker_id)
    if broker is None:
        return
    cordoned = record.cordoned_log_dirs
    state.brokers[record.broker_id] = broker._replace(
        is_fenced=record.fenced > 0 or (broker.is_fenced and record.fenced == 0),
        is_shutting_down=broker.is_shutting_down or record.in_controlled_shutdown > 0,
        directories=_ids(record.log_dirs) or broker.directories,
        cordoned=broker.cordoned if cordoned is None else _ids(cordoned),
    )


def _apply_fence(state: PastState, record: Any) -> None:
    broker = state.brokers.get(record.id)
    if broker is not None:
        is_fenced = isinstance(record, records.FenceBrokerRecord)
        state.brokers[record.id] = broker._replace(is_fenced=is_fenced)


def _apply_register_controller(state: PastState, record: Any) -> None:
    state.controllers[record.controller_id] = PastController(
        record.controller_id,
        bytes(record.incarnation_id),
        _endpoints(record.end_points),
        _features(record.features),
    )


# ---- everything else


def _apply_config(state: PastState, record: Any) -> None:
    key = (record.resource_type, record.resource_name)
    if record.value is not None:
        state.configs.setdefault(key, {})[record.name] = record.value
        return
    configs = state.configs.get(key)
    if configs is not None:
        configs.pop(record.name, None)
        if not configs:
            del state.configs[key]


def _apply_feature(state: PastState, record: Any) -> None:
    if record.name == KRAFT_VERSION:
        return  # an old bug wrote it; the quorum keeps that level elsewhere (KAFKA-18979)
    if record.feature_level:
        state.features[record.name] = record.feature_level
    else:
        state.features.pop(record.name, None)


def _apply_producer_ids(state: PastState, record: Any) -> None:
    state.next_producer_id = record.next_producer_id


def _apply_acl(state: PastState, record: Any) -> None:
    state.acls[bytes(record.id)] = PastAcl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def _apply_remove_acl(state: PastState, record: Any) -> None:
    state.acls.pop(record.id, None)


def _apply_scram(state: PastState, record: Any) -> None:
    state.scram[record.mechanism, record.name] = record.iterations


def _apply_remove_scram(state: PastState, record: Any) -> None:
    state.scram.pop((record.mechanism, record.name), None)


def entity_of(record: Any) -> QuotaEntity:
    """The entity of a ClientQuotaRecord, its parts in one order."""
    pairs = [(part.entity_type, part.entity_name) for part in record.entity]
    return tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] is not None, pair[1] or "")))


def _apply_quota(state: PastState, record: Any) -> None:
    entity = entity_of(record)
    if not record.remove:
        state.quotas.setdefault(entity, {})[record.key] = record.value
        return
    quotas = state.quotas.get(entity)
    if quotas is not None:
        quotas.pop(record.key, None)
        if not quotas:
            del state.quotas[entity]


def _apply_begin(state: PastState, record: Any) -> None:
    del record
    state.begin_transaction()


_APPLY: dict[type, Callable[[PastState, Any], None]] = {
    records.RegisterBrokerRecord: _apply_register_broker,
    records.UnregisterBrokerRecord: _apply_unregister_broker,
    records.TopicRecord: _apply_topic,
    records.PartitionRecord: _apply_partition,
    records.ConfigRecord: _apply_config,
    records.PartitionChangeRecord: _apply_partition_change,
    records.FenceBrokerRecord: _apply_fence,
    records.UnfenceBrokerRecord: _apply_fence,
    records.RemoveTopicRecord: _apply_remove_topic,
    records.UserScramCredentialRecord: _apply_scram,
    records.FeatureLevelRecord: _apply_feature,
    records.ClientQuotaRecord: _apply_quota,
    records.ProducerIdsRecord: _apply_producer_ids,
    records.BrokerRegistrationChangeRecord: _apply_registration_change,
    records.AccessControlEntryRecord: _apply_acl,
    records.RemoveAccessControlEntryRecord: _apply_remove_acl,
    records.RemoveUserScramCredentialRecord: _apply_remove_scram,
    records.RegisterControllerRecord: _apply_register_controller,
    records.ClearElrRecord: _apply_clear_elr,
    records.BeginTransactionRecord: _apply_begin,
}
"""The other types change nothing here."""
