"""Client metrics of real clients: subscriptions by our command, pushes, /metrics (KIP-714)."""

import asyncio

import pytest
from confluent_kafka import Producer

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.cli import main as cli
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from sparkraft.protocol.messages.k72_push_telemetry import PushTelemetryRequest
from sparkraft.records.compression import Codec
from tests.server.broker.test_otlp_points import integer, payload, total
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.server.test_metrics import values_of
from tests.support.kafka_tools import run_kafka_tool

ENABLED = {"sparkraft_telemetry_enable": "true"}


def command(node, *arguments: str) -> int:
    bootstrap = f"127.0.0.1:{node.ports['PLAINTEXT']}"
    return cli.main(["client-metrics", "--bootstrap-server", bootstrap, *arguments])


async def alter(node, *arguments: str) -> None:
    assert await asyncio.to_thread(command, node, "--alter", "--name", "test", *arguments) == 0


def test_the_keys_are_advertised_only_if_telemetry_is_on(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in client.versions
            assert ApiKey.PUSH_TELEMETRY not in client.versions
            request = GetTelemetrySubscriptionsRequest(client_instance_id=Uuid.ZERO)
            answer = await client.send(request, version=0)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            await client.close()

    run(test())


def test_a_push_is_checked_and_exported(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path, **ENABLED) as node:
            await alter(node, "--metrics", "*", "--interval", "100")
            client = await connect(node)
            await until(lambda: node.broker.image.configs)
            ask = GetTelemetrySubscriptionsRequest(client_instance_id=Uuid.ZERO)
            found = await client.send(ask)
            assert found.error_code == 0
            assert found.requested_metrics == ["*"]
            assert (found.push_interval_ms, found.telemetry_max_bytes) == (100, 1 << 20)
            assert found.accepted_compression_types == [4, 3, 1, 2]
            data = payload(total("org.apache.kafka.consumer.records", integer(7)))
            push = PushTelemetryRequest(
                client_instance_id=found.client_instance_id,
                subscription_id=found.subscription_id,
                compression_type=Codec.NONE,
                metrics=data,
            )
            assert (await client.send(push)).error_code == 0
            assert values_of(node)["org_apache_kafka_consumer_records_total", "test"] == 7
            early = (await client.send(push)).error_code
            assert early == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            await client.close()
            await until(lambda: len(node.broker.telemetry) == 0)

    run(test())


def test_a_payload_that_is_too_long_or_broken_is_refused(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path, telemetry_max_bytes="1000", **ENABLED) as node:
            client = await connect(node)
            for data, code in (
                (bytes(1001), ErrorCode.TELEMETRY_TOO_LARGE),
                (b"\xff", ErrorCode.INVALID_RECORD),
            ):
                ask = GetTelemetrySubscriptionsRequest(client_instance_id=Uuid.ZERO)
                found = await client.send(ask)
                push = PushTelemetryRequest(
                    client_instance_id=found.client_instance_id,
                    subscription_id=found.subscription_id,
                    metrics=data,
                )
                assert (await client.send(push)).error_code == code
            await client.close()

    run(test())


@pytest.mark.real_clients
def test_librdkafka_pushes_what_was_subscribed(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path, **ENABLED) as node:
            await alter(
                node, "--metrics", "org.apache.kafka.producer.", "--interval", "200",
                "--match", "client_software_name=confluent-kafka.*",
            )  # fmt: skip
            client = await connect(node)
            await create_topic(client, "orders")
            bootstrap = f"127.0.0.1:{node.ports['PLAINTEXT']}"
            producer = Producer({"bootstrap.servers": bootstrap, "client.id": "orders-app"})

            def work() -> None:
                producer.produce("orders", b"x")
                producer.flush(10)

            def pushed() -> list[str]:
                values = values_of(node)
                return [
                    name
                    for name, *labels in values
                    if name.startswith("org_apache_kafka_producer_") and "orders-app" in labels
                ]

            await asyncio.to_thread(work)
            await until(pushed)
            assert node.broker.telemetry.pushes
            assert not [n for n, *_ in values_of(node) if n.startswith("org_apache_kafka_consumer")]
            await client.close()

    run(test())


@pytest.mark.real_clients
@pytest.mark.java
@pytest.mark.long
def test_javas_producer_pushes_what_was_subscribed(tmp_path, kafka_jars):
    config = tmp_path / "client.properties"
    config.write_text("client.id=java-app\n")

    def work(bootstrap: str) -> str:
        perf = ["--topic", "orders", "--num-records", "300", "--record-size", "9"]
        perf += ["--throughput", "100", "--bootstrap-server", bootstrap]
        tool = "org.apache.kafka.tools.ProducerPerformance"
        done = run_kafka_tool(kafka_jars, tool, *perf, "--command-config", str(config))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def test() -> None:
        async with node_in(tmp_path / "node", **ENABLED) as node:
            await alter(
                node, "--metrics", "org.apache.kafka.producer.", "--interval", "200",
                "--match", "client_software_name=apache-kafka-java",
            )  # fmt: skip
            client = await connect(node)
            await create_topic(client, "orders")
            bootstrap = f"127.0.0.1:{node.ports['PLAINTEXT']}"
            running = asyncio.create_task(asyncio.to_thread(work, bootstrap))

            def names() -> set[str]:
                """While it runs: the metrics of a client that ends are forgotten."""
                return {name for name, *labels in values_of(node) if "java-app" in labels}

            await until(lambda: running.done() or names())
            assert "org_apache_kafka_producer_record_send_total" in names()
            assert all(name.startswith("org_apache_kafka_producer_") for name in names())
            assert "300 records sent" in await running
            await client.close()

    run(test())


def test_the_command_lists_describes_and_deletes(tmp_path, capsys):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            await alter(node, "--metrics", "a.,b.", "--match", "client_id=app")
            capsys.readouterr()
            assert await asyncio.to_thread(command, node, "--list") == 0
            assert capsys.readouterr().out == "test\n"
            assert await asyncio.to_thread(command, node, "--describe") == 0
            shown = capsys.readouterr().out
            assert "Client metrics configs for test are:" in shown
            assert "  metrics=a.,b.\n" in shown
            assert "interval.ms" not in shown
            wrong = ("--alter", "--name", "test", "--interval", "5")
            assert await asyncio.to_thread(command, node, *wrong) == 1
            assert "interval must be between" in capsys.readouterr().err
            assert await asyncio.to_thread(command, node, "--delete", "--name", "test") == 0
            capsys.readouterr()
            assert await asyncio.to_thread(command, node, "--list") == 0
            assert capsys.readouterr().out.strip() == ""

    run(test())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--delete"],
        ["--alter", "--name", "x"],
        ["--alter", "--metrics", "a"],
        ["--alter", "--name", "x", "--generate-name", "--metrics", "a"],
        ["--list", "--metrics", "a"],
    ],
)
def test_odd_arguments_are_refused(arguments):
    assert cli.main(["client-metrics", "--bootstrap-server", "127.0.0.1:1", *arguments]) == 2
