"""Key and trust stores change while a node runs: for new connections, and only by Kafka's rules."""

import os
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.connection import Connection
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from sparkraft.security.distinguished_name import subject_of
from sparkraft.server.node import Node
from tests.server.harness import create_topic, node_in, run, until
from tests.server.test_dynamic_configs import resource_of
from tests.server.test_tls import client_configs, connect, node_over_tls
from tests.support.certificates import Authority, named, pem_configs
from tests.support.ports import lasting_ports

LOCATION = "listener.name.ssl.ssl.keystore.location"
CONTROLLERS_LOCATION = "listener.name.controller.ssl.keystore.location"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def alter(connection: Connection, key: str, value: str | None) -> tuple[int, str]:
    """Error code and message of a change of the broker's configs."""
    resource = resource_of(ResourceType.BROKER, "1", key, value)
    answer = await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
    result = answer.responses[0]
    return result.error_code, result.error_message or ""


async def served(node: Node, authority: Authority, listener: str = "SSL") -> bytes:
    """The certificate that a new connection gets."""
    connection = await connect(node, client_configs(authority), listener)
    certificate = connection._transport.get_extra_info("ssl_object").getpeercert(True)  # type: ignore[union-attr]
    await connection.close()
    return bytes(certificate)


def copied(source: Path, target: Path) -> None:
    """Write a file again, surely with another time."""
    target.write_bytes(source.read_bytes())
    os.utime(target, ns=(0, target.stat().st_mtime_ns + 1_000_000))


def test_a_key_store_is_replaced_for_new_connections(tmp_path: Path, authority: Authority):
    renewed = authority.issue("renewed", subject=named("node"))

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            before = await served(node, authority)
            old = await connect(node, client_configs(authority))
            assert await alter(old, LOCATION, str(renewed)) == (0, "")
            await until(lambda: _is_replaced(node, authority, before))
            await create_topic(old, "t")  # established connections live on
            assert await served(node, authority, "CONTROLLER") == before, "another listener"
            assert await alter(old, LOCATION, None) == (0, "")
            await until(lambda: _is_served(node, authority, before))
            await old.close()

    run(test())


def test_a_controller_listener_gets_a_key_store_of_its_own(tmp_path: Path, authority: Authority):
    renewed = authority.issue("controllers", subject=named("node"))

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            before = await served(node, authority, "CONTROLLER")
            connection = await connect(node, client_configs(authority))
            assert await alter(connection, CONTROLLERS_LOCATION, str(renewed)) == (0, "")
            await until(lambda: _is_replaced(node, authority, before, "CONTROLLER"))
            assert await served(node, authority) == before, "another listener"
            await connection.close()

    run(test())


def test_a_node_that_is_only_a_controller_replaces_its_key_store(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
):
    store = tmp_path / "renewed.pem"
    copied(authority.issue("first", subject=named("node")), store)

    async def test() -> None:
        (port,) = lasting_ports(1)
        given = pem_configs(authority.issue("node"), authority.ca_path)
        given |= {
            "listeners": f"CONTROLLER://localhost:{port}",
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"1@localhost:{port}",
        }
        async with node_in(tmp_path / "n", roles="controller", **given) as node:
            at = "CONTROLLER"
            before = await served(node, authority, at)
            connection = await connect(node, client_configs(authority), at)

            async def is_stored() -> bool:
                code, said = await alter(connection, CONTROLLERS_LOCATION, str(store))
                assert code in {0, ErrorCode.NOT_CONTROLLER}, said
                return code == 0

            await until(is_stored)
            await until(lambda: _is_replaced(node, authority, before, at))
            first = await served(node, authority, at)
            copied(authority.issue("second", subject=named("node")), store)
            assert await served(node, authority, at) == first
            assert await alter(connection, "max.connections", "1000") == (0, "")
            await until(lambda: _is_replaced(node, authority, first, at))
            second = await served(node, authority, at)
            assert await alter(connection, CONTROLLERS_LOCATION, "/none.pem") == (0, "")
            await until(lambda: "the TLS stores in use are kept" in caplog.text)
            assert await served(node, authority, at) == second
            await connection.close()

    run(test())


async def _is_replaced(
    node: Node, authority: Authority, before: bytes, listener: str = "SSL"
) -> bool:
    return await served(node, authority, listener) != before


async def _is_served(node: Node, authority: Authority, certificate: bytes) -> bool:
    return await served(node, authority) == certificate


def test_a_file_that_was_written_again_is_loaded_by_any_change(
    tmp_path: Path, authority: Authority
):
    store = tmp_path / "node.pem"
    copied(authority.issue("first", subject=named("node")), store)
    configs = {"listener.name.ssl.ssl.keystore.location": str(store)}

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority, **configs) as node:
            before = await served(node, authority)
            connection = await connect(node, client_configs(authority))
            copied(authority.issue("second", subject=named("node")), store)
            assert await served(node, authority) == before
            assert await alter(connection, "max.connections", "1000") == (0, "")
            assert await served(node, authority) != before
            store.write_text("damaged")
            code, said = await alter(connection, "max.connections", "1001")
            assert code == ErrorCode.INVALID_REQUEST
            assert "expected one private key, found 0" in said
            assert await served(node, authority) != before
            await connection.close()

    run(test())


def test_what_must_not_change_is_refused(tmp_path: Path, authority: Authority):
    foreign = Authority(tmp_path / "foreign", "foreign")
    cases: list[tuple[str, str, str]] = [
        (LOCATION, "/none.pem", "No such file"),
        (
            LOCATION,
            str(authority.issue("other")),
            "distinguished name changes from CN=node to CN=other",
        ),
        (
            LOCATION,
            str(authority.issue("fewer", subject=named("node"), hosts=["localhost"])),
            "loses the alternative names 127.0.0.1",
        ),
        (
            LOCATION,
            str(foreign.issue("node")),
            "the old and the new stores do not accept each other",
        ),
        ("listener.name.ssl.ssl.keystore.password", "s3cret", "cannot be used with type PEM"),
    ]

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            before = await served(node, authority)
            connection = await connect(node, client_configs(authority))
            for key, value, said in cases:
                code, message = await alter(connection, key, value)
                assert code == ErrorCode.INVALID_REQUEST
                assert said in message
                assert "s3cret" not in message
            assert await served(node, authority) == before
            await connection.close()

    run(test())


def test_other_names_are_allowed_if_a_config_says_so(tmp_path: Path, authority: Authority):
    other = authority.issue("elsewhere", hosts=["localhost"])
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority, **allowed) as node:
            connection = await connect(node, client_configs(authority))
            assert await alter(connection, LOCATION, str(other)) == (0, "")
            await until(lambda: _is_subject(node, authority, "CN=elsewhere"))
            await connection.close()

    run(test())


async def _is_subject(node: Node, authority: Authority, name: str) -> bool:
    return subject_of(await served(node, authority)) == name


def test_a_dynamic_store_is_used_after_a_restart(tmp_path: Path, authority: Authority):
    renewed = authority.issue("after", subject=named("node"))

    async def test() -> None:
        properties: dict[str, Any] = {}
        async with node_over_tls(tmp_path / "n", authority) as node:
            properties = dict(node.config.properties)
            before = await served(node, authority)
            connection = await connect(node, client_configs(authority))
            assert await alter(connection, LOCATION, str(renewed)) == (0, "")
            await until(lambda: _is_replaced(node, authority, before))
            after = await served(node, authority)
            await connection.close()
        from tests.server.harness import running

        async with running(properties) as node:
            assert await served(node, authority) == after

    run(test())


def test_a_trust_store_is_not_added(tmp_path: Path, authority: Authority):
    given = pem_configs(None, authority.ca_path, prefix="listener.name.ssl.")

    async def test() -> None:
        bare = {"ssl.truststore.location": "", "inter.broker.listener.name": "SSL"}
        async with node_over_tls(tmp_path / "n", authority, **bare) as node:
            connection = await connect(node, client_configs(authority))
            key = "listener.name.ssl.ssl.truststore.location"
            code, said = await alter(connection, key, given[key])
            assert code == ErrorCode.INVALID_REQUEST
            assert "a trust store cannot be added" in said
            await connection.close()

    run(test())
