"""Clients that authenticate by Kerberos, against Debian's KDC."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka_tools import kafka_tool_command
from tests.support.kerberos import HOST, SERVICE, Kdc, client_properties, gssapi_node
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, gssapi_package, kerberos

pytestmark = pytest.mark.real_clients

SECONDS = 120


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    root, package = kerberos(), gssapi_package()
    for found in (root, package):
        if isinstance(found, Missing):
            pytest.skip(found.reason)
    assert isinstance(root, Path)
    assert isinstance(package, Path)
    with Kdc(tmp_path_factory.mktemp("kdc"), root, package) as running:
        yield running


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    """Has the keys of the node, and of two clients."""
    return kdc.keytab(SERVICE, "alice", "bob/admin")


@pytest.fixture(scope="module")
def node(
    kdc: Kdc, keytab: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkraftNode]:
    """Lets `alice` and itself do anything, and nobody else."""
    more = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:kafka;User:alice",
    }
    with gssapi_node(tmp_path_factory.mktemp("gssapi"), kdc, keytab, **more) as running:
        yield running


@pytest.fixture
def alice(keytab: Path, tmp_path: Path) -> str:
    path = tmp_path / "alice.properties"
    path.write_text(client_properties(keytab, "alice"))
    return str(path)


def bootstrap(node: SparkraftNode) -> str:
    """By its name: Kerberos has no keys for addresses."""
    return f"{HOST}:{node.port}"


def run(kdc: Kdc, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **kdc.environment},
        input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


def ours(kdc: Kdc, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run(kdc, sys.executable, "-m", "sparkraft.cli.main", *arguments, stdin=stdin)


@pytest.mark.java
def test_javas_clients_produce_and_consume(
    kdc: Kdc, node: SparkraftNode, alice: str, kafka_jars: Path
) -> None:
    def theirs(main_class: str, *arguments: str, stdin: str = "") -> str:
        java, *rest = kafka_tool_command(kafka_jars, f"org.apache.kafka.tools.{main_class}")
        at = ["--bootstrap-server", bootstrap(node), "--topic", "javas"]
        config = ["--command-config", alice]
        done = run(kdc, java, kdc.java_flag, *rest, *at, *config, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    theirs("ConsoleProducer", stdin="one\ntwo\n")
    read = ["--from-beginning", "--max-messages", "2", "--group", "javas"]
    assert theirs("consumer.ConsoleConsumer", *read) == "one\ntwo\n"


def test_our_commands_log_in(kdc: Kdc, node: SparkraftNode, alice: str) -> None:
    at = ["--bootstrap-server", bootstrap(node), "--command-config", alice]
    done = ours(kdc, "topics", *at, "--create", "--topic", "ours")
    assert (done.returncode, done.stdout) == (0, "Created topic ours.\n"), done.stderr
