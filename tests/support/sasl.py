"""Nodes whose listeners authenticate, and the credentials of their clients."""

from pathlib import Path

from tests.support.nodes import SparkraftNode

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

PASSWORDS = {"admin": "admin-secret-5713", "alice": "alice-secret-8264"}
"""Users of every such node; distinctive, so that a test finds them wherever they appear."""


def plain_server_module(own_user: str = "admin") -> str:
    """The login module of a listener: all users, and the node's own credentials."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    own = f'username="{own_user}" password="{PASSWORDS[own_user]}"'
    return f"{PLAIN_MODULE} required {own} {users};"


def sasl_node(directory: Path, **overrides: str) -> SparkraftNode:
    """A combined node whose clients authenticate by PLAIN; underscores in names stand for dots."""
    node = SparkraftNode(directory)
    listener = f"SASL_PLAINTEXT://127.0.0.1:{node.port}"
    node.overrides |= {
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_server_module(),
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    node.write_properties()
    return node


def client_properties(user: str = "alice", password: str | None = None) -> str:
    """A Java client's properties file, which our tools read too."""
    module = f'{PLAIN_MODULE} required username="{user}" password="{password or PASSWORDS[user]}";'
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module}\n"
