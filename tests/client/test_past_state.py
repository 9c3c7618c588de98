"""A tool's replay of the metadata log has the same result as the nodes' images."""

import random
from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.client.past.changes import change_of
from sparkraft.client.past.state import PastState
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.replay import Replay
from sparkraft.protocol.messages import metadata_records as records
from tests.controller.cluster_of import uuid
from tests.server.raft.test_past_reader import Recorded, lives

TOPIC, BROKER = 2, 4


def lived() -> list[Any]:
    """Elections, fencings, ISR changes, configs, a deleted topic."""
    cluster = lives()
    draw = random.Random(7)
    for number in range(40):
        if draw.random() < 0.5:
            broker = draw.choice([1, 2, 3])
            (cluster.fence if draw.random() < 0.5 else cluster.heartbeat)(broker)
        else:
            cluster.set_topic_config("t", "retention.ms", str(number) if number % 3 else None)
    return flat(cluster)


def flat(cluster: Recorded) -> list[Any]:
    return [record for batch in cluster.batches for record, _ in batch]


def every_kind() -> list[Any]:
    """Each type of record at least once, on top of each other."""
    t, u = uuid(101), uuid(102)
    directories = [uuid(200 + n) for n in range(3)]
    endpoints = [records.BrokerEndpoint(name="PLAINTEXT", host="h", port=1, security_protocol=0)]
    features = [
        records.BrokerFeature(
            name="group.version", min_supported_version=0, max_supported_version=1
        )
    ]
    entity = [
        records.EntityData(entity_type="user", entity_name="alice"),
        records.EntityData(entity_type="client-id", entity_name=None),
    ]
    made: list[Any] = [
        records.BeginTransactionRecord(name="bootstrap"),
        records.FeatureLevelRecord(name="metadata.version", feature_level=25),
        records.EndTransactionRecord(),
        records.FeatureLevelRecord(name="kraft.version", feature_level=1),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.FeatureLevelRecord(name="group.version", feature_level=0),
        records.BeginTransactionRecord(),
        records.FeatureLevelRecord(name="share.version", feature_level=1),
        records.AbortTransactionRecord(reason="no"),
    ]
    made += [
        records.RegisterBrokerRecord(
            broker_id=broker, broker_epoch=broker, incarnation_id=uuid(broker), rack="r",
            end_points=endpoints, features=features, log_dirs=directories[:1],
        )
        for broker in (1, 2, 3, 4)
    ]  # fmt: skip
    made += [
        records.UnfenceBrokerRecord(id=1, epoch=1),
        records.UnfenceBrokerRecord(id=2, epoch=2),
        records.FenceBrokerRecord(id=2, epoch=2),
        records.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=-1),
        records.BrokerRegistrationChangeRecord(
            broker_id=3, broker_epoch=3, in_controlled_shutdown=1, log_dirs=[uuid(7)],
            cordoned_log_dirs=[uuid(7)],
        ),
        records.UnregisterBrokerRecord(broker_id=4, broker_epoch=4),
        records.RegisterControllerRecord(controller_id=1000, incarnation_id=uuid(9)),
        records.TopicRecord(name="t", topic_id=t),
        records.PartitionRecord(
            topic_id=t, partition_id=0, replicas=[1, 2, 3], isr=[1, 2], leader=1, leader_epoch=0,
            partition_epoch=0, directories=directories, eligible_leader_replicas=[3],
            last_known_elr=[1],
        ),
        records.PartitionRecord(topic_id=t, partition_id=1, replicas=[1, 2], isr=[1], leader=1),
        records.PartitionChangeRecord(topic_id=t, partition_id=0, leader=2, isr=[2]),
        records.PartitionChangeRecord(topic_id=t, partition_id=0, leader_recovery_state=1),
        records.PartitionChangeRecord(
            topic_id=t, partition_id=0, replicas=[1, 2, 3, 4], adding_replicas=[4],
        ),
        records.PartitionChangeRecord(
            topic_id=t, partition_id=0, replicas=[2, 3, 4], adding_replicas=[],
            removing_replicas=[], directories=directories, eligible_leader_replicas=[4],
        ),
        records.ClearElrRecord(topic_name="t"),
        records.PartitionChangeRecord(
            topic_id=t, partition_id=1, eligible_leader_replicas=[2], last_known_elr=[1]
        ),
        records.ClearElrRecord(),
        records.TopicRecord(name="u", topic_id=u),
        records.ConfigRecord(resource_type=TOPIC, resource_name="u", name="a", value="1"),
        records.RemoveTopicRecord(topic_id=u),
        records.ConfigRecord(resource_type=BROKER, resource_name="", name="b", value="2"),
        records.ConfigRecord(resource_type=BROKER, resource_name="1", name="c", value="3"),
        records.ConfigRecord(resource_type=BROKER, resource_name="1", name="c", value=None),
        records.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
        records.AccessControlEntryRecord(
            id=uuid(1), resource_type=2, resource_name="t", pattern_type=3, principal="User:a",
            host="*", operation=3, permission_type=3,
        ),
        records.AccessControlEntryRecord(id=uuid(2), principal="User:b"),
        records.RemoveAccessControlEntryRecord(id=uuid(2)),
        records.UserScramCredentialRecord(name="alice", mechanism=1, iterations=4096),
        records.UserScramCredentialRecord(name="bob", mechanism=2, iterations=8192),
        records.RemoveUserScramCredentialRecord(name="bob", mechanism=2),
        records.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.5),
        records.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=2.5),
        records.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", remove=True),
        records.ClientQuotaRecord(
            entity=[records.EntityData(entity_type="ip", entity_name=None)],
            key="connection_creation_rate", value=1.0,
        ),
        records.NoOpRecord(),
        records.DelegationTokenRecord(owner="User:a", token_id="x"),
        records.RemoveDelegationTokenRecord(token_id="x"),
        records.ZkMigrationStateRecord(zk_migration_state=1),
    ]  # fmt: skip
    return made


def of_image(image: ClusterImage) -> dict[str, Any]:
    """An image in the form of a `PastState`."""
    return {
        "offset": image.offset,
        "epoch": image.epoch,
        "features": dict(image.features),
        "brokers": {
            b.id: (
                b.epoch, b.incarnation_id, tuple(map(tuple, b.endpoints)), b.rack, b.fenced,
                b.in_controlled_shutdown, b.directories, b.cordoned_directories,
                sorted((name, *levels) for name, levels in b.supported_features.items()),
            )
            for b in image.brokers.values()
        },
        "controllers": {c.id: c.incarnation_id for c in image.controllers.values()},
        "topics": {
            topic.name: (topic.id, {i: tuple(p) for i, p in topic.partitions.items()})
            for topic in image.topics_in_order()
        },
        "configs": {key: dict(configs) for key, configs in image.configs.items()},
        "acls": {acl_id: tuple(acl) for acl_id, acl in image.acls.items()},
        "scram": {key: credential.iterations for key, credential in image.scram.items()},
        "quotas": {entity: dict(quotas) for entity, quotas in image.quotas.items()},
        "next_producer_id": image.next_producer_id,
    }  # fmt: skip


def of_state(state: PastState) -> dict[str, Any]:
    return {
        "offset": state.offset,
        "epoch": state.epoch,
        "features": state.features,
        "brokers": {
            b.id: (
                b.epoch, b.incarnation, b.endpoints, b.rack, b.is_fenced,
                b.is_shutting_down, b.directories, b.cordoned, sorted(b.features),
            )
            for b in state.brokers.values()
        },
        "controllers": {c.id: c.incarnation for c in state.controllers.values()},
        "topics": {
            topic.name: (topic.id, {i: tuple(p) for i, p in topic.partitions.items()})
            for topic in state.topics_in_order()
        },
        "configs": state.configs,
        "acls": {acl_id: tuple(acl) for acl_id, acl in state.acls.items()},
        "scram": state.scram,
        "quotas": state.quotas,
        "next_producer_id": state.next_producer_id,
    }  # fmt: skip


@pytest.mark.parametrize("made", [lived, every_kind])
def test_a_state_equals_the_image_after_each_record(made):
    replay, state = Replay(), PastState()
    for offset, record in enumerate(made()):
        replay.replay_batch([record], last_offset=offset, epoch=1)
        replay.commit(offset)
        state.apply(record)
        state.move_to(offset, 1, offset)
        if not replay.in_transaction:
            assert of_state(state) == of_image(replay.stable)
        else:
            same = {**of_image(replay.stable), "offset": offset, "epoch": 1}
            assert of_state(state) == same


@pytest.mark.parametrize("made", [lived, every_kind])
def test_a_restored_state_equals_the_saved_one(made):
    state = PastState()
    for offset, record in enumerate(made()):
        state.apply(record)
        state.move_to(offset, 1, offset)
        if not state.in_transaction:
            restored = PastState.restored(state.saved())
            assert of_state(restored) == of_state(state)
            assert restored.at_ms == state.at_ms


def test_records_of_unknown_objects_have_no_effect():
    """A session that may not see a topic gets none of its records, or only some by their type."""
    state = PastState()
    unknown = uuid(5)
    for record in (
        records.PartitionRecord(topic_id=unknown, partition_id=0),
        records.PartitionChangeRecord(topic_id=unknown, partition_id=0, leader=1),
        records.RemoveTopicRecord(topic_id=unknown),
        records.ClearElrRecord(topic_name="hidden"),
        records.BrokerRegistrationChangeRecord(broker_id=9, fenced=1),
    ):
        state.apply(record)
    assert of_state(state) == of_state(PastState())


def test_every_change_has_words():
    state = PastState()
    said = []
    for record in every_kind():
        change = change_of(state, record)
        if change is not None:
            said.append(change.text)
        state.apply(record)
    t = Uuid(uuid(101))
    for expected in (
        f"topic t was created with id {t}",
        "partition t-0 was created on 1, 2, 3, leader 1, ISR 1, 2",
        "t-0: leader 1 → 2, leader epoch 1; ISR 1, 2 → 2",
        "t-0: the leader recovers from an unclean election",
        "t-0: replicas 1, 2, 3 → 1, 2, 3, 4; adding none → 4",
        "topic u was deleted",
        "broker 1 registered at PLAINTEXT://h:1, fenced",
        "broker 2 was fenced",
        "broker 2 was unfenced",
        f"broker 3 began its controlled shutdown, has 1 online log directories: {uuid(200)} "
        "went offline, has 1 cordoned log directories",
        "broker 4 was unregistered",
        "config b of all brokers was set to 2",
        "config c of broker 1 was removed (was 3)",
        "feature group.version was set to level 0 (was 1)",
        "access control entry added: allow User:a to READ topic t",
        "SCRAM-SHA-256 credential of user alice added, 4096 iterations",
        "SCRAM-SHA-512 credential of user bob removed",
        "quota consumer_byte_rate of client-id <default>, user alice was removed (was 2.5)",
        "producer ids below 1000 were given to broker 1",
        "metadata transaction aborted: no",
    ):
        assert expected in said, said


def test_partitions_share_their_tuples_and_keep_them_when_saved() -> None:
    """The states of 10,000 partitions that the console keeps are three times smaller."""
    topic, directories = uuid(301), [uuid(302), uuid(303)]
    state = PastState()
    state.apply(records.TopicRecord(name="t", topic_id=topic))
    for number in range(50):
        state.apply(
            records.PartitionRecord(
                partition_id=number, topic_id=topic, replicas=[1, 2], isr=[1, 2], leader=1,
                leader_epoch=0, partition_epoch=0, directories=list(directories),
            )
        )  # fmt: skip
        for isr in ([2], [1, 2]):
            change = records.PartitionChangeRecord(partition_id=number, topic_id=topic)
            change.isr = list(isr)
            state.apply(change)
    for kept in (state, PastState.restored(state.saved())):
        found = kept.topics[bytes(topic)].partitions.values()
        for field in ("replicas", "isr", "directories"):
            assert len({id(getattr(each, field)) for each in found}) == 1, field
    assert len(state.saved()) < 50 * 70, "140 bytes a partition without sharing"
