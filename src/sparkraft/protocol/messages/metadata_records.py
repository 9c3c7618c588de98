"""Records of `__cluster_metadata`: all 26 types of Kafka 4.3, served or not (KIP-500, KIP-631).

Their frame on the log is drawn in `sparkraft.protocol.framing`.
"""

from typing import Final

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    blob,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int32s,
    int64,
    secret,
    string,
    strings,
    uint16,
    uuid,
    uuids,
)


class BrokerEndpoint(Message):
    """How to reach a broker: `RegisterBrokerRecord.end_points`."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Message):
    """A range of feature levels: `RegisterBrokerRecord.features`."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    """A broker registered: incarnation, epoch, listeners, features, log directories.

    v4 cordoned directories (KIP-1066).
    """

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable=True)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[Uuid] = uuids("3+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = uuids("4+", nullable=True, default=None, tag=1)


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    """A broker is gone for good."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    """A topic exists."""

    name: str = string()
    topic_id: Uuid = uuid()


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    """A partition with its whole state. v1 directories (KIP-858), v2 ELR (KIP-966)."""

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    replicas: list[int] = int32s()
    isr: list[int] = int32s()
    removing_replicas: list[int] = int32s()
    adding_replicas: list[int] = int32s()
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = uuids("1+")
    eligible_leader_replicas: list[int] | None = int32s("2+", nullable=True, default=None, tag=1)
    last_known_elr: list[int] | None = int32s("2+", nullable=True, default=None, tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    """One configuration value of one resource; null deletes it."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = secret(string(nullable=True))


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    """Changes of a partition; fields that are not set stay as they are.

    v1 directories (KIP-858), v2 ELR (KIP-966).
    """

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    isr: list[int] | None = int32s(nullable=True, default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = int32s(nullable=True, default=None, tag=2)
    removing_replicas: list[int] | None = int32s(nullable=True, default=None, tag=3)
    adding_replicas: list[int] | None = int32s(nullable=True, default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[Uuid] | None = uuids("1+", nullable=True, default=None, tag=8)
    eligible_leader_replicas: list[int] | None = int32s("2+", nullable=True, default=None, tag=6)
    last_known_elr: list[int] | None = int32s("2+", nullable=True, default=None, tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    """A broker may not lead or be in an ISR; BrokerRegistrationChange has taken its place."""

    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    """A broker may lead again; BrokerRegistrationChange has taken its place."""

    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    """A topic and its partitions are gone."""

    topic_id: Uuid = uuid()


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    """A delegation token, without its key (KIP-900)."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = strings()
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    """A SCRAM credential of a user (KIP-900)."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = blob()
    stored_key: bytes = secret(blob())
    server_key: bytes = secret(blob())
    iterations: int = int32()


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    """A finalized feature level; `metadata.version` selects the records allowed (KIP-778)."""

    name: str = string()
    feature_level: int = int16()


class EntityData(Message):
    """Part of an entity: `ClientQuotaRecord.entity`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    """One quota of one entity."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    """Producer ids below the next one are given out (KIP-730)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    """Changes of a registration: fencing, shutdown, directories.

    v2 directories (KIP-858), v3 cordoned ones (KIP-1066).
    """

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[Uuid] = uuids("2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = uuids("3+", nullable=True, default=None, tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    """An access rule."""

    id: Uuid = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    """An access rule is gone."""

    id: Uuid = uuid()


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    """Nothing: it moves the high watermark of a quiet cluster (KIP-835)."""


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    """How far the migration from ZooKeeper is (KIP-866)."""

    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    """A SCRAM credential is gone (KIP-900)."""

    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    """The records up to EndTransaction or AbortTransaction belong together (KIP-868)."""

    name: str | None = string(nullable=True, default=None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    """The records since BeginTransaction count (KIP-868)."""


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    """The records since BeginTransaction never happened (KIP-868)."""

    reason: str | None = string(nullable=True, default=None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    """A delegation token is gone (KIP-900)."""

    token_id: str = string()


class ControllerEndpoint(Message):
    """How to reach a controller: `RegisterControllerRecord.end_points`."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Message):
    """A range of feature levels: `RegisterControllerRecord.features`."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    """A controller registered (KIP-919)."""

    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    """The ELR of one topic, or of all, is emptied (KIP-966)."""

    topic_name: str = string()


METADATA_RECORDS: Final[dict[int, type[Message]]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
"""Record type (the `apiKey` of the frame) to class: all that a metadata log may hold."""
