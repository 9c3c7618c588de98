"""Topic configs: the broker configs that are their defaults, and checks on several of them."""

from collections.abc import Mapping

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.configs.broker import BROKER_CONFIGS
from sparkraft.metadata.configs.definition import (
    ConfigValue,
    by_name,
    parse_value,
)
from sparkraft.metadata.configs.topic_keys import TOPIC_KEYS

TOPIC_CONFIGS = by_name(TOPIC_KEYS)
"""Topic keys by name."""


class Synonym:
    """A broker config whose value is the default of a topic config.

    Args:
        name: the broker key.
        factor: multiply the broker value by it to get the topic value (hours to milliseconds).
    """

    __slots__ = ("factor", "name")

    def __init__(self, name: str, factor: int = 1) -> None:
        self.name = name
        self.factor = factor


_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


def _same(*names: str) -> dict[str, tuple[Synonym, ...]]:
    return {name: (Synonym(name),) for name in names}


def _with_prefix(prefix: str, *names: str) -> dict[str, tuple[Synonym, ...]]:
    return {name: (Synonym(prefix + name),) for name in names}


def _renamed(**pairs: str) -> dict[str, tuple[Synonym, ...]]:
    return {name.replace("_", "."): (Synonym(broker),) for name, broker in pairs.items()}


TOPIC_SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    **_with_prefix(
        "log.",
        "cleanup.policy",
        "index.interval.bytes",
        "local.retention.bytes",
        "local.retention.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "preallocate",
        "retention.bytes",
        "segment.bytes",
    ),
    **_with_prefix(
        "log.cleaner.", "delete.retention.ms", "max.compaction.lag.ms", "min.compaction.lag.ms"
    ),
    **_same(
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    ),
    **_renamed(
        file_delete_delay_ms="log.segment.delete.delay.ms",
        flush_messages="log.flush.interval.messages",
        max_message_bytes="message.max.bytes",
        min_cleanable_dirty_ratio="log.cleaner.min.cleanable.ratio",
        segment_index_bytes="log.index.size.max.bytes",
    ),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
}
"""Topic key to the broker keys that are its default, by precedence."""


def synonym_value(topic_key: str, synonym: Synonym, text: str) -> ConfigValue:
    """Convert the text of a broker config to the value of the topic config."""
    value = parse_value(BROKER_CONFIGS[synonym.name], text)
    if synonym.factor != 1 and isinstance(value, int):
        # A negative retention means none, in every unit.
        value = -1 if value < 0 and topic_key == "retention.ms" else value * synonym.factor
    return value


def topic_defaults(broker_configs: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Default values of all topic configs, given the broker's configs."""
    values: dict[str, ConfigValue] = {}
    for name, definition in TOPIC_CONFIGS.items():
        values[name] = definition.default
        for synonym in TOPIC_SYNONYMS.get(name, ()):
            text = broker_configs.get(synonym.name)
            if text is not None:
                values[name] = synonym_value(name, synonym, text)
                break
    return values


def validate_topic_configs(
    configs: Mapping[str, str], broker_configs: Mapping[str, str] | None = None
) -> dict[str, ConfigValue]:
    """Validate and parse the configs of a topic.

    Args:
        configs: keys set on the topic; each must be known.
        broker_configs: keys set on the broker or cluster, for the checks over several keys.

    Raises:
        KafkaError: INVALID_CONFIG, for an unknown key, a bad value or values that contradict.
    """
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    own = {name: parse_value(TOPIC_CONFIGS[name], text) for name, text in configs.items()}
    _check_together({**topic_defaults(broker_configs or {}), **own}, own)
    return own


def _check_together(values: Mapping[str, ConfigValue], own: Mapping[str, ConfigValue]) -> None:
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({low}) is greater than max.compaction.lag.ms ({high})",
        )
    if own.get("remote.storage.enable") is True:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "remote.storage.enable needs tiered storage, which this cluster does not have",
        )
