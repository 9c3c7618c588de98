"""Checks the Host header of HTTP requests, against DNS rebinding.

A web page can resolve its own domain name to this node's address and then read the node's responses
in a visitor's browser; the Host header still has the page's name. Allowed are hosts that such a
page cannot have: IP addresses, names that public DNS does not serve, and the node's own names.
"""

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PRIVATE_DOMAINS = (".localhost", ".local", ".internal")
"""Top-level domains that are reserved for private use (RFC 6761, RFC 6762, ICANN)."""


def own_names(hosts: "Iterable[str]") -> frozenset[str]:
    """The host names of this node in lower case: `hosts`, and the machine's own name."""
    return frozenset(host.lower() for host in (*hosts, socket.gethostname()) if host)


def is_allowed_host(header: str, own: frozenset[str]) -> bool:
    """Whether a Host header names this node; `own` is the result of `own_names`."""
    host = _without_port(header.strip()).lower()
    if _is_ip_address(host) or host in own:
        return True
    return bool(host) and ("." not in host or host.endswith(_PRIVATE_DOMAINS))


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    host, colon, port = header.rpartition(":")
    return host if colon and (not port or port.isdecimal()) else header


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
