"""`zookeeper-check HOST:PORT[/chroot]`: read every znode of a Kafka cluster, and change none.

Prints what the cluster has, and each znode whose data Kafka 3.9 cannot read; exits with 1 if there
are any. Before an upgrade or a migration, such znodes would stop a broker or a controller.
"""

import asyncio
from typing import Any, NamedTuple

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options
from sparkraft.cli.session import print_json
from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.connect_string import ConnectString, parse_connect_string
from sparkraft.zookeeper.errors import NoNodeError, ZooKeeperError
from sparkraft.zookeeper.requests import GetChildren, GetData
from sparkraft.zookeeper.znodes import tree
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS
from sparkraft.zookeeper.znodes.cluster import CLUSTER_ID, CONTROLLER, MIGRATION
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.topics import TOPICS

CONNECT_MS_MAX = 30_000
"""As long as `zookeeper-shell` waits for a server."""

_ROOTS = [
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/delegation_token",
    "/feature",
    "/isr_change_notification",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/migration",
]
"""Kafka's top-level znodes with data that it reads; others may belong to other programs."""


class Cluster(NamedTuple):
    """The znodes read: a value for each that has a codec, and the problems."""

    values: dict[str, Any]
    problems: list[ZnodeError]

    def below(self, path: str) -> list[str]:
        """The names of the children that were read."""
        start = f"{path}/"
        names = (name.removeprefix(start) for name in self.values if name.startswith(start))
        return sorted(name for name in names if "/" not in name)


def main(argv: list[str]) -> int:
    """Check one cluster."""
    options = Options("zookeeper-check", "Reads all znodes of a Kafka cluster and checks them.")
    options.add_argument("server", metavar="HOST:PORT[/chroot]", help="the ensemble's servers")
    options.value("--output", about="text or json", choices=("text", "json"), default="text")
    values = options.parse(argv)
    try:
        ensemble = parse_connect_string(values.server)
    except ValueError as error:
        raise UsageError(str(error)) from error
    cluster = asyncio.run(_read(ensemble))
    if not cluster.values and not cluster.problems:
        raise CommandError(f"no Kafka cluster in {ensemble}")
    shown = _describe(cluster)
    if values.output == "json":
        print_json(shown)
    else:
        _print(shown)
    return 1 if cluster.problems else 0


async def _read(ensemble: ConnectString) -> Cluster:
    client = ZooKeeperClient(
        ensemble,
        connect=SystemNetwork().connect,
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    try:
        await client.start(CONNECT_MS_MAX)
    except TimeoutError as error:
        raise CommandError(str(error)) from error
    cluster = Cluster({}, [])
    try:
        left = list(reversed(_ROOTS))
        while left:
            left += await _read_one(client, left.pop(), cluster)
    except ZooKeeperError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()
    return cluster


async def _read_one(client: ZooKeeperClient, path: str, cluster: Cluster) -> list[str]:
    """Read one znode into `cluster`; return the paths of its children."""
    names: list[str] = []
    try:
        names, _ = await client.submit_until_connected(GetChildren(path=path))
        if tree.has_codec(path):
            data, _ = await client.submit_until_connected(GetData(path=path))
            cluster.values[path] = tree.decode(path, data)
    except NoNodeError:  # absent, or deleted since its parent was read
        return []
    except ZnodeError as error:
        cluster.problems.append(error)
    return [f"{path}/{name}" for name in sorted(names, reverse=True)]


def _describe(cluster: Cluster) -> dict[str, Any]:
    controller = cluster.values.get(CONTROLLER)
    migration = cluster.values.get(MIGRATION)
    return {
        "clusterId": cluster.values.get(CLUSTER_ID),
        "controller": None if controller is None else controller.broker,
        "controllerEpoch": cluster.values.get(tree.CONTROLLER_EPOCH),
        "isKRaftController": controller is not None and controller.kraft_epoch >= 0,
        "brokers": sorted(map(int, cluster.below(BROKER_IDS))),
        "topics": len(cluster.below(TOPICS)),
        "hasAcls": any(path.startswith("/kafka-acl/") for path in cluster.values),
        "isMigrated": migration is not None and migration.metadata_offset >= 0,
        "problems": [{"path": each.path, "reason": each.reason} for each in cluster.problems],
    }


def _print(shown: dict[str, Any]) -> None:
    kind = "KRaft controller" if shown["isKRaftController"] else "broker"
    leader = "none" if shown["controller"] is None else f"{kind} {shown['controller']}"
    brokers = ", ".join(map(str, shown["brokers"])) or "none"
    print(f"Cluster:    {shown['clusterId']}")
    print(f"Controller: {leader}, epoch {shown['controllerEpoch']}")
    print(f"Brokers:    {brokers}")
    print(f"Topics:     {shown['topics']}")
    print(f"ACLs:       {'yes' if shown['hasAcls'] else 'none'}")
    print(f"Migrated:   {'yes' if shown['isMigrated'] else 'no'}")
    for problem in shown["problems"]:
        print(f"Malformed:  {problem['path']}: {problem['reason']}")
