"""Nothing that Apache Kafka wrote is lost in a snapshot of ours, and Kafka's tools read our files.

Kafka's controller with its authorizer and a secret for tokens fills the metadata log; each node,
of either kind, writes a snapshot of it; Kafka's dump-log and metadata shell must find the same in
all of them. Then a controller of ours leads alone, and a fresh one of Kafka's loads from it.
"""

import asyncio
import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.client.quorum_admin import add_voter, remove_voter
from sparkraft.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from tests.support.clusters import Cluster, Member
from tests.support.kafka_files import dumped, in_shell, records
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import KafkaNode, NodeProcess
from tests.support.ports import lasting_ports, wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

OFTEN = {
    "metadata.log.max.snapshot.interval.ms": "1000",
    "metadata.log.segment.ms": "100",
    "metadata.max.retention.bytes": "0",
    # Nobody is fenced between two snapshots because the machine had other work.
    "broker.session.timeout.ms": "60000",
}
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "secret",
}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BY_SASL = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    f'sasl.jaas.config={LOGIN} username="admin" password="pw";\n'
)
WRITTEN = {
    "ACCESS_CONTROL_ENTRY_RECORD": 3,
    "USER_SCRAM_CREDENTIAL_RECORD": 2,
    "CLIENT_QUOTA_RECORD": 6,
    "DELEGATION_TOKEN_RECORD": 2,
    "TOPIC_RECORD": 1,
    "PARTITION_RECORD": 3,
}
"""Records of each kind that `fill` leaves in a snapshot."""

CONFIGS = (
    ("--entity-type", "users", "--entity-name", "alice", "--add-config",
     "SCRAM-SHA-256=[iterations=8192,password=pw]"),
    ("--entity-type", "users", "--entity-name", "alice", "--add-config",
     "SCRAM-SHA-512=[password=pw]"),
    ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients",
     "--entity-name", "c", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048"),
    ("--entity-type", "users", "--entity-default", "--add-config", "request_percentage=50"),
    ("--entity-type", "clients", "--entity-default", "--add-config", "controller_mutation_rate=9"),
    ("--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config",
     "connection_creation_rate=77"),
    ("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients",
     "--entity-default", "--add-config", "request_percentage=0.5"),
    ("--entity-type", "client-metrics", "--entity-name", "m", "--add-config", "interval.ms=1000"),
    ("--entity-type", "groups", "--entity-name", "g", "--add-config",
     "consumer.session.timeout.ms=47000"),
    ("--entity-type", "brokers", "--entity-default", "--add-config", "log.cleaner.threads=2"),
    ("--entity-type", "brokers", "--entity-name", "12", "--add-config", "num.io.threads=9"),
)  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path, kafka_jars: Path) -> Iterator[Cluster]:
    """Kafka's controller 1 leads and has written all it can; the others came after that."""
    made = Cluster(
        tmp_path,
        [
            Member(1, "kafka", "controller"),
            Member(2, "sparkraft", "controller"),
            Member(11, "sparkraft", "broker"),
            Member(12, "kafka", "broker"),
        ],
        quorum="standalone",
        overrides=OFTEN,
        jars=kafka_jars,
    )
    secure(made.nodes[1], {})
    secure(made.nodes[12], sasl_listener(made.ports[12][0]))
    try:
        made.start([1, 12])
        fill(made)
        made.start()
        yield made
    finally:
        made.__exit__()


NOTHING_LOADED = "offset -1,"
"""Stands in the tree of an empty image; every snapshot of a cluster has records."""


def secure(node: NodeProcess, more: dict[str, str]) -> None:
    node.overrides |= SECURED | more
    node.write_properties()
    if isinstance(node, KafkaNode):
        node.is_formatted_by_kafka = True  # our command refuses an authorizer


def sasl_listener(port: int) -> dict[str, str]:
    """A listener SASL beside PLAINTEXT, on which tokens may be asked for."""
    (sasl,) = lasting_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{LOGIN} user_admin="pw";',
    }


def fill(cluster: Cluster) -> None:
    """Everything that a Kafka controller can be asked to remember, through Kafka's tools."""
    kafka = cluster.nodes[12]
    assert cluster.jars is not None

    def tool(name: str, *arguments: str, port: int = kafka.port) -> None:
        server = ("--bootstrap-server", f"127.0.0.1:{port}")
        done = run_kafka_tool(cluster.jars, name, *server, *arguments)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stdout + done.stderr

    acls = "org.apache.kafka.tools.AclCommand"
    tool(acls, "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    tool(acls, "--add", "--deny-principal", "User:b", "--deny-host", "10.0.0.2", "--operation",
         "Write", "--topic", "pre", "--resource-pattern-type", "prefixed")  # fmt: skip
    for options in CONFIGS:
        tool("kafka.admin.ConfigCommand", "--alter", *options)
    login = cluster.directory / "login.properties"
    login.write_text(BY_SASL)
    sasl = int(kafka.overrides["listeners"].rpartition(":")[2])
    for renewers in ((), ("--renewer-principal", "User:r")):
        tool("org.apache.kafka.tools.DelegationTokenCommand", "--create", "--command-config",
             str(login), "--max-life-time-period", "-1", *renewers, port=sasl)  # fmt: skip
    cluster.create_topic("kept", partitions=3)
    cluster.set_config("kept", retention_ms="123456", cleanup_policy="delete")


def snapshot_of(cluster: Cluster, node: int, *, past: int) -> Path:
    """A copy of a snapshot that the node took after the offset `past`: it removes old ones."""
    folder = cluster.nodes[node].log_dir / "__cluster_metadata-0"
    copies = cluster.directory / f"snapshots-{node}"
    copies.mkdir(exist_ok=True)

    def copied() -> Path | None:
        for path in sorted(folder.glob("*.checkpoint"), reverse=True):
            if int(path.name[:20]) > past:
                with contextlib.suppress(FileNotFoundError):
                    return Path(shutil.copy(path, copies))
        return None

    wait_until(copied, f"node {node} took a snapshot after {past}", 120)
    return max(copies.iterdir())


def content(cluster: Cluster, snapshot: Path) -> Counter[str]:
    """Its records as Kafka's dump-log prints them; their order is each writer's own."""
    assert cluster.jars is not None
    found = records(dumped(cluster.jars, [snapshot]))
    return Counter(f"{r['type']} v{r['version']} {canonical(r['data'])}" for r in found)


def canonical(value: Any) -> str:
    """As JSON; endpoints and features are written in any order, replicas in theirs."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {canonical(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        parts = [canonical(item) for item in value]
        in_any_order = any(isinstance(item, dict) for item in value)
        return "[" + ", ".join(sorted(parts) if in_any_order else parts) + "]"
    return json.dumps(value)


def shown(cluster: Cluster, snapshot: Path) -> list[str]:
    """The tree that Kafka's metadata shell makes of it, without the snapshot's own time."""
    assert cluster.jars is not None
    text = in_shell(cluster.jars, snapshot, "tree", "/")
    # Kafka's shell takes its loader for ready before it has the image, and then shows an empty one.
    while NOTHING_LOADED in text:
        text = in_shell(cluster.jars, snapshot, "tree", "/")
    return sorted(line for line in text.splitlines() if not line.strip().startswith("offset "))


def create_acl(cluster: Cluster, *, of: int) -> int:
    """Ask one broker for an ACL; the error it answers."""

    async def ask() -> int:
        connection = await Connection.open("127.0.0.1", cluster.ports[of][0])
        entry = AclCreation(
            resource_type=2, resource_name="kept", resource_pattern_type=3, principal="User:c",
            host="*", operation=3, permission_type=3,
        )  # fmt: skip
        try:
            answer = await connection.send(CreateAclsRequest(creations=[entry]), timeout_ms=30_000)
        finally:
            await connection.close()
        return int(answer.results[0].error_code)

    return asyncio.run(ask())


def all_registered(cluster: Cluster) -> bool:
    """Whether the log holds the registration of every node that runs."""
    controllers = cluster.ask(lambda admin: admin.describe_cluster(), controllers=True)
    brokers = cluster.ask(lambda admin: admin.describe_cluster())
    found = {node.id for info in (controllers, brokers) for node in info.nodes}
    return found >= set(cluster.running)


def lasting(found: Counter[str]) -> Counter[str]:
    """Without registrations, which every start of a node replaces."""
    kept = {text: count for text, count in found.items() if not text.startswith("REGISTER_")}
    return Counter(kept)


def check_all_hold_the_same(cluster: Cluster, nodes: Iterable[int]) -> Counter[str]:
    """Compare the nodes' newest snapshots; what they hold."""
    assert cluster.jars is not None
    wait_until(lambda: all_registered(cluster), "every node that runs has registered", 120)
    end = cluster.describe_quorum().high_watermark
    snapshots = {node: snapshot_of(cluster, node, past=end) for node in nodes}
    contents = {node: content(cluster, path) for node, path in snapshots.items()}
    trees = {node: shown(cluster, path) for node, path in snapshots.items()}
    first = next(iter(nodes))
    for node in nodes:
        assert contents[node] == contents[first], f"node {node} against {first}"
        assert trees[node] == trees[first], f"node {node} against {first}"
    return lasting(contents[first])


async def until_changed(change: Callable[[], Awaitable[None]], *, done: ErrorCode) -> None:
    """Ask for a change of the voters until it was made in time; `done`: it was made before."""
    for _ in range(CHANGES_MAX):
        try:
            await change()
        except KafkaError as error:
            if error.code is done:
                return
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
        else:
            return
    raise AssertionError(f"not in {CHANGES_MAX} attempts: {change}")


CHANGES_MAX = 10
"""Kafka's leader gives a voter to be about a second to catch up."""


def lead_with_ours_alone(cluster: Cluster) -> None:
    """Controller 2 joins the voters, 1 leaves them and stops."""

    async def change(admin: Admin) -> None:
        quorum = await admin.describe_quorum()
        ours = next(o for o in quorum.observers if o.id == 2)
        kafkas = next(v for v in quorum.voters if v.id == 1)
        place = [("CONTROLLER", "127.0.0.1", cluster.ports[2][1])]
        add = partial(
            add_voter, admin.cluster, voter_id=2, directory_id=ours.directory_id, endpoints=place
        )
        remove = partial(remove_voter, admin.cluster, voter_id=1, directory_id=kafkas.directory_id)
        await until_changed(add, done=ErrorCode.DUPLICATE_VOTER)
        await until_changed(remove, done=ErrorCode.VOTER_NOT_FOUND)

    cluster.ask(change, controllers=True, timeout_ms=90_000)
    assert cluster.leader(other_than=1) == 2
    cluster.stop(1)


def test_snapshots_of_both_kinds_hold_the_same_and_kafkas_loads_ours(cluster: Cluster) -> None:
    assert create_acl(cluster, of=11) == ErrorCode.NONE
    wanted = check_all_hold_the_same(cluster, (1, 2, 11, 12))
    kinds = Counter(text.split()[0] for text in wanted.elements())
    assert {kind: kinds[kind] for kind in WRITTEN} == WRITTEN

    lead_with_ours_alone(cluster)
    log = cluster.nodes[2].log_dir / "__cluster_metadata-0"
    wait_until(lambda: not (log / f"{0:020}.log").exists(), "the log was cut", 120)
    secure(cluster.add(Member(3, "kafka", "controller")), {})
    cluster.start([3])
    cluster.members.pop(1)
    cluster.nodes.pop(1)
    assert check_all_hold_the_same(cluster, (2, 3, 11, 12)) == wanted
