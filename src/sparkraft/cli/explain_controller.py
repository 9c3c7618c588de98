"""`explain controller`: the controller in ZooKeeper mode, its election and failover. Ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.options import Options
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.explain.zookeeper_controller import controller_document, controller_lines

if TYPE_CHECKING:
    from sparkraft.cli.options import Values

_LAST = 20


def main(argv: list[str]) -> int:
    options = Options(
        "explain controller",
        "Show the controller of a cluster in ZooKeeper mode: its election, the brokers that lost, "
        "why the one before resigned, and the steps of the failover.",
    )
    options.connection()
    options.value("--last", about=f"decisions shown (default {_LAST})", type=int, default=_LAST)
    options.value(
        "--epochs",
        about="newest epochs shown, each with its race, failover and resignation (default 0)",
        type=int,
        default=0,
    )
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    async with connected(values, client_id="explain") as cluster:
        document = await controller_document(cluster)
    if values.output == "json":
        print_json(document)
        return 0
    for line in controller_lines(document, max(values.last, 0), max(values.epochs, 0)):
        print(line)
    return 0
