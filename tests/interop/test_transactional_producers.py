"""Transactional producers hear at once that it is hopeless: no client tries again and again.

Each runs as a process of its own that must end by itself; its own errors are what it prints.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import SparkraftNode, run_kafka_tool
from tests.support.outside_tools import Missing, javascript_clients

pytestmark = pytest.mark.real_clients

SECONDS = 60
"""Far above what a refusal takes, below what clients try for by themselves, except for Java's
`max.block.ms` of 60 s, which is therefore raised."""

SCRIPTS = {
    "confluent-kafka": """
from confluent_kafka import KafkaException, Producer
producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "c"})
try:
    producer.init_transactions()
except KafkaException as error:
    print("fatal" if error.args[0].fatal() else "not fatal", error.args[0].name(), error)
""",
    "kafka-python": """
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError
producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="k")
try:
    producer.init_transactions()
except TransactionalIdAuthorizationFailedError as error:
    print("not fatal" if error.retriable else "fatal", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
async def main():
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="a")
    try:
        await producer.start()
    except TransactionalIdAuthorizationFailed as error:
        print("not fatal" if error.retriable else "fatal", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    finally:
        await producer.stop()
asyncio.run(main())
""",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("transactions")) as started:
        yield started


@pytest.mark.parametrize("client", SCRIPTS)
def test_a_python_client_gets_a_fatal_error_and_ends(client: str, node: SparkraftNode) -> None:
    script = f"BOOTSTRAP = {node.bootstrap!r}\n{SCRIPTS[client]}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fatal TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), done.stdout
    if client == "confluent-kafka":
        assert "not implemented" in done.stdout, "the one that shows our reason"


@pytest.mark.java
def test_javas_producer_ends_with_the_error(node: SparkraftNode, kafka_jars: Path) -> None:
    done = run_kafka_tool(
        kafka_jars,
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", node.bootstrap, "--topic", "t", "--num-records", "10",
        "--record-size", "10", "--throughput", "-1", "--transactional-id", "j",
        "--command-property", "max.block.ms=600000",
        seconds=SECONDS,
    )  # fmt: skip
    assert done.returncode != 0
    assert "TransactionalIdAuthorizationException" in done.stderr, done.stderr


@pytest.mark.parametrize("client", ["kafkajs", "platformatic"])
def test_a_javascript_client_ends_with_an_error(client: str, node: SparkraftNode) -> None:
    folder = javascript_clients()
    if isinstance(folder, Missing):
        pytest.skip(f"{client}: {folder.reason}")
    done = subprocess.run(
        ["node", "transactions.js", client, node.bootstrap],
        cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("refused:"), done.stdout


def test_the_node_still_serves_others(node: SparkraftNode) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
    producer.produce("after", b"x")
    assert producer.flush(SECONDS) == 0
