"""`zookeeper-check HOST:PORT[/chroot]`: read every znode of a Kafka cluster, and change none.

Prints what the cluster has, and each znode whose data Kafka 3.9 cannot read; exits with 1 if there
are any. Before an upgrade or a migration, such znodes would stop a broker or a controller.
"""

import asyncio
from typing import Any, NamedTuple

from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options
from sparkraft.cli.session import print_json
from sparkraft.cli.zookeeper_session import add_security, ensemble_session
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.migration.reading import read_tree
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.znodes import tree
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS
from sparkraft.zookeeper.znodes.cluster import CLUSTER_ID, CONTROLLER, MIGRATION
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.security import LITERAL_ACLS, PREFIXED_ACLS
from sparkraft.zookeeper.znodes.topics import TOPICS

_ACL_ROOTS = (f"{LITERAL_ACLS}/", f"{PREFIXED_ACLS}/")


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
    add_security(options)
    values = options.parse(argv)
    cluster = asyncio.run(_read(values.server, values.zk_tls_config_file))
    if not cluster.values and not cluster.problems:
        raise CommandError(f"no Kafka cluster in {values.server}")
    shown = _describe(cluster)
    if values.output == "json":
        print_json(shown)
    else:
        _print(shown)
    return 1 if cluster.problems else 0


async def _read(server: str, file: str | None) -> Cluster:
    try:
        async with ensemble_session(server, file) as client:
            znodes = await read_tree(client)
    except ZooKeeperError as error:
        raise CommandError(str(error)) from error
    cluster = Cluster({}, [])
    for path in znodes:
        _decode(znodes, path, cluster)
    return cluster


def _decode(znodes: ZnodeTree, path: str, cluster: Cluster) -> None:
    if tree.has_codec(path):
        try:
            cluster.values[path] = znodes.value(path)
        except ZnodeError as error:
            cluster.problems.append(error)


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
        "hasAcls": any(path.startswith(_ACL_ROOTS) for path in cluster.values),
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
