"""The advertised listeners of a broker in ZooKeeper mode, which may change while it runs.

    /config/brokers/N  >  server.properties  >  listeners

Kafka 3.9 (`DynamicListenerConfig`, `KafkaController.updateBrokerInfo`): a change of
`advertised.listeners` in the dynamic configs of a broker replaces the data of `/brokers/ids/N`. The
controller sends it to all brokers, and clients learn it from Metadata; connections stay open. In
KRaft mode the key is read-only.

A change is refused, before it is stored, if it names a listener that is not in `listeners`, lacks
the inter-broker listener or that of the control plane, repeats a name, or has the address 0.0.0.0.
Unlike in Kafka also: an endpoint of another broker, which Kafka stores and does not register; and
any change while the broker is migrated to KRaft, because the quorum does not learn it.

Not done: listeners that open and close while the broker runs (`listeners`).
"""

import logging
from typing import TYPE_CHECKING

from sparkraft.metadata.configs.broker import ADVERTISED_LISTENERS
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.zookeeper_config import MIGRATION_ENABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkraft.metadata.image import ClusterImage, Endpoint
    from sparkraft.server.config import ListenerAddress

    Addresses = tuple[ListenerAddress, ...]

log = logging.getLogger(__name__)


class AdvertisedListeners:
    """See the module docstring.

    Attributes:
        addresses: in force, with the ports that were 0 filled in.
    """

    def __init__(
        self,
        config: NodeConfig,
        addresses_of: "Callable[[NodeConfig], Addresses]",
        image: "Callable[[], ClusterImage]",
    ) -> None:
        """Start with server.properties.

        Args:
            config: the static configs.
            addresses_of: returns the advertised listeners of a config, ports filled in.
            image: returns the newest one, with the endpoints of other brokers.
        """
        self._config = config
        self._addresses_of = addresses_of
        self._image = image
        self._listeners: list[Callable[[], None]] = []
        self._text: str | None = None
        """The dynamic config as of the last change; None without one."""
        self.addresses = addresses_of(config)

    def add_listener(self, listener: "Callable[[], None]") -> None:
        """Call `listener` when `addresses` has changed."""
        self._listeners.append(listener)

    def check(self, dynamic: "Mapping[str, str]") -> None:
        """Check the dynamic configs of this broker before they are stored.

        Raises:
            ConfigError: its advertised.listeners cannot be applied.
        """
        if dynamic.get(ADVERTISED_LISTENERS) == self._text:
            return
        if self._config.is_migrating_broker:
            raise ConfigError(
                f"{ADVERTISED_LISTENERS} cannot change while {MIGRATION_ENABLE}=true: change it in "
                "server.properties and restart the broker"
            )
        own = _endpoints(self._effective(dynamic))
        image = self._image()
        for broker in sorted(image.brokers):
            if broker == self._config.node_id:
                continue
            common = own & _endpoints(image.brokers[broker].endpoints)
            if common:
                raise ConfigError(
                    f"Configured end points {', '.join(sorted(common))} in advertised listeners "
                    f"are already registered by broker {broker}"
                )

    def apply(self, dynamic: "Mapping[str, str]") -> None:
        """Follow the stored configs of this broker; a value that cannot be applied is ignored."""
        text = dynamic.get(ADVERTISED_LISTENERS)
        if text == self._text:
            return
        self._text = text
        try:
            addresses = self._effective(dynamic)
        except ConfigError as error:
            log.warning(
                "The stored %s=%s cannot be applied: %s; still advertising %s",
                ADVERTISED_LISTENERS,
                text,
                error,
                ", ".join(sorted(_endpoints(self.addresses))),
            )
            return
        if addresses == self.addresses:
            return
        self.addresses = addresses
        log.info("Advertising %s", ", ".join(sorted(_endpoints(addresses))))
        for listener in self._listeners:
            listener()

    def _effective(self, dynamic: "Mapping[str, str]") -> "Addresses":
        """The addresses with the dynamic config, checked as in server.properties."""
        text = dynamic.get(ADVERTISED_LISTENERS)
        if text is None:
            return self._addresses_of(self._config)
        return self._addresses_of(
            NodeConfig({**self._config.properties, ADVERTISED_LISTENERS: text})
        )


def _endpoints(addresses: "Iterable[ListenerAddress | Endpoint]") -> set[str]:
    return {f"{each.host}:{each.port}" for each in addresses}
