"""The address that the console listens on, and the Host headers it accepts there."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass

DEFAULT_HOST = "127.0.0.1"

DEFAULT_PORT = 12_092
"""Kafka's port and 3,000: `up` has /health and /metrics 2,000 above the port of its first node."""

PORTS_TRIED_MAX = 50
"""How many ports are tried if the default port is taken."""

_PORT_MAX = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """A host and a port of this machine; port 0 lets the system choose one."""

    host: str
    port: int
    is_default_port: bool = False
    """Whether the next free port will do."""


def parse_listen(text: str | None, *, is_open: bool = True) -> ListenAddress:
    """Return the address of `--listen HOST:PORT`, or the default.

    Args:
        text: the option, if given.
        is_open: whether visitors need not sign in.

    Raises:
        ValueError: it is not an address, or others than this machine could read without a sign-in.
    """
    if text is None:
        return ListenAddress(host=DEFAULT_HOST, port=DEFAULT_PORT, is_default_port=True)
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ValueError(f"expected HOST:PORT, got {text!r}")
    if is_open and not is_loopback(host):
        raise ValueError(
            f"{host} is not a loopback address: without --users or --trusted-proxy the console "
            "would show the cluster to everyone who reaches it"
        )
    return ListenAddress(host=host, port=int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(address: ListenAddress) -> socket.socket:
    """Return a listening socket; of the default port or the next one that is free."""
    tries = PORTS_TRIED_MAX if address.is_default_port else 1
    for port in range(address.port, address.port + tries):
        try:
            return _bound(address.host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == address.port + tries - 1:
                raise
    raise AssertionError("the last attempt raises")


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def allowed_hosts(port: int, more: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the Host headers to accept, with their port.

    A page of another site can resolve its own name to this machine (DNS rebinding); its requests
    then have that name in the Host header.

    Args:
        port: that the console listens on.
        more: `HOST:PORT` of tunnels and proxies that lead here.
    """
    own = (f"{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]"))
    return frozenset(host.lower() for host in (*own, *more))
