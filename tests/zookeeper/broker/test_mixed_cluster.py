"""One cluster of Kafka 3.9.2 and ours on a real ensemble; Kafka is the controller."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from sparkraft.protocol.api_keys import ApiKey
from tests.interop.differential.comparing import differing
from tests.interop.differential.world import exchange
from tests.support.ports import wait_until
from tests.support.relay import Relay
from tests.support.zookeeper import Ensemble
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.differential.allowed import ALLOWED
from tests.zookeeper.differential.brokers import ZooKeeperWorld, normalise_by_name
from tests.zookeeper.differential.cases import zookeeper_cases

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

RECORDS = 200

READS = {
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.LEADER_AND_ISR,
    ApiKey.METADATA,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
}
"""Keys whose requests change nothing, and have one answer for all brokers of a cluster."""

CREATING = {"by name", "authorised operations"}
"""Metadata of topics that are not here, and would be created."""


@pytest.fixture(scope="module")
def brokers(
    zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaBroker, OurBroker, Ensemble]]:
    folder = tmp_path_factory.mktemp("mixed")
    with (
        Ensemble(zookeeper_jars, folder) as ensemble,
        KafkaBroker(folder / "kafka", 1, ensemble.connect, zookeeper_jars) as kafka,
        OurBroker(folder / "ours", 2, ensemble.connect) as ours,
    ):
        yield kafka, ours, ensemble


def states(bootstrap: str, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Partition → leader and sorted ISR."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=10)
    return {p.id: (p.leader, sorted(p.isrs)) for p in found.topics[topic].partitions.values()}


def produce(bootstrap: str, first: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(
            "t",
            str(number),
            partition=number % 2,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failures


def consume(bootstrap: str, count: int, group: str) -> list[int]:
    """Read as a member of a group, and commit."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    found: list[int] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def test_ours_leads_follows_leaves_and_returns(brokers):
    kafka, ours, _ = brokers
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    # Ours is not the controller: it sends CreateTopics on, also that of __consumer_offsets.
    wait_until(lambda: sorted(admin.list_topics(timeout=10).brokers) == [1, 2], "both are live", 20)
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(20)
    wait_until(
        lambda: {leader for leader, _ in states(ours.bootstrap, "t").values()} == {1, 2},
        "each leads one",
        20,
    )
    assert admin.list_topics(timeout=10).controller_id == 1, "clients see the controller"
    produce(ours.bootstrap, 0)
    assert consume(ours.bootstrap, RECORDS, "g") == list(range(RECORDS))
    assert states(kafka.bootstrap, "t") == states(ours.bootstrap, "t")
    # A controlled shutdown moves the leaders away before the process ends.
    assert ours.stop() == 0
    assert states(kafka.bootstrap, "t") == {0: (1, [1]), 1: (1, [1])}
    produce(kafka.bootstrap, RECORDS)
    ours.start()
    both = {0: (1, [1, 2]), 1: (1, [1, 2])}
    wait_until(lambda: states(kafka.bootstrap, "t") == both, "ours is in the ISR again", 20)
    assert consume(ours.bootstrap, RECORDS, "g") == list(range(RECORDS, 2 * RECORDS))
    # The log that ours fetched has the bytes of the leader's.
    for partition in (0, 1):
        segment = f"t-{partition}/00000000000000000000.log"
        expected = (kafka.log_dir / segment).read_bytes()
        assert expected
        assert (ours.log_dir / segment).read_bytes() == expected


def advertise(node: KafkaBroker | OurBroker, broker: int, value: str) -> object:
    """Change advertised.listeners of a running broker; an empty value deletes it."""
    operation = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
    entry = ConfigEntry("advertised.listeners", value or None, incremental_operation=operation)
    resource = ConfigResource("broker", str(broker), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    return admin.incremental_alter_configs([resource])[resource].exception(20)


def address_of(broker: int, bootstrap: str) -> str:
    """The address of a broker in Metadata."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers[broker]
    return f"{found.host}:{found.port}"


def test_brokers_advertise_other_listeners_while_they_run(brokers):
    """Clients and brokers of both kinds learn the address from each other's controller."""
    kafka, ours, _ = brokers
    nodes = {1: kafka, 2: ours}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    wait_until(lambda: sorted(admin.list_topics(timeout=10).brokers) == [1, 2], "both are live", 20)
    topic = NewTopic("u", 2, replica_assignment=[[1], [2]])
    admin.create_topics([topic])["u"].result(20)
    wait_until(
        lambda: (
            [p.leader for p in admin.list_topics("u").topics["u"].partitions.values()] == [1, 2]
        ),
        "led",
        20,
    )
    bootstraps = [kafka.bootstrap, ours.bootstrap]
    for broker, node in nodes.items():
        other = nodes[3 - broker].bootstrap
        with Relay(node.port) as relay:
            assert advertise(node, broker, f"PLAINTEXT://{relay.address}") is None
            wait_until(
                lambda b=broker, to=relay.address: [address_of(b, at) for at in bootstraps]
                == [to, to],
                f"both know the address of broker {broker}",
                20,
            )  # fmt: skip
            before = relay.connections
            producer = Producer({"bootstrap.servers": other, "acks": "all"})
            producer.produce("u", b"v", partition=broker - 1)
            assert producer.flush(30) == 0
            assert relay.connections > before, "a client that started elsewhere uses it"
            assert advertise(node, broker, "") is None
            wait_until(
                lambda b=broker, to=node.bootstrap: [address_of(b, at) for at in bootstraps]
                == [to, to],
                f"broker {broker} advertises server.properties again",
                20,
            )  # fmt: skip


def test_both_refuse_the_same_advertised_listeners(brokers):
    kafka, ours, _ = brokers
    for broker, node in ((1, kafka), (2, ours)):
        for value in (
            "PLAINTEXT://0.0.0.0:9092",
            "PLAINTEXT://h",
            "PLAINTEXT://h:1,PLAINTEXT://h:2",
            "SSL://h:1",
            "PLAINTEXT://h:1,SSL://h:2",
        ):
            refused = advertise(node, broker, value)
            assert isinstance(refused, KafkaException), (broker, value)
            assert refused.args[0].code() == KafkaError.INVALID_REQUEST, (broker, value, refused)
        assert address_of(broker, node.bootstrap) == node.bootstrap


def test_an_id_or_an_endpoint_in_use_is_refused(brokers, tmp_path):
    _, ours, ensemble = brokers
    second = OurBroker(tmp_path / "second", 2, ensemble.connect)
    assert "another broker with id 2 is registered" in second.refused_start(seconds=60)
    taken = {"advertised.listeners": f"PLAINTEXT://{ours.bootstrap}"}
    third = OurBroker(tmp_path / "third", 3, ensemble.connect, taken)
    assert "are already registered by broker 2" in third.refused_start(seconds=60)


def test_both_kinds_give_the_same_answers(brokers):
    """Requests that any broker serves; `differential` has the others, with a controller each."""
    kafka, ours, _ = brokers
    cases = [
        case
        for case in zookeeper_cases()
        if case.key in READS and case.label not in CREATING and case.until is None
    ]
    assert {case.key for case in cases} == READS
    worlds = [ZooKeeperWorld("Kafka", kafka), ZooKeeperWorld("sparkraft", ours)]
    answers = [
        (case, *(normalise_by_name(world, exchange(world, case)) for world in worlds))
        for case in cases
    ]
    for world in worlds:
        world.close()
    wrong = [line for line, reasons in differing(answers, ALLOWED) if not reasons]
    assert not wrong, "\n".join(wrong)
