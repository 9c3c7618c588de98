"""Configs of a broker in ZooKeeper mode: keys of Kafka 3.9 that Kafka 4 has removed.

A node is in ZooKeeper mode if `zookeeper.connect` is set and `process.roles` is not.
"""

from collections.abc import Callable, Mapping

from sparkraft.metadata.configs.definition import ConfigDef, ConfigType, ConfigValue, at_least
from sparkraft.metadata.features import level_of, name_of

CONNECT = "zookeeper.connect"
MIGRATION_ENABLE = "zookeeper.metadata.migration.enable"
PROTOCOL_VERSION = "inter.broker.protocol.version"

_LOWEST_LEVEL, _HIGHEST_LEVEL = 7, 21
"""3.3-IV3, the first metadata.version that sparkraft knows, to 3.9-IV0, the last with ZooKeeper."""

_BOOLEAN, _INT, _STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING


def _defined(name: str, kind: ConfigType, default: ConfigValue, doc: str) -> ConfigDef:
    return ConfigDef(name, kind, default=default, doc=doc)


ZOOKEEPER_CONFIGS: Mapping[str, ConfigDef] = {
    each.name: each
    for each in (
        _defined(CONNECT, _STRING, "", "HOST:PORT of each server of the ensemble, and a chroot."),
        ConfigDef(
            "zookeeper.session.timeout.ms",
            _INT,
            default=18_000,
            check=at_least(1),
            doc="Session timeout.",
        ),
        _defined("zookeeper.connection.timeout.ms", _INT, 0, "Wait for the first connection."),
        ConfigDef(
            "zookeeper.max.in.flight.requests",
            _INT,
            default=10,
            check=at_least(1),
            doc="Requests to ZooKeeper without a response.",
        ),
        _defined("zookeeper.set.acl", _BOOLEAN, default=False, doc="Znodes with ACLs."),
        _defined("zookeeper.ssl.client.enable", _BOOLEAN, default=False, doc="TLS to ZooKeeper."),
        _defined(MIGRATION_ENABLE, _BOOLEAN, default=False, doc="Migrate to KRaft."),
        _defined(PROTOCOL_VERSION, _STRING, "3.9", "The version that brokers use between them."),
        _defined("broker.id.generation.enable", _BOOLEAN, default=True, doc="Generate broker.id."),
        ConfigDef(
            "reserved.broker.max.id",
            _INT,
            default=1000,
            check=at_least(0),
            doc="Generated broker ids are larger.",
        ),
        _defined("control.plane.listener.name", _STRING, "", "Listener of the controller."),
        ConfigDef(
            "controlled.shutdown.max.retries",
            _INT,
            default=3,
            doc="Attempts of a controlled shutdown.",
        ),
        _defined("controlled.shutdown.retry.backoff.ms", ConfigType.LONG, 5_000, "Between them."),
        _defined("leader.imbalance.per.broker.percentage", _INT, 10, "Of the controller."),
        ConfigDef("password.encoder.secret", ConfigType.PASSWORD, default=None, doc="Of configs."),
        _defined("log.message.format.version", _STRING, "3.0-IV1", "Without effect since 3.0."),
        _defined(
            "log.message.downconversion.enable", _BOOLEAN, default=True, doc="Of old clients."
        ),
    )
}
"""By name."""


def is_zookeeper_mode(properties: Mapping[str, str]) -> bool:
    """Whether a node with these properties is a broker in ZooKeeper mode."""
    return (
        bool(properties.get(CONNECT, "").strip())
        and not properties.get("process.roles", "").strip()
    )


def metadata_level(properties: Mapping[str, str]) -> int | None:
    """The metadata.version that inter.broker.protocol.version names; None if it is not served."""
    named = properties.get(PROTOCOL_VERSION, "3.9").strip()
    level = level_of(named)
    return level if level is not None and _LOWEST_LEVEL <= level <= _HIGHEST_LEVEL else None


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


_REFUSED: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("authorizer.class.name", bool, "access control lists in ZooKeeper are not available"),
    ("delegation.token.secret.key", bool, "delegation tokens are not available"),
    ("zookeeper.set.acl", _is_true, "znodes with ACLs are not available"),
    ("zookeeper.ssl.client.enable", _is_true, "TLS to ZooKeeper is not available"),
    (MIGRATION_ENABLE, _is_true, "migration to KRaft is not available"),
)


def refusal_of(properties: Mapping[str, str]) -> str | None:
    """Why a node cannot start in ZooKeeper mode with these properties; None if it can."""
    for key, is_refused, reason in _REFUSED:
        text = properties.get(key, "").strip()
        if text and is_refused(text):
            shown = "[hidden]" if key == "delegation.token.secret.key" else text
            return f"{key}={shown}: {reason} in ZooKeeper mode"
    if metadata_level(properties) is None:
        return (
            f"{PROTOCOL_VERSION}={properties[PROTOCOL_VERSION]}: expected a version from "
            f"{name_of(_LOWEST_LEVEL)} to {name_of(_HIGHEST_LEVEL)}"
        )
    return None
