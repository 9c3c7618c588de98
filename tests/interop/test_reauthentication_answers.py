"""Re-authentication byte by byte: sparkraft and Apache Kafka give a raw client the same answers."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.test_sasl_gate import handshake, in_version, token, versions
from tests.support.nodes import KafkaNode, NodeProcess
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, sasl_node

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

LIFETIME_MS = 60_000
WAIT_SECONDS = 60
ALICE = token(f"\0alice\0{PASSWORDS['alice']}".encode())
ADMIN = token(f"\0admin\0{PASSWORDS['admin']}".encode())
OLD = token(f"\0alice\0{PASSWORDS['alice']}".encode(), version=0)
WRONG = token(b"\0alice\0wrong")
LOGIN = [handshake(), ALICE]

CASES = {
    "again": [*LOGIN, *LOGIN],
    "again with an old version": [handshake(), OLD, handshake(), OLD],
    "twice within a second": [*LOGIN, *LOGIN, handshake()],
    "a token without a handshake": [*LOGIN, ALICE],
    "another user": [*LOGIN, handshake(), ADMIN],
    "a wrong password": [*LOGIN, handshake(), WRONG],
    "nonsense": [*LOGIN, handshake(), token(b"x")],
    "another mechanism": [*LOGIN, handshake(mechanism=SHA_256), ALICE],
    "an unknown mechanism": [*LOGIN, handshake(mechanism="NONE"), ALICE],
    "versions in between": [*LOGIN, handshake(), versions()],
    "another handshake": [*LOGIN, handshake(), handshake()],
    "an unknown version of the handshake": [*LOGIN, in_version(handshake(), 2)],
    "an unknown version of the token": [*LOGIN, handshake(), in_version(ALICE, 9)],
}


@pytest.fixture(scope="module")
def nodes(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path
) -> Iterator[list[NodeProcess]]:
    """Ours, then Kafka's, with one configuration."""
    ours = sasl_node(
        tmp_path_factory.mktemp("ours"),
        mechanisms=(PLAIN, SHA_256),
        connections_max_reauth_ms=str(LIFETIME_MS),
    )
    kafkas = KafkaNode(tmp_path_factory.mktemp("kafkas"), jars=kafka_jars)
    kafkas.overrides |= {
        key: value.replace(f":{ours.port}", f":{kafkas.port}").replace(
            f":{ours.controller_port}", f":{kafkas.controller_port}"
        )
        for key, value in ours.overrides.items()
    }
    kafkas.write_properties()
    with ExitStack() as stack:
        yield [stack.enter_context(node) for node in (ours, kafkas)]


def answers(node: NodeProcess, sent: list[bytes]) -> list[bytes]:
    """The answer to each frame; b"" once the connection is closed."""
    found = []
    with (
        socket.create_connection(("127.0.0.1", node.port), WAIT_SECONDS) as connection,
        connection.makefile("rb") as stream,
    ):
        for data in sent:
            try:
                connection.sendall(data)
                size = int.from_bytes(stream.read(4), "big")
                found.append(stream.read(size))
            except ConnectionError:
                found.append(b"")
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_raw_client_gets_the_same_answers(nodes: list[NodeProcess], case: str) -> None:
    ours, kafkas = (answers(node, CASES[case]) for node in nodes)
    # Kafka lists mechanisms in the order of a hash set.
    assert [sorted(answer) for answer in ours] == [sorted(answer) for answer in kafkas]
