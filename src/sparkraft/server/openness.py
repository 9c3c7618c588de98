"""The listeners of a node and the clients they admit, in one line at its start.

    Open to: everyone on this machine at PLAINTEXT 127.0.0.1:9092, not encrypted; holders of a
    trusted certificate at CONTROLLER *:9093; everyone on this machine at http 127.0.0.1:9644. ACLs
    by StandardAuthorizer, with 3 super users

It is made of the configs: it has the conditions of listeners, not the users that exist.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.standard_authorizer import (
    ALLOW_IF_NO_ACL,
    SUPER_USERS,
    parse_super_users,
)
from sparkraft.security.tls_settings import ClientAuth
from sparkraft.server.sasl_config import SASL_PROTOCOLS, mechanisms_of
from sparkraft.server.tls_config import HTTP_LISTENER, serves_https, tls_settings_of

if TYPE_CHECKING:
    from sparkraft.server.config import ListenerAddress, NodeConfig


def openness(config: "NodeConfig", ports: Mapping[str, int], http: tuple[str, int] | None) -> str:
    """The line.

    Args:
        config: of the node.
        ports: listener name → port it is bound to.
        http: host and port of /health and /metrics.
    """
    parts = [_listener(config, address, ports[address.name]) for address in config.listeners]
    if http is not None:
        host, port = http
        clients = _holders(config, HTTP_LISTENER) if serves_https(config) else "everyone"
        scheme = "https" if serves_https(config) else "http"
        parts.append(f"{_from(clients, host)} at {scheme} {_place(host, port)}")
    return f"Open to: {'; '.join(parts)}. {_rights(config)}"


def _listener(config: "NodeConfig", address: "ListenerAddress", port: int) -> str:
    protocol = address.security_protocol
    if protocol in SASL_PROTOCOLS:
        clients = f"users of {', '.join(mechanisms_of(config, address.name))}"
    elif protocol is SecurityProtocol.SSL:
        clients = _holders(config, address.name)
    else:
        clients = "everyone"
    place = f"{_from(clients, address.host)} at {address.name} {_place(address.host, port)}"
    return place if protocol.uses_tls else f"{place}, not encrypted"


def _holders(config: "NodeConfig", listener: str) -> str:
    required = tls_settings_of(config, listener).client_auth is ClientAuth.REQUIRED
    return "holders of a trusted certificate" if required else "everyone"


def _from(clients: str, host: str) -> str:
    return f"{clients} on this machine" if is_local(host) else clients


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, or every interface
        return False


def _rights(config: "NodeConfig") -> str:
    if not config.has_authorizer:
        return "Without authorizer.class.name, each of them may do everything"
    name = config.text("authorizer.class.name").rpartition(".")[2]
    count = len(parse_super_users(config.properties.get(SUPER_USERS, "")))
    users = "1 super user" if count == 1 else f"{count} super users"
    text = f"ACLs by {name}, with {users}"
    if config.properties.get(ALLOW_IF_NO_ACL, "").strip().lower() == "true":
        text += f"; {ALLOW_IF_NO_ACL}: resources without an entry are open to everyone"
    return text
