"""The effective configs of topics: their own, else the brokers', else Kafka's defaults.

    topic's own  >  this broker's dynamic  >  cluster-wide dynamic  >  server.properties  >  default

The middle three use broker keys (log.retention.hours …), mapped in `metadata.configs`.
"""

from typing import TYPE_CHECKING

from sparkraft.metadata.configs import TOPIC_CONFIGS, ConfigValue, parse_value, topic_defaults
from sparkraft.metadata.image import ResourceType

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.config import NodeConfig

CLUSTER_WIDE = ""
"""The name of the broker resource for all brokers."""


class TopicConfigs:
    """Of one node; the defaults are cached until broker configs change."""

    def __init__(self, config: "NodeConfig") -> None:
        self._config = config
        self._node_name = str(config.node_id)
        self._key: tuple[object, object] = (None, None)
        self._defaults: dict[str, ConfigValue] = dict(config.topic_defaults)

    def defaults(self, image: "ClusterImage") -> dict[str, ConfigValue]:
        """All configs of a topic that sets none itself."""
        cluster = image.config(ResourceType.BROKER, CLUSTER_WIDE)
        own = image.config(ResourceType.BROKER, self._node_name)
        if self._key[0] is not cluster or self._key[1] is not own:
            merged = {**self._config.properties, **dict(cluster.items()), **dict(own.items())}
            self._defaults = topic_defaults(merged)
            self._key = (cluster, own)
        return self._defaults

    def of(self, image: "ClusterImage", topic: str) -> dict[str, ConfigValue]:
        """All configs in force for `topic`."""
        own = image.config(ResourceType.TOPIC, topic)
        if not own:
            return self.defaults(image)
        values = dict(self.defaults(image))
        for key, text in own.items():
            definition = TOPIC_CONFIGS.get(key)
            if definition is not None:
                values[key] = parse_value(definition, text)
        return values
