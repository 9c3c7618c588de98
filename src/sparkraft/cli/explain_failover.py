"""`explain failover`: rehearse the failover of a ZooKeeper cluster's controller.

It executes the steps of a new controller on the cluster's znodes, with reasons, and writes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.controller.leader_election import Election
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.connect_string import ConnectString
    from sparkraft.zookeeper.controller.active import Active
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal

CONNECT_MS_MAX = 30_000
"""As `zookeeper-shell`."""


def main(argv: list[str]) -> int:
    """Rehearse a failover and print what it does."""
    options = Options(
        "explain failover",
        "Show what the next controller of a ZooKeeper cluster would do. Nothing is changed.",
    )
    options.value(
        "--zookeeper", about="the ensemble's servers", metavar="HOST:PORT[/chroot]", required=True
    )
    options.values(
        "--without-broker", about="assume that this broker has failed", metavar="ID", type=int
    )
    options.flag(
        "--unclean", "assume unclean.leader.election.enable=true for topics that do not set it"
    )
    options.value("--output", about="text or json", choices=["text", "json"], default="text")
    values = options.parse(argv)
    from sparkraft.zookeeper.connect_string import parse_connect_string

    try:
        ensemble = parse_connect_string(values.zookeeper)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return asyncio.run(_main(ensemble, values))


async def _main(ensemble: ConnectString, values: Values) -> int:
    from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
    from sparkraft.zookeeper.client import ZooKeeperClient

    client = ZooKeeperClient(
        ensemble, connect=SystemNetwork().connect, clock=SystemClock(), entropy=SystemEntropy()
    )
    try:
        await client.start(CONNECT_MS_MAX)
    except TimeoutError as error:
        raise CommandError(str(error)) from error
    try:
        active, rehearsal = await _rehearse(client, values)
    finally:
        await client.close()
    document = _document(active, rehearsal)
    if values.output == "json":
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_lines(document)))
    return 0


async def _rehearse(client: ZooKeeperClient, values: Values) -> tuple[Active, Rehearsal]:
    from sparkraft.zookeeper.controller.active import Active, Settings
    from sparkraft.zookeeper.controller.failover import fail_over
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal
    from sparkraft.zookeeper.controller.store import read_epoch
    from sparkraft.zookeeper.driver import execute

    settings = Settings(node_id=-1, unclean_leader_election=values.unclean)
    active = Active(settings)
    hidden = frozenset(f"/brokers/ids/{broker}" for broker in values.without_broker)
    rehearsal = Rehearsal(hidden)
    epoch = await execute(client, read_epoch(), lambda _: None)
    if epoch is None:
        raise CommandError(
            f"{client.ensemble} has no /controller_epoch; expected the chroot of a Kafka cluster"
        )
    active.context.epoch = epoch.epoch + 1
    active.context.epoch_version = epoch.version + 1
    await execute(client, rehearsal.run(fail_over(active)), lambda _: None)
    return active, rehearsal


def _document(active: Active, rehearsal: Rehearsal) -> dict[str, Any]:
    elections = [entry.election for entry in active.journal.elections.entries()]
    return {
        "controller_epoch": active.context.epoch,
        "live_brokers": active.context.live_brokers,
        "steps": active.journal.of("failover"),
        "failed_transitions": active.journal.of("failed transition"),
        "elections": [_election(election) for election in elections],
        "writes": [operation.path for operation in rehearsal.writes],
        "requests": dict(
            Counter(
                f"{type(each).__name__.removesuffix('Request')} to broker {each.broker}"
                for each in rehearsal.sent
            )
        ),
        "offline_partitions": active.context.offline_partition_count(),
    }


def _election(election: Election) -> dict[str, Any]:
    reason = election.reason
    return {
        "topic": election.topic,
        "partition": election.partition,
        "previous": election.previous,
        "leader": election.leader,
        "leader_epoch": election.leader_epoch,
        "kind": reason.name,
        "chosen_by": reason.chosen_by.value,
        "candidates": list(reason.candidates),
        "isr": list(reason.isr),
        "ruled_out": {str(replica): why for replica, why in reason.ruled_out},
    }


def _lines(document: dict[str, Any]) -> list[str]:
    live = ", ".join(map(str, document["live_brokers"])) or "none"
    lines = [
        f"A controller of epoch {document['controller_epoch']} with live brokers {live} would:"
    ]
    lines += [f"  {number}. {text}" for number, text in enumerate(document["steps"], 1)]
    lines += ["", "Elections:", *(map(_election_line, document["elections"]))]
    if document["failed_transitions"]:
        lines += ["", "Not possible:", *(f"  {text}" for text in document["failed_transitions"])]
    lines += ["", f"Writes: {len(document['writes'])} znodes"]
    lines += [f"  {name}: {count}" for name, count in sorted(document["requests"].items())]
    lines.append(f"Partitions without a leader: {document['offline_partitions']}")
    return lines


def _election_line(election: dict[str, Any]) -> str:
    name = f"{election['topic']}-{election['partition']}"
    leader = "no leader" if election["leader"] < 0 else f"leader {election['leader']}"
    ruled_out = "; ".join(f"not {who}: {why}" for who, why in election["ruled_out"].items())
    facts = f"replicas {election['candidates']}, ISR {election['isr']}"
    return f"  {name}: {leader} ({election['chosen_by']}), {facts}" + (
        f"; {ruled_out}" if ruled_out else ""
    )
