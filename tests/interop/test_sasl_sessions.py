"""Other people's clients keep producing on connections whose sessions expire (KIP-368)."""

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import SparkraftNode
from tests.support.ports import lasting_ports
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, client_properties, sasl_node

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 120
SESSION_SECONDS = 4
"""Short for the test, and long enough for the 5 % of it that a client leaves."""

PRODUCING_SECONDS = 3 * SESSION_SECONDS


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    (http_port,) = lasting_ports(1)
    made = sasl_node(
        tmp_path_factory.mktemp("sessions"),
        mechanisms=(PLAIN, SHA_256),
        sparkraft_http_listener=f"127.0.0.1:{http_port}",
        connections_max_reauth_ms=str(SESSION_SECONDS * 1000),
    )
    made.format_as = ("--standalone", "--add-scram", scram_user("alice"))
    with made as running:
        yield running


def scram_user(name: str) -> str:
    return f"{SHA_256}=[name={name},password={PASSWORDS[name]}]"


def renewals(node: SparkraftNode) -> int:
    """How often clients have re-authenticated, by the node's metrics."""
    where = node.overrides["sparkraft.http.listener"]
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=WAIT_SECONDS) as answer:
        text = answer.read().decode()
    found = re.search(r"sparkraft_successful_reauthentications_total\{[^}]*\} ([0-9.]+)", text)
    assert found is not None, text
    return int(float(found[1]))


@pytest.mark.parametrize("mechanism", [PLAIN, SHA_256])
def test_confluent_kafka_keeps_producing(node: SparkraftNode, mechanism: str) -> None:
    from confluent_kafka import Producer

    before, delivered = renewals(node), []
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORDS["alice"],
        }
    )
    end = time.monotonic() + PRODUCING_SECONDS
    while time.monotonic() < end:
        producer.produce("sessions", b"value", on_delivery=lambda *of: delivered.append(of[0]))
        producer.poll(0.1)
    assert producer.flush(WAIT_SECONDS) == 0
    assert set(delivered) == {None}
    assert renewals(node) - before >= 2


@pytest.mark.java
def test_javas_producer_keeps_producing(
    node: SparkraftNode, kafka_jars: Path, tmp_path: Path
) -> None:
    before = renewals(node)
    config = tmp_path / "client.properties"
    config.write_text(client_properties(mechanism=SHA_256))
    done = run_kafka_tool(
        kafka_jars,
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", node.bootstrap, "--topic", "javas", "--record-size", "10",
        "--num-records", str(10 * PRODUCING_SECONDS), "--throughput", "10",
        "--command-config", str(config),
        seconds=WAIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{10 * PRODUCING_SECONDS} records sent" in done.stdout, done.stdout
    assert renewals(node) - before >= 2
