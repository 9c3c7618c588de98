"""Applies metadata records to images: the only way a `ClusterImage` changes.

Records come from the committed log, from a snapshot, or from the active controller's own decision;
the result is the same. All 26 record types of Kafka 4.3 are supported. A record of an unknown type,
or one that does not fit the image, raises `InvariantBroken`: if the node ignored it, its snapshots
would be wrong. An unsupported feature level raises `DecodeError`: this node cannot read the log.

BeginTransaction, EndTransaction and AbortTransaction change no image; `replay.Replay` handles them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from immutables import Map

from sparkraft.base.errors import DecodeError, InvariantBroken
from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.metadata.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from sparkraft.metadata.image import (
    DIRECTORY_MIGRATING,
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
    DelegationToken,
    Endpoint,
    ScramCredential,
    Topic,
)
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.security.acls import Acl

Record = Any
"""One of the 26 message classes of `sparkraft.protocol.messages.metadata_records`."""

LEADER_UNCHANGED = -2
"""PartitionChangeRecord.leader: the leader and its epoch are unchanged."""

RECOVERY_STATE_UNCHANGED = -1
"""PartitionChangeRecord.leader_recovery_state: unchanged."""


def apply(image: ClusterImage, record: Record) -> ClusterImage:
    """Apply `record`; the result has the same offset (see `ClusterImage.at`).

    Raises:
        InvariantBroken: the record type is unknown, or the record refers to a missing object.
        DecodeError: the record finalizes a feature level that this node does not support.
    """
    do = _APPLY.get(type(record))
    if do is None:
        raise InvariantBroken(f"unknown metadata record {type(record).__name__}")
    return do(image, record)


def merge(partition: PartitionState, change: Record) -> PartitionState:
    """Apply a PartitionChangeRecord; its null fields leave the state unchanged."""
    replicas = partition.replicas if change.replicas is None else tuple(change.replicas)
    directories = partition.directories
    # Records of metadata versions without directories change the replicas alone.
    if change.directories is not None or len(directories) != len(replicas):
        directories = _directories(change.directories or (), len(replicas))
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if change.leader != LEADER_UNCHANGED:
        leader, leader_epoch = change.leader, leader_epoch + 1
    recovery = change.leader_recovery_state
    return PartitionState(
        replicas,
        _changed(partition.isr, change.isr),
        _changed(partition.elr, change.eligible_leader_replicas),
        _changed(partition.last_known_elr, change.last_known_elr),
        leader,
        leader_epoch,
        partition.partition_epoch + 1,
        directories,
        _changed(partition.adding_replicas, change.adding_replicas),
        _changed(partition.removing_replicas, change.removing_replicas),
        partition.leader_recovery_state if recovery == RECOVERY_STATE_UNCHANGED else recovery,
    )


def partition_of(record: Record) -> PartitionState:
    """Make the state that a PartitionRecord describes."""
    replicas = tuple(record.replicas)
    return PartitionState(
        replicas,
        tuple(record.isr),
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        _directories(record.directories, len(replicas)),
        tuple(record.adding_replicas),
        tuple(record.removing_replicas),
        record.leader_recovery_state,
    )


def _changed(old: tuple[int, ...], new: Sequence[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _directories(given: Sequence[Uuid], replicas: int) -> tuple[Uuid, ...]:
    if not given:
        return (DIRECTORY_MIGRATING,) * replicas
    if len(given) != replicas:
        raise InvariantBroken(f"{len(given)} directories for {replicas} replicas")
    # Decoded records hold Uuid already; wrapping each again would cost a third of the whole apply.
    return tuple(given) if type(given[0]) is Uuid else tuple(map(Uuid, given))


def _topic(image: ClusterImage, topic_id: Uuid) -> Topic:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise InvariantBroken(f"no topic with id {Uuid(topic_id)}")
    return topic


def _put_partition(
    image: ClusterImage, topic: Topic, index: int, partition: PartitionState
) -> ClusterImage:
    changed = Topic(topic.name, topic.id, topic.partitions.set(index, partition))
    # Field by field: `_replace` would cost half of the whole apply, and partitions are the bulk.
    return ClusterImage(
        image.features,
        image.brokers,
        image.controllers,
        image.topics_by_id.set(topic.id, changed),
        image.topics_by_name,
        image.configs,
        image.next_producer_id,
        image.acls,
        image.scram,
        image.quotas,
        image.delegation_tokens,
        image.migration,
        image.offset,
        image.epoch,
    )


def _apply_topic(image: ClusterImage, record: Record) -> ClusterImage:
    topic_id = Uuid(record.topic_id)
    if record.name in image.topics_by_name or topic_id in image.topics_by_id:
        raise InvariantBroken(f"topic {record.name} with id {topic_id} is there already")
    return image._replace(
        topics_by_id=image.topics_by_id.set(topic_id, Topic(record.name, topic_id, Map())),
        topics_by_name=image.topics_by_name.set(record.name, topic_id),
    )


def _apply_partition(image: ClusterImage, record: Record) -> ClusterImage:
    topic = _topic(image, record.topic_id)
    return _put_partition(image, topic, record.partition_id, partition_of(record))


def _apply_partition_change(image: ClusterImage, record: Record) -> ClusterImage:
    topic = _topic(image, record.topic_id)
    partition = topic.partitions.get(record.partition_id)
    if partition is None:
        raise InvariantBroken(f"no partition {topic.name}-{record.partition_id}")
    return _put_partition(image, topic, record.partition_id, merge(partition, record))


def _apply_remove_topic(image: ClusterImage, record: Record) -> ClusterImage:
    topic = _topic(image, record.topic_id)
    key = (2, topic.name)
    return image._replace(
        topics_by_id=image.topics_by_id.delete(topic.id),
        topics_by_name=image.topics_by_name.delete(topic.name),
        configs=image.configs.delete(key) if key in image.configs else image.configs,
    )


def _apply_clear_elr(image: ClusterImage, record: Record) -> ClusterImage:
    if record.topic_name:
        topic_id = image.topics_by_name.get(record.topic_name)
        if topic_id is None:
            raise InvariantBroken(f"no topic {record.topic_name} to clear the ELR of")
        topics = [image.topics_by_id[topic_id]]
    else:
        topics = list(image.topics_in_order())
    by_id = image.topics_by_id.mutate()
    for topic in topics:
        partitions = topic.partitions.mutate()
        for index, partition in topic.partitions.items():
            if partition.elr or partition.last_known_elr:
                partitions[index] = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )
        by_id[topic.id] = topic._replace(partitions=partitions.finish())
    return image._replace(topics_by_id=by_id.finish())


def _endpoints(given: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in given)


def _features(given: Sequence[Any]) -> Map[str, tuple[int, int]]:
    return Map({f.name: (f.min_supported_version, f.max_supported_version) for f in given})


def _apply_register_broker(image: ClusterImage, record: Record) -> ClusterImage:
    cordoned = record.cordoned_log_dirs
    broker = BrokerRegistration(
        id=BrokerId(record.broker_id),
        epoch=record.broker_epoch,
        incarnation_id=Uuid(record.incarnation_id),
        endpoints=_endpoints(record.end_points),
        supported_features=_features(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(map(Uuid, record.log_dirs)),
        cordoned_directories=None if cordoned is None else tuple(map(Uuid, cordoned)),
        is_migrating_zk_broker=record.is_migrating_zk_broker,
    )
    return image._replace(brokers=image.brokers.set(broker.id, broker))


def _broker(image: ClusterImage, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise InvariantBroken(f"no broker {broker_id} registered with epoch {epoch}")
    return broker


def _put_broker(image: ClusterImage, broker: BrokerRegistration) -> ClusterImage:
    return image._replace(brokers=image.brokers.set(broker.id, broker))


def _apply_unregister_broker(image: ClusterImage, record: Record) -> ClusterImage:
    broker = _broker(image, record.broker_id, record.broker_epoch)
    return image._replace(brokers=image.brokers.delete(broker.id))


def _apply_fence_broker(image: ClusterImage, record: Record) -> ClusterImage:
    return _put_broker(image, _broker(image, record.id, record.epoch)._replace(fenced=True))


def _apply_unfence_broker(image: ClusterImage, record: Record) -> ClusterImage:
    return _put_broker(image, _broker(image, record.id, record.epoch)._replace(fenced=False))


def _apply_registration_change(image: ClusterImage, record: Record) -> ClusterImage:
    broker = _broker(image, record.broker_id, record.broker_epoch)
    if record.fenced not in {-1, 0, 1} or record.in_controlled_shutdown not in {0, 1}:
        raise InvariantBroken(f"a change of broker {broker.id} with unknown values")
    cordoned = record.cordoned_log_dirs
    changed = broker._replace(
        fenced=broker.fenced if record.fenced == 0 else record.fenced == 1,
        in_controlled_shutdown=broker.in_controlled_shutdown or bool(record.in_controlled_shutdown),
        directories=tuple(map(Uuid, record.log_dirs)) or broker.directories,
        cordoned_directories=(
            broker.cordoned_directories if cordoned is None else tuple(map(Uuid, cordoned))
        ),
    )
    return _put_broker(image, changed)


def _apply_register_controller(image: ClusterImage, record: Record) -> ClusterImage:
    controller = ControllerRegistration(
        id=BrokerId(record.controller_id),
        incarnation_id=Uuid(record.incarnation_id),
        zk_migration_ready=record.zk_migration_ready,
        endpoints=_endpoints(record.end_points),
        supported_features=_features(record.features),
    )
    return image._replace(controllers=image.controllers.set(controller.id, controller))


def _apply_feature_level(image: ClusterImage, record: Record) -> ClusterImage:
    name, level = record.name, record.feature_level
    if name == KRAFT_VERSION:
        return image  # An old bug wrote it; the quorum keeps that level elsewhere (KAFKA-18979).
    lowest, highest = SUPPORTED_FEATURES.get(name, (0, 0))
    if not lowest <= level <= highest and (level or name == METADATA_VERSION):
        known = f"{lowest} to {highest}" if highest else "no such feature"
        raise DecodeError(
            f"the metadata log finalizes {name} at level {level}; this node knows {known}"
        )
    if level == 0:
        present = name in image.features
        return image._replace(features=image.features.delete(name)) if present else image
    return image._replace(features=image.features.set(name, level))


def _apply_config(image: ClusterImage, record: Record) -> ClusterImage:
    key = (record.resource_type, record.resource_name)
    config: Map[str, str] = image.configs.get(key, Map())
    if record.value is not None:
        return image._replace(configs=image.configs.set(key, config.set(record.name, record.value)))
    if record.name not in config:
        return image
    config = config.delete(record.name)
    configs = image.configs.set(key, config) if config else image.configs.delete(key)
    return image._replace(configs=configs)


def _apply_producer_ids(image: ClusterImage, record: Record) -> ClusterImage:
    if record.next_producer_id < image.next_producer_id:
        raise InvariantBroken(
            f"producer ids went back from {image.next_producer_id} to {record.next_producer_id}"
        )
    return image._replace(next_producer_id=record.next_producer_id)


def _apply_acl(image: ClusterImage, record: Record) -> ClusterImage:
    acl = Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    return image._replace(acls=image.acls.set(Uuid(record.id), acl))


def _apply_remove_acl(image: ClusterImage, record: Record) -> ClusterImage:
    if record.id not in image.acls:
        raise InvariantBroken(f"no access control entry {Uuid(record.id)}")
    return image._replace(acls=image.acls.delete(record.id))


def _apply_scram(image: ClusterImage, record: Record) -> ClusterImage:
    credential = ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )
    return image._replace(scram=image.scram.set((record.mechanism, record.name), credential))


def _apply_remove_scram(image: ClusterImage, record: Record) -> ClusterImage:
    key = (record.mechanism, record.name)
    return image._replace(scram=image.scram.delete(key)) if key in image.scram else image


def _apply_quota(image: ClusterImage, record: Record) -> ClusterImage:
    pairs = [(e.entity_type, e.entity_name) for e in record.entity]
    entity = tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] is not None, pair[1] or "")))
    quotas: Map[str, float] = image.quotas.get(entity, Map())
    if not record.remove:
        return image._replace(quotas=image.quotas.set(entity, quotas.set(record.key, record.value)))
    if record.key not in quotas:
        return image
    quotas = quotas.delete(record.key)
    left = image.quotas.set(entity, quotas) if quotas else image.quotas.delete(entity)
    return image._replace(quotas=left)


def _apply_token(image: ClusterImage, record: Record) -> ClusterImage:
    token = DelegationToken(
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
        record.token_id,
    )
    tokens = image.delegation_tokens.set(token.token_id, token)
    return image._replace(delegation_tokens=tokens)


def _apply_remove_token(image: ClusterImage, record: Record) -> ClusterImage:
    if record.token_id not in image.delegation_tokens:
        return image
    return image._replace(delegation_tokens=image.delegation_tokens.delete(record.token_id))


def _apply_migration_state(image: ClusterImage, record: Record) -> ClusterImage:
    """Kafka 4 reads this record and ignores it; Kafka 3.9 keeps the state, as here."""
    return image._replace(migration=record.zk_migration_state)


def _apply_nothing(image: ClusterImage, record: Record) -> ClusterImage:
    del record
    return image


_APPLY: dict[type, Callable[[ClusterImage, Record], ClusterImage]] = {
    records.RegisterBrokerRecord: _apply_register_broker,
    records.UnregisterBrokerRecord: _apply_unregister_broker,
    records.TopicRecord: _apply_topic,
    records.PartitionRecord: _apply_partition,
    records.ConfigRecord: _apply_config,
    records.PartitionChangeRecord: _apply_partition_change,
    records.FenceBrokerRecord: _apply_fence_broker,
    records.UnfenceBrokerRecord: _apply_unfence_broker,
    records.RemoveTopicRecord: _apply_remove_topic,
    records.DelegationTokenRecord: _apply_token,
    records.UserScramCredentialRecord: _apply_scram,
    records.FeatureLevelRecord: _apply_feature_level,
    records.ClientQuotaRecord: _apply_quota,
    records.ProducerIdsRecord: _apply_producer_ids,
    records.BrokerRegistrationChangeRecord: _apply_registration_change,
    records.AccessControlEntryRecord: _apply_acl,
    records.RemoveAccessControlEntryRecord: _apply_remove_acl,
    records.NoOpRecord: _apply_nothing,
    records.ZkMigrationStateRecord: _apply_migration_state,
    records.RemoveUserScramCredentialRecord: _apply_remove_scram,
    records.BeginTransactionRecord: _apply_nothing,
    records.EndTransactionRecord: _apply_nothing,
    records.AbortTransactionRecord: _apply_nothing,
    records.RemoveDelegationTokenRecord: _apply_remove_token,
    records.RegisterControllerRecord: _apply_register_controller,
    records.ClearElrRecord: _apply_clear_elr,
}
