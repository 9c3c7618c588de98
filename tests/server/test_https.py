"""/health and /metrics over TLS, and the users that may read /metrics."""

import asyncio
import http.client
import logging
import ssl
from pathlib import Path

import pytest

from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.node import Node
from sparkraft.server.tls_config import check_tls
from tests.server.harness import node_in, run, until
from tests.server.test_tls_reload import copied
from tests.support.certificates import Authority, named, pem_configs

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECONDS_MAX = 30


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def https_node(path: Path, authority: Authority, **more: str):
    """A node whose Kafka listeners are open; only its http listener has TLS."""
    given = pem_configs(authority.issue("node"), authority.ca_path, "listener.name.http.")
    given |= {
        "sparkraft.http.listener": "https://127.0.0.1:0",
        "listener.name.http.ssl.client.auth": "requested",
    }
    return node_in(path, **(given | more))


async def get(
    node: Node, path: str, authority: Authority, certificate: Path | None = None
) -> tuple[int, bytes]:
    """Status and body, read to the end of the connection."""
    context = ssl.create_default_context(cafile=str(authority.ca_path))
    if certificate is not None:
        context.load_cert_chain(certificate)
    assert node._http is not None
    async with asyncio.timeout(SECONDS_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", node._http.port, ssl=context)
        writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


def test_pages_are_served_over_tls(tmp_path, authority):
    async def test() -> None:
        async with https_node(tmp_path, authority) as node:
            status, body = await get(node, "/metrics", authority)
            assert status == 200
            assert b"sparkraft_node_healthy" in body
            pages = await asyncio.gather(*(get(node, "/health", authority) for _ in range(8)))
            assert [status for status, _ in pages] == [200] * 8
            assert (await get(node, "/none", authority))[0] == 404

    run(test())


def test_metrics_need_describe_on_the_cluster(tmp_path, authority, caplog):
    secured = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:prometheus",
        "listener.name.http.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    }
    scraper, eve = authority.issue("prometheus"), authority.issue("eve")

    async def test() -> None:
        async with https_node(tmp_path, authority, **secured) as node:
            assert (await get(node, "/metrics", authority, scraper))[0] == 200
            with caplog.at_level(logging.INFO):
                status, body = await get(node, "/metrics?x=1", authority, eve)
            assert (status, body) == (403, b"Forbidden\n")
            assert any(
                "User:eve" in record.getMessage() and "DESCRIBE" in record.getMessage().upper()
                for record in caplog.records
            )
            assert (await get(node, "/health", authority, eve))[0] == 200

    run(test())


def test_metrics_over_plain_http_are_read_as_anonymous(tmp_path, caplog):
    """They name users, client ids, topics and groups."""

    def asked(port: int, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    async def served(name: str, **configs: str) -> list[int]:
        more = {"sparkraft.http.listener": "127.0.0.1:0", **configs}
        async with node_in(tmp_path / name, **more) as node:
            assert node._http is not None
            pages = [
                await asyncio.to_thread(asked, node._http.port, path)
                for path in ("/metrics", "/health")
            ]
            assert (b"sparkraft_node_healthy" in pages[0][1]) is (pages[0][0] == 200)
            return [status for status, _ in pages]

    async def test() -> None:
        secured = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
        with caplog.at_level(logging.INFO):
            assert await served("closed", **secured) == [403, 200]
        denials = [line for line in caplog.messages if "request = GET /metrics" in line]
        assert any(line.startswith("Principal = User:ANONYMOUS is Denied") for line in denials)
        assert await served("a", **secured | {"super.users": "User:ANONYMOUS"}) == [200, 200]
        assert await served("open") == [200, 200]

    run(test())


def test_clients_without_a_trusted_certificate_are_refused(tmp_path, authority):
    foreign = Authority(tmp_path / "foreign", "foreign").issue("prometheus")
    required = {"listener.name.http.ssl.client.auth": "required"}

    async def test() -> None:
        async with https_node(tmp_path / "n", authority, **required) as node:
            for certificate in (None, foreign):
                with pytest.raises(OSError):  # noqa: PT011 (an alert, or the loss of the connection)
                    await get(node, "/health", authority, certificate)
            assert (await get(node, "/health", authority, authority.issue("p")))[0] == 200
            assert node._http is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", node._http.port)
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(SECONDS_MAX):
                assert b"HTTP/1.1" not in await reader.read()
            writer.close()

    run(test())


def test_a_certificate_is_replaced_without_a_restart(tmp_path, authority):
    store = tmp_path / "http.pem"
    copied(authority.issue("first", subject=named("node")), store)
    config = {"listener.name.http.ssl.keystore.location": str(store)}

    async def served(node: Node) -> bytes:
        context = ssl.create_default_context(cafile=str(authority.ca_path))
        assert node._http is not None
        _, writer = await asyncio.open_connection("127.0.0.1", node._http.port, ssl=context)
        certificate = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        return bytes(certificate)

    async def test() -> None:
        async with https_node(tmp_path / "n", authority, **config) as node:
            before = await served(node)
            copied(authority.issue("second", subject=named("node")), store)
            assert node.broker is not None
            await until(lambda: node.broker.dynamic_configs.reload_stores() is None)
            assert await served(node) != before

    run(test())


def test_https_needs_a_key(tmp_path, authority):
    async def start() -> None:
        async with https_node(
            tmp_path, authority, **{"listener.name.http.ssl.keystore.location": ""}
        ):
            pass

    with pytest.raises(ConfigError, match="listener HTTP"):
        run(start())


def test_no_other_listener_has_its_name():
    config = NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "HTTP://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
            "listener.security.protocol.map": "HTTP:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "HTTP",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:2",
            "log.dirs": "/none",
            "sparkraft.http.listener": "https://127.0.0.1:3",
        }
    )
    with pytest.raises(ConfigError, match="rename it"):
        check_tls(config)
