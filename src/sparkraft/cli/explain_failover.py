"""`explain failover`: rehearse the failover of a ZooKeeper cluster's controller.

It executes the steps of a new controller on the cluster's znodes, with reasons, and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.zookeeper_rehearsal import new_active, options_for, run

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.controller.active import Active
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal


def main(argv: list[str]) -> int:
    """Rehearse a failover and print what it does."""
    options = options_for(
        "failover", "Show what the next controller of a ZooKeeper cluster would do."
    )
    options.values(
        "--without-broker", about="assume that this broker has failed", metavar="ID", type=int
    )
    return run(_rehearse, options.parse(argv), ("failover", "reassignment", "deletion"))


async def _rehearse(client: ZooKeeperClient, values: Values) -> tuple[Active, Rehearsal]:
    from sparkraft.zookeeper.controller.failover import fail_over
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal
    from sparkraft.zookeeper.driver import execute

    active = await new_active(client, values)
    active.context.epoch += 1
    active.context.epoch_version += 1
    rehearsal = Rehearsal(frozenset(f"/brokers/ids/{broker}" for broker in values.without_broker))
    await execute(client, rehearsal.run(fail_over(active)), lambda _: None)
    return active, rehearsal
