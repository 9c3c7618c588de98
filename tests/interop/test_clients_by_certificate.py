"""Other people's clients that log in by their certificate, on a listener with an authorizer."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkraft.cli import main as cli
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.certificates import Authority, pem_configs
from tests.support.kafka_tools import run_kafka_tool
from tests.support.kafkajs import kafkajs_round_trip
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60


class Target(NamedTuple):
    """A node on which alice may use what begins with `alice-`, and bob nothing."""

    node: SparkraftNode
    authority: Authority
    stores: dict[str, Path]

    def properties(self, folder: Path, user: str) -> str:
        """Path of a file of Java clients, which our tools read too."""
        lines = {"security.protocol": "SSL"}
        lines |= pem_configs(self.stores[user], self.authority.ca_path)
        path = folder / f"{user}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return str(path)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("by-certificate")
    authority = Authority(folder / "authority")
    stores = {name: authority.issue(name) for name in ("node", "alice", "bob")}
    node = SparkraftNode(folder / "node")
    listener = f"SSL://127.0.0.1:{node.port}"
    node.overrides |= {
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
        "authorizer.class.name": CLASS_NAME,
        "super.users": "User:CN=node;User:ANONYMOUS",
        **pem_configs(stores["node"], authority.ca_path),
    }
    node.write_properties()
    with node as running:
        made = Target(running, authority, stores)
        as_node = ["--bootstrap-server", running.bootstrap]
        as_node += ["--command-config", made.properties(folder, "node")]
        of_alice = ["--allow-principal", "User:CN=alice", "--resource-pattern-type", "prefixed"]
        resources = ["--topic", "alice-", "--group", "alice-"]
        assert cli.main(["acls", *as_node, "--add", *of_alice, *resources]) == 0
        yield made


def librdkafkas(target: Target, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": target.node.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(target.authority.ca_path),
        "ssl.certificate.location": str(target.stores[user]),
        "ssl.key.location": str(target.stores[user]),
    }


def test_confluent_kafka(target: Target) -> None:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

    outcomes: list[Any] = []
    for user in ("alice", "bob"):
        producer = Producer(librdkafkas(target, user))
        producer.produce(
            "alice-confluent", b"value", on_delivery=lambda *of: outcomes.append(of[0])
        )
        assert producer.flush(WAIT_SECONDS) == 0
    assert outcomes[0] is None
    assert outcomes[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(librdkafkas(target, "alice") | {"group.id": "alice-g"})
    consumer.assign([TopicPartition("alice-confluent", 0, 0)])
    message = consumer.poll(WAIT_SECONDS)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"value")
    consumer.close()


def test_kafka_python(target: Target) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    login = {
        "bootstrap_servers": target.node.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(target.authority.ca_path),
        "ssl_certfile": str(target.stores["alice"]),
        "ssl_keyfile": str(target.stores["alice"]),
    }
    producer = KafkaProducer(**login)
    producer.send("alice-kafka-python", b"value").get(WAIT_SECONDS)
    producer.close()
    wait = {"auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_SECONDS * 1000}
    consumer = KafkaConsumer("alice-kafka-python", **wait, **login)
    assert next(consumer).value == b"value"
    consumer.close()


def test_aiokafka(target: Target) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    context = ssl.create_default_context(cafile=target.authority.ca_path)
    context.load_cert_chain(target.stores["alice"])
    login = {
        "bootstrap_servers": target.node.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def test() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            async with AIOKafkaProducer(**login) as producer:
                await producer.send_and_wait("alice-aiokafka", b"value")
            consumer = AIOKafkaConsumer("alice-aiokafka", auto_offset_reset="earliest", **login)
            async with consumer:
                assert (await consumer.getone()).value == b"value"

    asyncio.run(test())


@pytest.mark.long
def test_kafkajs(target: Target) -> None:
    stores = target.authority.ca_path, target.stores["alice"]
    assert kafkajs_round_trip(target.node.bootstrap, "alice-kafkajs", {}, *stores) == "value"


@pytest.mark.java
def test_kafkas_tools(target: Target, kafka_jars: Path, tmp_path: Path) -> None:
    to = ["--bootstrap-server", target.node.bootstrap, "--command-config"]
    create = ["--create", "--topic", "alice-java"]
    tool = "org.apache.kafka.tools.TopicCommand"
    for user, said in (("bob", "TopicAuthorizationException"), ("alice", "Created topic")):
        done = run_kafka_tool(kafka_jars, tool, *to, target.properties(tmp_path, user), *create)
        assert said in done.stdout + done.stderr, user
