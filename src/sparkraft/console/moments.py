"""The offset of a moment as a reader types it.

A moment must be within the log that the timeline has. The log ends at its newest record, also if
that record changes nothing: an active controller appends one at least every few hundred ms
(`metadata.max.idle.interval.ms`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.client.explain.times import time_text
from sparkraft.console.moment_text import SHOWN_CHARS, MomentError, parse_moment

if TYPE_CHECKING:
    from sparkraft.console.timeline import Timeline


def offset_of(timeline: Timeline, text: str) -> int:
    """Return the offset of the moment that `text` names: for a time, of the last change up to it.

    Raises:
        MomentError: `text` names no moment, or one outside the log.
    """
    index, first = timeline.index, timeline.first_change
    if first >= len(index.offsets):
        raise MomentError(timeline.problem or "the metadata log has no changes yet")
    moment, text = parse_moment(text), text.strip()[:SHOWN_CHARS]
    start, start_ms = index.offsets[first], index.times[first]
    end, end_ms = timeline.next_offset - 1, max(timeline.latest.at_ms, index.times[-1])
    begins = f"the metadata log begins at offset {start}, {_time(start_ms)}"
    ends = f"the metadata log ends at offset {end}, {_time(end_ms)}"
    if moment.offset > end:
        raise MomentError(f"offset {moment.offset} is after the end: {ends}")
    if moment.at_ms > end_ms:
        raise MomentError(f"{text} is after the end: {ends}")
    if 0 <= moment.offset < start:
        raise MomentError(f"offset {moment.offset} is before the start: {begins}")
    if 0 <= moment.at_ms < start_ms:
        raise MomentError(f"{text} is before the start: {begins}")
    if moment.offset >= 0:
        return moment.offset
    return index.offsets[max(first, index.last_at_time(moment.at_ms))]


def _time(ms: int) -> str:
    return f"{time_text(ms)[:23].replace('T', ' ')} UTC"
