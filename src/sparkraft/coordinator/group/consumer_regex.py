"""Regular expressions of topic names in RE2 syntax, which match in linear time (KIP-848).

A new expression is compiled at once, and resolved to topics outside the shard: matching all topics
takes time, and the group sees only topics that the member's principal may describe. The group uses
the topics as of the last resolution. It resolves all its expressions again

    * when one of them is unresolved
    * when topics were created
    * after `group.consumer.regex.refresh.interval.ms`, as authorizations may have changed

but not within ten seconds of the last resolution.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.runtime import Effect

RESOLUTION_INTERVAL_MS_MIN = 10_000
"""As in Kafka: bounds what a flood of new expressions costs."""

RESOLUTION_MS_MAX = 60_000
"""After that a resolution is taken as lost."""

_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)
"""Escaped characters of an expression, without those between `\\Q` and `\\E`."""

_COMPILED_MAX = 256
_PATTERN_MEMORY_MAX = 8 << 20
"""RE2's own default: an expression that needs more is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRegexes(Effect):
    """Find the topics that match each pattern; the result is a `MatchingTopics`.

    Attributes:
        may_describe: whether the member's principal may describe a topic.
    """

    group_id: str
    patterns: tuple[str, ...]
    may_describe: Callable[[str], bool] = field(repr=False, compare=False)


class MatchingTopics(NamedTuple):
    """The topics that match each pattern, in the image of offset `version`."""

    version: int
    topics: Mapping[str, frozenset[str]]


@lru_cache(maxsize=_COMPILED_MAX)
def compiled_regex(pattern: str) -> Any:
    r"""The compiled expression; KafkaError (INVALID_REGULAR_EXPRESSION) if it is malformed.

    `\C`, which matches a byte, is refused as by RE2/J, whose text has no bytes.
    """
    import re2

    if any(escape[1] == "C" for escape in _ESCAPES.finditer(pattern)):
        raise _malformed(pattern, "invalid escape sequence: \\C")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise _malformed(pattern, reason) from error


def _malformed(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
    )


def matching(pattern: str, topics: Iterable[str]) -> list[str]:
    """The topics whose whole name matches."""
    fullmatch = compiled_regex(pattern).fullmatch
    return [topic for topic in topics if fullmatch(topic) is not None]


class Resolutions:
    """When the expressions of each group were resolved. Soft state of a shard."""

    def __init__(self, refresh_interval_ms: int) -> None:
        self._refresh_interval_ms = refresh_interval_ms
        self._started: dict[str, Millis] = {}
        """Group → start of the resolution in progress."""
        self._ended: dict[str, Millis] = {}
        self._topics_version: dict[str, int] = {}

    def is_due(
        self,
        group_id: str,
        patterns: Iterable[str],
        resolved: Mapping[str, Any],
        *,
        topics_version: int,
        now_ms: Millis,
    ) -> bool:
        """Whether to resolve now. `topics_version` counts images with new topics."""
        started_ms = self._started.get(group_id)
        if started_ms is not None and now_ms - started_ms < RESOLUTION_MS_MAX:
            return False
        ended_ms = self._ended.get(group_id)
        if ended_ms is not None and now_ms - ended_ms <= RESOLUTION_INTERVAL_MS_MIN:
            return False
        return (
            any(one not in resolved for one in patterns)
            or ended_ms is None
            or self._topics_version.get(group_id) != topics_version
            or now_ms - ended_ms >= self._refresh_interval_ms
        )

    def start(self, group_id: str, *, topics_version: int, now_ms: Millis) -> None:
        """A resolution begins."""
        self._started[group_id] = now_ms
        self._topics_version[group_id] = topics_version

    def end(self, group_id: str, now_ms: Millis) -> None:
        """A resolution ended, with or without a result."""
        self._started.pop(group_id, None)
        self._ended[group_id] = now_ms

    def forget(self, group_id: str) -> None:
        """The group has no expressions any more."""
        self._started.pop(group_id, None)
        self._ended.pop(group_id, None)
        self._topics_version.pop(group_id, None)
