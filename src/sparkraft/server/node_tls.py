"""The TLS of a node's listeners, and its replacement without a restart.

A new context serves new connections; established ones keep theirs. Kafka's two ways to replace it:

    IncrementalAlterConfigs of listener.name.<name>.ssl.keystore.location and other store configs
    any IncrementalAlterConfigs of this broker, after a store file was written again

A replacement that breaks Kafka's rules (`tls.loaded`) is refused, and nothing changes.

A node that is only a controller follows its own configs by `stores_follower`. Like Kafka's
controllers (`ControllerServer`, `DynamicConfigPublisher`), it does not check them beforehand.

Not here: a broker's dynamic configs (`server.broker.dynamic_configs`).
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sparkraft.metadata.configs.broker import listener_key
from sparkraft.metadata.image import ResourceType
from sparkraft.security.tls_settings import TlsConfigError, TlsSettings, check_listener
from sparkraft.server.config import ConfigError
from sparkraft.server.tls_config import HTTP_LISTENER, serves_https, tls_settings_of
from sparkraft.tls.loaded import LoadedTls, check_replacement, load_tls

if TYPE_CHECKING:
    import ssl

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.config import NodeConfig

log = logging.getLogger(__name__)

STORE_KEYS = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""The configs that can change while a node runs, each with a listener's prefix."""


class NodeTls:
    """See the module docstring. One for each node."""

    def __init__(self, config: "NodeConfig") -> None:
        """Read the stores of all listeners.

        Raises:
            ConfigError: one is missing, cannot be read or is invalid.
        """
        self._config = config
        self._bound = {address.name for address in config.listeners}
        self._loaded: dict[str, LoadedTls] = {}
        self._has_started = False
        dialled = set(config.controller_listener_names[:1])
        if config.migrates:
            dialled.add(config.inter_broker_listener_name)  # of the brokers in ZooKeeper mode
        for name in sorted(self._bound | dialled):
            if config.protocol_of(name).uses_tls:
                settings = tls_settings_of(config, name)
                self._loaded[name] = self._load(name, settings)
        if serves_https(config):
            self._bound.add(HTTP_LISTENER)
            settings = tls_settings_of(config, HTTP_LISTENER)
            self._loaded[HTTP_LISTENER] = self._load(HTTP_LISTENER, settings)

    def settings_of(self, listener: str) -> TlsSettings | None:
        """The settings of a listener; None if it has no TLS."""
        loaded = self._loaded.get(listener)
        return None if loaded is None else loaded.settings

    def server_context_of(self, listener: str) -> "Callable[[], ssl.SSLContext]":
        """Returns the current context of a listener's new connections."""

        def context() -> "ssl.SSLContext":
            found = self._loaded[listener].server
            assert found is not None, "it is not bound"
            return found

        return context

    def client_context_of(self, listener: str) -> "Callable[[], ssl.SSLContext]":
        """Returns the current context of connections to such listeners of other nodes."""
        return lambda: self._loaded[listener].client

    # ---- replacements

    def check(self, dynamic: Mapping[str, str]) -> None:
        """Check whether the dynamic configs of this broker could be applied.

        Raises:
            ConfigError: a store cannot be used, or must not replace the current one.
        """
        self._replacements(dynamic)

    def apply(self, dynamic: Mapping[str, str]) -> None:
        """Apply the dynamic configs of this broker; an invalid one is logged, and nothing changes.

        The first ones belong to an earlier run of the node and replace server.properties freely.
        """
        try:
            self._replace(self._replacements(dynamic))
        except ConfigError as error:
            log.warning("%s; the TLS stores in use are kept", error)
        self._has_started = True

    def reload_changed_files(self, dynamic: Mapping[str, str]) -> None:
        """Load the stores whose files were written since they were loaded.

        Raises:
            ConfigError: as `check`; nothing changes.
        """
        if any(loaded.has_changed_files for loaded in self._loaded.values()):
            self._replace(self._replacements(dynamic))

    def _replacements(self, dynamic: Mapping[str, str]) -> dict[str, LoadedTls]:
        """The listeners whose stores or configs have changed, with what would replace them."""
        found = {}
        for name, old in self._loaded.items():
            settings = tls_settings_of(self._config, name, _stores_in(name, dynamic))
            if settings == old.settings and not old.has_changed_files:
                continue
            found[name] = new = self._load(name, settings)
            if not self._has_started:
                continue
            try:
                check_replacement(old, new, between_brokers=self._is_between_brokers(name))
            except TlsConfigError as error:
                raise ConfigError(f"listener {name}: {error}") from error
        return found

    def _replace(self, replacements: Mapping[str, LoadedTls]) -> None:
        for name in replacements:
            log.info("Listener %s uses new TLS stores for new connections", name)
        self._loaded |= replacements

    def _is_between_brokers(self, listener: str) -> bool:
        return self._config.is_broker and listener == self._config.inter_broker_listener_name

    def _load(self, name: str, settings: TlsSettings) -> LoadedTls:
        serves = name in self._bound
        try:
            if serves:
                check_listener(settings)
            return load_tls(settings, serves=serves)
        except TlsConfigError as error:
            raise ConfigError(f"listener {name}: {error}") from error


def stores_follower(tls: NodeTls, node_id: int) -> "Callable[[ClusterImage], None]":
    """Applies the configs of this node in each image that changes them."""
    seen: object = None

    def update(image: "ClusterImage") -> None:
        nonlocal seen
        own = image.config(ResourceType.BROKER, str(node_id))
        if own is not seen:
            seen = own
            tls.apply(dict(own.items()))

    return update


def _stores_in(listener: str, dynamic: Mapping[str, str]) -> dict[str, str]:
    """The dynamic configs that may replace a listener's stores."""
    keys = (listener_key(listener, key) for key in STORE_KEYS)
    return {key: dynamic[key] for key in keys if key in dynamic}
