"""Subscriptions of client metrics (KIP-714): which clients push which metrics, and how often.

A subscription is a config resource of the type CLIENT_METRICS with three keys: `metrics` (prefixes
of names; `*` for all), `interval.ms`, and `match` (`parameter=regular expression` each; all must
match the whole value). Regular expressions are RE2's: a pattern cannot stall a broker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.configs import CLIENT_METRICS_CONFIGS
from sparkraft.metadata.configs.definition import parse_value

INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
ALL_METRICS = "*"

MATCH_PARAMETERS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class Subscription(NamedTuple):
    """One subscription.

    Attributes:
        metrics: prefixes of the metrics' names.
        interval_ms: between two pushes.
        match: parameter → compiled pattern.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Any], ...]

    def matches(self, client: Mapping[str, str]) -> bool:
        """Whether it is for this client; `client` has a value for each parameter."""
        return all(pattern.fullmatch(client[name]) for name, pattern in self.match)


def subscription_of(configs: Mapping[str, str]) -> Subscription:
    """The subscription with these configs, which were checked."""
    interval = configs.get("interval.ms")
    return Subscription(
        metrics=_words(configs, "metrics"),
        interval_ms=INTERVAL_MS_DEFAULT if interval is None else int(interval),
        match=parse_match(_words(configs, "match")),
    )


def _words(configs: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(word for each in configs.get(key, "").split(",") if (word := each.strip()))


def check_subscription(configs: Mapping[str, str]) -> None:
    """Check the values of a subscription beyond their types, as Kafka's ClientMetricsConfigs.

    Raises:
        KafkaError: INVALID_REQUEST for the interval, INVALID_CONFIG for a pattern.
    """
    interval = configs.get("interval.ms")
    if interval is not None:
        parse_value(CLIENT_METRICS_CONFIGS["interval.ms"], interval)
        if not INTERVAL_MS_MIN <= int(interval) <= INTERVAL_MS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {int(interval)} for interval.ms, interval must be between 100 and "
                "3600000 (1 hour)",
            )
    parse_match(_words(configs, "match"))


def parse_match(patterns: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """Parameters and compiled patterns; of two for a parameter the last one counts, as in Kafka.

    Raises:
        KafkaError: INVALID_CONFIG.
    """
    import re2  # native code that a node without subscriptions does not load

    options = re2.Options()
    options.log_errors = False
    found: dict[str, Any] = {}
    for each in patterns:
        parts = each.split("=")
        name = parts[0].strip()
        illegal = KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {each}")
        if len(parts) != 2 or name not in MATCH_PARAMETERS:  # noqa: PLR2004 (a name and a pattern)
            raise illegal
        try:
            found[name] = re2.compile(parts[1].strip(), options)
        except re2.error as error:
            raise illegal from error
    return tuple(found.items())
