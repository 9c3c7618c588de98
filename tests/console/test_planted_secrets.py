"""Secrets in records of each kind; the console's pages and `explain` show none of them.

What the node itself shows is in `tests/server/test_planted_secrets.py`.
"""

import asyncio
import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster
from sparkraft.client.security import login_of_properties
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.security.scram import BY_NAME, keys_of, salted_password
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from sparkraft.server.properties import parse_properties
from tests.support.console import ConsoleProcess
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, client_properties, sasl_node

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60
KEY = "planted-token-key-2287"
SCRAM_PASSWORD = "planted-scram-3355"
DYNAMIC = "planted-dynamic-9183"
DYNAMIC_STORE = "planted-store-6048"
SALT = b"salt of the test"
ITERATIONS = 4096


class Planted(NamedTuple):
    node: SparkraftNode
    login: Path
    secrets: list[bytes]

    @property
    def options(self) -> list[str]:
        return ["--bootstrap-server", self.node.bootstrap, "--command-config", str(self.login)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """A node with a SCRAM user, a delegation token, and dynamic configs that are passwords."""
    folder = tmp_path_factory.mktemp("planted")
    login = folder / "admin.properties"
    login.write_text(client_properties("admin", "", PLAIN))
    given = {
        "delegation_token_secret_key": KEY,
        "authorizer_class_name": CLASS_NAME,
        "super_users": "User:admin;User:ANONYMOUS",
    }
    made = sasl_node(folder / "node", mechanisms=(PLAIN, SHA_256), **given)
    credential = f"name=carol,iterations={ITERATIONS},password={SCRAM_PASSWORD}"
    credential += f",salt={b64encode(SALT).decode()}"
    made.format_as = ("--standalone", "--add-scram", f"{SHA_256}=[{credential}]")
    with made as node:
        options = ["--bootstrap-server", node.bootstrap, "--command-config", str(login)]
        broker = ["--entity-type", "brokers", "--entity-name", "1"]
        carol = ["--entity-type", "users", "--entity-name", "carol"]
        for entity, config in (
            (broker, f"a.plugin.password={DYNAMIC}"),
            (broker, f"listener.name.other.ssl.keystore.password={DYNAMIC_STORE}"),
            (carol, "producer_byte_rate=1234567"),
        ):
            command = ["configs", *options, *entity, "--alter", "--add-config", config]
            assert cli.main(command) == 0, config
        assert cli.main(["topics", *options, "--create", "--topic", "t"]) == 0
        hmac = asyncio.run(new_token(node.bootstrap, parse_properties(login.read_text())))
        salted = salted_password(BY_NAME[SHA_256], Secret(SCRAM_PASSWORD), SALT, ITERATIONS)
        keys = keys_of(BY_NAME[SHA_256], salted)
        texts = [*PASSWORDS.values(), KEY, SCRAM_PASSWORD, DYNAMIC, DYNAMIC_STORE]
        secrets = [each.encode() for each in texts]
        secrets += [SALT, salted, keys.stored_key, keys.server_key, hmac]
        yield Planted(node, login, secrets)


async def new_token(bootstrap: str, login: dict[str, str]) -> bytes:
    """The HMAC of a new delegation token."""
    async with Cluster(bootstrap, login=login_of_properties(login)) as cluster:
        answer = await cluster.ask_any(k38.CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert answer.error_code == 0
    return bytes(answer.hmac)


def forms(secret: bytes) -> set[bytes]:
    """As it might be shown."""
    return {secret, b64encode(secret), secret.hex().encode(), repr(secret)[2:-1].encode()}


def assert_hidden(shown: bytes, secrets: list[bytes]) -> None:
    for secret in secrets:
        assert not [each for each in forms(secret) if each in shown], secret


def got(console: ConsoleProcess, path: str, query: dict[str, Any]) -> bytes:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, query, body)
        return body
    finally:
        connection.close()


def documents(offset: int) -> list[tuple[str, dict[str, Any]]]:
    """Those of the present and of a moment that show configs, users and what changed them."""
    resources = [("broker", "1"), ("broker", ""), ("topic", "t")]
    found: list[tuple[str, dict[str, Any]]] = [
        ("cluster", {}), ("quorum", {}), ("timeline", {}), ("topics", {}), ("groups", {}),
        ("log-dirs", {}), ("reassignments", {}), ("transactions", {}), ("topic", {"topic": "t"}),
        ("changes", {"at": offset}), ("moment", {"offset": offset}),
        ("past", {"at": offset}), ("broker", {"broker": 1}),
        ("partition", {"topic": "t", "partition": 0}),
    ]  # fmt: skip
    for moment in ({}, {"at": offset}):
        found.append(("security", moment))
        found.append(("who-may", {"operation": "READ", "type": "TOPIC", "name": "t", **moment}))
        for kind, name in resources:
            found.append(("configs", {"resource": kind, "name": name, **moment}))
    return found


def test_pages_of_the_console(planted: Planted, tmp_path: Path) -> None:
    login = ["--command-config", str(planted.login)]
    with ConsoleProcess(planted.node.bootstrap, tmp_path, login) as console:

        def offset() -> int:
            return int(json.loads(got(console, "/api/timeline", {}))["lastOffset"])

        wait_until(lambda: offset() > 0, "the console has read the metadata log", WAIT_SECONDS)
        at = offset()
        shown = b"".join(got(console, f"/api/{name}", query) for name, query in documents(at))
        output = console.output().encode()
    for known in (b"a.plugin.password", b"other.ssl.keystore.password", b"carol", b"1234567"):
        assert known in shown, "the test is not blind"
    assert_hidden(shown + output, planted.secrets)


EXPLAINED = (
    ("explain", "cluster"), ("explain", "quorum"), ("explain", "broker", "1"),
    ("explain", "topic", "t"), ("explain", "partition", "t", "0"),
)  # fmt: skip


def test_what_explain_and_the_past_of_configs_print(
    planted: Planted, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*command: str) -> str:
        capsys.readouterr()
        code = cli.main([*command, *planted.options])
        said = capsys.readouterr()
        assert code == 0, (command, said.err)
        return said.out + said.err

    shown = ""
    for command in EXPLAINED:
        shown += printed(*command) + printed(*command, "--output", "json")
    assert "node 1" in shown, "the test is not blind"
    broker = ["--entity-type", "brokers", "--entity-name", "1"]
    for moment in ([], ["--at-time", "0s"]):
        described = printed("configs", *broker, "--describe", *moment)
        assert "a.plugin.password" in described, "the test is not blind"
        users = printed("configs", "--entity-type", "users", "--describe", *moment)
        assert "carol" in users, "the test is not blind"
        shown += described + users
    assert_hidden(shown.encode(), planted.secrets)
