"""Local clusters of brokers in ZooKeeper mode (`up --zookeeper`).

The ensemble is the user's: nothing here starts or stops it, and what the cluster has stored in it
stays. It also decides the cluster id. Each broker may become the controller.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.zookeeper.connect_string import parse_connect_string

if TYPE_CHECKING:
    from sparkraft.zookeeper.connect_string import ConnectString

_CONNECT_SECONDS_MAX = 3
"""For each server: one that does not answer in this time is not on this machine or its network."""


def ensemble_of(text: str) -> ConnectString:
    """Parse the value of `--zookeeper`; `UsageError` if it is none."""
    try:
        return parse_connect_string(text)
    except ValueError as error:
        raise UsageError(f"--zookeeper: {error}") from error


def check_ensemble(connect: str) -> None:
    """Check that a server of the ensemble accepts connections.

    Raises:
        CommandError: none does.
    """
    failures = []
    for host, port in ensemble_of(connect).servers:
        try:
            with socket.create_connection((host, port), timeout=_CONNECT_SECONDS_MAX):
                return
        except OSError as error:
            failures.append(f"{host}:{port} ({error.strerror or error})")
    raise CommandError(
        f"no ZooKeeper server can be reached: {', '.join(failures)}; start the ensemble first, or "
        "correct --zookeeper"
    )


def broker_configs(connect: str, broker_id: int) -> dict[str, str]:
    """The configs of a broker that replace those of a KRaft node."""
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": connect,
        "sparkraft.controllership.enable": "true",
        # The last broker that stops has no other to which it could hand its partitions.
        "controlled.shutdown.retry.backoff.ms": "500",
    }
