"""Two users with different rights: what other people's clients and our commands learn from it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.nodes import SparkraftNode
from tests.support.sasl import PASSWORDS, client_properties, sasl_node

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    secured = {"authorizer.class.name": CLASS_NAME, "super.users": "User:admin;User:ANONYMOUS"}
    with sasl_node(tmp_path_factory.mktemp("acls"), **secured) as running:
        admin = running.directory / "admin.properties"
        admin.write_text(client_properties("admin"))
        to = ["--bootstrap-server", running.bootstrap, "--command-config", str(admin)]
        for name in ("open", "read-only", "closed"):
            assert cli.main(["topics", *to, "--create", "--topic", name]) == 0
        alice = ["--allow-principal", "User:alice"]
        for entry in (
            ["--producer", "--consumer", "--topic", "open", "--group", "g", *alice],
            ["--consumer", "--topic", "read-only", "--group", "g", *alice],
        ):
            assert cli.main(["acls", *to, "--add", *entry]) == 0
        yield running


def settings(node: SparkraftNode, user: str = "alice") -> dict[str, Any]:
    """librdkafka's."""
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def produced(producer: Any, topic: str) -> Any:
    """The error of a record, None if it was delivered."""
    outcome: list[Any] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(WAIT_SECONDS) == 0
    return outcome[0]


def test_confluent_kafka_writes_only_where_it_may(node: SparkraftNode) -> None:
    from confluent_kafka import KafkaError, Producer

    producer = Producer(settings(node) | {"enable.idempotence": True})
    assert produced(producer, "open") is None
    for topic in ("read-only", "closed"):
        error = produced(Producer(settings(node)), topic)
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, topic
    assert produced(Producer(settings(node, "admin")), "closed") is None


def test_confluent_kafka_reads_only_where_it_may(node: SparkraftNode) -> None:
    from confluent_kafka import Consumer, KafkaError, Producer

    for topic in ("read-only", "closed"):
        assert produced(Producer(settings(node, "admin")), topic) is None

    def first(topic: str, group: str) -> Any:
        """The first record, or the first error of the broker."""
        more = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings(node) | more)
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_SECONDS
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is not None:
                    error = message.error()
                    if error is None or error.code() > 0:
                        return message.value() if error is None else error.code()
        finally:
            consumer.close()
        raise AssertionError(f"nothing from {topic}")

    assert first("read-only", "g") == b"value"
    assert first("closed", "g") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert first("read-only", "h") == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_topic_that_a_user_may_not_see_is_not_listed(node: SparkraftNode) -> None:
    from confluent_kafka.admin import AdminClient

    assert set(AdminClient(settings(node)).list_topics(timeout=30).topics) == {"open", "read-only"}
    every = set(AdminClient(settings(node, "admin")).list_topics(timeout=30).topics)
    assert {"open", "read-only", "closed"} <= every


def test_our_commands_report_the_refusal(
    node: SparkraftNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "alice.properties"
    path.write_text(client_properties())
    to = ["--bootstrap-server", node.bootstrap, "--command-config", str(path)]
    assert cli.main(["acls", *to, "--list"]) == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in capsys.readouterr().err
    assert cli.main(["topics", *to, "--delete", "--topic", "open"]) == 1
    assert "Topic authorization failed" in capsys.readouterr().err
