"""Other people's clients and tools on a listener that authenticates, and where passwords go."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import SparkraftNode
from tests.support.sasl import PASSWORDS, client_properties, sasl_node

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with sasl_node(tmp_path_factory.mktemp("sasl")) as running:
        yield running


@pytest.fixture
def properties(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text(client_properties())
    return str(path)


def settings(node: SparkraftNode, user: str = "alice", password: str = "") -> dict[str, Any]:
    """librdkafka's."""
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or PASSWORDS[user],
    }


def test_confluent_kafka_produces_and_consumes(node: SparkraftNode) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer(settings(node))
    for number in range(10):
        producer.produce("confluent", str(number).encode())
    assert producer.flush(WAIT_SECONDS) == 0
    more = {"group.id": "confluent", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings(node, "admin") | more)
    consumer.subscribe(["confluent"])
    read: list[bytes] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(read) < 10 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    assert sorted(read) == [str(number).encode() for number in range(10)]


def test_confluent_kafka_learns_that_its_password_is_wrong(node: SparkraftNode) -> None:
    from confluent_kafka import KafkaError, Producer

    errors: list[int] = []
    more = {"error_cb": lambda error: errors.append(error.code())}
    producer = Producer(settings(node, password="wrong") | more)
    deadline = time.monotonic() + WAIT_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert KafkaError._AUTHENTICATION in errors


def test_kafka_python_produces_and_consumes(node: SparkraftNode) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    login = {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }
    producer = KafkaProducer(**login)
    producer.send("kafka-python", b"value").get(WAIT_SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_SECONDS * 1000,
        **login,
    )
    assert next(consumer).value == b"value"
    consumer.close()


def test_aiokafka_produces_and_consumes(node: SparkraftNode) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    login = {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }

    async def test() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            async with AIOKafkaProducer(**login) as producer:
                await producer.send_and_wait("aiokafka", b"value")
            consumer = AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **login)
            async with consumer:
                assert (await consumer.getone()).value == b"value"

    asyncio.run(test())


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_our_commands_log_in_with_a_command_config(
    node: SparkraftNode, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    ours = [*at, "--command-config", properties]
    code, out, err = run(capsys, "topics", *ours, "--create", "--topic", "ours")
    assert (code, out) == (0, "Created topic ours.\n"), err
    perf = ["producer-perf-test", "--topic", "ours", "--num-records", "5", "--record-size", "9"]
    code, _, err = run(capsys, *perf, "--throughput", "-1", *ours)
    assert code == 0, err
    read = ["console-consumer", "--topic", "ours", "--from-beginning", "--max-messages", "5"]
    code, out, err = run(capsys, *read, *ours)
    assert (code, len(out.splitlines())) == (0, 5), err
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(client_properties(password="not-the-one"))
    code, _, err = run(capsys, "topics", *at, "--command-config", str(wrong), "--list")
    assert code == 1
    assert "Invalid username or password" in err
    assert "not-the-one" not in err


def test_no_answer_or_log_line_has_a_password(
    node: SparkraftNode, properties: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ["--bootstrap-server", node.bootstrap, "--command-config", properties]
    entity = ["--entity-type", "brokers", "--entity-name", "1"]
    code, out, err = run(capsys, "configs", *ours, *entity, "--describe", "--all")
    assert code == 0, err
    assert "listener.name.sasl_plaintext.plain.sasl.jaas.config=null sensitive=true" in out
    log = node.output_path.read_text()
    assert "Failed authentication with" in log
    for password in PASSWORDS.values():
        assert password not in out + err + log


@pytest.mark.java
def test_kafkas_tools_log_in(node: SparkraftNode, kafka_jars: Path, properties: str) -> None:
    at = ["--bootstrap-server", node.bootstrap, "--command-config", properties]
    tool = "org.apache.kafka.tools.TopicCommand"
    done = run_kafka_tool(kafka_jars, tool, *at, "--create", "--topic", "javas")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Created topic javas." in done.stdout
