"""The log on standard output, with a limit on repeated lines.

A client that sends one bad request after another must not fill a disk with log. Lines of one kind,
that is, of one place in the code, are limited per interval; how many were suppressed is logged.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_PER_INTERVAL = 100
"""Lines of one kind; more than a person reads, and 10 KB a second at most."""

INTERVAL_SECONDS = 10.0

KINDS_MAX = 1_000
"""Kinds that are counted at once; there are fewer places that log."""


class _Kind:
    """The lines of one place in the code within the current interval."""

    __slots__ = ("lines", "record", "since")

    def __init__(self, record: logging.LogRecord, since: float) -> None:
        self.record = record
        self.since = since
        self.lines = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, up to LINES_PER_INTERVAL of each kind; CRITICAL is not limited."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock()
        self._report(before=now - INTERVAL_SECONDS)
        if record.levelno < logging.CRITICAL and not self._has_room(record, now):
            return
        super().emit(record)

    def close(self) -> None:
        """Report what was suppressed last."""
        self._report(before=float("inf"))
        super().close()

    def _has_room(self, record: logging.LogRecord, now: float) -> bool:
        key = record.pathname, record.lineno
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                self._report(before=float("inf"))
            kind = self._kinds[key] = _Kind(record, now)
        kind.lines += 1
        if kind.lines == LINES_PER_INTERVAL + 1:
            text = f"More than {LINES_PER_INTERVAL} lines like the last one in {INTERVAL_SECONDS:g}"
            self._say(record, f"{text} s; suppressing further ones")
        return kind.lines <= LINES_PER_INTERVAL

    def _report(self, *, before: float) -> None:
        """Forget the kinds whose interval began before `before`, and log what was suppressed."""
        ended = [key for key, kind in self._kinds.items() if kind.since <= before]
        for key in ended:
            kind = self._kinds.pop(key)
            suppressed = kind.lines - LINES_PER_INTERVAL
            if suppressed > 0:
                self._say(kind.record, f"Suppressed {suppressed} lines like: {kind.record.msg}")

    def _say(self, of: logging.LogRecord, text: str) -> None:
        """Write a line of our own, with the level and logger of `of`."""
        line = logging.LogRecord(of.name, of.levelno, of.pathname, of.lineno, "%s", (text,), None)
        super().emit(line)
