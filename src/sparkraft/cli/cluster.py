"""`cluster`: its id, its brokers' endpoints, and brokers to forget, as `kafka-cluster.sh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import UsageError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run, with_old_config
from sparkraft.client.leadership import LeadershipAdmin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.client.cluster import Node


def main(argv: list[str]) -> int:
    """Do what is asked."""
    options = Options("cluster", "Prints the cluster's id and endpoints, and unregisters brokers.")
    options.add_argument("command", choices=["cluster-id", "unregister", "list-endpoints"])
    options.value(
        "--bootstrap-server", "-b", about="the servers to connect to", metavar="HOST:PORT"
    )
    options.value(
        "--bootstrap-controller",
        "-C",
        about="the controllers to connect to, instead of servers",
        metavar="HOST:PORT",
    )
    options.value(
        "--command-config", "-c", about="a properties file for the client", metavar="FILE"
    )
    options.old_config("--config")
    options.value("--id", "-i", about="the broker to unregister", type=int)
    options.flag("--include-fenced-brokers", "with list-endpoints: also those that are fenced")
    options.output()
    values = options.parse(argv)
    if (values.command == "unregister") != (values.id is not None):
        raise UsageError("--id goes with unregister, and unregister needs it")
    if values.include_fenced_brokers and values.bootstrap_controller:
        raise UsageError("--include-fenced-brokers goes only with --bootstrap-server")
    with_old_config(values, "--config")
    return run(_main(values))


async def _main(values: Values) -> int:
    async with connected(values, client_id="cluster-tool") as cluster:
        admin = LeadershipAdmin(cluster)
        if values.command == "unregister":
            await admin.unregister_broker(values.id)
            if values.output == "json":
                print_json({"unregistered": values.id})
            else:
                print(f"Broker {values.id} is no longer registered.")
            return 0
        found = await admin.describe_cluster(include_fenced=values.include_fenced_brokers)
    if values.command == "cluster-id":
        if values.output == "json":
            print_json({"clusterId": found.cluster_id})
        else:
            print(f"Cluster ID: {found.cluster_id}")
        return 0
    kind = "controller" if values.bootstrap_controller else "broker"
    if values.output == "json":
        print_json([_json(node, kind) for node in found.nodes])
    else:
        _print(found.nodes, kind)
    return 0


def _print(nodes: Sequence[Node], kind: str) -> None:
    """Columns as wide as Kafka's tool makes them."""
    with_state = kind == "broker"
    widths = [
        10,
        max((len(node.host) for node in nodes), default=100),
        10,
        max((len(node.rack) for node in nodes if node.rack), default=10),
        *([10] if with_state else []),
        15,
    ]
    header = ["ID", "HOST", "PORT", "RACK", *(["STATE"] if with_state else []), "ENDPOINT_TYPE"]
    rows = [header]
    for node in nodes:
        state = ["fenced" if node.is_fenced else "unfenced"] if with_state else []
        rows.append([str(node.id), node.host, str(node.port), node.rack or "null", *state, kind])
    for row in rows:
        print(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def _json(node: Node, kind: str) -> dict[str, object]:
    return {
        "id": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "isFenced": node.is_fenced,
        "endpointType": kind,
    }
