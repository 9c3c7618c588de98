"""Filters of a batch query as bounds of the records to fetch.

Spark applies all filters itself as well: here they only leave out ranges that cannot match.
`timestamp <` and `<=` do not: with CreateTime, a record may be older than those before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.offsets import Offsets

OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Bounds of the records that may match; None and the defaults exclude nothing.

    Args:
        topics: their topics.
        partitions: their partitions' numbers.
        first: their lowest offset.
        end: the offset after their highest.
        since: their lowest timestamp, in milliseconds since 1970.
    """

    topics: AbstractSet[Any] | None = None
    partitions: AbstractSet[Any] | None = None
    first: int = 0
    end: int = OFFSET_MAX
    since: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether records of this topic partition may match."""
        topic, number = partition
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or number in self.partitions
        )

    def narrowed(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The two offsets of each partition, moved towards each other."""
        until = {each: min(offset, self.end) for each, offset in end.items()}
        begin = {each: max(offset, self.first) for each, offset in start.items()}
        return {each: min(offset, until[each]) for each, offset in begin.items()}, until


def narrowing(filters: Sequence[Filter]) -> Narrowing:
    """The bounds in filters that all must be true; those of other kinds are ignored."""
    found = Narrowing()
    for each in filters:
        found = _with(found, each)
    return found


_LOWER: Final = (GreaterThan, GreaterThanOrEqual)
_UPPER: Final = (LessThan, LessThanOrEqual)


def _with(found: Narrowing, given: Filter) -> Narrowing:
    column = getattr(given, "attribute", (None,))[0]
    if isinstance(given, EqualTo | EqualNullSafe):
        found = _with_values(found, column, (given.value,))
    elif isinstance(given, In):
        found = _with_values(found, column, given.value)
    elif isinstance(given, _LOWER) and column == "timestamp":
        found = _since(found, [given.value])
    elif isinstance(given, _LOWER) and column == "offset":
        first = int(given.value) + isinstance(given, GreaterThan)
        found = replace(found, first=max(found.first, first))
    elif isinstance(given, _UPPER) and column == "offset":
        end = int(given.value) + isinstance(given, LessThanOrEqual)
        found = replace(found, end=min(found.end, end))
    return found


def _with_values(found: Narrowing, column: str | None, values: Iterable[Any]) -> Narrowing:
    known = {each for each in values if each is not None}
    if column == "topic":
        found = replace(found, topics=known if found.topics is None else known & found.topics)
    elif column == "partition":
        kept = known if found.partitions is None else known & found.partitions
        found = replace(found, partitions=kept)
    elif column == "offset" and known:
        first, end = max(found.first, min(known)), min(found.end, max(known) + 1)
        found = replace(found, first=first, end=end)
    elif column == "timestamp" and known:
        found = _since(found, known)
    return found


def _since(found: Narrowing, times: Sequence[Any] | AbstractSet[Any]) -> Narrowing:
    """At or after the earliest of some times; rounded down, as record timestamps are whole ms."""
    if not all(isinstance(each, datetime) and each.tzinfo for each in times):
        return found
    earliest = min(times)
    since = (earliest - _EPOCH) // _MILLISECOND
    return replace(found, since=since if found.since is None else max(found.since, since))


_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
