"""Clients, ours among them, authenticate with access tokens (KIP-768, KIP-1139, KIP-1258)."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.cli import main as cli
from sparkraft.client.security import ALLOWING, ALLOWING_FILES
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set
from tests.support.kafka_tools import kafka_tool_command
from tests.support.kafkajs import kafkajs_round_trip
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until
from tests.support.sasl import OAUTHBEARER, PLAIN, sasl_node
from tests.support.token_endpoint import TokenServer

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60
APP = Issuer("app", algorithm="RS256")
ISSUES, STRANGER = Issuer(algorithm="RS256"), Issuer(algorithm="RS256")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    folder = tmp_path_factory.mktemp("oauth")
    keys = folder / "keys.json"
    keys.write_text(key_set(ISSUES.entry()))
    made = sasl_node(folder / "node", mechanisms=(PLAIN, OAUTHBEARER))
    made.overrides |= {
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    made.write_properties()
    with made as running:
        yield running


def confluent(node: SparkraftNode, issuer: Issuer, seconds: int = 3600) -> dict[str, object]:
    def token(_: str) -> tuple[str, float]:
        expires = int(time.time()) + seconds
        return issuer.token(exp=expires), expires

    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": OAUTHBEARER,
        "oauth_cb": token,
    }


def test_confluent_kafka_produces_while_its_tokens_expire(node: SparkraftNode) -> None:
    """Its sessions end with the tokens, so that it re-authenticates with the next one."""
    from confluent_kafka import Producer

    producer, delivered = Producer(confluent(node, ISSUES, seconds=5)), []
    end = time.monotonic() + 12
    while time.monotonic() < end:
        producer.produce("confluent", b"value", on_delivery=lambda *of: delivered.append(of[0]))
        producer.poll(0.1)
    assert producer.flush(WAIT_SECONDS) == 0
    assert set(delivered) == {None}


def test_confluent_kafka_learns_that_its_token_is_invalid(node: SparkraftNode) -> None:
    from confluent_kafka import KafkaError, Producer

    errors: list[KafkaError] = []
    producer = Producer(confluent(node, STRANGER) | {"error_cb": errors.append})
    deadline = time.monotonic() + WAIT_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]
    # The client learns of the refusal first; the node logs it once the client has confirmed it.
    reason = "the signature of the token is wrong"
    wait_until(lambda: reason in node.output_path.read_text(), "the node logs the reason")
    assert STRANGER.token().split(".")[1] not in node.output_path.read_text()


def test_kafka_python_produces(node: SparkraftNode) -> None:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return ISSUES.token()

    producer = KafkaProducer(
        bootstrap_servers=node.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=OAUTHBEARER,
        sasl_oauth_token_provider=Provider(),
    )
    producer.send("kafka-python", b"value").get(WAIT_SECONDS)
    producer.close()


def test_aiokafka_produces(node: SparkraftNode) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return ISSUES.token()

    async def test() -> None:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            AIOKafkaProducer(
                bootstrap_servers=node.bootstrap,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=OAUTHBEARER,
                sasl_oauth_token_provider=Provider(),
            ) as producer,
        ):
            await producer.send_and_wait("aiokafka", b"value")

    asyncio.run(test())


def test_kafkajs_produces_and_consumes(node: SparkraftNode) -> None:
    sasl = {"mechanism": OAUTHBEARER, "token": ISSUES.token()}
    assert kafkajs_round_trip(node.bootstrap, "kafkajs", sasl) == "value"


def java_properties(token: Path) -> str:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={OAUTHBEARER}\n"
        f"sasl.jaas.config={module} required;\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}\n"
    )


def test_our_commands_take_their_token_from_a_file_that_is_allowed(
    node: SparkraftNode,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = tmp_path / "token"
    config = tmp_path / "client.properties"
    config.write_text(java_properties(token))
    command = ["topics", "--bootstrap-server", node.bootstrap, "--command-config", str(config)]

    def failure() -> str:
        assert cli.main([*command, "--list"]) == 1
        return capsys.readouterr().err

    assert f"is not in the environment variable {ALLOWING}" in failure()
    monkeypatch.setenv(ALLOWING, f"file:///other, file://{token}")
    assert f"the token file {token}: No such file" in failure()
    token.write_text("not a token 4471")
    assert "not an access token" in (text := failure())
    assert "4471" not in text
    token.write_text(STRANGER.token())
    assert '{"status":"invalid_token"}' in failure()
    token.write_text(ISSUES.token() + "\n")
    assert cli.main([*command, "--create", "--topic", "by-token"]) == 0


@pytest.mark.java
def test_javas_producer_takes_its_token_from_a_file(
    node: SparkraftNode, kafka_jars: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(ISSUES.token())
    config = tmp_path / "client.properties"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    config.write_text(f"{java_properties(token)}sasl.login.callback.handler.class={handler}\n")
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed"
    flags = f"-D{allowed}.urls=file://{token}"
    done = subprocess.run(
        [
            *kafka_tool_command(kafka_jars, "org.apache.kafka.tools.ProducerPerformance"),
            "--bootstrap-server", node.bootstrap, "--topic", "javas", "--record-size", "10",
            "--num-records", "10", "--throughput", "-1", "--command-config", str(config),
        ],
        env=os.environ | {"JAVA_TOOL_OPTIONS": flags},
        capture_output=True, text=True, timeout=2 * WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 records sent" in done.stdout, done.stdout


PACKAGE = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture
def endpoint() -> Iterator[TokenServer]:
    with TokenServer(ISSUES, {}, keys={"app": APP.key}) as running:
        yield running


def assertion_properties(endpoint: TokenServer, key: Path, retriever: str) -> str:
    """A Java client's properties file, which our tools read too."""
    key.write_bytes(APP.private_key())
    return (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={OAUTHBEARER}\n"
        f"sasl.jaas.config={PACKAGE}.OAuthBearerLoginModule required;\n"
        f"sasl.oauthbearer.token.endpoint.url={endpoint.url}\n"
        f"sasl.oauthbearer.jwt.retriever.class={PACKAGE}.{retriever}\n"
        f"sasl.oauthbearer.assertion.private.key.file={key}\n"
        f"sasl.oauthbearer.assertion.claim.aud={endpoint.url}\n"
        "sasl.oauthbearer.assertion.claim.iss=app\n"
        "sasl.oauthbearer.assertion.claim.sub=alice\n"
        "sasl.oauthbearer.assertion.claim.jti.include=true\n"
        "sasl.oauthbearer.client.credentials.client.id=app\n"
        "sasl.oauthbearer.scope=kafka\n"
    )


RETRIEVERS = {
    "ClientCredentialsJwtRetriever": [
        "client_assertion", "client_assertion_type", "client_id", "grant_type", "scope",
    ],
    "JwtBearerJwtRetriever": ["assertion", "grant_type", "scope"],
}  # fmt: skip
"""And the fields of their requests."""


@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_our_commands_get_a_token_by_an_assertion(
    node: SparkraftNode,
    endpoint: TokenServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    retriever: str,
) -> None:
    key, config = tmp_path / "key", tmp_path / "client.properties"
    config.write_text(assertion_properties(endpoint, key, retriever))
    command = ["topics", "--bootstrap-server", node.bootstrap, "--command-config", str(config)]
    monkeypatch.setenv(ALLOWING, endpoint.url)
    assert cli.main([*command, "--list"]) == 1
    assert f"is not in the environment variable {ALLOWING_FILES}" in capsys.readouterr().err
    assert endpoint.seen == 0
    monkeypatch.setenv(ALLOWING_FILES, str(key))
    assert cli.main([*command, "--create", "--topic", retriever]) == 0
    assert [sorted(request) for request in endpoint.requests] == [RETRIEVERS[retriever]]


@pytest.mark.java
@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_javas_producer_gets_a_token_by_the_same_assertion(
    node: SparkraftNode, kafka_jars: Path, endpoint: TokenServer, tmp_path: Path, retriever: str
) -> None:
    """The endpoint of these tests is one that Kafka's client accepts, and so is the file."""
    key, config = tmp_path / "key", tmp_path / "client.properties"
    handler = f"sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler\n"
    config.write_text(assertion_properties(endpoint, key, retriever) + handler)
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed"
    flags = f"-D{allowed}.urls={endpoint.url} -D{allowed}.files={key}"
    done = subprocess.run(
        [
            *kafka_tool_command(kafka_jars, "org.apache.kafka.tools.ProducerPerformance"),
            "--bootstrap-server", node.bootstrap, "--topic", "javas", "--record-size", "10",
            "--num-records", "10", "--throughput", "-1", "--command-config", str(config),
        ],
        env=os.environ | {"JAVA_TOOL_OPTIONS": flags},
        capture_output=True, text=True, timeout=2 * WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 records sent" in done.stdout, done.stdout
    assert [sorted(request) for request in endpoint.requests] == [RETRIEVERS[retriever]]
