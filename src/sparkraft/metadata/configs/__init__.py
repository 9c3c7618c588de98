"""The configs of Kafka 4.3: names, types, defaults, ranges, update modes.

`BROKER_CONFIGS`, `TOPIC_CONFIGS`, `GROUP_CONFIGS`, `CLIENT_METRICS_CONFIGS`, `CLIENT_QUOTA_CONFIGS`
and `IP_QUOTA_CONFIGS` map a key to its `ConfigDef`. `parse_value` turns text into a value and
raises `KafkaError(INVALID_CONFIG)` for an invalid one; `format_value` is its inverse.

Not here: rules on several keys of a node (`sparkraft.server.config`), and the effects of dynamic
changes.
"""

from sparkraft.metadata.configs.broker import BROKER_CONFIGS
from sparkraft.metadata.configs.definition import (
    ConfigDef,
    ConfigType,
    ConfigValue,
    Importance,
    UpdateMode,
    format_value,
    parse_value,
)
from sparkraft.metadata.configs.group import (
    CLIENT_METRICS_CONFIGS,
    CLIENT_QUOTA_CONFIGS,
    GROUP_CONFIGS,
    IP_QUOTA_CONFIGS,
)
from sparkraft.metadata.configs.topic import (
    TOPIC_CONFIGS,
    Synonym,
    topic_defaults,
    validate_topic_configs,
)

__all__ = [
    "BROKER_CONFIGS",
    "CLIENT_METRICS_CONFIGS",
    "CLIENT_QUOTA_CONFIGS",
    "GROUP_CONFIGS",
    "IP_QUOTA_CONFIGS",
    "TOPIC_CONFIGS",
    "ConfigDef",
    "ConfigType",
    "ConfigValue",
    "Importance",
    "Synonym",
    "UpdateMode",
    "format_value",
    "parse_value",
    "topic_defaults",
    "validate_topic_configs",
]
