"""Which part of a log may be cleaned, and how much it needs it (Kafka's LogCleanerManager).

    log start        first dirty           end                     active segment
        |   clean        |     cleanable    |      not yet             |

The clean part was cleaned before, up to the offset in `cleaner-offset-checkpoint`. Never cleaned:
the active segment, what is above the last stable offset, and what is younger than
`min.compaction.lag.ms`; `end` is the base of the first such segment. A log is due once the dirty
share of its bytes is above `min.cleanable.dirty.ratio`, or a record has waited for longer than
`max.compaction.lag.ms`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.storage.cleaner_filter import LastRecord

if TYPE_CHECKING:
    from sparkraft.storage.config import LogConfig
    from sparkraft.storage.index import AbortedTransaction
    from sparkraft.storage.log import PartitionLog
    from sparkraft.storage.segment import Segment


class Source(NamedTuple):
    """A segment and the offset after it."""

    segment: "Segment"
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A cleaning to be done, as of the moment it was planned.

    Attributes:
        segments: from the log's first to the last below `end`, in order.
        first_dirty: keys are indexed from here on.
        end: first offset that stays as it is.
        aborted: the aborted transactions of all segments.
        last_records: of the producers known, by id.
    """

    directory: str
    config: "LogConfig"
    segments: tuple[Source, ...]
    first_dirty: int
    end: int
    aborted: "tuple[AbortedTransaction, ...]"
    last_records: Mapping[int, LastRecord]
    now_ms: int


class Extent(NamedTuple):
    """How dirty a log is; cheap to find out."""

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """A record has waited for longer than `max.compaction.lag.ms`."""

    def is_due(self, config: "LogConfig") -> bool:
        """Whether it must be cleaned."""
        if self.dirty_bytes == 0:
            return False
        return self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio

    @property
    def ratio(self) -> float:
        """Dirty share of the bytes that can be cleaned."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def extent_of(log: "PartitionLog", cleaned_to: int | None, now_ms: int) -> Extent:
    """How much of a log is clean, and how much may be cleaned.

    Args:
        log: a compacted one.
        cleaned_to: offset at which its last cleaning ended; None if there was none. An offset
            outside the log (records were removed since) counts as none.
        now_ms: wall clock.
    """
    config = log.config
    segments = log.segments
    start = int(log.log_start_offset)
    is_of_this_log = cleaned_to is not None and start <= cleaned_to <= log.log_end_offset
    first_dirty = cleaned_to if is_of_this_log and cleaned_to is not None else start
    end = _first_uncleanable(segments, int(log.last_stable_offset), config, first_dirty, now_ms)
    clean = dirty = 0
    earliest = None
    for index, segment in enumerate(segments[:-1]):
        if segment.base_offset >= end:
            break
        if segments[index + 1].base_offset <= first_dirty:
            clean += segment.size
            continue
        dirty += segment.size
        first = segment.first_batch_timestamp()
        if first > 0 and (earliest is None or first < earliest):
            earliest = first
    waited_from = now_ms - max(config.max_compaction_lag_ms, 0)
    is_overdue = earliest is not None and earliest < waited_from
    return Extent(first_dirty, max(end, first_dirty), clean, dirty, is_overdue)


def _first_uncleanable(
    segments: "list[Segment]",
    last_stable_offset: int,
    config: "LogConfig",
    first_dirty: int,
    now_ms: int,
) -> int:
    """Base offset of the first segment that must stay as it is."""
    young = now_ms - max(config.min_compaction_lag_ms, 0)
    for index, segment in enumerate(segments[:-1]):
        following = segments[index + 1].base_offset
        if following > last_stable_offset:
            return segment.base_offset
        is_dirty = following > first_dirty
        if config.min_compaction_lag_ms > 0 and is_dirty and segment.largest_timestamp()[0] > young:
            return segment.base_offset
    return segments[-1].base_offset


def plan_cleaning(log: "PartitionLog", extent: Extent, now_ms: int) -> Cleaning:
    """Everything a cleaning needs to know about a log, so that it can run in another thread."""
    segments = log.segments
    sources = [
        Source(segment, segments[index + 1].base_offset)
        for index, segment in enumerate(segments[:-1])
        if segment.base_offset < extent.end
    ]
    last_records = {
        state.producer_id: LastRecord(
            state.batches[-1].last_offset if state.batches else -1, state.epoch
        )
        for state in log.active_producers()
    }
    return Cleaning(
        directory=log.directory,
        config=log.config,
        segments=tuple(sources),
        first_dirty=extent.first_dirty,
        end=extent.end,
        aborted=tuple(log.aborted_transactions(segments[0].base_offset, extent.end)),
        last_records=last_records,
        now_ms=now_ms,
    )
