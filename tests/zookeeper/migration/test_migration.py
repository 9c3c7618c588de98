"""A broker of Kafka 3.9.2 leaves ZooKeeper under a KRaft controller of ours (KIP-866)."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.zookeeper.errors import NoNodeError
from sparkraft.zookeeper.requests import Delete, GetData
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.zookeeper.migration.clusters import MigratingBroker, OurController, status_of

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

RECORDS = 100
ALONE = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
SECURED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SECONDS = 120
"""Several JVMs may start beside this test."""


def produce(broker: MigratingBroker, topic: str, first: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(
            topic,
            str(number),
            partition=number % 2,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0
    assert not failures


def consume(broker: MigratingBroker, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def znode(ensemble: Ensemble, path: str) -> dict[str, object] | None:
    try:
        data, _ = submit(ensemble.connect, GetData(path=path))
    except NoNodeError:
        return None
    found: dict[str, object] = json.loads(data)
    return found


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def allow(admin: AdminClient, principal: str, topic: str) -> None:
    """Let a principal read a topic."""
    binding = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, "*",
        AclOperation.READ, AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([binding])[binding].result(SECONDS)


def allowed(admin: AdminClient) -> set[tuple[str, str]]:
    """Principal and topic of each entry."""
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    return {(each.principal, each.name) for each in admin.describe_acls(every).result(SECONDS)}


def test_a_broker_leaves_zookeeper_and_keeps_its_records(zookeeper_jars: Path, tmp_path: Path):
    with (
        Ensemble(zookeeper_jars, tmp_path) as ensemble,
        MigratingBroker(
            tmp_path / "broker", 1, ensemble.connect, zookeeper_jars, ALONE | SECURED
        ) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("old", 2, 1)])["old"].result(SECONDS)
        admin.create_topics([NewTopic("gone", 2, 1)])["gone"].result(SECONDS)
        set_config(admin, "old", "retention.ms", "123456")
        allow(admin, "User:carol", "old")
        produce(broker, "old", 0)
        assert consume(broker, "old", RECORDS) == list(range(RECORDS))
        overrides = {**SECURED, "authorizer.class.name": STANDARD_AUTHORIZER}
        with OurController(tmp_path / "controller", ensemble.connect, overrides) as controller:
            # Until the broker has registered, ZooKeeper's controller rules.
            wait_for_stage(ensemble, "waiting", controller)
            assert znode(ensemble, "/controller")["kraftControllerEpoch"] == -1
            broker.join(controller)
            wait_for_stage(ensemble, "dual write", controller)
            _use_the_migrating_cluster(ensemble, broker)
            broker.leave_zookeeper()
            wait_for_stage(ensemble, "kraft brokers", controller)
            produce(broker, "old", 2 * RECORDS)
            controller.restart(migrates=False)
            produce(broker, "old", 3 * RECORDS)
            everything = list(range(RECORDS, 4 * RECORDS))
            assert consume(broker, "old", 3 * RECORDS) == everything
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert "new" in admin.list_topics(timeout=SECONDS).topics
            admin.create_topics([NewTopic("last", 1, 1)])["last"].result(SECONDS)
            assert allowed(admin) == {("User:carol", "old"), ("User:dave", "new")}
            # ZooKeeper is not written from here on.
            assert znode(ensemble, "/brokers/topics/last") is None


@pytest.mark.long  # the test above stays; this one has two brokers, and ends without Kafka
def test_two_brokers_of_kafka_become_brokers_of_sparkraft(zookeeper_jars: Path, tmp_path: Path):
    with (
        Ensemble(zookeeper_jars, tmp_path) as ensemble,
        MigratingBroker(tmp_path / "1", 1, ensemble.connect, zookeeper_jars) as first,
        MigratingBroker(tmp_path / "2", 2, ensemble.connect, zookeeper_jars) as second,
    ):
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both", SECONDS)
        admin.create_topics([NewTopic("old", 2, 2)])["old"].result(SECONDS)
        produce(first, "old", 0)
        assert consume(first, "old", RECORDS) == list(range(RECORDS))
        with OurController(tmp_path / "controller", ensemble.connect) as controller:
            first.join(controller)
            produce(second, "old", RECORDS)
            second.join(controller)
            wait_for_stage(ensemble, "dual write", controller)
            produce(first, "old", 2 * RECORDS)
            first.leave_zookeeper(as_ours=True)
            wait_until(lambda: in_sync(second) == {0: [1, 2], 1: [1, 2]}, "in sync", SECONDS)
            # A follower of sparkraft in KRaft mode, a leader of Kafka in ZooKeeper mode, and back.
            produce(second, "old", 3 * RECORDS)
            second.leave_zookeeper(as_ours=True)
            wait_until(lambda: in_sync(first) == {0: [1, 2], 1: [1, 2]}, "in sync", SECONDS)
            assert status_of(ensemble.connect)["stage"] == "kraft brokers"
            controller.restart(migrates=False)
            produce(second, "old", 4 * RECORDS)
            assert consume(first, "old", 4 * RECORDS) == list(range(RECORDS, 5 * RECORDS))
            assert [first.stop(), second.stop()] == [0, 0]


@pytest.mark.long  # test_driver.py has what our controller does then, and stays
def test_a_migration_is_rolled_back_after_a_broker_ran_in_kraft_mode(
    zookeeper_jars: Path, tmp_path: Path
):
    with (
        Ensemble(zookeeper_jars, tmp_path) as ensemble,
        MigratingBroker(tmp_path / "1", 1, ensemble.connect, zookeeper_jars, ALONE) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("old", 2, 1)])["old"].result(SECONDS)
        produce(broker, "old", 0)
        with OurController(tmp_path / "controller", ensemble.connect) as controller:
            broker.join(controller)
            wait_for_stage(ensemble, "dual write", controller)
            admin.create_topics([NewTopic("new", 2, 1)])["new"].result(SECONDS)
            broker.leave_zookeeper()
            wait_for_stage(ensemble, "kraft brokers", controller)
            produce(broker, "new", 0)
            broker.return_to_zookeeper(migrates=True)
            wait_for_stage(ensemble, "dual write", controller)
            produce(broker, "new", RECORDS)
            # The operator's steps (docs/ZOOKEEPER.md).
            assert controller.stop() == 0
            for path in ("/controller", "/migration"):
                submit(ensemble.connect, Delete(path=path))
            # A broker that stops before has no controller, and waits for it.
            wait_until(lambda: controller_of(ensemble.connect)[0] == 1, "it rules again", SECONDS)
            wait_until(
                lambda: admin.list_topics(timeout=10).controller_id == 1, "it knows", SECONDS
            )
            broker.return_to_zookeeper(migrates=False)
            admin.create_topics([NewTopic("last", 1, 1)])["last"].result(SECONDS)
            assert znode(ensemble, "/brokers/topics/last") is not None
            produce(broker, "old", RECORDS)
            assert consume(broker, "old", 2 * RECORDS) == list(range(2 * RECORDS))
            assert consume(broker, "new", 2 * RECORDS) == list(range(2 * RECORDS))


def wait_for_stage(ensemble: Ensemble, stage: str, controller: OurController) -> None:
    wait_until(
        lambda: status_of(ensemble.connect)["stage"] == stage, controller.output_tail(), SECONDS
    )


def in_sync(broker: MigratingBroker) -> dict[int, list[int]]:
    """Partition of `old` → sorted ISR, as a broker shows it."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("old", timeout=10)
    return {p.id: sorted(p.isrs) for p in found.topics["old"].partitions.values()}


def _use_the_migrating_cluster(ensemble: Ensemble, broker: MigratingBroker) -> None:
    """The broker is in ZooKeeper mode, and a KRaft controller rules."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("new", 2, 1)])["new"].result(SECONDS)
    set_config(admin, "new", "retention.ms", "654321")
    wait_until(
        lambda: admin.list_topics("new", timeout=10).topics["new"].partitions.get(1) is not None,
        "the broker knows the topic",
        SECONDS,
    )
    produce(broker, "new", 0)
    produce(broker, "old", RECORDS)
    expected = {"version": 1, "config": {"retention.ms": "654321"}}
    wait_until(lambda: znode(ensemble, "/config/topics/new") == expected, "written", SECONDS)
    state = znode(ensemble, "/brokers/topics/new/partitions/1/state")
    assert state is not None
    assert state["leader"] == 1
    allow(admin, "User:dave", "new")
    wait_until(
        lambda: (
            znode(ensemble, "/kafka-acl/Topic/new") is not None
            and allowed(admin) == {("User:carol", "old"), ("User:dave", "new")}
        ),
        "the entry is in ZooKeeper, and the broker has read it there",
        SECONDS,
    )
    admin.create_partitions([NewPartitions("new", 3)])["new"].result(SECONDS)
    admin.delete_topics(["gone"])["gone"].result(SECONDS)
    wait_until(
        lambda: (
            znode(ensemble, "/brokers/topics/new/partitions/2/state") is not None
            and znode(ensemble, "/brokers/topics/gone") is None
        ),
        "dual write",
        SECONDS,
    )
    wait_until(
        lambda: not list(broker.log_dir.glob("gone-[0-9]")), "the broker deleted it", SECONDS
    )
