"""Real ensembles that brokers of both kinds cannot use: read-only ones, and znodes too large.

The same brokers on a simulated ensemble, and other ensembles: `test_bad_ensembles`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, four_letters
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

pytestmark = [pytest.mark.java, pytest.mark.real_clients, pytest.mark.real_time, pytest.mark.long]

Broker = KafkaBroker | OurBroker
PATIENCE_S = 60
MIB = 1024 * 1024

ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "zookeeper.session.timeout.ms": "10000",
    "zookeeper.connection.timeout.ms": "4000",
}

LOG4J = """
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%p %m (%c)%n
"""
"""Prints the warnings of Kafka and of its ZooKeeper client."""


def broker_of(kind: str, folder: Path, connect: str, jars: Path) -> Broker:
    """A broker that is alone in its cluster, and so the controller."""
    if kind == "kafka":
        broker = KafkaBroker(folder / kind, 1, connect, jars, ALONE)
        settings = folder / kind / "log4j.properties"
        settings.write_text(LOG4J)
        broker.environment["JAVA_TOOL_OPTIONS"] = f"-Dlog4j.configuration=file:{settings}"
        return broker
    return OurBroker(folder / kind, 1, connect, ALONE | {"sparkraft.controllership.enable": "true"})


def create(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(
        lambda: admin.list_topics(timeout=10).controller_id == 1, "it is the controller", PATIENCE_S
    )
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


def produce(broker: Broker, topic: str) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None]


@contextmanager
def kazoo(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def printed(broker: Broker) -> str:
    return broker.output_path.read_text(errors="replace")


def test_a_read_only_ensemble_is_not_used(zookeeper_jars: Path, tmp_path: Path) -> None:
    """The one server without a quorum serves reads, and closes the connections of brokers."""
    flags = ["-Dreadonlymode.enabled=true"]
    with Ensemble(zookeeper_jars, tmp_path, 3, flags=flags) as ensemble:
        first, *others = ensemble.servers
        ours = broker_of("ours", tmp_path, f"{ensemble.connect}/ours", zookeeper_jars)
        with ours:
            create(ours, "t")
            produce(ours, "t")
            for server in others:
                server.kill()
            wait_until(lambda: first.mode() == "read-only", first.log(), PATIENCE_S)
            assert four_letters(first.port, "isro") == "ro"
            produce(ours, "t")  # clients do not need ZooKeeper
            named = (
                f"127.0.0.1:{first.port}: the server closed the connection in place of a session"
            )
            wait_until(lambda: named in printed(ours), "it is named", PATIENCE_S)
            for kind, reason in (
                ("ours", "is read-only (readonlymode.enabled)"),
                ("kafka", "Timed out waiting for connection while in state: CONNECTING"),
            ):
                connect = f"127.0.0.1:{first.port}/{kind}"
                late = broker_of(kind, tmp_path / "late", connect, zookeeper_jars)
                assert reason in late.refused_start(), kind
            for server in others:
                server.start()
            for server in others:
                server.wait_until_it_serves()
            create(ours, "u")
            produce(ours, "u")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("ours", "in place of the reply to GetData /brokers/topics/large"),
        ("kafka", "Packet len 4194393 is out of range!"),
    ],
)
def test_a_znode_above_the_limit_of_clients_is_waited_for(
    zookeeper_jars: Path, tmp_path: Path, kind: str, reason: str
) -> None:
    """A broker reads it again and again, and serves clients, until an operator deletes it."""
    flags = [f"-Djute.maxbuffer={8 * MIB}"]
    with Ensemble(zookeeper_jars, tmp_path, flags=flags) as ensemble:
        broker = broker_of(kind, tmp_path, ensemble.connect, zookeeper_jars)
        with broker, kazoo(ensemble.connect) as operator:
            create(broker, "t")
            produce(broker, "t")
            operator.create("/brokers/topics/large", bytes(4 * MIB + 1))
            wait_until(lambda: reason in printed(broker), "it is named", PATIENCE_S)
            produce(broker, "t")
            operator.delete("/brokers/topics/large")
            create(broker, "u")
            produce(broker, "u")
