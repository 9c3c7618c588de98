"""Topics and partitions as Kafka's tools let people name them."""

from __future__ import annotations

import re

from sparkraft.cli.errors import UsageError

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


class TopicFilter:
    """A regular expression over whole names; commas part alternatives, as in Kafka."""

    def __init__(self, text: str, option: str = "--topic") -> None:
        """Compile `text`; `UsageError` if it is not a regular expression."""
        cleaned = text.strip().strip("\"'").replace(" ", "").replace(",", "|")
        try:
            self._pattern = re.compile(cleaned)
        except re.error as error:
            raise UsageError(f"{option} {text!r} is not a regular expression: {error}") from None

    @property
    def pattern(self) -> str:
        """The expression itself."""
        return self._pattern.pattern

    def allows(self, topic: str, *, exclude_internal: bool) -> bool:
        """Whether `topic` is meant."""
        if exclude_internal and topic in INTERNAL_TOPICS:
            return False
        return self._pattern.fullmatch(topic) is not None


class PartitionFilter:
    """`topic:partitions` rules between commas: `t1:1,t2:0-3,t3,:5-,t5:-3`; upper ends exclusive."""

    def __init__(self, text: str) -> None:
        """Read the rules."""
        self._rules = [_rule(entry) for entry in text.split(",")]

    def allows(self, topic: str, partition: int) -> bool:
        """Whether some rule names it."""
        return any(
            pattern.fullmatch(topic) and first <= partition < end
            for pattern, first, end in self._rules
        )


def _rule(text: str) -> tuple[re.Pattern[str], int, float]:
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} does not look like topic:partitions")
    topic, one, first, end = match.groups()
    pattern = re.compile(topic or ".*")
    if one:
        return pattern, int(one), int(one) + 1
    return pattern, int(first or 0), int(end) if end else float("inf")
