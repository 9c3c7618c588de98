"""Every broker config of Kafka 4.3, gathered from its subjects.

A key with a listener's prefix (`listener.name.<name>.`) is the same key for that listener alone;
`definition_of` finds it.
"""

from sparkraft.metadata.configs.broker_cluster import CLUSTER
from sparkraft.metadata.configs.broker_coordinators import COORDINATORS
from sparkraft.metadata.configs.broker_logs import LOGS
from sparkraft.metadata.configs.broker_network import NETWORK
from sparkraft.metadata.configs.broker_security import SECURITY
from sparkraft.metadata.configs.definition import (
    CLUSTER_WIDE,
    LONG,
    LONG_MAX,
    PER_BROKER,
    ConfigDef,
    UpdateMode,
    at_least,
    by_name,
)

BROKER_CONFIGS = by_name([*CLUSTER, *COORDINATORS, *LOGS, *NETWORK, *SECURITY])
"""Broker and controller keys by name."""

DYNAMIC_ONLY_CONFIGS = by_name(
    [
        ConfigDef(name, LONG, default=LONG_MAX, check=at_least(0), dynamic=CLUSTER_WIDE)
        for name in (
            "follower.replication.throttled.rate",
            "leader.replication.throttled.rate",
            "replica.alter.log.dirs.io.max.bytes.per.second",
        )
    ]
)
"""Broker keys that no file sets, described only if they are set (QuotaConfig)."""

ADVERTISED_LISTENERS = "advertised.listeners"

LISTENER_PREFIX = "listener.name."


def listener_key(listener: str, key: str) -> str:
    """`key` for one listener alone."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{key}"


def definition_of(key: str) -> ConfigDef | None:
    """The definition of a broker key, with or without a listener's prefix; None if unknown."""
    found = BROKER_CONFIGS.get(key)
    if found is None and key.startswith(LISTENER_PREFIX):
        rest = key.removeprefix(LISTENER_PREFIX)
        while found is None and "." in rest:
            rest = rest.partition(".")[2]
            found = BROKER_CONFIGS.get(rest)
    return found


def dynamic_definition_of(key: str) -> ConfigDef | None:
    """As `definition_of`, for what is set while brokers run."""
    return DYNAMIC_ONLY_CONFIGS.get(key) or definition_of(key)


def update_mode(definition: ConfigDef, *, zookeeper: bool) -> UpdateMode:
    """When a broker key may change; `zookeeper`: of brokers in ZooKeeper mode.

    Those of Kafka 3.9 may advertise other listeners while they run (`DynamicListenerConfig`).
    """
    if zookeeper and definition.name == ADVERTISED_LISTENERS:
        return PER_BROKER
    return definition.dynamic
