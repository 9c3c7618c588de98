"""Applies dynamic broker configs while the node runs.

    this broker's dynamic  >  cluster-wide dynamic  >  server.properties  >  default

    advertised.listeners                        at once; in ZooKeeper mode alone
    cordoned.log.dirs                           for new replicas
    log.cleaner.…                               at the next cleaning
    max.connections, max.connections.per.ip, max.connections.per.ip.overrides,
    max.connection.creation.rate
                                                for new connections
    listener.name.….ssl.keystore.… and .ssl.truststore.…
                                                for new connections (`server.node_tls`)
    num.replica.fetchers                        at once: replicas change their fetchers
    producer.id.expiration.ms                   at the next retention check
    transaction.partition.verification.enable   for new batches of transactions

Kafka allows more keys to change; one that has no effect here is logged once.

Not here: keys that are defaults of topic configs, log.retention.ms and so on (`topic_configs`).
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.configs import BROKER_CONFIGS, parse_value
from sparkraft.metadata.configs.broker import listener_key
from sparkraft.metadata.image import ResourceType
from sparkraft.server.broker.topic_configs import CLUSTER_WIDE
from sparkraft.server.config import ConfigError, cordoned
from sparkraft.server.limits import per_ip_overrides
from sparkraft.server.supported_configs import without_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.metadata.configs import ConfigValue
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.config import NodeConfig
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_CORDONED = "cordoned.log.dirs"
_OVERRIDES = "max.connections.per.ip.overrides"
_THREADS = (
    "background.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""Kafka lets these be halved or doubled at a time (DynamicThreadPool). Checked here even for keys
without effect, so that a mixed cluster responds alike."""


class ConnectionConfigs(Protocol):
    """The connection limits in force."""

    def number(self, key: str) -> int: ...
    def number_of(self, listener: str, key: str) -> int: ...


class ListenerStores(Protocol):
    """The key and trust stores of the node's listeners; each method takes this broker's configs."""

    def check(self, dynamic: "Mapping[str, str]") -> None:
        """Raise ConfigError if they cannot be applied."""

    def apply(self, dynamic: "Mapping[str, str]") -> None:
        """Apply them, or log why not."""

    def reload_changed_files(self, dynamic: "Mapping[str, str]") -> None:
        """Load stores whose files have changed; ConfigError if it is refused."""


class Advertised(Protocol):
    """The advertised listeners of a broker that may change; each takes this broker's configs."""

    def check(self, dynamic: "Mapping[str, str]") -> None:
        """Raise ConfigError if they cannot be applied."""

    def apply(self, dynamic: "Mapping[str, str]") -> None:
        """Advertise them, or log why not."""


class DynamicConfigs:
    """Follows this node's broker resource and the cluster-wide one."""

    def __init__(
        self,
        config: "NodeConfig",
        log_manager: "LogManager",
        limit_connections: "Callable[[ConnectionConfigs, Mapping[str, int]], None]",
        stores: ListenerStores,
        advertised: Advertised | None = None,
    ) -> None:
        """Start with server.properties, which is in force already.

        Args:
            config: the static configs.
            log_manager: its default log config and cordoned directories are replaced.
            limit_connections: called with these configs and max.connections.per.ip.overrides by
                address.
            stores: follow this broker's configs of key and trust stores.
            advertised: follows this broker's advertised.listeners; None: it stays.
        """
        self._config = config
        self._log_manager = log_manager
        self._limit_connections = limit_connections
        self._stores = stores
        self._advertised = advertised
        self._seen: tuple[object, object] = (None, None)
        self._levels: tuple[dict[str, str], dict[str, str]] = ({}, {})
        """The cluster-wide configs and this broker's."""
        self._values: Mapping[str, str] = {}
        self._named: set[str] = set()
        self._checks = {
            **dict.fromkeys(_THREADS, self._check_threads),
            _OVERRIDES: self._check_overrides,
            _CORDONED: self._check_cordoned,
        }

    def on_image(self, image: "ClusterImage") -> None:
        """Apply a new image; cheap if no broker config changed."""
        cluster = image.config(ResourceType.BROKER, CLUSTER_WIDE)
        own = image.config(ResourceType.BROKER, str(self._config.node_id))
        if self._seen[0] is cluster and self._seen[1] is own:
            return
        self._seen = (cluster, own)
        self._levels = (dict(cluster.items()), dict(own.items()))
        self._values = self._levels[0] | self._levels[1]
        self._limit_connections(self, self._per_ip_overrides())
        self._stores.apply(self._levels[1])
        if self._advertised is not None:
            self._advertised.apply(self._levels[1])
        expiration_ms = self.number("producer.id.expiration.ms")
        manager = self._log_manager
        manager.set_default_config(
            replace(manager.default_config, producer_id_expiration_ms=expiration_ms)
        )
        manager.cordon(self._cordoned())
        self._log_without_effect()

    def value(self, key: str) -> "ConfigValue":
        """The current value of `key`."""
        return self._value_in(self._values, key)

    def number(self, key: str) -> int:
        """The current value of a numeric `key`."""
        return self._number_in(self._values, key)

    def number_of(self, listener: str, key: str) -> int:
        """The current value of a numeric `key` for one listener."""
        prefixed = listener_key(listener, key)
        if prefixed in self._values:
            return self._number_in({key: self._values[prefixed]}, key)
        static = prefixed in self._config.properties
        return self._config.number_of(listener, key) if static else self.number(key)

    def objection(self, name: str, values: "Mapping[str, str]") -> KafkaError | None:
        """Why this node could not apply `values` as a resource's configs.

        Unchanged keys are not checked: they may be invalid because they were set elsewhere.

        Args:
            name: of the resource: "" for every broker, else this one.
            values: all its keys; those of the other resource stay as they are.

        Returns:
            INVALID_REQUEST with the reason, or None.
        """
        cluster, own = self._levels
        after = {**dict(values), **own} if not name else {**cluster, **dict(values)}
        try:
            if name:
                self._stores.check(values)
                if self._advertised is not None:
                    self._advertised.check(values)
            for key, check in self._checks.items():
                if after.get(key) != self._values.get(key):
                    check(key, after)
        except (ConfigError, KafkaError) as error:
            detail = error.detail if isinstance(error, KafkaError) else str(error)
            return KafkaError(ErrorCode.INVALID_REQUEST, detail)
        return None

    def reload_stores(self) -> KafkaError | None:
        """Load key and trust stores whose files have changed; INVALID_REQUEST if it is refused.

        Every change of this broker's configs does so, as in Kafka
        (`DynamicBrokerConfig.reloadUpdatedFilesWithoutConfigChange`).
        """
        try:
            self._stores.reload_changed_files(self._levels[1])
        except ConfigError as error:
            return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
        return None

    def _check_threads(self, key: str, after: "Mapping[str, str]") -> None:
        """Raise ConfigError if a thread count more than doubles or falls below half."""
        now, then = self.number(key), self._number_in(after, key)
        if not now // 2 <= then <= now * 2:
            raise ConfigError(f"{key}={then} is below half or above twice the current value {now}")

    def _check_overrides(self, key: str, after: "Mapping[str, str]") -> None:
        per_ip_overrides(after.get(key, self._config.text(key)))

    def _check_cordoned(self, _key: str, after: "Mapping[str, str]") -> None:
        self._cordoned_in(after)

    def _value_in(self, values: "Mapping[str, str]", key: str) -> "ConfigValue":
        text = values.get(key)
        return self._config[key] if text is None else parse_value(BROKER_CONFIGS[key], text)

    def _number_in(self, values: "Mapping[str, str]", key: str) -> int:
        value = self._value_in(values, key)
        assert isinstance(value, int)
        return value

    def _cordoned_in(self, values: "Mapping[str, str]") -> frozenset[str]:
        named = self._value_in(values, _CORDONED)
        assert isinstance(named, tuple)
        return cordoned(named, self._config.log_dirs)

    def _per_ip_overrides(self) -> "Mapping[str, int]":
        try:
            return per_ip_overrides(self._values.get(_OVERRIDES, self._config.text(_OVERRIDES)))
        except KafkaError as error:
            log.warning("%s; ignoring max.connections.per.ip.overrides", error.detail)
            return {}

    def _cordoned(self) -> frozenset[str]:
        try:
            return self._cordoned_in(self._values)
        except ConfigError as error:
            log.warning("%s; ignoring cordoned.log.dirs", error)
            return frozenset()

    def _log_without_effect(self) -> None:
        idle = set(without_effect(self._values)) - self._named
        self._named |= idle
        if idle:
            names = ", ".join(sorted(idle))
            log.info("These dynamic configs of Kafka have no effect here yet: %s", names)
