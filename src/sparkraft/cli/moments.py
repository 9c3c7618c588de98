"""Moments of the past, as people name them and as they are shown: wall-clock ms within."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from sparkraft.cli.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(\d+)([smhd])")


def moment(text: str | None, option: str) -> int:
    """A span before now (90s, 10m, 2h, 3d) or an ISO time, in ms; -1 where nothing is given."""
    if text is None:
        return -1
    span = _SPAN.fullmatch(text)
    if span is not None:
        return time.time_ns() // 1_000_000 - int(span[1]) * _UNITS[span[2]] * 1000
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is neither a span such as 10m nor a time") from error
    if found.tzinfo is None:
        found = found.astimezone()
    return int(found.timestamp() * 1000)


def time_text(ms: int) -> str:
    """With its date, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def clock_text(ms: int) -> str:
    """Without its date."""
    return time_text(ms)[11:23]


def span_text(ms: int) -> str:
    """How long something took."""
    return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"  # noqa: PLR2004
