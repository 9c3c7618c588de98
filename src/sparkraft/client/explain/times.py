"""Wall-clock times in ms as text."""

from datetime import UTC, datetime

_SECONDS_FROM_MS = 10_000
"""Durations from here on are shown in seconds."""


def time_text(ms: int) -> str:
    """Return date and time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def clock_text(ms: int) -> str:
    """Return the time of day in UTC."""
    return time_text(ms)[11:23]


def duration_text(ms: int) -> str:
    return f"{ms} ms" if ms < _SECONDS_FROM_MS else f"{ms / 1000:.1f} s"
