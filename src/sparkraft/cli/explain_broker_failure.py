"""`explain broker-failure`: rehearse how a ZooKeeper controller handles the failure of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError
from sparkraft.cli.zookeeper_rehearsal import new_active, options_for, run

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.controller.active import Active
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal


def main(argv: list[str]) -> int:
    """Rehearse the failure of a broker and print what follows."""
    options = options_for(
        "broker-failure", "Show what the controller of a ZooKeeper cluster does if a broker fails."
    )
    options.add_argument("broker", type=int, help="its id")
    return run(_rehearse, options.parse(argv), ("brokers", "reassignment", "deletion"))


async def _rehearse(client: ZooKeeperClient, values: Values) -> tuple[Active, Rehearsal]:
    from sparkraft.zookeeper.controller.controller import Controller
    from sparkraft.zookeeper.controller.events import BrokersChanged
    from sparkraft.zookeeper.controller.failover import load_and_derive
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal
    from sparkraft.zookeeper.driver import execute

    active = await new_active(client, values)
    rehearsal = Rehearsal()
    await execute(client, rehearsal.run(load_and_derive(active)), lambda _: None)
    if values.broker not in active.context.brokers:
        raise CommandError(f"broker {values.broker} is not registered in {client.ensemble}")
    active.controller_id = active.settings.node_id
    rehearsal.hidden = frozenset({f"/brokers/ids/{values.broker}"})
    decision = Controller(active).handle(BrokersChanged(), 0)
    await execute(client, rehearsal.run(decision), lambda _: None)
    return active, rehearsal
