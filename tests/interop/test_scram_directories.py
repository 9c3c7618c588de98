"""SCRAM users of a directory log in at Kafka's node and at ours, whichever wrote them."""

from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode
from tests.support.sasl import PASSWORDS, SHA_256, SHA_512, client_properties, sasl_node

pytestmark = [pytest.mark.real_clients, pytest.mark.java]


def logs_in(node: NodeProcess, mechanism: str, user: str, password: str) -> None:
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    assert AdminClient(settings).list_topics(timeout=60).brokers


def test_users_move_with_the_directory_both_ways(tmp_path: Path, kafka_jars: Path) -> None:
    ours = sasl_node(tmp_path / "node")
    theirs = KafkaNode(
        tmp_path / "node", overrides=ours.overrides, jars=kafka_jars,
        ports=(ours.port, ours.controller_port),
    )  # fmt: skip
    admin = tmp_path / "admin.properties"
    admin.write_text(client_properties("admin"))
    known: list[tuple[str, str, str]] = []

    def add(node: NodeProcess, mechanism: str, user: str) -> None:
        """With our command, which speaks to either."""
        at = ["--bootstrap-server", node.bootstrap, "--command-config", str(admin)]
        change = f"{mechanism}=[password={user}-secret]"
        entity = ["--entity-type", "users", "--entity-name", user]
        assert cli.main(["configs", *at, *entity, "--alter", "--add-config", change]) == 0
        known.append((mechanism, user, f"{user}-secret"))

    first = f"{SHA_256}=[name=alice,password={PASSWORDS['alice']}]"
    ours.format_as = ("--standalone", "--add-scram", first)
    known.append((SHA_256, "alice", PASSWORDS["alice"]))
    ours.format()
    steps: list[tuple[NodeProcess, str]] = [
        (ours, "by-ours"), (theirs, "by-kafka"), (ours, "by-ours-again"),
    ]  # fmt: skip
    for node, user in steps:
        node.start()
        try:
            for mechanism in (SHA_256, SHA_512):
                add(node, mechanism, f"{user}-{mechanism}")
            for credentials in known:
                logs_in(node, *credentials)
            assert node.stop() == 0 or isinstance(node, KafkaNode)
        finally:
            if node.process is not None:
                node.kill()
    assert isinstance(ours, SparkraftNode)
