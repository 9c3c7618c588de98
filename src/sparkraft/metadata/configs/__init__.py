"""Kafka 4.3's configuration keys: names, types, defaults, ranges, who may change them and when.

`BROKER_CONFIGS`, `TOPIC_CONFIGS`, `GROUP_CONFIGS`, `CLIENT_METRICS_CONFIGS`, `CLIENT_QUOTA_CONFIGS`
and `IP_QUOTA_CONFIGS` map a key to its `ConfigDef`. `parse_value` turns text into a value and
raises `KafkaError(INVALID_CONFIG)` for what does not fit; `format_value` is its way back.

Not here: rules that join several keys of one node (`sparkraft.server.config`), and what a change
of a dynamic key does.
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
