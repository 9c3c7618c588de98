"""Moments as a reader types them: an offset of the metadata log, or a time in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

SHOWN_CHARS = 64
"""Of a text that cannot be understood."""

_OFFSET = re.compile(r"[0-9]{1,19}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = "a time in UTC such as 2026-01-31 12:00:00"


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
    return Moment(at_ms=_time_of(text, f"an offset or {_TIME}"))


def parse_time(text: str) -> int:
    """Return the time that `text` names, in ms; one without a zone is in UTC.

    Raises:
        MomentError: `text` is neither a time nor a number of ms.
    """
    text = text.strip()
    return int(text) if _OFFSET.fullmatch(text) else _time_of(text, _TIME)


def _time_of(text: str, wanted: str) -> int:
    try:
        found = datetime.fromisoformat(text.removesuffix("UTC").rstrip())
    except ValueError:
        raise MomentError(f"expected {wanted}, got {text[:SHOWN_CHARS]!r}") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return max(0, (found - _EPOCH) // timedelta(milliseconds=1))
