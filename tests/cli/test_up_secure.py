"""`up --secure`: a cluster whose clients connect only by the files that it writes."""

import asyncio
import http.client
import json
import shlex
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkraft.cli import main as cli
from sparkraft.server.properties import parse_properties
from tests.support.console import ConsoleProcess
from tests.support.kafka_tools import run_kafka_tool
from tests.support.ports import cluster_port, wait_until

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60


class Secured(NamedTuple):
    """A cluster, and everything that its `up` printed."""

    home: Path
    printed: str

    @property
    def bootstrap(self) -> str:
        return str(json.loads((self.home / "cluster.json").read_text())["bootstrap"])

    def file(self, name: str) -> Path:
        return self.home / "clients" / name

    def options(self, user: str) -> list[str]:
        """Of our commands and of Kafka's."""
        config = str(self.file(f"{user}.properties"))
        return ["--bootstrap-server", self.bootstrap, "--command-config", config]

    def librdkafka(self, user: str) -> dict[str, Any]:
        lines = self.file(f"{user}.librdkafka.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def python(self, user: str) -> dict[str, Any]:
        """kafka-python's and aiokafka's, from the same values."""
        found = self.librdkafka(user)
        return {
            "bootstrap_servers": found["bootstrap.servers"],
            "security_protocol": found["security.protocol"],
            "sasl_mechanism": found["sasl.mechanism"],
            "sasl_plain_username": found["sasl.username"],
            "sasl_plain_password": found["sasl.password"],
        }


def up(home: Path, *options: str) -> str:
    """What it prints, on both streams; in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "sparkraft.cli.main", "up", "--dir", str(home), "--detach"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One node; its name has a letter that Java's properties escape."""
    home = tmp_path_factory.mktemp("up") / "größe"
    users = ["--user", "alice", "--user", "bob"]
    printed = up(home, "--port", str(cluster_port()), "--secure", *users)
    yield Secured(home, printed)
    cli.main(["down", "--dir", str(home)])


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_our_commands_connect_by_the_files(secured, capsys):
    create = ["--create", "--topic", "alice-ours"]
    assert run(capsys, "topics", *secured.options("alice"), *create)[0] == 0
    assert run(capsys, "topics", *secured.options("admin"), "--list")[1].count("alice-ours") == 1
    assert "alice-ours" not in run(capsys, "topics", *secured.options("bob"), "--list")[1]
    code, said = run(capsys, "topics", *secured.options("bob"), "--create", "--topic", "alice-x")
    assert (code, "TOPIC_AUTHORIZATION_FAILED" in said) == (1, True)
    code, said = run(capsys, "acls", *secured.options("alice"), "--list")
    assert (code, "CLUSTER_AUTHORIZATION_FAILED" in said) == (1, True)
    assert run(capsys, "acls", *secured.options("admin"), "--list")[1].count("User:alice") == 3


def test_the_printed_command_starts_the_console(secured, tmp_path):
    (line,) = [line for line in secured.printed.splitlines() if line.startswith("    console ")]
    words = shlex.split(line.partition(" (")[0])[1:]
    assert words[:3] == ["sparkraft", "console", "--bootstrap-server"]
    with ConsoleProcess(words[3], tmp_path, words[4:]) as console:
        with urllib.request.urlopen(f"{console.address}/api/cluster", timeout=60) as response:
            document = json.loads(response.read())
        assert document["clusterId"] is not None
        assert [one["id"] for one in document["brokers"]] == [1]


def test_an_editor_of_a_console_may_do_what_the_consoles_user_may(secured, tmp_path, capsys):
    create = ["--create", "--topic", "bob-hidden"]
    assert run(capsys, "topics", *secured.options("bob"), *create)[0] == 0
    options = ["--command-config", str(secured.file("alice.properties"))]
    with ConsoleProcess(secured.bootstrap, tmp_path, options) as console:
        editor = {"X-Sparkraft-Console": "1"}

        def got(method: str, path: str, body: Any = None) -> tuple[int, str]:
            to = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
            to.request(method, path, None if body is None else json.dumps(body), editor)
            answer = to.getresponse()
            if "Set-Cookie" in answer.headers:
                editor["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]
            return answer.status, answer.read().decode()

        assert got("POST", "/api/sign-in", {"token": console.token})[0] == 204
        wish = {"kind": "create-topic", "partitions": "1", "replicationFactor": "", "configs": {}}
        status, said = got("POST", "/api/change", {**wish, "topic": "bob-x"})
        assert (status, "TOPIC_AUTHORIZATION_FAILED" in said) == (502, True), said
        assert got("POST", "/api/change", {**wish, "topic": "alice-x"})[0] == 200
        shown = json.loads(got("GET", "/api/topics")[1])["topics"]
        assert {one["topic"].partition("-")[0] for one in shown} == {"alice"}
        for path in ("/api/topic?topic=bob-hidden", "/api/messages?topic=bob-hidden"):
            status, said = got("GET", path)
            assert "TOPIC_AUTHORIZATION_FAILED" in said, (path, status, said)


def test_confluent_kafka_connects_by_the_file(secured):
    from confluent_kafka import Consumer, KafkaError, Producer

    def outcome(topic: str, **more: Any) -> Any:
        found: list[Any] = []
        producer = Producer(secured.librdkafka("alice") | more)
        producer.produce(topic, b"value", on_delivery=lambda error, _: found.append(error))
        assert producer.flush(WAIT_SECONDS) == 0
        return found[0]

    assert outcome("alice-confluent", **{"enable.idempotence": True}) is None
    assert outcome("bob-confluent").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    producer = Producer(secured.librdkafka("alice") | {"transactional.id": "alice-t"})
    producer.init_transactions(WAIT_SECONDS)
    producer.begin_transaction()
    producer.produce("alice-confluent", b"last")
    producer.commit_transaction(WAIT_SECONDS)
    groups = {"group.id": "alice-g", "auto.offset.reset": "earliest"}
    consumer = Consumer(secured.librdkafka("alice") | groups)
    consumer.subscribe(["alice-confluent"])
    read, deadline = [], time.monotonic() + WAIT_SECONDS
    while len(read) < 2 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    assert read == [b"value", b"last"]


def test_python_clients_connect_by_the_values_of_the_file(secured):
    import ssl

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from kafka import KafkaProducer

    ca = secured.librdkafka("alice")["ssl.ca.location"]
    producer = KafkaProducer(ssl_cafile=ca, **secured.python("alice"))
    producer.send("alice-python", b"one").get(WAIT_SECONDS)
    producer.close()
    settings = {"ssl_context": ssl.create_default_context(cafile=ca), **secured.python("alice")}

    async def test() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            async with AIOKafkaProducer(**settings) as another:
                await another.send_and_wait("alice-python", b"two")
            reader = AIOKafkaConsumer("alice-python", auto_offset_reset="earliest", **settings)
            async with reader:
                assert [(await reader.getone()).value for _ in range(2)] == [b"one", b"two"]

    asyncio.run(test())


def test_the_options_of_the_spark_file_open_a_connection(secured):
    from sparkraft.pipeline.options import sink_options
    from sparkraft.pipeline.wire import Cluster

    lines = secured.file("alice.spark.properties").read_text().splitlines()
    options = sink_options({**dict(line.split("=", 1) for line in lines), "topic": "alice-spark"})
    cluster = Cluster(options.client)
    assert "bob-confluent" not in cluster.topics(None)


@pytest.mark.java
def test_kafkas_tools_connect_by_the_file(secured, kafka_jars, tmp_path):
    topics = "org.apache.kafka.tools.TopicCommand"
    create = ["--create", "--topic"]
    done = run_kafka_tool(kafka_jars, topics, *secured.options("alice"), *create, "alice-java")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_kafka_tool(kafka_jars, topics, *secured.options("alice"), *create, "bob-java")
    assert "TopicAuthorizationException" in done.stdout + done.stderr
    done = run_kafka_tool(
        kafka_jars, "org.apache.kafka.tools.AclCommand", *secured.options("admin"), "--list"
    )
    assert "principal=User:bob" in done.stdout, done.stderr
    done = run_kafka_tool(
        kafka_jars,
        "org.apache.kafka.tools.ConsoleProducer",
        *secured.options("alice"),
        "--topic",
        "alice-java",
        stdin="by java\n",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_kafka_tool(
        kafka_jars,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *secured.options("alice"),
        *["--topic", "alice-java", "--group", "alice-java", "--from-beginning"],
        *["--max-messages", "1", "--timeout-ms", "30000"],
    )
    assert done.stdout == "by java\n", done.stderr


def test_strangers_are_refused(secured, tmp_path, capsys):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    ours = parse_properties(secured.file("alice.properties").read_text())
    wrong = tmp_path / "wrong.properties"
    module = ours["sasl.jaas.config"].split('password="')[0] + 'password="guessed";'
    wrong.write_text(secured.file("alice.properties").read_text() + f"sasl.jaas.config={module}\n")
    to = ["--bootstrap-server", secured.bootstrap, "--command-config"]
    code, said = run(capsys, "topics", *to, str(wrong), "--list")
    assert (code, "SASL_AUTHENTICATION_FAILED" in said) == (1, True)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secured.bootstrap}).list_topics(timeout=2)


def test_secrets_are_in_private_files_only(secured):
    passwords = json.loads((secured.home / "security" / "passwords.json").read_text())
    assert sorted(passwords) == ["admin", "alice", "bob", "node-1"]
    node = secured.home / "node-1"
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o700 for each in (node, secured.file(".")))
    shown = {secured.home / "cluster.json", node / "node.log", secured.home / "security" / "ca.pem"}
    with_secrets = []
    for path in secured.home.rglob("*"):
        if path.is_file() and any(
            text.encode() in path.read_bytes() for text in passwords.values()
        ):
            with_secrets.append(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert len(with_secrets) == 2 + 3 * 3
    assert not shown & set(with_secrets)
    assert not any(text in secured.printed for text in passwords.values())
    assert "PRIVATE" not in (secured.home / "security" / "ca.pem").read_text()
    for name in ("ca.key", "node-1.pem"):
        assert stat.S_IMODE((secured.home / "security" / name).stat().st_mode) == 0o600


def test_it_prints_what_is_open_to_whom(secured):
    (line,) = [line for line in secured.printed.splitlines() if line.startswith("    open ")]
    assert "to admin, alice, bob (SASL_SSL, SCRAM-SHA-512)" in line
    assert "/health to everyone, both on 127.0.0.1 only" in line
    (node,) = json.loads((secured.home / "cluster.json").read_text())["nodes"]
    address = f"http://127.0.0.1:{node['http_port']}"
    with urllib.request.urlopen(f"{address}/health", timeout=WAIT_SECONDS) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address}/metrics", timeout=WAIT_SECONDS)
    assert refused.value.code == 403
    assert f"--command-config {secured.file('admin.properties')} --list" in secured.printed


def test_users_are_added_while_it_runs_and_kept_by_a_restart(tmp_path, capsys):
    home = tmp_path / "c"
    try:
        cluster = Secured(home, up(home, "--port", str(cluster_port()), "--secure"))
        assert "to admin, carol (SASL" in up(home, "--user", "carol")
        create = ["--create", "--topic", "carol-t"]
        assert run(capsys, "topics", *cluster.options("carol"), *create)[0] == 0
        before = cluster.file("carol.properties").read_text()
        key = (home / "security" / "node-1.pem").read_text()
        assert cli.main(["down", "--dir", str(home)]) == 0
        up(home)
        assert cluster.file("carol.properties").read_text() == before
        assert (home / "security" / "node-1.pem").read_text() == key
        assert "carol-t" in run(capsys, "topics", *cluster.options("carol"), "--list")[1]
        assert cli.main(["down", "--dir", str(home)]) == 0
        (home / "cluster.json").unlink()
        code, said = run(capsys, "up", "--dir", str(home), "--detach")
        assert (code, "is secured; start it with --secure" in said) == (1, True)
    finally:
        cli.main(["down", "--dir", str(home)])


def test_three_nodes_serve_and_survive_the_loss_of_one(tmp_path, capsys):
    home = tmp_path / "c"
    more = ["--secure", "--user", "alice", "--nodes", "3", "--advertise", "localhost"]
    try:
        cluster = Secured(home, up(home, "--port", str(cluster_port()), *more))
        create = ["--create", "--topic", "alice-t", "--partitions", "3"]
        assert run(capsys, "topics", *cluster.options("alice"), *create)[0] == 0
        assert cli.main(["node", "kill", "2", "--dir", str(home)]) == 0
        assert cli.main(["node", "start", "2", "--dir", str(home)]) == 0
        describe = ["topics", *cluster.options("alice"), "--describe", "--topic", "alice-t"]

        def all_in_sync() -> bool:
            lines = run(capsys, *describe)[1].splitlines()[1:]
            return all(len(line.split("Isr: ")[1].split()[0].split(",")) == 3 for line in lines)

        wait_until(all_in_sync, "node 2 follows again", WAIT_SECONDS)
    finally:
        cli.main(["down", "--dir", str(home)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user", "alice"], "needs a cluster that was created with --secure"),
        (["--secure", "--user", "admin"], "every secured cluster has this user"),
        (["--secure", "--user", "a-b"], "letters, digits and underscores"),
        (["--secure", "--user", "*"], "letters, digits and underscores"),
    ],
)
def test_users_that_cannot_be_are_refused(tmp_path, capsys, options, said):
    with pytest.raises(SystemExit) as ended:
        sys.exit(cli.main(["up", "--dir", str(tmp_path / "c"), "--detach", *options]))
    assert ended.value.code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "c" / "node-1").exists()


def test_an_open_cluster_is_not_secured_by_an_option(tmp_path, capsys):
    home = tmp_path / "c"
    try:
        up(home, "--port", str(cluster_port()), "--no-console")
        code, said = run(capsys, "up", "--dir", str(home), "--detach", "--secure")
        assert (code, "without --secure" in said) == (1, True)
        assert "secured_in" not in (home / "cluster.json").read_text()
        cli.main(["down", "--dir", str(home)])
        code, said = run(capsys, "up", "--dir", str(home), "--detach", "--secure")
        assert (code, "created without --secure" in said) == (1, True)
    finally:
        cli.main(["down", "--dir", str(home)])
