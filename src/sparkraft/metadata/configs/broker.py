"""Every broker config of Kafka 4.3, gathered from its subjects.

A key with a listener's prefix (`listener.name.<name>.`) is the same key for that listener alone;
`definition_of` finds it.
"""

from sparkraft.metadata.configs.broker_cluster import CLUSTER
from sparkraft.metadata.configs.broker_coordinators import COORDINATORS
from sparkraft.metadata.configs.broker_logs import LOGS
from sparkraft.metadata.configs.broker_network import NETWORK
from sparkraft.metadata.configs.broker_security import SECURITY
from sparkraft.metadata.configs.definition import ConfigDef, by_name

BROKER_CONFIGS = by_name([*CLUSTER, *COORDINATORS, *LOGS, *NETWORK, *SECURITY])
"""Broker and controller keys by name."""

LISTENER_PREFIX = "listener.name."


def listener_key(listener: str, key: str) -> str:
    """`key` for one listener alone."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{key}"


def definition_of(key: str) -> ConfigDef | None:
    """The definition of a broker key, with or without a listener's prefix; None where unknown."""
    found = BROKER_CONFIGS.get(key)
    if found is None and key.startswith(LISTENER_PREFIX):
        rest = key.removeprefix(LISTENER_PREFIX)
        while found is None and "." in rest:
            rest = rest.partition(".")[2]
            found = BROKER_CONFIGS.get(rest)
    return found
