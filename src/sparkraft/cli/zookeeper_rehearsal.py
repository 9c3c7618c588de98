"""Rehearsals of a ZooKeeper controller for the commands `explain failover` and `broker-failure`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options
from sparkraft.cli.zookeeper_session import add_security, ensemble_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.cli.options import Values
    from sparkraft.controller.leader_election import Election
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.controller.active import Active
    from sparkraft.zookeeper.controller.control_messages import Sender
    from sparkraft.zookeeper.controller.rehearsal import Rehearsal
    from sparkraft.zookeeper.controller.requests import ControlRequest

    Rehearse = Callable[[ZooKeeperClient, Values], Awaitable[tuple[Active, Rehearsal]]]

REHEARSER = -2
"""Node id of a rehearsing controller; no broker has it."""


def options_for(name: str, about: str) -> Options:
    """The options that rehearsals share."""
    options = Options(f"explain {name}", f"{about} Nothing is changed.")
    options.value(
        "--zookeeper", about="the ensemble's servers", metavar="HOST:PORT[/chroot]", required=True
    )
    options.flag(
        "--unclean", "assume unclean.leader.election.enable=true for topics that do not set it"
    )
    options.value(
        "--inter-broker-protocol-version",
        about="selects the versions of requests to brokers: 2.6 to 3.9 (default)",
        metavar="VERSION",
        default="3.9",
    )
    options.value(
        "--inter-broker-listener",
        about="name of the listener between brokers (default PLAINTEXT)",
        metavar="NAME",
        default="PLAINTEXT",
    )
    options.value("--output", about="text or json", choices=["text", "json"], default="text")
    add_security(options)
    return options


def run(rehearse: Rehearse, values: Values, kinds: tuple[str, ...]) -> int:
    """Rehearse, and print the journal's entries of `kinds` with elections, writes and requests."""
    sender = _sender(values)
    active, rehearsal = asyncio.run(_run(rehearse, values))
    document = _document(active, rehearsal, kinds, sender)
    if values.output == "json":
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_lines(document)))
    return 0


def _sender(values: Values) -> Sender:
    from sparkraft.zookeeper.controller.control_messages import Sender
    from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version

    try:
        version = parse_protocol_version(values.inter_broker_protocol_version)
    except ValueError as error:
        raise UsageError(f"--inter-broker-protocol-version: {error}") from error
    return Sender(REHEARSER, version, values.inter_broker_listener)


async def _run(rehearse: Rehearse, values: Values) -> tuple[Active, Rehearsal]:
    async with ensemble_session(values.zookeeper, values.zk_tls_config_file) as client:
        return await rehearse(client, values)


async def new_active(client: ZooKeeperClient, values: Values) -> Active:
    """Return a controller with the present epoch.

    Raises:
        CommandError: the chroot is not that of a Kafka cluster.
    """
    from sparkraft.zookeeper.controller.active import Active, Settings
    from sparkraft.zookeeper.controller.store import read_epoch
    from sparkraft.zookeeper.driver import execute

    epoch = await execute(client, read_epoch(), lambda _: None)
    if epoch is None:
        raise CommandError(
            f"{client.ensemble} has no /controller_epoch; expected the chroot of a Kafka cluster"
        )
    active = Active(Settings(node_id=REHEARSER, unclean_leader_election=values.unclean))
    active.context.epoch, active.context.epoch_version = epoch
    return active


def _document(
    active: Active, rehearsal: Rehearsal, kinds: tuple[str, ...], sender: Sender
) -> dict[str, Any]:
    elections = [entry.election for entry in active.journal.elections.entries()]
    return {
        "controller_epoch": active.context.epoch,
        "live_brokers": active.context.live_brokers,
        "steps": [entry.text for entry in active.journal.entries if entry.kind in kinds],
        "failed_transitions": active.journal.of("failed transition"),
        "elections": [_election(election) for election in elections],
        "writes": [operation.path for operation in rehearsal.writes],
        "requests": dict(
            Counter(
                f"{type(each).__name__.removesuffix('Request')} to broker {each.broker}"
                for each in rehearsal.sent
            )
        ),
        "messages": [_message(request, sender) for request in rehearsal.sent],
        "offline_partitions": active.context.offline_partition_count(),
    }


def _message(request: ControlRequest, sender: Sender) -> dict[str, Any]:
    """The request as it would be sent: its version and its size in bytes."""
    from sparkraft.protocol.codec import encode
    from sparkraft.zookeeper.controller.control_messages import (
        MissingListenerError,
        convert_at_once,
    )

    try:
        message, version = convert_at_once(request, sender)
    except MissingListenerError as error:
        raise CommandError(
            f"{error} Name the listener between brokers with --inter-broker-listener."
        ) from error
    name = type(request).__name__.removesuffix("Request")
    size = len(encode(message, version))
    return {"broker": request.broker, "request": name, "version": version, "bytes": size}


def _election(election: Election) -> dict[str, Any]:
    reason = election.reason
    return {
        "topic": election.topic,
        "partition": election.partition,
        "previous": election.previous,
        "leader": election.leader,
        "leader_epoch": election.leader_epoch,
        "kind": reason.name,
        "cause": reason.cause.text,
        "chosen_by": reason.chosen_by.value,
        "candidates": list(reason.candidates),
        "isr": list(reason.isr),
        "ruled_out": {str(replica): why for replica, why in reason.ruled_out},
    }


def _lines(document: dict[str, Any]) -> list[str]:
    live = ", ".join(map(str, document["live_brokers"])) or "none"
    epoch = document["controller_epoch"]
    lines = [f"A controller of epoch {epoch} with live brokers {live} would:"]
    lines += [f"  {number}. {text}" for number, text in enumerate(document["steps"], 1)]
    lines += ["", "Elections:", *(map(_election_line, document["elections"]))]
    if document["failed_transitions"]:
        lines += ["", "Not possible:", *(f"  {text}" for text in document["failed_transitions"])]
    lines += ["", f"Writes: {len(document['writes'])} znodes"]
    lines += [
        f"  {each['request']} version {each['version']} to broker {each['broker']}:"
        f" {each['bytes']} bytes"
        for each in document["messages"]
    ]
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
