"""Other people's clients on a SASL_SSL listener, by each mechanism but Kerberos.

Kerberos over TLS is in `test_gssapi_clients`; the same clients without TLS are in
`test_sasl_clients` and `test_oauth_clients`.
"""

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set
from tests.support.certificates import Authority
from tests.support.kafka_tools import kafka_tool_command, run_kafka_tool
from tests.support.kafkajs import kafkajs_round_trip
from tests.support.nodes import SparkraftNode
from tests.support.sasl import (
    MECHANISMS,
    OAUTHBEARER,
    PASSWORDS,
    client_properties,
    first_users,
    protocol_lines,
    sasl_node,
)

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60
ISSUES = Issuer(algorithm="RS256")
ALL = (*MECHANISMS, OAUTHBEARER)
PACKAGE = "org.apache.kafka.common.security.oauthbearer"


class Target(NamedTuple):
    node: SparkraftNode
    ca: Path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Has the users of `PASSWORDS` with each mechanism, and accepts tokens of `ISSUES`."""
    folder = tmp_path_factory.mktemp("over-tls")
    keys = folder / "keys.json"
    keys.write_text(key_set(ISSUES.entry()))
    authority = Authority(folder / "authority")
    made = sasl_node(folder / "node", mechanisms=ALL, authority=authority)
    made.overrides |= {
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    made.write_properties()
    made.format_as = ("--standalone", *first_users())
    with made as running:
        yield Target(running, authority.ca_path)


def librdkafkas(target: Target, mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": target.node.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(target.ca),
        "sasl.mechanism": mechanism,
    }
    if mechanism == OAUTHBEARER:
        return settings | {"oauth_cb": lambda _: (ISSUES.token(), time.time() + 3600)}
    return settings | {"sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}


@pytest.mark.parametrize("mechanism", ALL)
def test_confluent_kafka_produces_and_consumes(target: Target, mechanism: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic, settings = f"confluent-{mechanism}", librdkafkas(target, mechanism)
    producer = Producer(settings)
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(WAIT_SECONDS) == 0
    consumer = Consumer(settings | {"group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_SECONDS)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"value")
    consumer.close()


def pythons(target: Target, mechanism: str) -> dict[str, Any]:
    """kafka-python's and aiokafka's, without a token."""
    settings = {
        "bootstrap_servers": target.node.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
    }
    if mechanism == OAUTHBEARER:
        return settings
    more = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS["alice"]}
    return settings | more


@pytest.mark.parametrize("mechanism", ALL)
def test_kafka_python_produces_and_consumes(target: Target, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return ISSUES.token()

    topic = f"kafka-python-{mechanism}"
    login = pythons(target, mechanism) | {"ssl_cafile": str(target.ca)}
    if mechanism == OAUTHBEARER:
        login["sasl_oauth_token_provider"] = Provider()
    producer = KafkaProducer(**login)
    producer.send(topic, b"value").get(WAIT_SECONDS)
    producer.close()
    wait = {"auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_SECONDS * 1000}
    consumer = KafkaConsumer(topic, **wait, **login)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", ALL)
def test_aiokafka_produces_and_consumes(target: Target, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return ISSUES.token()

    topic = f"aiokafka-{mechanism}"
    context = ssl.create_default_context(cafile=target.ca)
    login = pythons(target, mechanism) | {"ssl_context": context}

    async def test() -> None:
        if mechanism == OAUTHBEARER:
            login["sasl_oauth_token_provider"] = Provider()
        async with asyncio.timeout(WAIT_SECONDS):
            async with AIOKafkaProducer(**login) as producer:
                await producer.send_and_wait(topic, b"value")
            consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **login)
            async with consumer:
                assert (await consumer.getone()).value == b"value"

    asyncio.run(test())


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ALL)
def test_kafkajs_produces_and_consumes(target: Target, mechanism: str) -> None:
    sasl = {"mechanism": mechanism, "username": "alice", "password": PASSWORDS["alice"]}
    if mechanism == OAUTHBEARER:
        sasl = {"mechanism": mechanism, "token": ISSUES.token()}
    topic = f"kafkajs-{mechanism}"
    assert kafkajs_round_trip(target.node.bootstrap, topic, sasl, target.ca) == "value"


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_log_in(
    target: Target, mechanism: str, kafka_jars: Path, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(client_properties("alice", "", mechanism, ca=target.ca))
    at = ["--bootstrap-server", target.node.bootstrap, "--command-config", str(config)]
    tool = "org.apache.kafka.tools.TopicCommand"
    done = run_kafka_tool(kafka_jars, tool, *at, "--create", "--topic", f"javas-{mechanism}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Created topic javas-{mechanism}." in done.stdout


@pytest.mark.java
@pytest.mark.long
def test_javas_producer_logs_in_by_a_token(
    target: Target, kafka_jars: Path, tmp_path: Path
) -> None:
    token, config = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(ISSUES.token())
    config.write_text(
        f"{protocol_lines(target.ca)}sasl.mechanism={OAUTHBEARER}\n"
        f"sasl.jaas.config={PACKAGE}.OAuthBearerLoginModule required;\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}\n"
        f"sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler\n"
    )
    flags = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{token}"
    done = subprocess.run(
        [
            *kafka_tool_command(kafka_jars, "org.apache.kafka.tools.ProducerPerformance"),
            "--bootstrap-server", target.node.bootstrap, "--topic", "java", "--record-size", "10",
            "--num-records", "10", "--throughput", "-1", "--command-config", str(config),
        ],
        env=os.environ | {"JAVA_TOOL_OPTIONS": flags},
        capture_output=True, text=True, timeout=2 * WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 records sent" in done.stdout, done.stdout
