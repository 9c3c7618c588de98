"""Every metadata record, applied, written to a snapshot and read back."""

import pytest

from sparkraft.base.errors import DecodeError, InvariantBroken
from sparkraft.base.ids import Uuid
from sparkraft.metadata import features
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    EMPTY_IMAGE,
    ClusterImage,
)
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages import metadata_records as m


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


TOPIC = uuid(500)


def image_of(*records: object, level: int = 30) -> ClusterImage:
    image = apply(EMPTY_IMAGE, m.FeatureLevelRecord(name="metadata.version", feature_level=level))
    for record in records:
        image = apply(image, record)
    return image


def everything() -> list[object]:
    """Records that leave something of every kind in the image."""
    return [
        m.FeatureLevelRecord(name="group.version", feature_level=1),
        m.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=uuid(901),
            broker_epoch=7,
            end_points=[m.BrokerEndpoint(name="P", host="h", port=9092, security_protocol=0)],
            features=[
                m.BrokerFeature(
                    name="metadata.version", min_supported_version=7, max_supported_version=30
                )
            ],
            rack="r1",
            log_dirs=[uuid(701), uuid(702)],
        ),
        m.RegisterBrokerRecord(broker_id=2, incarnation_id=uuid(902), broker_epoch=8),
        m.BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=7, fenced=-1, cordoned_log_dirs=[uuid(701)]
        ),
        m.RegisterControllerRecord(
            controller_id=3000,
            incarnation_id=uuid(903),
            end_points=[m.ControllerEndpoint(name="C", host="h", port=9093)],
            features=[
                m.ControllerFeature(
                    name="kraft.version", min_supported_version=0, max_supported_version=1
                )
            ],
        ),
        m.TopicRecord(name="a.topic", topic_id=TOPIC),
        m.ConfigRecord(resource_type=2, resource_name="a.topic", name="retention.ms", value="1"),
        m.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        m.PartitionRecord(
            topic_id=TOPIC,
            partition_id=0,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[uuid(701), uuid(801)],
            eligible_leader_replicas=[2],
        ),
        m.PartitionRecord(
            topic_id=TOPIC,
            partition_id=1,
            replicas=[2],
            isr=[2],
            leader=2,
            leader_epoch=3,
            partition_epoch=4,
        ),
        m.PartitionChangeRecord(
            topic_id=TOPIC, partition_id=1, isr=[], leader=-1, last_known_elr=[2]
        ),
        m.ClientQuotaRecord(
            entity=[
                m.EntityData(entity_type="user", entity_name=None),
                m.EntityData(entity_type="client-id", entity_name="c"),
            ],
            key="producer_byte_rate",
            value=1024.0,
        ),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=2000),
        m.AccessControlEntryRecord(
            id=uuid(600),
            resource_type=2,
            resource_name="a",
            pattern_type=3,
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        ),
        m.UserScramCredentialRecord(
            name="x", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        m.DelegationTokenRecord(
            owner="User:o",
            requester="User:r",
            renewers=["User:n"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="t",
        ),
    ]


def test_a_reloaded_snapshot_equals_its_image():
    image = image_of(*everything())
    reloaded = EMPTY_IMAGE
    for record, version in records_of(image):
        read, read_version = decode_metadata_record(encode_metadata_record(record, version))
        assert read_version == version
        reloaded = apply(reloaded, read)
    assert reloaded.same_content(image)


def test_a_snapshot_starts_with_the_metadata_version():
    records = [record for record, _ in records_of(image_of(*everything()))]
    assert records[0] == m.FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert records[1] == m.FeatureLevelRecord(name="group.version", feature_level=1)
    kinds = [type(record) for record in records[2:]]
    assert kinds == [
        m.RegisterBrokerRecord, m.RegisterBrokerRecord, m.RegisterControllerRecord,
        m.TopicRecord, m.PartitionRecord, m.PartitionRecord, m.ConfigRecord, m.ConfigRecord,
        m.ClientQuotaRecord, m.ProducerIdsRecord, m.AccessControlEntryRecord,
        m.UserScramCredentialRecord, m.DelegationTokenRecord,
    ]  # fmt: skip


def test_what_is_removed_leaves_nothing():
    image = image_of(
        *everything(),
        m.FeatureLevelRecord(name="group.version", feature_level=0),
        m.UnregisterBrokerRecord(broker_id=1, broker_epoch=7),
        m.UnregisterBrokerRecord(broker_id=2, broker_epoch=8),
        m.RemoveTopicRecord(topic_id=TOPIC),
        m.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=None),
        m.ClientQuotaRecord(
            entity=[
                m.EntityData(entity_type="client-id", entity_name="c"),
                m.EntityData(entity_type="user", entity_name=None),
            ],
            key="producer_byte_rate",
            remove=True,
        ),
        m.RemoveAccessControlEntryRecord(id=uuid(600)),
        m.RemoveUserScramCredentialRecord(name="x", mechanism=1),
        m.RemoveDelegationTokenRecord(token_id="t"),
    )
    left = image._replace(controllers=EMPTY_IMAGE.controllers, next_producer_id=-1)
    assert left == image_of()


def test_a_partition_change_counts_epochs():
    image = image_of(*everything())
    before = image.partition(TOPIC, 0)
    assert before is not None
    after = apply(
        image, m.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[1, 2], leader=2)
    ).partition(TOPIC, 0)
    assert after is not None
    assert (after.leader, after.isr, after.elr) == (2, (1, 2), (2,))
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1
    kept = apply(
        image, m.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[1, 2])
    ).partition(TOPIC, 0)
    assert kept is not None
    assert kept.leader_epoch == before.leader_epoch


def test_a_partition_without_directories_counts_as_migrating():
    partition = image_of(*everything()).partition(TOPIC, 1)
    assert partition is not None
    assert partition.directories == (DIRECTORY_MIGRATING,)


def test_clear_elr_empties_it_for_one_topic_or_for_all():
    image = image_of(*everything())
    for name in ("a.topic", ""):
        cleared = apply(image, m.ClearElrRecord(topic_name=name))
        for index in (0, 1):
            partition, before = cleared.partition(TOPIC, index), image.partition(TOPIC, index)
            assert partition is not None
            assert before is not None
            assert (partition.elr, partition.last_known_elr) == ((), ())
            assert partition.partition_epoch == before.partition_epoch + 1


def test_kraft_version_is_no_feature_of_the_image():
    image = image_of(m.FeatureLevelRecord(name="kraft.version", feature_level=1))
    assert "kraft.version" not in image.features


def test_the_state_of_a_migration_survives_snapshots():
    image = image_of(
        m.FeatureLevelRecord(name="metadata.version", feature_level=21),
        m.ZkMigrationStateRecord(zk_migration_state=2),
    )
    assert image.migration == 2
    assert image.is_migrating
    assert image_of(*(record for record, _ in records_of(image))).same_content(image)
    assert not image_of(m.ZkMigrationStateRecord(zk_migration_state=3)).is_migrating


def test_records_that_change_nothing():
    image = image_of(*everything())
    for record in (
        m.NoOpRecord(),
        m.BeginTransactionRecord(),
        m.EndTransactionRecord(),
        m.AbortTransactionRecord(),
    ):
        assert apply(image, record) is image


@pytest.mark.parametrize(
    "record",
    [
        object(),
        m.PartitionRecord(topic_id=uuid(1), partition_id=0),
        m.PartitionChangeRecord(topic_id=TOPIC, partition_id=9),
        m.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=[uuid(5)]),
        m.RemoveTopicRecord(topic_id=uuid(1)),
        m.TopicRecord(name="a.topic", topic_id=uuid(2)),
        m.FenceBrokerRecord(id=1, epoch=6),
        m.UnfenceBrokerRecord(id=9, epoch=7),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=5),
        m.ProducerIdsRecord(next_producer_id=5),
        m.ClearElrRecord(topic_name="nobody"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_cannot_be_stops_the_node(record):
    with pytest.raises(InvariantBroken):
        apply(image_of(*everything()), record)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("metadata.version", 31),
        ("metadata.version", 6),
        ("metadata.version", 0),
        ("group.version", 2),
        ("later.version", 1),
        ("later.version", -1),
    ],
)
def test_a_level_of_a_later_release_stops_the_node_with_a_sentence(name, level):
    record = m.FeatureLevelRecord(name=name, feature_level=level)
    with pytest.raises(DecodeError, match=f"{name} at level {level}; this node knows"):
        apply(image_of(*everything()), record)


def test_a_feature_nobody_knows_may_be_disabled():
    image = image_of(*everything())
    assert apply(image, m.FeatureLevelRecord(name="later.version", feature_level=0)) == image


def test_all_26_record_types_are_known():
    image = image_of(*everything())
    for kind in m.METADATA_RECORDS.values():
        try:
            apply(image, kind())
        except InvariantBroken as error:
            assert "unknown metadata record" not in str(error)  # noqa: PT017 (both are fine)
    assert len(m.METADATA_RECORDS) == 26


@pytest.mark.parametrize("level", sorted(features.METADATA_LEVEL_NAMES))
def test_every_level_writes_what_it_can_encode(level):
    image = image_of(
        m.RegisterBrokerRecord(broker_id=1, incarnation_id=uuid(901), broker_epoch=7),
        m.TopicRecord(name="t", topic_id=TOPIC),
        m.PartitionRecord(
            topic_id=TOPIC, partition_id=0, replicas=[1], isr=[1], leader=1, leader_epoch=0,
            partition_epoch=0,
        ),
        level=level,
    )  # fmt: skip
    reloaded = EMPTY_IMAGE
    for record, version in records_of(image):
        reloaded = apply(
            reloaded, decode_metadata_record(encode_metadata_record(record, version))[0]
        )
    assert reloaded.same_content(image)


def test_a_directory_is_online_unless_it_is_known_not_to_be():
    broker = image_of(*everything()).brokers[1]
    assert broker.has_online_directory(uuid(701))
    assert broker.has_online_directory(DIRECTORY_MIGRATING)
    assert not broker.has_online_directory(uuid(799))
    assert not broker.has_online_directory(DIRECTORY_LOST)
