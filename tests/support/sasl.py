"""Nodes whose listeners authenticate, and the credentials of their clients."""

from pathlib import Path

from sparkraft.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
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
    directory: Path, *, mechanisms: tuple[str, ...] = MECHANISMS, **overrides: str
) -> SparkraftNode:
    """A combined node whose clients authenticate; underscores in names stand for dots."""
    node = SparkraftNode(directory)
    listener = f"SASL_PLAINTEXT://127.0.0.1:{node.port}"
    prefix = "listener.name.sasl_plaintext"
    node.overrides |= {
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
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


def client_properties(user: str = "alice", password: str = "", mechanism: str = PLAIN) -> str:
    """A Java client's properties file, which our tools read too."""
    module = client_module(mechanism, user, password or PASSWORDS[user])
    return (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={module}\n"
    )
