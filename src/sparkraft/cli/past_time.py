"""Times in the past as options name them: a time span before now, or an ISO time."""

from __future__ import annotations

import re
import time
from datetime import datetime

from sparkraft.cli.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(\d+)([smhd])")


def past_time(text: str | None, option: str) -> int:
    """Return wall-clock ms for a span before now (90s, 10m, 2h, 3d) or an ISO time; -1 for None."""
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
