"""Moments as a reader types them: an offset of the metadata log, or a time in UTC.

A moment must be within the log that the timeline has. The log ends at its newest record, also if
that record changes nothing: an active controller appends one at least every few hundred ms
(`metadata.max.idle.interval.ms`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.client.explain.times import time_text

if TYPE_CHECKING:
    from sparkraft.console.timeline import Timeline

SHOWN_CHARS = 64
"""Of a text that cannot be understood."""

_OFFSET = re.compile(r"[0-9]{1,19}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MomentError(ValueError):
    """A text that names no moment of the log, with a sentence for the reader."""


class Moment(NamedTuple):
    """An offset or a time; the other one is -1."""

    offset: int = -1
    at_ms: int = -1


def parse_moment(text: str) -> Moment:
    """Return the moment that `text` names; a time without a zone is in UTC.

    Raises:
        MomentError: `text` is neither an offset nor a time.
    """
    text = text.strip()
    if _OFFSET.fullmatch(text):
        return Moment(offset=int(text))
    try:
        found = datetime.fromisoformat(text.removesuffix("UTC").rstrip())
    except ValueError:
        wanted = "expected an offset or a time in UTC such as 2026-01-31 12:00:00"
        raise MomentError(f"{wanted}, got {text[:SHOWN_CHARS]!r}") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    at_ms = (found - _EPOCH) // timedelta(milliseconds=1)
    return Moment(at_ms=max(0, at_ms))


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
