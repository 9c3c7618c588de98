"""A node's configuration: Kafka's `server.properties` with Kafka's keys.

An invalid value or contradictory keys stop the start (`ConfigError`). So does a security or
durability feature that is configured but not implemented, because a node that ignored it would be
unsafe. An unknown key is logged once and otherwise ignored, as in Kafka.

Keys of our own start with `sparkraft.`:
    sparkraft.record.validation   `full` or `header`: how thoroughly produced batches are checked
    sparkraft.queued.max.response.bytes
                                  memory of responses that clients have not read
    sparkraft.group.members.max.bytes
                                  memory of group members' metadata and assignments
    sparkraft.fetch.session.partitions.max
                                  partitions that all fetch sessions keep
    sparkraft.partition.producer.ids.max
                                  producers that a partition remembers
    sparkraft.unauthenticated.connections.max
                                  connections of a listener that may be authenticating at once
    sparkraft.controllership.enable
                                  whether a broker in ZooKeeper mode may become the controller
    org.apache.kafka.sasl.oauthbearer.allowed.urls
                                  which JWKS of OAUTHBEARER may be read
    org.apache.kafka.sasl.oauthbearer.allowed.files
                                  which keys and assertions of OAUTHBEARER may be read
    sparkraft.otlp.endpoint, sparkraft.otlp.interval.ms
                                  collector to which metrics are sent
    sparkraft.telemetry.enable    whether clients may push metrics (KIP-714)
    sparkraft.http.listener       [https://]host:port of /health and /metrics; empty: off
"""

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.metadata.configs import BROKER_CONFIGS, ConfigValue, parse_value, topic_defaults
from sparkraft.metadata.configs.broker import definition_of, listener_key
from sparkraft.metadata.configs.definition import ConfigDef, ConfigType, at_least, one_of
from sparkraft.metadata.features import name_of
from sparkraft.security.delegation_token import SECRET_KEY, TokenKey, token_key
from sparkraft.security.protocols import (
    IMPLEMENTED,
    SecurityProtocol,
    implemented_names,
    is_implemented,
)
from sparkraft.security.standard_authorizer import ALLOW_IF_NO_ACL, SUPER_USERS
from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.server.properties import parse_properties
from sparkraft.server.supported_configs import without_effect
from sparkraft.server.zookeeper_config import (
    ACL_AUTHORIZER,
    CONNECT,
    DIRECTORIES_LEVEL_MIN,
    MIGRATION_ENABLE,
    MIGRATION_LEVEL_MIN,
    PROTOCOL_VERSION,
    ZOOKEEPER_CONFIGS,
    is_zookeeper_mode,
    metadata_level,
    refusal_of,
)
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.security import EnsembleSecurityError, read_ensemble_security

INT_MAX = (1 << 31) - 1

TELEMETRY_ENABLE = "sparkraft.telemetry.enable"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Which JWKS may be read; in Kafka it is a Java system property."""
ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
"""Which files may be read for assertions; in Kafka it is a Java system property."""

OWN_CONFIGS: dict[str, ConfigDef] = {
    "sparkraft.record.validation": ConfigDef(
        "sparkraft.record.validation",
        ConfigType.STRING,
        default="full",
        check=one_of("header", "full"),
        doc="Whether produced batches are checked record by record, as Kafka does, or by their "
        "header and CRC only.",
    ),
    "sparkraft.queued.max.response.bytes": ConfigDef(
        "sparkraft.queued.max.response.bytes",
        ConfigType.LONG,
        default=128 << 20,
        doc="The bound of the bytes of responses that clients have not read. Above it, connections "
        "that do not read are closed; 0 for no bound.",
    ),
    "sparkraft.group.members.max.bytes": ConfigDef(
        "sparkraft.group.members.max.bytes",
        ConfigType.LONG,
        default=128 << 20,
        doc="The bound of the memory of group members: metadata, assignments and subscriptions. "
        "Above it, joins are refused until members leave; 0 for no bound.",
    ),
    "sparkraft.fetch.session.partitions.max": ConfigDef(
        "sparkraft.fetch.session.partitions.max",
        ConfigType.INT,
        default=500_000,
        check=at_least(0),
        doc="Partitions that all fetch sessions keep. Above it clients fetch without a session, as "
        "when max.incremental.fetch.session.cache.slots are in use.",
    ),
    "sparkraft.partition.producer.ids.max": ConfigDef(
        "sparkraft.partition.producer.ids.max",
        ConfigType.INT,
        default=100_000,
        check=at_least(1_000),
        doc="Idempotent producers that a partition remembers; further ones replace idle ones "
        "before producer.id.expiration.ms is over.",
    ),
    "sparkraft.unauthenticated.connections.max": ConfigDef(
        "sparkraft.unauthenticated.connections.max",
        ConfigType.INT,
        default=1_000,
        check=at_least(1),
        doc="Connections of a listener that may be authenticating at once, by SASL or in the TLS "
        "handshake; further ones are closed.",
    ),
    "sparkraft.controllership.enable": ConfigDef(
        "sparkraft.controllership.enable",
        ConfigType.BOOLEAN,
        default=True,
        doc="Whether a broker in ZooKeeper mode may become the controller of its cluster, as each "
        "broker of Kafka may.",
    ),
    ALLOWED_URLS: ConfigDef(
        ALLOWED_URLS,
        ConfigType.LIST,
        default=(),
        doc="Values that sasl.oauthbearer.jwks.endpoint.url may have, separated by commas; none by "
        "default. In Kafka it is a Java system property.",
    ),
    ALLOWED_FILES: ConfigDef(
        ALLOWED_FILES,
        ConfigType.LIST,
        default=(),
        doc="Values that sasl.oauthbearer.assertion.file, .private.key.file and .template.file may "
        "have, separated by commas; none by default. In Kafka it is a Java system property.",
    ),
    "broker.refused.connection.fence.enable": ConfigDef(
        "broker.refused.connection.fence.enable",
        ConfigType.BOOLEAN,
        default=True,
        doc="Whether a controller fences a broker at once when its connection closed and its "
        "listener refuses connections: its process has ended.",
    ),
    TELEMETRY_ENABLE: ConfigDef(
        TELEMETRY_ENABLE,
        ConfigType.BOOLEAN,
        default=False,
        doc="Whether clients may push their metrics (KIP-714), which /metrics then has, as Kafka "
        "with a metrics reporter for client telemetry.",
    ),
    "sparkraft.otlp.endpoint": ConfigDef(
        "sparkraft.otlp.endpoint",
        ConfigType.STRING,
        default="",
        doc="URL of an OpenTelemetry collector, such as http://localhost:4318, to which the "
        "metrics are sent; empty for none.",
    ),
    "sparkraft.otlp.interval.ms": ConfigDef(
        "sparkraft.otlp.interval.ms",
        ConfigType.INT,
        default=60_000,
        check=at_least(1_000),
        doc="How often metrics are sent to sparkraft.otlp.endpoint.",
    ),
    "sparkraft.http.listener": ConfigDef(
        "sparkraft.http.listener",
        ConfigType.STRING,
        default="",
        doc="host:port that serves /health and /metrics, or https://host:port; empty for none.",
    ),
    "sparkraft.log.format": ConfigDef(
        "sparkraft.log.format",
        ConfigType.STRING,
        default="text",
        check=one_of("text", "json"),
        doc="Shape of the node's log lines: text as Kafka's, or one JSON object per line.",
    ),
    "sparkraft.log.dir": ConfigDef(
        "sparkraft.log.dir",
        ConfigType.STRING,
        default="",
        doc="Folder of the node's log files (server.log and others), created if it is missing; "
        "empty for standard output only.",
    ),
    "sparkraft.log.file.bytes": ConfigDef(
        "sparkraft.log.file.bytes",
        ConfigType.LONG,
        default=100 * 1024 * 1024,
        check=at_least(1024),
        doc="Size at which a log file is rotated; each is also rotated at midnight UTC.",
    ),
    "sparkraft.log.file.count": ConfigDef(
        "sparkraft.log.file.count",
        ConfigType.INT,
        default=10,
        check=at_least(1),
        doc="Rotated log files that are kept of each kind.",
    ),
}

_OWN_PRINCIPAL_BUILDER = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The supported replica.selector.class values; they select rules, no Java class is loaded."""

_NOT_IMPLEMENTED: dict[str, tuple[frozenset[str], str]] = {
    "authorizer.class.name": (
        frozenset({"", STANDARD_AUTHORIZER, ACL_AUTHORIZER}),
        "only Kafka's StandardAuthorizer, and AclAuthorizer in ZooKeeper mode, are supported",
    ),
    "remote.log.storage.system.enable": (frozenset({"false"}), "tiered storage does not exist yet"),
    "create.topic.policy.class.name": (frozenset({""}), "Java policy classes can't be loaded"),
    "alter.config.policy.class.name": (frozenset({""}), "Java policy classes can't be loaded"),
    "client.quota.callback.class": (frozenset({""}), "Java quota classes can't be loaded"),
    "replica.selector.class": (
        frozenset({"", LEADER_SELECTOR, RACK_AWARE_SELECTOR}),
        "Java replica selectors can't be loaded",
    ),
    "config.providers": (frozenset({""}), "config providers are not implemented yet"),
    "principal.builder.class": (
        frozenset({"", _OWN_PRINCIPAL_BUILDER}),
        "Java principal builders can't be loaded",
    ),
    "security.providers": (frozenset({""}), "Java security providers can't be loaded"),
    "security.inter.broker.protocol": (
        frozenset({"", *(protocol.name for protocol in IMPLEMENTED)}),
        f"only {implemented_names()} are implemented",
    ),
    "unstable.api.versions.enable": (frozenset({"false"}), "unstable APIs are not served"),
    "unstable.feature.versions.enable": (frozenset({"false"}), "unstable features are not served"),
}
"""Key → values that are accepted, and why others are not: they must not be ignored."""


class ConfigError(Exception):
    """An invalid configuration; the text is for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAddress:
    """One entry of `listeners` or `advertised.listeners`; `host` "" means every interface."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol


def cordoned(named: Iterable[str], log_dirs: Iterable[str]) -> frozenset[str]:
    """The directories in `cordoned.log.dirs`; `*` means all (KIP-1066).

    Raises:
        ConfigError: one is not a log directory, or is given beside `*`.
    """
    names, known = frozenset(named), frozenset(log_dirs)
    if names == {"*"}:
        return known
    if "*" in names:
        raise ConfigError("cordoned.log.dirs must not have * and other values")
    if names - known:
        unknown = ", ".join(sorted(names - known))
        raise ConfigError(f"cordoned.log.dirs has directories that are not in log.dirs: {unknown}")
    return names


class NodeConfig(Mapping[str, ConfigValue]):
    """The parsed configuration: `config["num.partitions"]` is 1 unless it is set.

    Attributes:
        properties: the set keys, as text; DescribeConfigs' STATIC_BROKER_CONFIG.
        is_zookeeper: whether this is a broker in ZooKeeper mode.
        unknown: set keys that neither Kafka nor sparkraft has, sorted.
        without_effect: set keys of Kafka that have no effect here yet, sorted.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Parse and check `properties`; ConfigError if they are invalid."""
        self.properties = dict(properties)
        self.is_zookeeper = is_zookeeper_mode(properties)
        migrates = properties.get(MIGRATION_ENABLE, "").strip().lower() == "true"
        uses_zookeeper = self.is_zookeeper or migrates
        self.unknown = sorted(
            key
            for key in properties
            if (_definition(key) is None or (key in ZOOKEEPER_CONFIGS and not uses_zookeeper))
            and key not in {SUPER_USERS, ALLOW_IF_NO_ACL}
        )
        self.without_effect = without_effect(
            key for key in properties if key in BROKER_CONFIGS and key not in _NOT_IMPLEMENTED
        )
        self._values: dict[str, ConfigValue] = {}
        self._defaults: dict[str, ConfigValue] = {}  # of keys read so far
        for key, text in self.properties.items():
            definition = _definition(key)
            if definition is not None:
                self._values[key] = self._parse(definition, text)
        self._refuse_unimplemented()
        self._check()

    @classmethod
    def from_text(cls, text: str, overrides: Mapping[str, str] | None = None) -> "NodeConfig":
        """From the text of a properties file; `overrides` win over it."""
        try:
            properties = parse_properties(text)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return cls({**properties, **(overrides or {})})

    # ---- a mapping of every key to its value

    def __getitem__(self, key: str) -> ConfigValue:
        """The value of `key`, or its default; KeyError for an unknown key."""
        if key in self._values:
            return self._values[key]
        if key not in self._defaults:
            definition = _definition(key)
            if definition is None:
                raise KeyError(key)
            self._defaults[key] = None if definition.required else definition.default
        return self._defaults[key]

    def __iter__(self) -> Iterator[str]:
        """Every known key."""
        return iter(sorted({*BROKER_CONFIGS, *OWN_CONFIGS}))

    def __len__(self) -> int:
        """The number of known keys."""
        return len(BROKER_CONFIGS) + len(OWN_CONFIGS)

    def number(self, key: str) -> int:
        """The value of a numeric key."""
        value = self[key]
        assert isinstance(value, int), key
        return value

    def number_of(self, listener: str, key: str) -> int:
        """The value of a numeric key for one listener: with its prefix, else without."""
        text = self.properties.get(listener_key(listener, key))
        value = self[key] if text is None else parse_value(BROKER_CONFIGS[key], text)
        assert isinstance(value, int), key
        return value

    def text(self, key: str) -> str:
        """The value of a text key; "" if there is none."""
        value = self[key]
        assert value is None or isinstance(value, str), key
        return value or ""

    def flag(self, key: str) -> bool:
        """The value of a boolean key."""
        value = self[key]
        assert isinstance(value, bool), key
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """The value of a list key."""
        value = self[key]
        assert value is None or isinstance(value, tuple), key
        return tuple(word for word in value or () if word)

    # ---- identity and roles

    @cached_property
    def node_id(self) -> int:
        """`node.id`, or `broker.id`."""
        value = self["node.id"]
        if value is None:
            value = self["broker.id"]
        if self.is_zookeeper and value in {None, -1}:
            return -1  # generated, or read from meta.properties, at the start
        if not isinstance(value, int) or value < 0:
            raise ConfigError("node.id is missing: it must be a number unique in the cluster")
        return value

    @cached_property
    def roles(self) -> frozenset[str]:
        """`process.roles`: broker, controller or both; broker in ZooKeeper mode."""
        return frozenset({"broker"} if self.is_zookeeper else self.words("process.roles"))

    @cached_property
    def migrates(self) -> bool:
        """Whether this controller migrates a cluster from ZooKeeper (KIP-866)."""
        return not self.is_zookeeper and self.flag(MIGRATION_ENABLE)

    @cached_property
    def is_migrating_broker(self) -> bool:
        """Whether this broker in ZooKeeper mode also registers with a quorum (KIP-866)."""
        return self.is_zookeeper and self.flag(MIGRATION_ENABLE)

    @property
    def is_broker(self) -> bool:
        """Whether it has the broker role."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it has the controller role."""
        return "controller" in self.roles

    @cached_property
    def log_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or `log.dir`."""
        return self.words("log.dirs") or self.words("log.dir")

    @cached_property
    def metadata_log_dir(self) -> str:
        """`metadata.log.dir`, or the first of `log_dirs`: has `__cluster_metadata-0`."""
        has_log = not self.is_zookeeper or self.is_migrating_broker
        named = self.text("metadata.log.dir") if has_log else ""
        return named or self.log_dirs[0]

    @property
    def has_authorizer(self) -> bool:
        """Whether access control lists are enforced; without it everything is allowed."""
        return bool(self.text("authorizer.class.name"))

    @cached_property
    def token_key(self) -> TokenKey | None:
        """The key of delegation tokens; None if they are off."""
        return token_key(self.text(SECRET_KEY))

    # ---- listeners

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        """`controller.listener.names`."""
        return self.words("controller.listener.names")

    @cached_property
    def security_protocols(self) -> dict[str, str]:
        """Listener name → security protocol, in upper case.

        Without listener.security.protocol.map, names are protocols; controllers may have other
        names if no listener is named after a secured protocol, and are PLAINTEXT then (KIP-631).
        """
        given = self._values.get("listener.security.protocol.map")
        if given is None:
            known = {protocol.name: protocol.name for protocol in SecurityProtocol}
            plain = SecurityProtocol.PLAINTEXT.name
            controllers = [name.upper() for name in self.controller_listener_names]
            bound = [each.partition("://")[0].upper() for each in self.words("listeners")]
            if any(name in known and name != plain for name in (*controllers, *bound)):
                return known
            return {**known, **dict.fromkeys(controllers, plain)}
        pairs = {}
        for entry in filter(None, self.text("listener.security.protocol.map").split(",")):
            name, colon, protocol = entry.rpartition(":")
            if not colon:
                raise ConfigError(f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL")
            pairs[name.strip().upper()] = protocol.strip().upper()
        return pairs

    @cached_property
    def listeners(self) -> tuple[ListenerAddress, ...]:
        """The addresses this node binds."""
        return self._addresses("listeners", self.words("listeners") or ("PLAINTEXT://:9092",))

    @cached_property
    def advertised_listeners(self) -> tuple[ListenerAddress, ...]:
        """The addresses that other nodes and clients connect to, of brokers and controllers."""
        given = self.words("advertised.listeners")
        if not given:
            return tuple(_with_host(address) for address in self.listeners)
        advertised = self._addresses("advertised.listeners", given)
        named = {address.name for address in advertised}
        missing = [
            _with_host(address)
            for address in self.listeners
            if address.name in self.controller_listener_names and address.name not in named
        ]
        return (*(_with_host(address) for address in advertised), *missing)

    @cached_property
    def broker_listeners(self) -> tuple[ListenerAddress, ...]:
        """The `listeners` for clients and brokers."""
        return tuple(a for a in self.listeners if a.name not in self.controller_listener_names)

    @cached_property
    def controller_listeners(self) -> tuple[ListenerAddress, ...]:
        """The `listeners` for the quorum."""
        return tuple(a for a in self.listeners if a.name in self.controller_listener_names)

    @cached_property
    def inter_broker_listener_name(self) -> str:
        """The listener brokers use among themselves."""
        named = self.text("inter.broker.listener.name")
        return named.upper() or self.text("security.inter.broker.protocol")

    @cached_property
    def control_plane_listener_name(self) -> str:
        """In ZooKeeper mode, the listener of brokers between them and the controller (KIP-291)."""
        named = self.text("control.plane.listener.name") if self.is_zookeeper else ""
        return named.upper() or self.inter_broker_listener_name

    def protocol_of(
        self, listener: str, key: str = "controller.listener.names"
    ) -> SecurityProtocol:
        """The security protocol of a listener, of this node or another; `key` names it.

        Raises:
            ConfigError: it has none, or one that is not implemented.
        """
        protocol = self.security_protocols.get(listener.upper())
        if protocol is None:
            raise ConfigError(
                f"{key}: listener {listener} has no entry in listener.security.protocol.map"
            )
        if not is_implemented(protocol):
            raise ConfigError(
                f"{key}: listener {listener} requires {protocol}, but only {implemented_names()} "
                "are implemented; this node does not start rather than serve it unprotected"
            )
        return SecurityProtocol[protocol]

    # ---- topics

    @cached_property
    def topic_defaults(self) -> dict[str, ConfigValue]:
        """The topic configs in force unless a topic or a dynamic config sets them."""
        return topic_defaults(self.properties)

    # ---- reading and checking

    def _parse(self, definition: ConfigDef, text: str) -> ConfigValue:
        try:
            return parse_value(definition, text)
        except KafkaError as error:
            raise ConfigError(error.detail) from error

    def _addresses(self, key: str, entries: tuple[str, ...]) -> tuple[ListenerAddress, ...]:
        found = tuple(self._address(key, entry) for entry in entries)
        names = [address.name for address in found]
        if len(set(names)) != len(names):
            raise ConfigError(
                f"{key}: each listener must have a different name: {', '.join(names)}"
            )
        return found

    def _address(self, key: str, entry: str) -> ListenerAddress:
        name, separator, rest = entry.partition("://")
        host, colon, port = rest.rpartition(":")
        if not separator or not colon or not port.isascii() or not port.isdigit():
            raise ConfigError(f"{key}: {entry!r} is not of the form NAME://host:port")
        if int(port) > 65535:  # noqa: PLR2004 (TCP's largest port)
            raise ConfigError(f"{key}: {entry!r} has a port above 65535")
        name = name.upper()
        return ListenerAddress(
            name=name,
            host=host.strip("[]"),
            port=int(port),
            security_protocol=self.protocol_of(name, key),
        )

    def _refuse_unimplemented(self) -> None:
        for key, (fine, why) in sorted(_NOT_IMPLEMENTED.items()):
            text = self.properties.get(key, "").strip()
            folded = text.lower() if "false" in fine else text
            if key in self.properties and folded not in fine:
                shown = describe(self)[key]
                raise ConfigError(
                    f"{key}={shown}: {why}; this node does not start rather than ignore it"
                )

    def _check(self) -> None:
        if self.is_zookeeper and (refusal := refusal_of(self.properties)):
            raise ConfigError(f"{refusal}; this node does not start rather than ignore it")
        if not self.is_zookeeper and self.text("authorizer.class.name") == ACL_AUTHORIZER:
            raise ConfigError(
                f"authorizer.class.name={ACL_AUTHORIZER}: in KRaft mode only Kafka's "
                f"StandardAuthorizer, {STANDARD_AUTHORIZER}, is supported"
            )
        if not self.roles:
            raise ConfigError("process.roles is missing: broker, controller, or both")
        broker_id = self["broker.id"]
        if broker_id not in {-1, None, self.node_id}:
            raise ConfigError("node.id and broker.id must be equal if both are set")
        if not self.log_dirs:
            raise ConfigError("at least one log directory must be given by log.dirs or log.dir")
        cordoned(self.words("cordoned.log.dirs"), self.log_dirs)
        if not self.is_zookeeper:
            self._check_quorum()
            if self.migrates:
                self._check_migration()
        elif self.is_migrating_broker:
            self._check_migrating_broker()
        self._check_listeners()
        self._check_numbers()

    def _check_quorum(self) -> None:
        voters = self.words("controller.quorum.voters")
        if not voters and not self.words("controller.quorum.bootstrap.servers"):
            raise ConfigError(
                "either controller.quorum.bootstrap.servers or controller.quorum.voters must be set"
            )
        voter_ids = {_voter_id(voter) for voter in voters}
        if voters and self.is_controller and self.node_id not in voter_ids:
            raise ConfigError(
                f"node {self.node_id} has the controller role and must be in "
                f"controller.quorum.voters={','.join(voters)}"
            )
        if voters and not self.is_controller and self.node_id in voter_ids:
            raise ConfigError(
                f"node {self.node_id} is only a broker and must not be in controller.quorum.voters"
            )
        if self.flag("controller.quorum.auto.join.enable") and not self.is_controller:
            raise ConfigError("controller.quorum.auto.join.enable is for controllers only")

    def _check_migration(self) -> None:
        """A migration needs a controller of its own, and the ensemble."""
        key = f"{MIGRATION_ENABLE}=true"
        if self.roles != {"controller"}:
            raise ConfigError(f"{key} is for nodes with process.roles=controller only")
        if not self.text(CONNECT):
            raise ConfigError(f"{key} needs zookeeper.connect")
        try:
            parse_connect_string(self.text(CONNECT))
        except ValueError as error:
            raise ConfigError(f"zookeeper.connect: {error}") from error
        try:
            read_ensemble_security(self.properties)
        except EnsembleSecurityError as error:
            raise ConfigError(str(error)) from error

    def _check_migrating_broker(self) -> None:
        """Kafka's conditions for a broker in ZooKeeper mode that registers with a quorum."""
        if self.node_id < 0:
            raise ConfigError(
                "broker.id generation is incompatible with ZooKeeper migration: set broker.id"
            )
        self._check_quorum()
        key = f"{MIGRATION_ENABLE}=true"
        if not self.controller_listener_names:
            raise ConfigError(f"{key} needs controller.listener.names")
        protocol = parse_protocol_version(self.text(PROTOCOL_VERSION))
        level = metadata_level(protocol) or 0
        lowest = MIGRATION_LEVEL_MIN if len(self.log_dirs) == 1 else DIRECTORIES_LEVEL_MIN
        if level < lowest:
            several = "" if len(self.log_dirs) == 1 else " with several log directories"
            raise ConfigError(f"{key}{several} needs {PROTOCOL_VERSION} {name_of(lowest)} or later")

    def _check_listeners(self) -> None:
        names = {address.name for address in self.listeners}
        controllers = set(self.controller_listener_names)
        if not controllers and not self.is_zookeeper:
            raise ConfigError("controller.listener.names is missing")
        if self.is_controller and not controllers <= names:
            raise ConfigError("controller.listener.names has a name that is not in listeners")
        if not self.is_controller and controllers & names:
            raise ConfigError("a node that is only a broker must not listen as a controller")
        if not self.is_broker and not names <= controllers:
            raise ConfigError("a node that is only a controller must not listen as a broker")
        advertised = {address.name for address in self.advertised_listeners}
        if not advertised <= names:
            raise ConfigError("advertised.listeners has a name that is not in listeners")
        if any(address.host == "0.0.0.0" for address in self.advertised_listeners):
            raise ConfigError(
                "advertised.listeners must not use 0.0.0.0: clients cannot connect to it"
            )
        if self.is_broker and self.inter_broker_listener_name not in advertised - controllers:
            raise ConfigError(
                f"inter.broker.listener.name {self.inter_broker_listener_name} is not a broker "
                "listener in advertised.listeners"
            )
        if self.is_zookeeper and self.text("control.plane.listener.name"):
            self._check_control_plane(advertised)

    def _check_control_plane(self, advertised: set[str]) -> None:
        name, between = self.control_plane_listener_name, self.inter_broker_listener_name
        if name not in advertised:
            raise ConfigError(
                f"control.plane.listener.name {name} must be a listener name defined in "
                f"advertised.listeners: {', '.join(sorted(advertised))}"
            )
        if name == between:
            raise ConfigError(
                "control.plane.listener.name must differ from the inter-broker listener name; "
                f"both are {name}"
            )

    def _check_numbers(self) -> None:
        retention = self.topic_defaults["retention.ms"]
        if isinstance(retention, int) and retention < 1 and retention != -1:
            raise ConfigError("log.retention.ms must be -1 (unlimited) or at least 1")
        if self.number("broker.heartbeat.interval.ms") * 2 > self.number(
            "broker.session.timeout.ms"
        ):
            raise ConfigError(
                "broker.heartbeat.interval.ms must be at most half of broker.session.timeout.ms"
            )
        queued = self.number("queued.max.request.bytes")
        if 0 < queued < self.number("socket.request.max.bytes"):
            raise ConfigError("queued.max.request.bytes is below socket.request.max.bytes")


def _definition(key: str) -> ConfigDef | None:
    return OWN_CONFIGS.get(key) or definition_of(key) or ZOOKEEPER_CONFIGS.get(key)


def _voter_id(voter: str) -> int:
    number, at, _ = voter.partition("@")
    if not at or not number.isascii() or not number.isdigit():
        raise ConfigError(f"controller.quorum.voters: {voter!r} is not of the form id@host:port")
    return int(number)


def _with_host(address: ListenerAddress) -> ListenerAddress:
    """An address others can use: this machine's name if the entry has no host."""
    if address.host:
        return address
    return ListenerAddress(
        name=address.name,
        host=socket.gethostname(),
        port=address.port,
        security_protocol=address.security_protocol,
    )


def describe(config: NodeConfig) -> dict[str, Any]:
    """The set keys, for the log at the start; passwords are hidden."""
    shown: dict[str, Any] = {}
    for key, text in sorted(config.properties.items()):
        definition = _definition(key)
        hidden = definition is not None and definition.sensitive
        shown[key] = "[hidden]" if hidden else text
    return shown
