"""Configs of a broker in ZooKeeper mode: keys of Kafka 3.9 that Kafka 4 has removed.

`zookeeper.sasl.client.*`, `zookeeper.server.*`, `zookeeper.kinit` and `zookeeper.kerberos.*` are
system properties of ZooKeeper's client, which Kafka's brokers get by KAFKA_OPTS.

A node is in ZooKeeper mode if `zookeeper.connect` is set and `process.roles` is not.
"""

from collections.abc import Callable, Mapping

from sparkraft.kerberos.renewal import RenewalPolicy
from sparkraft.metadata.configs.definition import ConfigDef, ConfigType, ConfigValue, at_least
from sparkraft.metadata.features import level_of
from sparkraft.zookeeper.controller.protocol_version import ProtocolVersion, parse_protocol_version
from sparkraft.zookeeper.logins import SERVICE
from sparkraft.zookeeper.security import (
    CANONICALIZE,
    JAAS_CONFIG,
    KINIT,
    PROTOCOL_DEFAULT,
    RELOGIN_MS_MIN,
    SASL_ENABLE,
    SERVER_PRINCIPAL,
    SERVER_REALM,
    SERVICE_NAME,
    SET_ACL,
    TLS_ENABLE,
    EnsembleSecurityError,
    read_ensemble_security,
)

CONNECT = "zookeeper.connect"
MIGRATION_ENABLE = "zookeeper.metadata.migration.enable"
PROTOCOL_VERSION = "inter.broker.protocol.version"

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The value of authorizer.class.name in ZooKeeper mode; no Java class is loaded."""

BROKER_ID_GENERATION = "broker.id.generation.enable"
RESERVED_BROKER_ID_MAX = "reserved.broker.max.id"

HIGHEST_LEVEL = 21
"""3.9-IV0, the last metadata.version with ZooKeeper."""

_BOOLEAN, _INT, _STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING
_LIST, _PASSWORD = ConfigType.LIST, ConfigType.PASSWORD


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
        _defined(SET_ACL, _BOOLEAN, default=False, doc="Znodes with access control lists."),
        _defined(TLS_ENABLE, _BOOLEAN, default=False, doc="TLS to ZooKeeper."),
        _defined(JAAS_CONFIG, _PASSWORD, None, "The user at ZooKeeper, by SASL."),
        _defined(SASL_ENABLE, _BOOLEAN, default=True, doc="SASL to ZooKeeper, if there is a user."),
        _defined(SERVICE_NAME, _STRING, SERVICE, "First component of the servers' principals."),
        _defined(CANONICALIZE, _BOOLEAN, default=True, doc="Host of a server by its address."),
        _defined(SERVER_PRINCIPAL, _STRING, "", "The principal of all servers."),
        _defined(SERVER_REALM, _STRING, "", "Realm of the servers; that of the host counts."),
        _defined(KINIT, _STRING, RenewalPolicy().kinit, "Renews a ticket cache."),
        ConfigDef(
            RELOGIN_MS_MIN,
            ConfigType.LONG,
            default=RenewalPolicy().relogin_ms_min,
            check=at_least(0),
            doc="Shortest time between two renewals of a ticket.",
        ),
        _defined("zookeeper.clientCnxnSocket", _STRING, "", "Class of Java's client; no effect."),
        _defined("zookeeper.ssl.keystore.location", _STRING, "", "Key and certificates."),
        _defined("zookeeper.ssl.keystore.password", _PASSWORD, None, "Of the key store."),
        _defined("zookeeper.ssl.keystore.type", _STRING, "", "Inferred from the file's name."),
        _defined("zookeeper.ssl.truststore.location", _STRING, "", "Trusted certificates."),
        _defined("zookeeper.ssl.truststore.password", _PASSWORD, None, "Of the trust store."),
        _defined("zookeeper.ssl.truststore.type", _STRING, "", "Inferred from the file's name."),
        _defined("zookeeper.ssl.protocol", _STRING, PROTOCOL_DEFAULT, "Version of TLS."),
        _defined("zookeeper.ssl.enabled.protocols", _LIST, None, "Versions of TLS."),
        _defined("zookeeper.ssl.cipher.suites", _LIST, None, "Cipher suites."),
        _defined(
            "zookeeper.ssl.endpoint.identification.algorithm",
            _STRING,
            "HTTPS",
            "Whether the host is compared with the certificate.",
        ),
        _defined("zookeeper.ssl.crl.enable", _BOOLEAN, default=False, doc="Not supported."),
        _defined("zookeeper.ssl.ocsp.enable", _BOOLEAN, default=False, doc="Not supported."),
        _defined(MIGRATION_ENABLE, _BOOLEAN, default=False, doc="Migrate to KRaft."),
        _defined(PROTOCOL_VERSION, _STRING, "3.9", "The version that brokers use between them."),
        _defined(BROKER_ID_GENERATION, _BOOLEAN, default=True, doc="Generate broker.id."),
        ConfigDef(
            RESERVED_BROKER_ID_MAX,
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


def metadata_level(protocol: ProtocolVersion) -> int | None:
    """The metadata.version of a protocol version; None before 3.3-IV3, the first known here."""
    return level_of(str(protocol))


MIGRATION_LEVEL_MIN, DIRECTORIES_LEVEL_MIN = 8, 17
"""3.4-IV0, from which on brokers can be migrated; 3.7-IV2, also with several log directories."""


_REFUSED: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (
        "authorizer.class.name",
        lambda name: name != ACL_AUTHORIZER,
        f"only {ACL_AUTHORIZER}, whose lists are in ZooKeeper, is available",
    ),
    *(
        (f"authorizer.zookeeper.{key}", bool, "another ensemble for lists is not available")
        for key in ("url", "connection.timeout.ms", "session.timeout.ms", "max.in.flight.requests")
    ),
)


def refusal_of(properties: Mapping[str, str]) -> str | None:
    """Why a node cannot start in ZooKeeper mode with these properties; None if it can."""
    for key, is_refused, reason in _REFUSED:
        text = properties.get(key, "").strip()
        if text and is_refused(text):
            return f"{key}={text}: {reason} in ZooKeeper mode"
    try:
        read_ensemble_security(properties)
    except EnsembleSecurityError as error:
        return str(error)
    try:
        parse_protocol_version(properties.get(PROTOCOL_VERSION, "3.9").strip())
    except ValueError as error:
        return f"{PROTOCOL_VERSION}: {error}"
    return None
