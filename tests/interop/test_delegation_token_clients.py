"""Delegation tokens: Kafka's command beside ours, logins of Java clients, directories of both."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from sparkraft.security.jaas import SCRAM_MODULE
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import wait_until
from tests.support.sasl import MECHANISMS, SHA_256, SHA_512, client_properties, sasl_node

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
SECURED = {
    "delegation.token.secret.key": "planted-secret-key-3391",
    "authorizer.class.name": CLASS_NAME,
    "super.users": "User:admin;User:ANONYMOUS",
}


def token_properties(token_id: str, hmac: str, mechanism: str = SHA_256) -> str:
    return (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{token_id}" password="{hmac}" '
        'tokenauth="true";\n'
    )


@dataclass
class Told:
    """What a command printed."""

    code: int
    text: str
    error: str

    @property
    def rows(self) -> list[list[str]]:
        """Cells of a table, without its head: id, HMAC, owner, requester, renewers, dates."""
        lines = [line for line in self.text.splitlines() if re.match(r"\S{22} +\S{88}", line)]
        return [line.replace(", ", ",").split() for line in lines]

    def neutral(self) -> str:
        """Without ids, HMACs, times and widths that depend on them."""
        text = re.sub(r"\S{86}==", "HMAC", self.text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "DATE", text)
        for row in self.rows:
            text = text.replace(row[0], "ID")
        return "\n".join(line.rstrip() for line in text.strip().splitlines())


Command = Callable[..., Told]


class Commands:
    """Kafka's command and ours, with the options of one server."""

    def __init__(self, jars: Path, node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._jars = jars
        self._node = node
        self._capsys = capsys

    def _options(self, config: str) -> list[str]:
        path = self._node.directory / f"{abs(hash(config))}.properties"
        path.write_text(config)
        return ["--bootstrap-server", self._node.bootstrap, "--command-config", str(path)]

    def kafkas(self, config: str, *arguments: str) -> Told:
        done = run_kafka_tool(self._jars, TOOL, *self._options(config), *arguments)
        return Told(done.returncode, done.stdout, done.stderr)

    def ours(self, config: str, *arguments: str) -> Told:
        self._capsys.readouterr()
        code = cli.main(["delegation-tokens", *self._options(config), *arguments])
        printed = self._capsys.readouterr()
        return Told(code, printed.out, printed.err)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with sasl_node(tmp_path_factory.mktemp("tokens"), **SECURED) as running:
        yield running


@pytest.fixture
def commands(node: SparkraftNode, kafka_jars: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(kafka_jars, node, capsys)


CREATE = ("--create", "--max-life-time-period", "-1")
ALICE = client_properties("alice")
ADMIN = client_properties("admin")


def test_kafkas_command_and_ours_print_the_same(commands: Commands) -> None:
    """Each does to a token of its own what the other does."""
    printed = []
    for command in (commands.kafkas, commands.ours):
        renewers = "--renewer-principal", "User:bob", "--renewer-principal", "User:carol"
        told = [command(ALICE, *CREATE, *renewers)]
        ((token_id, hmac, *_),) = told[0].rows
        owned = "--describe", "--owner-principal", "User:alice"

        def described(command: Command = command, owned: Any = owned, count: int = 1) -> bool:
            return len(command(ALICE, *owned).rows) == count

        wait_until(described, "the broker knows the token")
        told.append(command(ALICE, *owned))
        assert told[-1].rows[0][0] == token_id
        told.append(command(ALICE, "--renew", "--hmac", hmac, "--renew-time-period", "1000000"))
        told.append(command(ALICE, "--expire", "--hmac", hmac, "--expiry-time-period", "-1"))
        wait_until(lambda: described(count=0), "the broker has removed the token")
        told.append(command(ALICE, *owned))
        assert [each.code for each in told] == [0] * 5, told
        printed.append([each.neutral().replace(hmac, "HMAC") for each in told])
    assert printed[0] == printed[1]


ERRORS = {
    "unknown": (["--renew", "--hmac", "AAAA", "--renew-time-period", "-1"], "not found on server"),
    "unknown too": (["--expire", "--hmac", "AAAA", "--expiry-time-period", "-1"], "not found"),
    "a renewer of another type": (
        [*CREATE, "--renewer-principal", "Group:g"],
        "principalType is not supported",
    ),
    "no right": (
        [*CREATE, "--owner-principal", "User:admin"],
        "authorization failed",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_both_commands_give_the_reason_of_an_error(commands: Commands, name: str) -> None:
    arguments, reason = ERRORS[name]
    for command in (commands.kafkas, commands.ours):
        told = command(ALICE, *arguments)
        assert told.code == 1
        assert reason in told.error


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_java_client_logs_in_by_a_token_and_gets_no_further_one(
    commands: Commands, mechanism: str
) -> None:
    told = commands.kafkas(ADMIN, *CREATE,
                           "--owner-principal", "User:alice")  # fmt: skip
    ((token_id, hmac, owner, requester, *_),) = told.rows
    assert (owner, requester) == ("User:alice", "User:admin")
    config = token_properties(token_id, hmac, mechanism)

    def refusal() -> str:
        told = commands.kafkas(config, *CREATE)
        assert told.code == 1
        return told.error

    wait_until(lambda: "authentication failed" not in refusal().lower(), "the token is known")
    assert "not allowed on PLAINTEXT" in refusal()
    own = commands.ours(config, *CREATE)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in own.error
    removal = "--expire", "--hmac", hmac, "--expiry-time-period", "-1"
    assert commands.kafkas(ADMIN, *removal).code == 1, "its requester may not"
    assert commands.kafkas(ALICE, *removal).code == 0
    wait_until(lambda: "authentication failed" in refusal().lower(), "the token no longer logs in")


@pytest.mark.long
def test_tokens_move_with_the_directory_both_ways(
    tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tokens of our node log in at Kafka's node, and the other way round."""
    ours = sasl_node(tmp_path / "node", mechanisms=MECHANISMS, **SECURED)
    theirs = KafkaNode(
        tmp_path / "node", overrides=ours.overrides, jars=kafka_jars,
        ports=(ours.port, ours.controller_port),
    )  # fmt: skip
    ours.format()
    tokens: list[list[str]] = []
    nodes: list[NodeProcess] = [ours, theirs, ours]
    for node in nodes:
        node.start()
        try:
            commands = Commands(kafka_jars, node, capsys)
            created = commands.ours(ALICE, *CREATE)
            assert created.code == 0, created.error
            tokens += created.rows
            for token_id, hmac, *_ in tokens:
                config = token_properties(token_id, hmac)

                def allowed(config: str = config, commands: Commands = commands) -> bool:
                    return "REQUEST_NOT_ALLOWED" in commands.ours(config, "--describe").error

                wait_until(allowed, "the token logs in")
            if node is not nodes[-1]:
                continue
            seen = commands.ours(ALICE, "--describe", "--owner-principal", "User:alice").rows
            assert sorted(row[0] for row in seen) == sorted(row[0] for row in tokens)
            assert {row[1] for row in seen} == {row[1] for row in tokens}
        finally:
            node.kill() if isinstance(node, KafkaNode) else node.stop()
