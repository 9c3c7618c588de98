"""Effective config values and their sources, by the rules of Kafka's DescribeConfigs.

Sources of a value in order of precedence: the topic (or group, or subscription), this broker's
dynamic configs, the cluster-wide ones, the broker's file, the default. Each source that sets the
key or one of its synonyms is listed as a synonym, in that order.

A quirk kept from Kafka: synonyms before the key's own name are dropped, so `retention.ms` of a
broker that sets `log.retention.hours` alone shows no synonyms and the source DEFAULT_CONFIG.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from sparkraft.base.errors import KafkaError
from sparkraft.metadata.configs.broker import BROKER_CONFIGS, dynamic_definition_of, update_mode
from sparkraft.metadata.configs.definition import (
    ConfigDef,
    ConfigType,
    UpdateMode,
    format_value,
    parse_value,
)
from sparkraft.metadata.configs.group import GROUP_CONFIGS, GROUP_SYNONYMS
from sparkraft.metadata.configs.topic import TOPIC_CONFIGS, TOPIC_SYNONYMS, topic_defaults


class ConfigSource(IntEnum):
    """Sources of config values; the numbers of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One source that sets a key."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A key's effective value; `synonyms` lists all sources that set it, by precedence."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    kind: int
    doc: str


class BrokerSources(NamedTuple):
    """Configs of a broker: set dynamically, as cluster-wide defaults, and in its file.

    `extensions` defines keys that Kafka does not have; they are described if they are set.
    `zookeeper`: whether the broker is in ZooKeeper mode.
    """

    dynamic: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]
    extensions: Mapping[str, ConfigDef] = MappingProxyType({})
    zookeeper: bool = False

    def merged(self) -> dict[str, str]:
        """All keys that are set, with their effective values."""
        return {**self.static, **self.cluster, **self.dynamic}


_BROKER_SYNONYMS = {
    synonyms[0].name: tuple(synonym.name for synonym in synonyms)
    for synonyms in TOPIC_SYNONYMS.values()
    if len(synonyms) > 1
}
"""Synonyms of broker keys, such as log.retention.ms with .minutes and .hours."""

_TOPIC_KEY_OF = {
    synonym.name: key for key, synonyms in TOPIC_SYNONYMS.items() for synonym in synonyms
}
"""Broker key to the topic key whose default it is."""


def describe_topic(own: Mapping[str, str], broker: BrokerSources) -> list[ConfigEntry]:
    """Every topic key, sorted, for a topic that sets `own`."""
    defaults = topic_defaults(broker.merged())

    def value_of(name: str, definition: ConfigDef) -> str | None:
        if name in own:
            return _parsed_text(definition, own[name])
        return format_value(defaults[name])

    def synonyms_of(name: str) -> tuple[ConfigSynonym, ...]:
        first = TOPIC_SYNONYMS[name][0].name if name in TOPIC_SYNONYMS else None
        return () if first is None else _broker_synonyms(first, broker, hide=False)

    return _describe(TOPIC_CONFIGS, own, ConfigSource.TOPIC_CONFIG, value_of, synonyms_of)


def describe_group(own: Mapping[str, str], broker: BrokerSources) -> list[ConfigEntry]:
    """Every group key, sorted, for a group that sets `own`."""
    merged = broker.merged()

    def value_of(name: str, definition: ConfigDef) -> str | None:
        synonym = GROUP_SYNONYMS.get(name)
        text = own.get(name) or (merged.get(synonym) if synonym else None)
        return format_value(definition.default) if text is None else _parsed_text(definition, text)

    def synonyms_of(name: str) -> tuple[ConfigSynonym, ...]:
        synonym = GROUP_SYNONYMS.get(name)
        if synonym is None and name.startswith("share."):
            # As Kafka: a share key without a broker key is its own synonym.
            value = format_value(GROUP_CONFIGS[name].default)
            return (ConfigSynonym(name, value, ConfigSource.DEFAULT_CONFIG),)
        return () if synonym is None else _broker_synonyms(synonym, broker, hide=False)

    return _describe(GROUP_CONFIGS, own, ConfigSource.GROUP_CONFIG, value_of, synonyms_of)


def describe_plain(
    definitions: Mapping[str, ConfigDef], own: Mapping[str, str], source: ConfigSource
) -> list[ConfigEntry]:
    """Every key of `definitions`, sorted; only the resource itself can set them."""

    def value_of(name: str, definition: ConfigDef) -> str | None:
        text = own.get(name)
        return format_value(definition.default) if text is None else _parsed_text(definition, text)

    return _describe(definitions, own, source, value_of, lambda _: ())


def describe_broker(broker: BrokerSources) -> list[ConfigEntry]:
    """All broker keys and all other keys that are set, sorted."""
    merged = broker.merged()
    names = {n for n, d in BROKER_CONFIGS.items() if not d.internal}
    return [
        _broker_entry(name, merged.get(name), broker, whole_cluster=False)
        for name in sorted(names | set(merged))
    ]


def describe_broker_defaults(broker: BrokerSources) -> list[ConfigEntry]:
    """The cluster-wide dynamic broker configs that are set, sorted."""
    return [
        _broker_entry(name, broker.cluster[name], broker, whole_cluster=True)
        for name in sorted(broker.cluster)
    ]


def _describe(
    definitions: Mapping[str, ConfigDef],
    own: Mapping[str, str],
    own_source: ConfigSource,
    value_of: Callable[[str, ConfigDef], str | None],
    synonyms_of: Callable[[str], tuple[ConfigSynonym, ...]],
) -> list[ConfigEntry]:
    entries = []
    for name, definition in definitions.items():
        if definition.internal and name not in own:
            continue
        value = value_of(name, definition)
        synonyms = synonyms_of(name)
        if name in own:
            synonyms = (ConfigSynonym(name, value, own_source), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entries.append(
            ConfigEntry(
                name,
                value,
                source,
                read_only=False,
                sensitive=False,
                synonyms=synonyms,
                kind=definition.kind,
                doc=definition.doc,
            )
        )
    return entries


def _broker_entry(
    name: str, text: str | None, broker: BrokerSources, *, whole_cluster: bool
) -> ConfigEntry:
    definition = broker.extensions.get(name) or dynamic_definition_of(name)
    # An unknown key may be a secret of a plug-in.
    sensitive = definition is None or definition.sensitive
    synonyms = _broker_synonyms(name, broker, hide=sensitive)
    if whole_cluster:
        default = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        synonyms = tuple(s for s in synonyms if s.source is default)
    value = None
    if definition is not None and not sensitive:
        value = format_value(definition.default) if text is None else _parsed_text(definition, text)
        if definition.required and text is None:
            value = None
    # Under a listener's prefix a key is none of its own to Kafka.
    dynamic = (
        definition is not None
        and definition.name == name
        and update_mode(definition, zookeeper=broker.zookeeper) is not UpdateMode.READ_ONLY
    )
    return ConfigEntry(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=not dynamic,
        sensitive=sensitive,
        synonyms=synonyms,
        kind=ConfigType.STRING if definition is None else definition.kind,
        doc="" if definition is None else _broker_doc(definition),
    )


def _broker_doc(definition: ConfigDef) -> str:
    """The documentation of a broker key, or of the topic key whose default it is."""
    key = _TOPIC_KEY_OF.get(definition.name)
    if definition.doc or key is None:
        return definition.doc
    return f"Default of the topic config {key}. {TOPIC_CONFIGS[key].doc}"


def _broker_synonyms(name: str, broker: BrokerSources, *, hide: bool) -> tuple[ConfigSynonym, ...]:
    names = _BROKER_SYNONYMS.get(name, (name,))
    found = [
        ConfigSynonym(synonym, None if hide else values[synonym], source)
        for values, source in (
            (broker.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (broker.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for synonym in names
        if synonym in values
    ]
    for synonym in names:
        definition = BROKER_CONFIGS.get(synonym) or broker.extensions.get(synonym)
        if definition is not None and definition.default is not None and not definition.required:
            text = None if hide else format_value(definition.default)
            found.append(ConfigSynonym(synonym, text, ConfigSource.DEFAULT_CONFIG))
    while found and found[0].name != name:
        found.pop(0)
    return tuple(found)


def _parsed_text(definition: ConfigDef, text: str) -> str | None:
    """The value parsed and formatted; the text itself if it is invalid."""
    try:
        return format_value(parse_value(definition, text))
    except KafkaError:
        return text
