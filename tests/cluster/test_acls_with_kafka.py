"""One set of access control entries, enforced alike by brokers of both kinds.

Users authenticate by PLAIN on a listener of their own; nodes connect to each other in plain text,
as a super user. Each broker reports the operations that a user is allowed on a resource (KIP-430),
so every entry is compared on many names without a request of each kind.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages import k03_metadata as k03
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k60_describe_cluster as k60
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import Acl
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import lasting_ports, wait_until
from tests.support.sasl import PASSWORDS, PLAIN, server_module

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3
TOPICS = ["a", "ab", "abc", "b", "other"]
GROUPS = ["g", "g1", "h"]
SETTINGS = {
    "authorizer.class.name": CLASS_NAME,
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": server_module(PLAIN),
    "inter.broker.listener.name": "PLAINTEXT",
    "default.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
}


@contextmanager
def mixed(directory: Path, jars: Path, controller: Kind) -> Iterator[tuple[Cluster, list[int]]]:
    """A controller, a broker of each kind, and the ports of their listeners for users."""
    members = [
        Member(1, controller, "controller"),
        Member(11, "sparkraft", "broker"),
        Member(12, "kafka", "broker"),
    ]
    cluster = Cluster(directory, members, quorum="standalone", overrides=SETTINGS, jars=jars)
    ports = lasting_ports(2)
    for node_id, port in zip(cluster.brokers, ports, strict=True):
        node = cluster.nodes[node_id]
        for key in ("listeners", "advertised.listeners"):
            node.overrides[key] += f",CLIENTS://127.0.0.1:{port}"
    for node in cluster.nodes.values():
        node.overrides["listener.security.protocol.map"] += ",CLIENTS:SASL_PLAINTEXT"
        node.write_properties()
    with cluster:
        yield cluster, ports


def entries(seed: int, count: int) -> list[Acl]:
    """Entries of every kind, for some of the names that are asked about."""
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        kind = dice.choice([TOPIC, TOPIC, GROUP, CLUSTER])
        names = {TOPIC: [*TOPICS, "*"], GROUP: [*GROUPS, "*"], CLUSTER: ["kafka-cluster"]}[kind]
        operations = {
            TOPIC: [2, 3, 4, 5, 6, 7, 8, 10, 11],
            GROUP: [2, 3, 6, 8],
            CLUSTER: [2, 5, 7, 8, 9, 10, 11, 12],
        }[kind]
        found.append(
            Acl(
                kind,
                dice.choice(names),
                dice.choice([LITERAL, LITERAL, PREFIXED]) if kind != CLUSTER else LITERAL,
                dice.choice(["User:alice", "User:alice", "User:*", "User:zoe"]),
                dice.choice(["*", "127.0.0.1", "10.0.0.1"]),
                dice.choice(operations),
                dice.choice([ALLOW, ALLOW, DENY]),
            )
        )
    return list(dict.fromkeys(found))


async def allowed_operations(port: int, user: str) -> dict[str, Any]:
    """The operations that a broker reports for a user: of topics, groups and the cluster."""
    login = Login("PLAIN", user, Secret(PASSWORDS[user]))
    client = await Connection.open("127.0.0.1", port, client_id="test", login=login)
    try:
        topics = await client.send(
            k03.MetadataRequest(
                topics=[k03.MetadataRequestTopic(name=name) for name in TOPICS],
                include_topic_authorized_operations=True,
                allow_auto_topic_creation=False,
            ),
            version=10,
        )
        groups = await client.send(
            k15.DescribeGroupsRequest(groups=GROUPS, include_authorized_operations=True), version=5
        )
        cluster = await client.send(
            k60.DescribeClusterRequest(endpoint_type=1, include_cluster_authorized_operations=True)
        )
        denied = {int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
        return {
            **{
                f"topic {topic.name}": (topic.error_code, topic.topic_authorized_operations)
                for topic in topics.topics
            },
            **{f"group {group.group_id}": group.error_code in denied for group in groups.groups},
            "cluster": cluster.cluster_authorized_operations,
        }
    finally:
        await client.close()


def reported(port: int, user: str = "alice") -> dict[str, Any]:
    return asyncio.run(allowed_operations(port, user))


def stored(cluster: Cluster, of: int | None = None) -> list[Acl]:
    """The entries, as a broker or, with `of`, that node describes them."""

    async def work(admin: Admin) -> list[Acl]:
        return await AclAdmin(admin.cluster).describe_acls(AclFilter())

    found: list[Acl] = cluster.ask(work, of=of)
    return found


def create(cluster: Cluster, acls: list[Acl], *, of: int) -> None:
    async def work(admin: Admin) -> None:
        assert set(await AclAdmin(admin.cluster).create_acls(acls)) <= {None}

    cluster.ask(work, of=of)


def delete(cluster: Cluster, wanted: AclFilter, *, of: int) -> None:
    async def work(admin: Admin) -> None:
        (deleted,) = await AclAdmin(admin.cluster).delete_acls([wanted])
        assert isinstance(deleted, list)
        assert deleted

    cluster.ask(work, of=of)


@pytest.mark.parametrize("controller", ["sparkraft", "kafka"])
def test_brokers_of_both_kinds_decide_alike(
    controller: Kind, kafka_jars: Path, tmp_path: Path
) -> None:
    with mixed(tmp_path, kafka_jars, controller) as (cluster, ports):
        for name in TOPICS:
            cluster.create_topic(name)

        def agree() -> bool:
            described = [stored(cluster, of=node_id) for node_id in cluster.brokers]
            return described[0] == described[1] == sorted(wanted)

        wanted: list[Acl] = []
        for seed, through in enumerate((11, 12, 11)):
            more = [acl for acl in entries(seed, 12) if acl not in wanted]
            create(cluster, more, of=through)
            wanted += more
            wait_until(agree, "both brokers have the entries", 60)
            ours, theirs = map(reported, ports)
            assert ours == theirs, wanted
            assert len(set(map(str, ours.values()))) > 2, "rights differ by resource"
            assert len(set(map(str, ours.values()))) > 2, "some are allowed more than others"
        for through, name in ((12, "ab"), (11, "*")):
            delete(cluster, AclFilter(TOPIC, name), of=through)
            wanted = [
                acl for acl in wanted if (acl.resource_type, acl.resource_name) != (TOPIC, name)
            ]
            wait_until(agree, "both brokers have deleted the entries", 60)
            assert reported(ports[0]) == reported(ports[1]), wanted
        for node_id in (11, 12, 1):
            cluster.stop(node_id)
        cluster.start()
        wait_until(agree, "both brokers have the entries again", 60)
        assert reported(ports[0]) == reported(ports[1]), wanted
