"""`zookeeper-controller describe | move`: the controller of a Kafka cluster in ZooKeeper mode.

`move` is what operators do by deleting /controller, but guarded: a controller that was elected in
the meantime stays. All brokers compete, and the same one may win again.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options
from sparkraft.cli.zookeeper_session import add_security, ensemble_session
from sparkraft.zookeeper.controller import store, znodes
from sparkraft.zookeeper.controller.election import depose
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.driver import execute

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.controller.steps import Steps, T
    from sparkraft.zookeeper.controller.znodes import Registration

ELECTION_SECONDS_MAX = 30
"""Brokers compete at once; a controller that hangs in its failover is not waited for."""

POLL_SECONDS = 0.05


def main(argv: list[str]) -> int:
    """Do one action."""
    options = Options("zookeeper-controller", "Shows and moves the controller in ZooKeeper.")
    options.add_argument("action", choices=["describe", "move"])
    options.value(
        "--zookeeper", about="the ensemble's servers", metavar="HOST:PORT[/chroot]", required=True
    )
    options.value("--output", about="text or json", choices=["text", "json"], default="text")
    add_security(options)
    values = options.parse(argv)
    return asyncio.run(_main(values))


async def _main(values: Values) -> int:
    async with ensemble_session(values.zookeeper, values.zk_tls_config_file) as client:
        if values.action == "move":
            print(await _move(client))
        else:
            _print(await _describe(client), values)
    return 0


async def _run(client: ZooKeeperClient, decision: Steps[T]) -> T:
    return await execute(client, decision, lambda _: None)


async def _describe(client: ZooKeeperClient) -> dict[str, Any]:
    epoch = await _run(client, store.read_epoch())
    if epoch is None:
        raise CommandError(
            f"{client.ensemble} has no /controller_epoch; expected the chroot of a Kafka cluster"
        )
    controller = await _run(client, store.read_controller())
    brokers = await _run(client, store.read_brokers(watch=False))
    return {
        "controller": None if controller is None else controller.broker,
        "kraft": controller is not None and controller.is_kraft,
        "since": None if controller is None else _time(controller.since_ms),
        "controller_epoch": epoch.epoch,
        "epoch_znode_version": epoch.version,
        "live_brokers": [
            {"id": broker.id, "broker_epoch": broker.epoch} for broker in brokers.values()
        ],
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _print(document: dict[str, Any], values: Values) -> None:
    if values.output == "json":
        print(json.dumps(document, indent=2))
        return
    kind = " (KRaft)" if document["kraft"] else ""
    print(f"Controller:      {_or_none(document['controller'])}{kind}")
    print(f"Since:           {_or_none(document['since'])}")
    print(f"ControllerEpoch: {document['controller_epoch']}")
    brokers = ", ".join(str(broker["id"]) for broker in document["live_brokers"])
    print(f"LiveBrokers:     {brokers or 'none'}")


def _or_none(value: object) -> object:
    return "none" if value is None else value


async def _move(client: ZooKeeperClient) -> str:
    try:
        before = await _run(client, depose())
    except ControllerMovedError as error:
        raise CommandError(f"{error}; another controller was elected just now") from error
    if before is None:
        raise CommandError(f"{client.ensemble} has no controller: /controller does not exist")
    if before.is_kraft:
        raise CommandError(
            f"controller {before.broker} is a KRaft controller, which migrates this cluster; "
            "expected a broker"
        )
    try:
        async with asyncio.timeout(ELECTION_SECONDS_MAX):
            after = await _next_controller(client)
    except TimeoutError as error:
        raise CommandError(
            f"{znodes.CONTROLLER} of broker {before.broker} was deleted, but no broker was elected "
            f"within {ELECTION_SECONDS_MAX} s"
        ) from error
    return f"Controller moved from broker {before.broker} to broker {after.broker}"


async def _next_controller(client: ZooKeeperClient) -> Registration:
    while True:
        found = await _run(client, store.read_controller())
        if found is not None:
            return found
        await asyncio.sleep(POLL_SECONDS)
