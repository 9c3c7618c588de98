"""Node keys that change while the node runs: what a broker's dynamic configs say, takes effect.

    this broker's dynamic  >  cluster-wide dynamic  >  server.properties  >  default

    max.connections, max.connections.per.ip     for connections that come from then on
    producer.id.expiration.ms                   at the next round of retention

Kafka allows more keys to change; one that does nothing here is named in the log once.

Not here: keys that stand behind topic configs, log.retention.ms and so on (`topic_configs`).
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkraft.metadata.configs import BROKER_CONFIGS, parse_value
from sparkraft.metadata.image import ResourceType
from sparkraft.server.broker.topic_configs import CLUSTER_WIDE
from sparkraft.server.effective_keys import without_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.config import NodeConfig
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class DynamicConfigs:
    """Follows the two broker resources that concern this node."""

    def __init__(
        self,
        config: "NodeConfig",
        log_manager: "LogManager",
        limit_connections: "Callable[[int, int], None]",
    ) -> None:
        """What server.properties says is in force already.

        Args:
            config: the static level.
            log_manager: its default config is replaced; logs get theirs from it.
            limit_connections: takes max.connections and max.connections.per.ip.
        """
        self._config = config
        self._log_manager = log_manager
        self._limit_connections = limit_connections
        self._seen: tuple[object, object] = (None, None)
        self._values: Mapping[str, str] = {}
        self._named: set[str] = set()

    def on_image(self, image: "ClusterImage") -> None:
        """Follow a new image; cheap where no broker config changed."""
        cluster = image.config(ResourceType.BROKER, CLUSTER_WIDE)
        own = image.config(ResourceType.BROKER, str(self._config.node_id))
        if self._seen[0] is cluster and self._seen[1] is own:
            return
        self._seen = (cluster, own)
        self._values = {**dict(cluster.items()), **dict(own.items())}
        self._limit_connections(
            self._number("max.connections"), self._number("max.connections.per.ip")
        )
        expiration_ms = self._number("producer.id.expiration.ms")
        manager = self._log_manager
        manager.default_config = replace(
            manager.default_config, producer_id_expiration_ms=expiration_ms
        )
        self._name_idle()

    def _number(self, key: str) -> int:
        text = self._values.get(key)
        if text is None:
            return self._config.number(key)
        value = parse_value(BROKER_CONFIGS[key], text)
        assert isinstance(value, int)
        return value

    def _name_idle(self) -> None:
        idle = set(without_effect(self._values)) - self._named
        self._named |= idle
        if idle:
            names = ", ".join(sorted(idle))
            log.info("These dynamic configs are Kafka's, and have no effect here yet: %s", names)
