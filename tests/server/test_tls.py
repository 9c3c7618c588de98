"""A node with TLS on both of its listeners, its clients, and those it turns away."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli import main as cli
from sparkraft.client.connection import Connection
from sparkraft.client.security import secured_connect
from sparkraft.security.jaas import parse_jaas
from sparkraft.security.login import login_of
from sparkraft.security.principal import ANONYMOUS
from sparkraft.server.node import Node
from tests.server.harness import append, batch, create_topic, fetch, node_in, run, until, values_of
from tests.support.certificates import Authority, named, pem_configs

CLIENT = {"security.protocol": "SSL"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def node_over_tls(path: Path, authority: Authority, **configs: str) -> Any:
    """A combined node; broker listener SSL, controller listener CONTROLLER, both with TLS."""
    from tests.support.ports import lasting_ports

    port, controller_port = lasting_ports(2)
    given = pem_configs(authority.issue("node"), authority.ca_path)
    given |= {
        "listeners": f"SSL://localhost:{port},CONTROLLER://localhost:{controller_port}",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "SSL",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
        **configs,
    }
    return node_in(path, **given)


def client_configs(authority: Authority, key_store: Path | None = None) -> dict[str, str]:
    return CLIENT | pem_configs(key_store, authority.ca_path)


async def connect(node: Node, configs: dict[str, str], listener: str = "SSL") -> Connection:
    return await Connection.open(
        "localhost", node.ports[listener], connect=secured_connect(configs), client_id="test"
    )


def principal_on(node: Node, listener: str = "SSL") -> str:
    """Of the newest connection."""
    found = next(each for each in node.listeners if each.name == listener)
    return str(list(found._connections)[-1].session.principal)


def test_our_client_produces_and_fetches(tmp_path: Path, authority: Authority):
    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            connection = await connect(node, client_configs(authority))
            assert principal_on(node) == str(ANONYMOUS)
            topic_id = await create_topic(connection, "t")
            large = [bytes([index]) * 900_000 for index in range(8)]
            for value in large:
                assert (await append(connection, topic_id, batch(value))).error_code == 0
            answer = await connection.send(fetch(topic_id, partition_max_bytes=16 << 20))
            assert values_of(answer.responses[0].partitions[0]) == large
            controller = await connect(node, client_configs(authority), "CONTROLLER")
            await controller.close()
            await connection.close()

    run(test())


def test_other_people_s_clients(tmp_path: Path, authority: Authority):
    def with_librdkafka(bootstrap: str) -> list[bytes]:
        from confluent_kafka import Consumer, Producer

        tls = {"bootstrap.servers": bootstrap, "security.protocol": "SSL"}
        tls["ssl.ca.location"] = str(authority.ca_path)
        producer = Producer(tls)
        for value in (b"one", b"two"):
            producer.produce("t", value)
        assert producer.flush(60) == 0
        consumer = Consumer(tls | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: list[bytes] = []
        while len(found) < 2:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.value())
        consumer.close()
        return found

    def with_kafka_python(bootstrap: str) -> list[bytes]:
        from kafka import KafkaConsumer, KafkaProducer

        tls = {"bootstrap_servers": bootstrap, "security_protocol": "SSL"}
        tls["ssl_cafile"] = str(authority.ca_path)
        producer = KafkaProducer(**tls)
        producer.send("t", b"three").get(60)
        producer.close()
        consumer = KafkaConsumer("t", auto_offset_reset="earliest", **tls)
        found = [next(consumer).value for _ in range(3)]
        consumer.close()
        return found

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            connection = await connect(node, client_configs(authority))
            await create_topic(connection, "t")
            bootstrap = f"localhost:{node.ports['SSL']}"
            assert await asyncio.to_thread(with_librdkafka, bootstrap) == [b"one", b"two"]
            found = await asyncio.to_thread(with_kafka_python, bootstrap)
            assert found == [b"one", b"two", b"three"]
            await connection.close()

    run(test())


def test_tools_by_their_command_config(tmp_path: Path, authority: Authority, capsys):
    file = tmp_path / "client.properties"
    text = "".join(f"{key}={value}\n" for key, value in client_configs(authority).items())
    file.write_text(text)

    def tool(bootstrap: str, *argv: str) -> tuple[int, str]:
        code = cli.main([*argv, "--bootstrap-server", bootstrap, "--command-config", str(file)])
        said = capsys.readouterr()
        return code, said.out + said.err

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            bootstrap = f"localhost:{node.ports['SSL']}"
            created = await asyncio.to_thread(tool, bootstrap, "topics", "--create", "--topic", "t")
            assert created == (0, "Created topic t.\n")
            file.write_text("security.protocol=SSL\n")
            code, said = await asyncio.to_thread(tool, bootstrap, "topics", "--list")
            assert code == 1
            assert "certificate verify failed" in said

    run(test())


def test_spark_s_blocking_client(tmp_path: Path, authority: Authority):
    from sparkraft.pipeline.options import sink_options
    from sparkraft.pipeline.places import OptionError
    from sparkraft.pipeline.wire import Cluster

    options = {f"kafka.{key}": value for key, value in client_configs(authority).items()}

    def partitions(bootstrap: str) -> int:
        client = sink_options(options | {"kafka.bootstrap.servers": bootstrap}).client
        cluster = Cluster(client)
        try:
            assert cluster.new_producer_id()[0] >= 0
            return len(cluster.topics(["t"])["t"].leaders)
        finally:
            cluster.close()

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            connection = await connect(node, client_configs(authority))
            await create_topic(connection, "t", partitions=3)
            await connection.close()
            bootstrap = f"localhost:{node.ports['SSL']}"
            assert await asyncio.to_thread(partitions, bootstrap) == 3

    run(test())
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT", "TLS"):
        given = options | {"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": protocol}
        with pytest.raises(OptionError, match=f"security.protocol={protocol}"):
            sink_options(given)


def test_a_certificate_is_a_user(tmp_path: Path, authority: Authority):
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Org, Inc"),
            x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
        ]
    )
    alice = client_configs(authority, authority.issue("alice", subject=subject))

    async def test() -> None:
        async with node_over_tls(
            tmp_path / "n", authority, **{"ssl.client.auth": "required"}
        ) as node:
            connection = await connect(node, alice)
            assert principal_on(node) == "User:CN=alice,O=Org\\, Inc"
            await create_topic(connection, "t")
            await connection.close()
            with pytest.raises(KafkaError) as caught:
                await connect(node, client_configs(authority))
            assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
            assert "certificate required" in caught.value.detail

    run(test())


def test_sasl_over_tls(tmp_path: Path, authority: Authority):
    """SASL names the user, even if there is a certificate; the broker-wide ssl.client.auth does
    not count there, as in Kafka."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    key = "listener.name.ssl.plain.sasl.jaas.config"
    configs = {
        "listener.security.protocol.map": "SSL:SASL_SSL,CONTROLLER:SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        key: f'{module} required username="node" password="n" user_node="n" user_alice="a";',
        "ssl.client.auth": "required",
    }

    def produce(bootstrap: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(authority.ca_path),
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "a",
            }
        )
        producer.produce("t", b"one")
        assert producer.flush(60) == 0

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority, **configs) as node:
            alice = client_configs(authority) | {"security.protocol": "SASL_SSL"}
            connection = await Connection.open(
                "localhost",
                node.ports["SSL"],
                connect=secured_connect(alice),
                login=login_of(
                    "PLAIN", parse_jaas(f"{module} required username=alice password=a;")
                ),
            )
            assert principal_on(node) == "User:alice"
            await create_topic(connection, "t")
            await asyncio.to_thread(produce, f"localhost:{node.ports['SSL']}")
            await connection.close()

    run(test())


def test_mapping_rules_of_one_listener(tmp_path: Path, authority: Authority):
    bob = client_configs(authority, authority.issue("Bob"))
    eve = client_configs(authority, authority.issue("x", subject=named("0")))
    configs = {
        "listener.name.ssl.ssl.client.auth": "requested",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([a-zA-Z]+)$/$1/L",
    }

    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority, **configs) as node:
            connection = await connect(node, bob)
            assert principal_on(node) == "User:bob"
            await connection.close()
            connection = await connect(node, client_configs(authority))
            assert principal_on(node) == str(ANONYMOUS)
            await connection.close()
            with pytest.raises(KafkaError):
                await connect(node, eve)
            controller = await connect(node, eve, "CONTROLLER")
            assert principal_on(node, "CONTROLLER") == str(ANONYMOUS), "no certificate is wanted"
            await controller.close()

    run(test())


def test_a_resumed_session_has_the_user_of_its_certificate(tmp_path: Path, authority: Authority):
    import socket
    import ssl

    path = authority.issue("carol")

    def twice(port: int, version: ssl.TLSVersion) -> bool:
        context = ssl.create_default_context(cafile=str(authority.ca_path))
        context.load_cert_chain(path)
        context.maximum_version = version
        session, reused = None, False
        for _ in range(2):
            with socket.create_connection(("localhost", port), 60) as raw:
                tls = context.wrap_socket(raw, server_hostname="localhost", session=session)
                tls.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
                assert tls.recv(4)
                session, reused = tls.session, bool(tls.session_reused)
                assert principal.pop() == "User:CN=carol"
                tls.close()
        return reused

    principal: list[str] = []

    async def test() -> None:
        async with node_over_tls(
            tmp_path / "n", authority, **{"ssl.client.auth": "required"}
        ) as node:
            listener = node.listeners[0]
            made = listener.session_of

            def session_of(host: str, user: Any = ANONYMOUS) -> Any:
                if user is not ANONYMOUS:
                    principal.append(str(user))
                return made(host, user)

            listener.session_of = session_of  # type: ignore[method-assign]
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                assert await asyncio.to_thread(twice, node.ports["SSL"], version)

    run(test())


def test_a_plaintext_client_is_closed_with_a_line_in_the_log(
    tmp_path: Path, authority: Authority, caplog
):
    async def test() -> None:
        async with node_over_tls(tmp_path / "n", authority) as node:
            with caplog.at_level(logging.WARNING), pytest.raises(KafkaError):
                await Connection.open("localhost", node.ports["SSL"], timeout_ms=30_000)
            assert node.listeners[0].tls_failures == 1
            assert "it does not speak TLS, and this is a TLS listener" in caplog.text

    run(test())


def test_handshakes_at_once_are_bounded_and_those_that_ended_do_not_count(
    tmp_path: Path, authority: Authority, caplog
):
    """`sparkraft.unauthenticated.connections.max`, as before SASL."""

    async def test() -> None:
        bound = {"sparkraft.unauthenticated.connections.max": "2"}
        async with node_over_tls(tmp_path / "n", authority, **bound) as node:
            port, listener = node.ports["SSL"], node.listeners[0]
            ready = [await connect(node, client_configs(authority)) for _ in range(3)]
            assert listener.unauthenticated == 0
            silent = [await asyncio.open_connection("localhost", port) for _ in range(2)]
            await until(lambda: listener.unauthenticated == 2)
            with caplog.at_level(logging.WARNING):
                reader, writer = await asyncio.open_connection("localhost", port)
                async with asyncio.timeout(10):  # less than the time of a handshake
                    with suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()
            assert "2 connections are in their TLS handshake already" in caplog.text
            await (await connect(node, client_configs(authority), "CONTROLLER")).close()
            silent[0][1].close()
            await until(lambda: listener.unauthenticated == 1)
            ready.append(await connect(node, client_configs(authority)))
            assert listener.unauthenticated == 1
            silent[1][1].close()
            for connection in ready:
                await connection.close()

    run(test())
