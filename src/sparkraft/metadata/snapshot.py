"""Writes an image as the records of a snapshot, in the order of Kafka's image writers.

Features come first, and metadata.version before all others, so that a reader knows the level.
Replaying the records onto `EMPTY_IMAGE` gives an equal image.

Not here: the header and footer of the snapshot file (`sparkraft.raft`, `sparkraft.storage`).
"""

from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from sparkraft.base.ids import Uuid
from sparkraft.base.ordering import in_order
from sparkraft.metadata import features
from sparkraft.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
    MigrationState,
    Topic,
)
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.security.quotas import QuotaEntity

VersionedRecord = tuple[Any, int]
"""A metadata record and the version it is written in."""


Pieces = Iterator[VersionedRecord | None]
"""Records; None after other work, such as sorting names: a driver can pause there."""

T = TypeVar("T", bound=Any)


def records_of(image: ClusterImage) -> Iterator[VersionedRecord]:
    """The records that make `image` from an empty one."""
    return (record for record in records_in_pieces(image) if record is not None)


def records_in_pieces(image: ClusterImage) -> Pieces:
    """The same, lazy, with pauses."""
    level = image.metadata_version
    yield from _feature_records(image)
    for broker_id in sorted(image.brokers):
        yield register_broker_record(image.brokers[broker_id], level)
    if level >= features.CONTROLLER_REGISTRATION_LEVEL:
        for controller_id in sorted(image.controllers):
            yield _register_controller_record(image.controllers[controller_id])
    for name in (yield from _in_order(image.topics_by_name)):
        yield from _topic_records(image.topics_by_id[image.topics_by_name[name]], level)
    for kind, name in (yield from _in_order(image.configs)):
        config = image.configs[kind, name]
        for key in sorted(config):
            yield (
                records.ConfigRecord(
                    resource_type=kind, resource_name=name, name=key, value=config[key]
                ),
                0,
            )
    yield from _quota_records(image)
    if image.next_producer_id >= 0:
        record = records.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
        yield record, 0
    yield from _security_records(image)


def _in_order(names: Iterable[T]) -> Generator[None, None, Iterator[T]]:
    """As `ordering.in_order`; pauses after each piece."""
    steps = in_order(names)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            ordered: Iterator[T] = end.value
            return ordered
        yield None


def partition_record(
    topic_id: Uuid, index: int, partition: PartitionState, level: int
) -> VersionedRecord:
    """A partition as a PartitionRecord in the version that `level` allows."""
    record = records.PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if level >= features.DIRECTORIES_LEVEL:
        record.directories = list(partition.directories)
    if level >= features.ELR_LEVEL:
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    return record, features.partition_version(level)


def register_broker_record(broker: BrokerRegistration, level: int) -> VersionedRecord:
    """A registration as a RegisterBrokerRecord in the version that `level` allows."""
    record = records.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in broker.endpoints
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(broker.supported_features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    version = features.register_broker_version(level)
    if version >= 2:  # noqa: PLR2004 (the field's first version)
        record.is_migrating_zk_broker = broker.is_migrating_zk_broker
    if level >= features.DIRECTORIES_LEVEL:
        record.log_dirs = list(broker.directories)
    if level >= features.CORDONED_LEVEL and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return record, version


def _feature_records(image: ClusterImage) -> Iterator[VersionedRecord]:
    if image.metadata_version:
        yield _feature(features.METADATA_VERSION, image.metadata_version)
    if image.migration != MigrationState.NONE:
        yield records.ZkMigrationStateRecord(zk_migration_state=image.migration), 0
    for name in sorted(image.features):
        if name != features.METADATA_VERSION:
            yield _feature(name, image.features[name])


def _feature(name: str, level: int) -> VersionedRecord:
    return records.FeatureLevelRecord(name=name, feature_level=level), 0


def _register_controller_record(controller: ControllerRegistration) -> VersionedRecord:
    record = records.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            records.ControllerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in controller.endpoints
        ],
        features=[
            records.ControllerFeature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in sorted(controller.supported_features.items())
        ],
    )
    return record, 0


def _topic_records(topic: Topic, level: int) -> Pieces:
    yield records.TopicRecord(name=topic.name, topic_id=topic.id), 0
    for index in (yield from _in_order(topic.partitions)):
        yield partition_record(topic.id, index, topic.partitions[index], level)


def _quota_records(image: ClusterImage) -> Pieces:
    def order(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
        return [(kind, name is not None, name or "") for kind, name in entity]

    entities = yield from _in_order((order(entity), entity) for entity in image.quotas)
    for _, entity in entities:
        quotas = image.quotas[entity]
        for key in sorted(quotas):
            record = records.ClientQuotaRecord(
                entity=[
                    records.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                key=key,
                value=quotas[key],
                remove=False,
            )
            yield record, 0


def _security_records(image: ClusterImage) -> Pieces:
    for acl_id in (yield from _in_order(image.acls)):
        yield records.AccessControlEntryRecord(id=acl_id, **image.acls[acl_id]._asdict()), 0
    for mechanism, name in (yield from _in_order(image.scram)):
        credential = image.scram[mechanism, name]
        record = records.UserScramCredentialRecord(
            name=name, mechanism=mechanism, **credential._asdict()
        )
        yield record, 0
    for token_id in (yield from _in_order(image.delegation_tokens)):
        fields = image.delegation_tokens[token_id]._asdict()
        fields["renewers"] = list(fields["renewers"])
        yield records.DelegationTokenRecord(**fields), 0
