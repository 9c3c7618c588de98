"""The users of a simulated cluster with access control, and the configs of its nodes.

    clients, other brokers ── SASL_PLAINTEXT ──▶ broker listener   PLAIN: all users but carol
                                                                   SCRAM-SHA-256: carol
    nodes                  ── PLAINTEXT ───────▶ controller listener

Nodes and the administrator are super users. Carol's password is in the metadata log.
"""

from typing import NamedTuple

from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from sparkraft.security.standard_authorizer import ALLOW_IF_NO_ACL, CLASS_NAME, SUPER_USERS

BROKER_LISTENER = "CLIENTS"
ADMIN, NODE = "admin", "node"
PASSWORDS = {user: f"of-{user}" for user in (ADMIN, NODE, "alice", "bob", "eve")}
"""User of PLAIN → password."""

LIMITED_USER, PRODUCE_RATE = "alice", 2_000
"""The user with a quota, and its bytes per second."""

PRODUCE_BYTES_MAX = 1_000
"""No client sends a larger Produce request."""

QUOTA_WINDOWS = 3
"""`quota.window.num`: so few that a quota has effect within seconds."""


class Action(NamedTuple):
    """An operation of a client on a resource; `host` is the text of its address."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str


class Attempt(NamedTuple):
    """A login; `mechanism` is PLAIN or SCRAM-SHA-256."""

    user: str
    password: str
    mechanism: str


class Moment(NamedTuple):
    """The state of nodes when a request was sent.

    Attributes:
        offset: the lowest one of the nodes that may decide on it.
        life: the process of the broker that it was sent to.
    """

    offset: int
    life: int


def security_properties(*, open_by_default: bool) -> dict[str, str]:
    """The configs of a node, besides the names of its listeners."""
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    jaas = f"listener.name.{BROKER_LISTENER.lower()}"
    return {
        "authorizer.class.name": CLASS_NAME,
        SUPER_USERS: f"User:{NODE};User:{ADMIN};User:ANONYMOUS",
        ALLOW_IF_NO_ACL: str(open_by_default).lower(),
        "listener.security.protocol.map": f"{BROKER_LISTENER}:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": BROKER_LISTENER,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "quota.window.num": str(QUOTA_WINDOWS),
        f"{jaas}.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="{NODE}" password="{PASSWORDS[NODE]}" {users};'
        ),
        f"{jaas}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
