"""Nodes whose listeners authenticate, and the credentials of their clients."""

from pathlib import Path

from sparkraft.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.support.certificates import Authority, pem_configs
from tests.support.nodes import SparkraftNode

PASSWORDS = {"admin": "admin-secret-5713", "alice": "alice-secret-8264"}
"""Users of every such node; distinctive, so that a test finds them wherever they appear."""

PLAIN, SHA_256, SHA_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (PLAIN, SHA_256, SHA_512)
OAUTHBEARER = "OAUTHBEARER"


def server_module(mechanism: str, own_user: str = "admin") -> str:
    """The login module of a listener: the node's own credentials, and with PLAIN all users."""
    if mechanism == OAUTHBEARER:
        return f"{OAUTH_MODULE} required;"
    own = f'username="{own_user}" password="{PASSWORDS[own_user]}"'
    if mechanism != PLAIN:
        return f"{SCRAM_MODULE} required {own};"
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    return f"{PLAIN_MODULE} required {own} {users};"


def client_module(mechanism: str, user: str, password: str) -> str:
    """A client's login module."""
    module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
    return f'{module} required username="{user}" password="{password}";'


def sasl_node(
    directory: Path,
    *,
    mechanisms: tuple[str, ...] = MECHANISMS,
    authority: Authority | None = None,
    **overrides: str,
) -> SparkraftNode:
    """A combined node whose clients authenticate; underscores in names stand for dots.

    With an `authority` its client listener is SASL_SSL, with a certificate that it signs.
    """
    node = SparkraftNode(directory)
    protocol = "SASL_PLAINTEXT" if authority is None else "SASL_SSL"
    listener = f"{protocol}://127.0.0.1:{node.port}"
    prefix = f"listener.name.{protocol.lower()}"
    if authority is not None:
        stores = pem_configs(authority.issue("node"), authority.ca_path, f"{prefix}.")
        node.overrides |= stores
    node.overrides |= {
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": protocol,
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        "sasl.mechanism.inter.broker.protocol": mechanisms[0],
        **{
            f"{prefix}.{mechanism.lower()}.sasl.jaas.config": server_module(mechanism)
            for mechanism in mechanisms
        },
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    node.write_properties()
    return node


def first_users() -> list[str]:
    """Options of `storage format` that create `PASSWORDS` with the mechanisms of SCRAM."""
    return [
        word
        for user, password in PASSWORDS.items()
        for mechanism in MECHANISMS[1:]
        for word in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]


def client_properties(
    user: str = "alice", password: str = "", mechanism: str = PLAIN, *, ca: Path | None = None
) -> str:
    """A Java client's properties file, which our tools read too; over TLS if it trusts a `ca`."""
    module = client_module(mechanism, user, password or PASSWORDS[user])
    return protocol_lines(ca) + f"sasl.mechanism={mechanism}\nsasl.jaas.config={module}\n"


def protocol_lines(ca: Path | None) -> str:
    """The lines of such a file that name the security protocol."""
    protocol = "SASL_PLAINTEXT" if ca is None else "SASL_SSL"
    stores = "".join(f"{key}={value}\n" for key, value in pem_configs(None, ca).items())
    return f"security.protocol={protocol}\n{stores}"
