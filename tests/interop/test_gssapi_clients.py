"""Clients that authenticate by Kerberos, against Debian's KDC."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkraft.security.jaas import KERBEROS_MODULE
from tests.support.certificates import Authority
from tests.support.kafka_tools import kafka_tool_command
from tests.support.kerberos import (
    HOST,
    SERVICE,
    Kdc,
    client_properties,
    gssapi_node,
    module,
    running_kdc,
)
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, kcat, library_folders
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

SECONDS = 300
TICKET_S = 5
"""Lifetime of a ticket that is renewed."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    """Has the keys of the node, and of two clients."""
    return kdc.keytab(SERVICE, "alice", "bob/admin")


AUTHORIZED = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:kafka;User:alice",
}


@pytest.fixture(scope="module")
def node(
    kdc: Kdc, keytab: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkraftNode]:
    """Lets `alice` and itself do anything, and no other user."""
    with gssapi_node(tmp_path_factory.mktemp("gssapi"), kdc, keytab, **AUTHORIZED) as running:
        yield running


class Target(NamedTuple):
    """A node, and the certificate authority to trust if it has TLS."""

    node: SparkraftNode
    ca: Path | None

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.ca is None else "SASL_SSL"


@pytest.fixture(scope="module")
def over_tls(kdc: Kdc, keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Like `node`, with TLS on both of its listeners."""
    folder = tmp_path_factory.mktemp("over-tls")
    authority = Authority(folder / "authority")
    with gssapi_node(folder / "node", kdc, keytab, authority=authority, **AUTHORIZED) as running:
        yield Target(running, authority.ca_path)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    """By the name of its security protocol."""
    if request.param == "SASL_PLAINTEXT":
        return Target(request.getfixturevalue("node"), None)
    found = request.getfixturevalue("over_tls")
    assert isinstance(found, Target)
    return found


BOTH = pytest.mark.parametrize("target", ["SASL_PLAINTEXT", "SASL_SSL"], indirect=True)
TLS_LATER = pytest.mark.parametrize(
    "target",
    ["SASL_PLAINTEXT", pytest.param("SASL_SSL", marks=pytest.mark.long)],
    indirect=True,
)


@pytest.fixture
def alice(keytab: Path, tmp_path: Path) -> str:
    path = tmp_path / "alice.properties"
    path.write_text(client_properties(keytab, "alice"))
    return str(path)


def bootstrap(node: SparkraftNode) -> str:
    """By its name: Kerberos has no keys for addresses."""
    return f"{HOST}:{node.port}"


def run(kdc: Kdc, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **kdc.environment},
        input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


def ours(kdc: Kdc, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run(kdc, sys.executable, "-m", "sparkraft.cli.main", *arguments, stdin=stdin)


@pytest.mark.java
@TLS_LATER
def test_javas_clients_produce_and_consume(
    kdc: Kdc, target: Target, keytab: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    path = tmp_path / "alice.properties"
    path.write_text(client_properties(keytab, "alice", ca=target.ca))

    def theirs(main_class: str, *arguments: str, stdin: str = "") -> str:
        java, *rest = kafka_tool_command(kafka_jars, f"org.apache.kafka.tools.{main_class}")
        at = ["--bootstrap-server", bootstrap(target.node), "--topic", "javas"]
        config = ["--command-config", str(path)]
        done = run(kdc, java, kdc.java_flag, *rest, *at, *config, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    theirs("ConsoleProducer", stdin="one\ntwo\n")
    read = ["--from-beginning", "--max-messages", "2", "--group", "javas"]
    assert theirs("consumer.ConsoleConsumer", *read) == "one\ntwo\n"


@BOTH
def test_our_commands_log_in(kdc: Kdc, target: Target, keytab: Path, tmp_path: Path) -> None:
    path = tmp_path / "alice.properties"
    path.write_text(client_properties(keytab, "alice", ca=target.ca))
    at = ["--bootstrap-server", bootstrap(target.node), "--command-config", str(path)]
    done = ours(kdc, "topics", *at, "--create", "--topic", "ours")
    assert (done.returncode, done.stdout) == (0, "Created topic ours.\n"), done.stderr


KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer
login = dict(bootstrap_servers=sys.argv[1], security_protocol=sys.argv[2],
    sasl_mechanism='GSSAPI', sasl_kerberos_service_name='kafka',
    sasl_kerberos_domain_name='localhost', ssl_cafile=sys.argv[3] or None)
producer = KafkaProducer(**login)
producer.send('kafka-python', b'value').get(60)
producer.close()
consumer = KafkaConsumer('kafka-python', auto_offset_reset='earliest',
    consumer_timeout_ms=60000, **login)
print(next(consumer).value.decode())
"""

AIOKAFKA = """
import asyncio, ssl, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
context = ssl.create_default_context(cafile=sys.argv[3]) if sys.argv[3] else None
login = dict(bootstrap_servers=sys.argv[1], security_protocol=sys.argv[2], ssl_context=context,
    sasl_mechanism='GSSAPI', sasl_kerberos_service_name='kafka',
    sasl_kerberos_domain_name='localhost')
async def main():
    async with asyncio.timeout(60), AIOKafkaProducer(**login) as producer:
        await producer.send_and_wait('aiokafka', b'value')
        async with AIOKafkaConsumer('aiokafka', auto_offset_reset='earliest', **login) as consumer:
            print((await consumer.getone()).value.decode())
asyncio.run(main())
"""


@pytest.mark.parametrize("client", [KAFKA_PYTHON, AIOKAFKA], ids=["kafka-python", "aiokafka"])
@TLS_LATER
def test_python_clients_produce_and_consume(
    kdc: Kdc, target: Target, keytab: Path, tmp_path: Path, client: str
) -> None:
    """They send an authorization id that is not their user; as in Kafka, that changes nothing."""
    script = tmp_path / "script.py"
    script.write_text(client)
    tickets = f"FILE:{tmp_path / 'tickets'}"
    kinit = [str(kdc.kinit), "-k", "-t", str(keytab), "-c", tickets, "alice"]
    assert run(kdc, *kinit).returncode == 0
    arguments = [bootstrap(target.node), target.protocol, str(target.ca or "")]
    done = run(kdc, "env", f"KRB5CCNAME={tickets}", sys.executable, str(script), *arguments)
    assert done.stdout == "value\n", done.stderr[-2000:]


@TLS_LATER
def test_librdkafka_produces_and_consumes(
    kdc: Kdc, target: Target, keytab: Path, tmp_path: Path
) -> None:
    """Debian's, by kcat: the wheel of confluent-kafka is built without GSSAPI."""
    found = kcat()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    tickets = f"FILE:{tmp_path / 'tickets'}"
    kinit = f"{kdc.kinit} -k -t {keytab} -c {tickets} alice"
    settings = {
        "security.protocol": target.protocol,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.kinit.cmd": kinit,
    }
    if target.ca is not None:
        settings["ssl.ca.location"] = str(target.ca)
    both = f"{library_folders(found.parent / 'unpacked')}:{kdc.environment['LD_LIBRARY_PATH']}"
    program = found.parent / "unpacked" / "usr" / "bin" / "kcat"
    command = ["env", f"KRB5CCNAME={tickets}", f"LD_LIBRARY_PATH={both}", str(program)]
    command += ["-b", bootstrap(target.node), "-t", "kcat"]
    command += [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    done = run(kdc, *command, "-P", stdin="value\n")
    assert done.returncode == 0, done.stderr
    done = run(kdc, *command, "-C", "-e", "-o", "beginning")
    assert done.stdout == "value\n", done.stderr


def test_the_client_of_spark_logs_in(
    kdc: Kdc, node: SparkraftNode, keytab: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    options = {
        f"kafka.{line.partition('=')[0]}": line.partition("=")[2]
        for line in client_properties(keytab, "alice").splitlines()
    }
    script.write_text(
        "from sparkraft.pipeline.options import sink_options\n"
        "from sparkraft.pipeline.wire import Cluster\n"
        f"options = {options | {'kafka.bootstrap.servers': bootstrap(node)}!r}\n"
        "print(type(Cluster(sink_options(options).client).topics(None)).__name__)\n"
    )
    done = run(kdc, sys.executable, str(script))
    assert done.stdout == "dict\n", done.stderr


def test_tickets_are_renewed_before_they_expire(
    kdc: Kdc, node: SparkraftNode, keytab: Path, tmp_path: Path
) -> None:
    """Each process logs in, waits until its first ticket has expired, and logs in again.

    One has the key, two have a ticket cache; in the last one the program that renews it fails.
    """
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys, time\n"
        "from sparkraft.pipeline.options import sink_options\n"
        "from sparkraft.pipeline.wire import Cluster\n"
        "options = sink_options(json.loads(sys.argv[1])).client\n"
        "Cluster(options).topics(None)\n"
        f"time.sleep({TICKET_S + 2})\n"
        "print(type(Cluster(options).topics(None)).__name__)\n"
    )
    jaas = {
        "key": module(keytab, "alice"),
        "cache": f'{KERBEROS_MODULE} required useTicketCache="true" ticketCache="{{}}";',
    }
    short = tmp_path / "krb5.conf"
    short.write_text(
        kdc.config.read_text().replace(
            "[libdefaults]\n", f"[libdefaults]\n ticket_lifetime = {TICKET_S}s\n"
        )
    )
    processes = {}
    for name, kinit in {"key": str(kdc.kinit), "cache": str(kdc.kinit), "fails": "false"}.items():
        cache = f"FILE:{tmp_path / name}"
        ticket = ["-l", f"{TICKET_S}s", "-r", "1h", "-k", "-t", str(keytab), "-c", cache, "alice"]
        assert run(kdc, str(kdc.kinit), *ticket).returncode == 0
        options = {
            "kafka.bootstrap.servers": bootstrap(node),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "GSSAPI",
            "kafka.sasl.kerberos.service.name": "kafka",
            "kafka.sasl.jaas.config": jaas.get(name, jaas["cache"]).replace("{}", cache),
            "kafka.sasl.kerberos.kinit.cmd": kinit,
            "kafka.sasl.kerberos.ticket.renew.window.factor": "0.5",
            "kafka.sasl.kerberos.min.time.before.relogin": "1000",
        }
        processes[name] = subprocess.Popen(
            [sys.executable, str(script), json.dumps(options)],
            env={**os.environ, **kdc.environment, "KRB5_CONFIG": str(short)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    shown = {name: process.communicate(timeout=SECONDS) for name, process in processes.items()}
    assert (shown["key"][0], shown["cache"][0]) == ("dict\n", "dict\n"), shown
    assert "expired" in shown["fails"][1], shown


def test_another_user_is_authenticated_and_may_nothing(
    kdc: Kdc, node: SparkraftNode, keytab: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bob.properties"
    path.write_text(client_properties(keytab, "bob/admin"))
    at = ["--bootstrap-server", bootstrap(node), "--command-config", str(path)]
    done = ours(kdc, "topics", *at, "--create", "--topic", "bobs")
    assert done.returncode == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in done.stderr
    assert "User:bob" in node.output_path.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("=kafka\n", "=mailer\n"), "Kerberos: "),
        (('principal="alice', 'principal="carol'), "Kerberos: "),
    ],
)
def test_a_login_that_cannot_work_is_named(
    kdc: Kdc,
    node: SparkraftNode,
    keytab: Path,
    tmp_path: Path,
    change: tuple[str, str],
    message: str,
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(client_properties(keytab, "alice").replace(*change))
    at = ["--bootstrap-server", bootstrap(node), "--command-config", str(path)]
    done = ours(kdc, "topics", *at, "--list")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_two_nodes_authenticate_each_other(
    kdc: Kdc, keytab: Path, alice: str, tmp_path: Path
) -> None:
    """At the controller, and for fetches in both directions."""
    first = gssapi_node(tmp_path / "first", kdc, keytab)
    second = gssapi_node(tmp_path / "second", kdc, keytab)
    second.overrides |= {
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"CLIENTS://127.0.0.1:{second.port}",
        "controller.quorum.bootstrap.servers": first.overrides[
            "controller.quorum.bootstrap.servers"
        ],
    }
    second.write_properties()
    second.format_as = ()
    with first, second:
        at = ["--bootstrap-server", bootstrap(first), "--command-config", alice]
        create = ["--create", "--topic", "shared", "--replica-assignment", "1:2,2:1"]
        create += ["--config", "min.insync.replicas=2"]

        def created() -> bool:
            return ours(kdc, "topics", *at, *create).returncode == 0

        wait_until(created, "both brokers are registered", SECONDS)
        perf = ["--topic", "shared", "--num-records", "20", "--record-size", "9"]
        all_acks = ["--throughput", "-1", "--producer-props", "acks=all"]
        done = ours(kdc, "producer-perf-test", *perf, *all_acks, *at)
        assert done.returncode == 0, done.stderr
        assert "20 records sent" in done.stdout
