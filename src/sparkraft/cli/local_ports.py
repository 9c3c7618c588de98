"""The ports of a local cluster: for clients, controllers, /health and /metrics, and the console."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

from sparkraft.cli.errors import CommandError
from sparkraft.cli.session import warn

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONTROLLER_PORT_DISTANCE = 1_000
_HTTP_PORT_DISTANCE = 2_000
_CONSOLE_PORT_DISTANCE = 3_000
_PORTS_TRIED_MAX = 500


class NodePorts(Protocol):
    """The ports of one node; 0 if not chosen yet."""

    port: int
    controller_port: int
    http_port: int

    @property
    def id(self) -> int: ...

    @property
    def is_broker(self) -> bool: ...

    @property
    def is_controller(self) -> bool: ...


def choose_ports(node: NodePorts, nodes: Sequence[NodePorts], listen: str, http_host: str) -> None:
    """Keep recorded ports; choose near the node's port, below the system's ephemeral ports.

    Args:
        node: gets its ports.
        nodes: all nodes of the cluster, whose ports are not used again.
        listen: host of the client listeners.
        http_host: host of /health and /metrics.

    Raises:
        CommandError: another program uses the client port, or no port is free.
    """
    if node.is_broker and not _is_free(listen, node.port):
        raise CommandError(
            f"port {node.port} on {listen} is taken by another program; "
            "free it or choose another with --port"
        )
    taken = {p for n in nodes for p in (n.port, n.controller_port, n.http_port)}
    if node.is_controller:
        wanted = node.controller_port or node.port + _CONTROLLER_PORT_DISTANCE
        others = taken - {node.controller_port}
        purpose = f"node {node.id}'s controller listener"
        node.controller_port = _free_port("127.0.0.1", wanted, others, purpose)
        taken.add(node.controller_port)
    wanted = node.http_port or node.port + _HTTP_PORT_DISTANCE
    node.http_port = _free_port(
        http_host, wanted, taken - {node.http_port}, f"/health and /metrics of node {node.id}"
    )


def choose_console_port(recorded: int, nodes: Sequence[NodePorts]) -> int:
    """Return a port of 127.0.0.1: the recorded one, or one near the first node's."""
    taken = {p for n in nodes for p in (n.port, n.controller_port, n.http_port)}
    wanted = recorded or nodes[0].port + _CONSOLE_PORT_DISTANCE
    return _free_port("127.0.0.1", wanted, taken, "the console")


def _free_port(host: str, first: int, taken: set[int], purpose: str) -> int:
    """Return the first usable port from `first` on; warn if it is not `first` itself."""
    for port in range(first, first + _PORTS_TRIED_MAX):
        usable = port if port <= 0xFFFF else port - 0xFFFF + 0x3FF  # noqa: PLR2004 (port numbers)
        if usable not in taken and _is_free(host, usable):
            if usable != first and first not in taken:
                warn(f"port {first} on {host} is taken; using {usable} for {purpose}")
            return usable
    raise CommandError(f"no port from {first} on is free on {host} for {purpose}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
