"""Secrets of each kind are planted in a node, used and misused; nothing that it shows has one.

Shown are: logs at DEBUG with tracebacks, errors, metrics, DescribeConfigs, dumps of its files.
"""

import asyncio
import http.client
import logging
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.cli.dump_log import main as dump_log
from sparkraft.client.connection import Connection
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparkraft.security.login import Login
from sparkraft.security.scram import BY_NAME, keys_of, salted_password
from sparkraft.security.secret import Secret
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api
from sparkraft.server.network.dispatch import Route
from sparkraft.server.network.refusals import SECRET_KEYS
from tests.server.harness import run, running, until
from tests.server.test_connection import assert_closed, frame, serving
from tests.server.test_delegation_tokens import KEY, properties
from tests.support.ports import lasting_ports
from tests.support.sasl import PASSWORDS, SHA_512

WRONG = "planted-wrong-2093"
DYNAMIC = "planted-dynamic-7716"
SCRAM_PASSWORD = "planted-scram-5150"
BROKER = 4
MECHANISM = BY_NAME[SHA_512]
SALT = b"salt of the test"


def salted() -> bytes:
    return salted_password(MECHANISM, Secret(SCRAM_PASSWORD), SALT, 4096)


def upsertion(name: str) -> k51.AlterUserScramCredentialsRequest:
    return k51.AlterUserScramCredentialsRequest(
        upsertions=[
            k51.ScramCredentialUpsertion(
                name=name, mechanism=2, iterations=4096, salt=SALT, salted_password=salted()
            )
        ]
    )


def forms(secret: bytes) -> set[bytes]:
    """As it might be shown."""
    return {secret, b64encode(secret), secret.hex().encode(), repr(secret)[2:-1].encode()}


async def scraped(port: int) -> bytes:
    def get() -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            found = b""
            for path in ("/metrics", "/health"):
                connection.request("GET", path)
                found += connection.getresponse().read()
            return found
        finally:
            connection.close()

    return await asyncio.to_thread(get)


async def use_and_misuse(path: Path) -> tuple[bytes, list[bytes]]:
    """What the node showed in responses and by HTTP; the secrets that came up meanwhile."""
    (port,) = lasting_ports(1)
    given = properties(path, sparkraft_http_listener=f"127.0.0.1:{port}")
    given["metadata.log.max.record.bytes.between.snapshots"] = "1"
    shown: list[Any] = []
    async with running(given) as node:
        address = "127.0.0.1", node.ports["PLAINTEXT"]
        for mechanism in ("PLAIN", SHA_512):
            with pytest.raises(KafkaError) as refused:
                await Connection.open(*address, login=Login(mechanism, "alice", Secret(WRONG)))
            shown.append(refused.value)
        login = Login("PLAIN", "alice", Secret(PASSWORDS["alice"]))
        alice = await Connection.open(*address, login=login)
        token = await alice.send(k38.CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert token.error_code == 0
        shown.append(await alice.send(upsertion("carol")))
        await until(lambda: node.broker.image.scram)
        change = AlterableConfig(name="a.plugin.password", config_operation=0, value=DYNAMIC)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
        altered = await alice.send(IncrementalAlterConfigsRequest(resources=[resource]))
        assert altered.responses[0].error_code == 0, altered
        shown.append(altered)
        described = DescribeConfigsResource(resource_type=BROKER, resource_name="1")
        shown.append(await alice.send(DescribeConfigsRequest(resources=[described])))
        break_scram(node)
        with pytest.raises(KafkaError) as failed:
            await alice.send(upsertion("dave"))
        shown.append(failed.value)
        shown.append(await scraped(port))
        await until(lambda: list(path.glob("__cluster_metadata-0/*[1-9]-*.checkpoint")))
    hmac = bytes(token.hmac)
    keys = keys_of(MECHANISM, salted())
    return repr(shown).encode(), [hmac, salted(), keys.stored_key, keys.server_key]


def break_scram(node: Any) -> None:
    """From here on its handler fails, with the request in its error."""

    def handle(node: Any, context: Any, request: Any) -> Any:
        raise RuntimeError(f"a planted bug in {request!r}")

    key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    api = Api(key=key, handle=handle, authorize=NoAuthorization("a test's own"))
    for listener in node.listeners:
        listener.routes.by_code[int(key) << 16] = Route(api, 0)


def copied(path: Path, place: Path) -> Path:
    """A private copy, whose name and folder do not show that it has metadata."""
    shutil.copyfile(path, place)
    place.chmod(0o600)
    return place


def test_nothing_that_a_node_shows_has_a_secret(tmp_path, caplog, capsys):
    found: Any = None

    async def test() -> None:
        nonlocal found
        found = await use_and_misuse(tmp_path)

    with caplog.at_level(logging.DEBUG):
        run(test())
    shown, met = found
    files = [*tmp_path.glob("__cluster_metadata-0/*.log"), *tmp_path.rglob("*.checkpoint")]
    assert len(files) >= 3
    copies = [copied(path, tmp_path / f"{number}.log") for number, path in enumerate(files)]
    for decoder in ("--cluster-metadata-decoder", "--print-data-log"):
        flags = [decoder, "--files", ",".join(map(str, [*files, *copies]))]
        assert dump_log(flags) == 0
        dumped = capsys.readouterr().out
        assert "a.plugin.password" in dumped
        shown += dumped.encode()
    shown += caplog.text.encode()
    secrets = [each.encode() for each in (*PASSWORDS.values(), KEY, WRONG, DYNAMIC, SCRAM_PASSWORD)]
    for secret in (*secrets, *met):
        assert not [each for each in forms(secret) if each in shown], secret
    assert b"Failed authentication" in shown
    # Files that contain them in clear text are private.
    open_to_others = [
        path.name
        for path in tmp_path.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o077
        and any(each in path.read_bytes() for each in (DYNAMIC.encode(), *met))
    ]  # fmt: skip
    assert open_to_others == []
    assert any(DYNAMIC.encode() in path.read_bytes() for path in files), "the test is not blind"


@pytest.mark.parametrize("key", [*sorted(SECRET_KEYS), ApiKey.METADATA])
def test_bytes_of_requests_with_secrets_are_not_logged(key, caplog):
    """CVE-2026-33558: a malformed request is shown at DEBUG, unless it may have a secret."""
    planted = b"planted-4417"

    async def test() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            version = API_INFO[key].max_version
            writer.write(frame(key, version, 1, b"\xff\xff\xff\xff\x0f" + planted))
            await assert_closed(reader)
            writer.close()

    with caplog.at_level(logging.DEBUG):
        run(test())
    is_shown = "planted-" in caplog.text or planted.hex(" ") in caplog.text
    assert is_shown is (key is ApiKey.METADATA), caplog.text
