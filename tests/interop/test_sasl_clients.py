"""Other people's clients and tools on a listener that authenticates, and where passwords go."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from tests.support.kafka_tools import run_kafka_tool
from tests.support.kafkajs import kafkajs_round_trip
from tests.support.nodes import SparkraftNode
from tests.support.sasl import (
    MECHANISMS,
    PASSWORDS,
    SHA_256,
    client_properties,
    first_users,
    sasl_node,
)

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60
BOB = "bob-secret-4411"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    """Has the users of `PASSWORDS` with each mechanism."""
    made = sasl_node(tmp_path_factory.mktemp("sasl"))
    made.format_as = ("--standalone", *first_users())
    with made as running:
        yield running


@pytest.fixture
def properties(tmp_path: Path) -> str:
    return written(tmp_path)


def written(folder: Path, *credentials: str) -> str:
    path = folder / f"client-{len(list(folder.iterdir()))}.properties"
    path.write_text(client_properties(*credentials))
    return str(path)


def settings(node: SparkraftNode, mechanism: str, user: str = "alice", password: str = "") -> Any:
    """librdkafka's."""
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password or PASSWORDS[user],
    }


def python_settings(node: SparkraftNode, mechanism: str) -> dict[str, Any]:
    """kafka-python's and aiokafka's."""
    return {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_produces_and_consumes(node: SparkraftNode, mechanism: str) -> None:
    from confluent_kafka import Consumer, Producer

    topic = f"confluent-{mechanism}"
    producer = Producer(settings(node, mechanism))
    for number in range(10):
        producer.produce(topic, str(number).encode())
    assert producer.flush(WAIT_SECONDS) == 0
    more = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings(node, mechanism, "admin") | more)
    consumer.subscribe([topic])
    read: list[bytes] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(read) < 10 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    assert sorted(read) == [str(number).encode() for number in range(10)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_learns_that_its_password_is_wrong(
    node: SparkraftNode, mechanism: str
) -> None:
    from confluent_kafka import KafkaError, Producer

    errors: list[int] = []
    more = {"error_cb": lambda error: errors.append(error.code())}
    producer = Producer(settings(node, mechanism, password="wrong") | more)
    deadline = time.monotonic() + WAIT_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert KafkaError._AUTHENTICATION in errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(node: SparkraftNode, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic, login = f"kafka-python-{mechanism}", python_settings(node, mechanism)
    producer = KafkaProducer(**login)
    producer.send(topic, b"value").get(WAIT_SECONDS)
    producer.close()
    wait = {"auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_SECONDS * 1000}
    consumer = KafkaConsumer(topic, **wait, **login)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces_and_consumes(node: SparkraftNode, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic, login = f"aiokafka-{mechanism}", python_settings(node, mechanism)

    async def test() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            async with AIOKafkaProducer(**login) as producer:
                await producer.send_and_wait(topic, b"value")
            consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **login)
            async with consumer:
                assert (await consumer.getone()).value == b"value"

    asyncio.run(test())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs_produces_and_consumes(node: SparkraftNode, mechanism: str) -> None:
    sasl = {"mechanism": mechanism, "username": "alice", "password": PASSWORDS["alice"]}
    assert kafkajs_round_trip(node.bootstrap, f"kafkajs-{mechanism}", sasl) == "value"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_commands_log_in_with_a_command_config(
    node: SparkraftNode, mechanism: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, topic = ["--bootstrap-server", node.bootstrap], f"ours-{mechanism}"
    ours = [*at, "--command-config", written(tmp_path, "alice", "", mechanism)]
    code, out, err = run(capsys, "topics", *ours, "--create", "--topic", topic)
    assert (code, out) == (0, f"Created topic {topic}.\n"), err
    perf = ["producer-perf-test", "--topic", topic, "--num-records", "5", "--record-size", "9"]
    code, _, err = run(capsys, *perf, "--throughput", "-1", *ours)
    assert code == 0, err
    read = ["console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "5"]
    code, out, err = run(capsys, *read, *ours)
    assert (code, len(out.splitlines())) == (0, 5), err
    wrong = written(tmp_path, "alice", "not-the-one", mechanism)
    code, _, err = run(capsys, "topics", *at, "--command-config", wrong, "--list")
    assert code == 1
    assert "nvalid" in err
    assert "not-the-one" not in err


def test_scram_users_are_added_changed_and_deleted_while_clients_log_in(
    node: SparkraftNode, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", node.bootstrap]
    ours = ["configs", *at, "--command-config", properties]
    users = [*ours, "--entity-type", "users"]
    bob = [*users, "--entity-name", "bob"]
    done = "Completed updating config for user bob.\n"
    as_bob = ["topics", *at, "--list", "--command-config", written(tmp_path, "bob", BOB, SHA_256)]
    assert run(capsys, *as_bob)[0] == 1
    add = f"SCRAM-SHA-256=[iterations=8192,password={BOB}],SCRAM-SHA-512=[password={BOB}]"
    assert run(capsys, *bob, "--alter", "--add-config", add) == (0, done, "")
    described = (
        "SCRAM credential configs for user-principal 'bob' are "
        "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    assert run(capsys, *bob, "--describe") == (0, described, "")
    assert described in run(capsys, *users, "--describe")[1]
    assert run(capsys, *as_bob)[0] == 0
    change = "SCRAM-SHA-256=[password=another]"
    assert run(capsys, *bob, "--alter", "--add-config", change) == (0, done, "")
    assert run(capsys, *as_bob)[0] == 1
    delete = "SCRAM-SHA-256,SCRAM-SHA-512"
    assert run(capsys, *bob, "--alter", "--delete-config", delete) == (0, done, "")
    code, _, err = run(capsys, *bob, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert code == 1
    assert "Attempt to delete a user credential that does not exist" in err
    assert run(capsys, *bob, "--describe") == (0, "", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("SCRAM-SHA-256=[iterations=4095,password=s3cret]", "less than the minimum 4096"),
        ("SCRAM-SHA-256=[iterations=99999,password=s3cret]", "Too many iterations"),
        ("SCRAM-SHA-256=[s3cret]", "must be [password="),
        ("SCRAM-SHA-256=[password=s3cret],SCRAM-SHA-1=1", "cannot be set for users"),
    ],
)
def test_a_credential_that_cannot_be_set_is_named_without_its_password(
    change: str, message: str, node: SparkraftNode, properties: str, capsys: Any
) -> None:
    at = ["--bootstrap-server", node.bootstrap, "--command-config", properties]
    user = ["--entity-type", "users", "--entity-name", "carol"]
    code, out, err = run(capsys, "configs", *at, *user, "--alter", "--add-config", change)
    assert (code, out) == (1, "")
    assert message in err
    assert "s3cret" not in err


def test_no_answer_or_log_line_has_a_password(
    node: SparkraftNode, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ["--bootstrap-server", node.bootstrap, "--command-config", properties]
    entity = ["--entity-type", "brokers", "--entity-name", "1"]
    code, out, err = run(capsys, "configs", *ours, *entity, "--describe", "--all")
    assert code == 0, err
    for mechanism in MECHANISMS:
        key = f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"
        assert f"{key}=null sensitive=true" in out
    user = ["--entity-type", "users", "--entity-name", "bob"]
    add = f"SCRAM-SHA-256=[password={BOB}]"
    assert run(capsys, "configs", *ours, *user, "--alter", "--add-config", add)[0] == 0
    wrong = ["--bootstrap-server", node.bootstrap, "--command-config"]
    assert run(capsys, "topics", "--list", *wrong, written(tmp_path, "alice", BOB, SHA_256))[0] == 1
    log = node.output_path.read_text()
    assert "Failed authentication with" in log
    assert "changed SCRAM credentials of users bob" in log
    for password in (*PASSWORDS.values(), BOB):
        assert password not in out + err + log


def test_users_are_there_after_a_restart(tmp_path: Path) -> None:
    """From the log, and then from a snapshot: both nodes are killed."""
    from confluent_kafka import Producer

    often = {"metadata_log_max_record_bytes_between_snapshots": "100"}
    node = sasl_node(tmp_path / "node", **often)
    node.format_as = ("--standalone", *first_users())
    for number in range(3):
        with node:
            producer = Producer(settings(node, SHA_256))
            producer.produce("restarts", str(number).encode())
            assert producer.flush(WAIT_SECONDS) == 0
    assert any((node.log_dir / "__cluster_metadata-0").glob("*-*.checkpoint"))


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_log_in(
    node: SparkraftNode, mechanism: str, kafka_jars: Path, tmp_path: Path
) -> None:
    config = written(tmp_path, "alice", "", mechanism)
    at = ["--bootstrap-server", node.bootstrap, "--command-config", config]
    tool = "org.apache.kafka.tools.TopicCommand"
    done = run_kafka_tool(kafka_jars, tool, *at, "--create", "--topic", f"javas-{mechanism}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Created topic javas-{mechanism}." in done.stdout


@pytest.mark.java
def test_kafkas_configs_command_changes_users_and_prints_the_same(
    node: SparkraftNode, properties: str, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", node.bootstrap, "--command-config", properties]
    dora = [*at, "--entity-type", "users", "--entity-name", "dora"]

    def theirs(*argv: str) -> str:
        done = run_kafka_tool(kafka_jars, "kafka.admin.ConfigCommand", *dora, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    change = ["--alter", "--add-config", "SCRAM-SHA-512=[iterations=5000,password=d]"]
    assert theirs(*change) == run(capsys, "configs", *dora, *change)[1]
    assert theirs("--describe") == run(capsys, "configs", *dora, "--describe")[1]
    theirs("--alter", "--delete-config", "SCRAM-SHA-512")
    assert theirs("--describe") == run(capsys, "configs", *dora, "--describe")[1] == ""
