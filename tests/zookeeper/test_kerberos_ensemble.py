"""Our brokers and commands are users of a real ensemble by Kerberos, with Debian's KDC."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.values import NewTopic
from sparkraft.security.jaas import KERBEROS_MODULE
from sparkraft.zookeeper.errors import Code, ZooKeeperError
from sparkraft.zookeeper.logins import canonical_host
from sparkraft.zookeeper.requests import OPEN_ACL, Acl, GetAcl, GetChildren
from tests.support.jvm import java_command
from tests.support.kerberos import Kdc, KerberosEnsemble, module, running_kdc
from tests.support.ports import wait_until
from tests.support.zookeeper import submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

pytestmark = [pytest.mark.java, pytest.mark.real_time]

SECONDS = 60
SERVER_HOST = canonical_host("127.0.0.1") or "localhost"
"""In the principal of the server; clients that connect to 127.0.0.1 find it by the address."""

CREATOR = Acl(31, "sasl", "kafka")
READABLE = (CREATOR, Acl(1, "world", "anyone"))


class Realm:
    """A KDC, the key of brokers, and an ensemble.

    Attributes:
        keytab: has `kafka/h1` and `kafka/h2`, which are the user `kafka`, and `alice`.
    """

    def __init__(self, kdc: Kdc, keytab: Path, ensemble: KerberosEnsemble) -> None:
        self.kdc, self.keytab, self.ensemble = kdc, keytab, ensemble

    def configs(self, principal: str = "kafka/h1", **more: str) -> dict[str, str]:
        """Configs of a session of ours; underscores stand for dots."""
        jaas = {"sparkraft.zookeeper.sasl.jaas.config": module(self.keytab, principal)}
        return jaas | {key.replace("_", "."): value for key, value in more.items()}

    def run(
        self, file: Path, configs: dict[str, str], *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with these configs in `--zk-tls-config-file`."""
        file.write_text("".join(f"{key}={value}\n" for key, value in configs.items()))
        command, *rest = arguments
        return subprocess.run(
            [sys.executable, "-m", "sparkraft.cli.main", command,
             "--zk-tls-config-file", str(file), *rest],
            env={**os.environ, **self.kdc.environment},
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def acl_of(self, path: str) -> tuple[Acl, ...]:
        """The list of a znode, as anyone reads it; empty if only its user may."""
        try:
            acl, _ = submit(self.ensemble.connect, GetAcl(path=path))
        except ZooKeeperError as error:
            if error.code != Code.NO_AUTH:
                raise
            return ()
        return acl


@pytest.fixture(scope="module")
def realm(zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("kerberos-ensemble")
    with running_kdc(folder) as kdc:
        server = f"zookeeper/{SERVER_HOST}"
        of_server = kdc.keytab(server)
        keytab = kdc.keytab("kafka/h1", "kafka/h2", "alice")
        with KerberosEnsemble(zookeeper_jars, folder, kdc, of_server, server) as ensemble:
            yield Realm(kdc, keytab, ensemble)


@pytest.fixture
def broker(realm: Realm, tmp_path: Path) -> Iterator[OurBroker]:
    """One of ours with `zookeeper.set.acl`, in a chroot of its own."""
    more = {**realm.configs(zookeeper_set_acl="true"), "sparkraft.controllership.enable": "true"}
    node = OurBroker(tmp_path / "ours", 1, f"{realm.ensemble.connect}/{tmp_path.name}", more)
    node.environment = dict(realm.kdc.environment)
    with node:
        yield node


def test_a_broker_owns_its_znodes_and_the_migration_of_lists_changes_them(
    realm: Realm, broker: OurBroker, tmp_path: Path
):
    chroot = f"/{tmp_path.name}"
    wait_until(
        lambda: "controller" in submit(realm.ensemble.connect, GetChildren(path=chroot))[0],
        "the broker is the controller", SECONDS,
    )  # fmt: skip
    paths = {"/brokers/ids/1": READABLE, "/config/users": (), "/controller": READABLE}
    assert {path: realm.acl_of(chroot + path) for path in paths} == paths
    migrate = ["zookeeper-security-migration", "--zookeeper.connect", broker.ensemble]
    file = tmp_path / "client.properties"
    for principal, code in (("alice", 1), ("kafka/h2", 0)):
        done = realm.run(file, realm.configs(principal), *migrate, "--zookeeper.acl", "unsecure")
        assert done.returncode == code, done.stdout + done.stderr
        assert ("NO_AUTH" in done.stderr) is bool(code)
    assert {path: realm.acl_of(chroot + path) for path in paths} == dict.fromkeys(paths, OPEN_ACL)
    done = realm.run(file, realm.configs(), *migrate, "--zookeeper.acl", "secure")
    assert done.returncode == 0, done.stderr
    assert {path: realm.acl_of(chroot + path) for path in paths} == paths


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "zookeeper_server_principal": f"zookeeper/{SERVER_HOST}",
            "zookeeper_server_realm": "ANOTHER.TEST",
        },
    ],
)
def test_the_server_is_found_by_its_address_or_its_configured_principal(
    realm: Realm, tmp_path: Path, more: dict[str, str]
):
    configs = realm.configs(zookeeper_set_acl="true", **more)
    path = f"/by-{tmp_path.name}"
    create = ("zookeeper-shell", realm.ensemble.connect, "create", path)
    done = realm.run(tmp_path / "client.properties", configs, *create)
    assert done.returncode == 0, done.stderr
    assert realm.acl_of(path) == READABLE


@pytest.mark.long  # beside Kafka's client, which has a JVM for each command
@pytest.mark.parametrize("realm_of_servers", ["ANOTHER.TEST", "ANOTHER@TEST"])
def test_the_realm_of_servers_has_the_effect_that_it_has_in_java(
    realm: Realm, zookeeper_jars: Path, tmp_path: Path, realm_of_servers: str
):
    """A well-formed one has none, since both ask for a ticket of the service on a host."""
    path = f"/by-{tmp_path.name}"
    jaas = tmp_path / "kafka-jaas.conf"
    jaas.write_text(f"Client {{ {module(realm.keytab, 'kafka/h2')} }};\n")
    theirs = subprocess.run(
        [*java_command(zookeeper_jars), f"-Djava.security.auth.login.config={jaas}",
         realm.kdc.java_flag, f"-Dzookeeper.server.realm={realm_of_servers}",
         "org.apache.zookeeper.ZooKeeperMain", "-server", realm.ensemble.connect,
         "create", f"{path}-java", "", "sasl:kafka:cdrwa"],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    configs = realm.configs(zookeeper_set_acl="true", zookeeper_server_realm=realm_of_servers)
    create = ("zookeeper-shell", realm.ensemble.connect, "create", path)
    ours = realm.run(tmp_path / "client.properties", configs, *create)
    if "@" in realm_of_servers:
        assert "AuthFailed" in theirs.stdout + theirs.stderr
        assert ours.returncode == 2
        assert "zookeeper.server.realm must be a realm, not ANOTHER@TEST" in ours.stderr
    else:
        assert "Authenticated" in theirs.stdout + theirs.stderr, theirs.stdout + theirs.stderr
        assert ours.returncode == 0, ours.stderr
        assert realm.acl_of(path) == READABLE


TICKET_S = 5
"""Lifetime of a ticket that is renewed."""

SESSIONS = f"""
import asyncio, sys
from sparkraft.cli.zookeeper_session import ensemble_session
async def sessions():
    async with ensemble_session(*sys.argv[1:]):
        print("opened", flush=True)
    await asyncio.sleep({TICKET_S + 2})
    async with ensemble_session(*sys.argv[1:]):
        print("opened again")
asyncio.run(sessions())
"""
"""Opens a session as soon as there is a ticket, and another one when that has expired."""


@pytest.mark.long  # tickets expire in real time
def test_the_shortest_time_between_renewals_is_also_the_wait_for_the_first_ticket(
    realm: Realm, tmp_path: Path
):
    """By default it is a minute, in which a ticket of five seconds expires."""
    processes = {}
    for name, more in {
        "often": {"zookeeper.kerberos.minReLoginTimeMs": "500"},
        "default": {},
    }.items():
        cache = f"FILE:{tmp_path / name}"
        jaas = f'{KERBEROS_MODULE} required useTicketCache="true" ticketCache="{cache}";'
        configs = {
            "sparkraft.zookeeper.sasl.jaas.config": jaas,
            "zookeeper.kinit": str(realm.kdc.kinit),
            **more,
        }
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in configs.items()))
        process = subprocess.Popen(
            [sys.executable, "-c", SESSIONS, realm.ensemble.connect, str(file)],
            env={**os.environ, **realm.kdc.environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes[name] = process
        assert process.stderr is not None
        assert "No Kerberos ticket" in process.stderr.readline()
        ticket = ["-l", f"{TICKET_S}s", "-r", "1h", "-k", "-t", str(realm.keytab), "-c", cache]
        subprocess.run(
            [str(realm.kdc.kinit), *ticket, "alice"],
            env={**os.environ, **realm.kdc.environment}, check=True, timeout=SECONDS,
        )  # fmt: skip
    shown = {name: process.communicate(timeout=SECONDS) for name, process in processes.items()}
    assert shown["often"][0] == "opened\nopened again\n", shown
    assert shown["default"][0] == "opened\n", shown
    assert "expired" in shown["default"][1], shown


@pytest.mark.long  # the command tries for 30 seconds
@pytest.mark.parametrize(
    ("principal", "more", "message"),
    [
        ("kafka/h1", {"zookeeper_sasl_client_username": "mail"}, "not found in Kerberos database"),
        (
            "kafka/h1",
            {"zookeeper_sasl_client_canonicalize_hostname": "false"},
            "not found in Kerberos database",
        ),
        ("kafka/h3", {}, "Kerberos: "),
    ],
    ids=["another service", "by literal", "without a key"],
)
def test_a_session_without_a_ticket_for_the_server_does_not_open(
    realm: Realm, tmp_path: Path, principal: str, more: dict[str, str], message: str
):
    command = ("zookeeper-shell", realm.ensemble.connect, "ls", "/")
    done = realm.run(tmp_path / "client.properties", realm.configs(principal, **more), *command)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_brokers_of_kafka_and_ours_are_one_user(realm: Realm, zookeeper_jars: Path, tmp_path: Path):
    """Each with a key of its own; the session of ours continues after a restart of the server."""
    connect = f"{realm.ensemble.connect}/mixed"
    jaas = tmp_path / "kafka-jaas.conf"
    jaas.write_text(f"Client {{ {module(realm.keytab, 'kafka/h2')} }};\n")
    ours = OurBroker(
        tmp_path / "ours", 1, connect,
        {**realm.configs(zookeeper_set_acl="true"), "sparkraft.controllership.enable": "true"},
    )  # fmt: skip
    ours.environment = dict(realm.kdc.environment)
    kafka = KafkaBroker(
        tmp_path / "kafka", 2, connect, zookeeper_jars, {"zookeeper.set.acl": "true"}
    )
    kafka.environment |= {
        "JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={jaas} {realm.kdc.java_flag}"
    }

    def ids() -> list[str]:
        return sorted(submit(connect, GetChildren(path="/brokers/ids"))[0])

    with ours, kafka:
        wait_until(lambda: ids() == ["1", "2"], kafka.output_tail(), SECONDS)
        assert {realm.acl_of(f"/mixed/brokers/ids/{each}") for each in (1, 2)} == {READABLE}
        (server,) = realm.ensemble.servers
        server.kill()
        server.start()
        server.wait_until_it_serves()
        asyncio.run(create_topic(ours.bootstrap, "after-the-restart"))
        assert realm.acl_of("/mixed/brokers/topics/after-the-restart") == READABLE


async def create_topic(bootstrap: str, name: str) -> None:
    """Create a topic on both brokers: its controller writes a znode as the user."""
    async with Cluster(bootstrap) as cluster:
        for _ in range(400):
            made = await Admin(cluster).create_topics([NewTopic(name=name, assignment={0: [1, 2]})])
            if not isinstance(made[name], KafkaError):
                return
            await asyncio.sleep(0.05)
    raise AssertionError(f"{name} is not created")
