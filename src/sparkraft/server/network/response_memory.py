"""Memory of responses that clients do not read.

    sent in part → `on_backlog`: the bytes that wait in this process
    all sent, or the connection is closed → forgotten

A connection's next request waits while much of its last response is unsent (`responses`), but many
connections together can keep as much as they like. sparkraft.queued.max.response.bytes is a bound,
by default one response of the largest size that Kafka's clients accept (100 MB) and hundreds of the
usual size. Above it, connections that have read nothing for `PATIENCE_MS` are closed, those with
most bytes first. Far above it (`HARD_FACTOR`) the one with most bytes is closed at once. Within the
bound no connection is affected: a consumer that processes records for minutes before it reads again
keeps its response.

Records mapped from files do not count: they are the page cache's.

A Fetch of a consumer gets no more records than there is room for (`room`), so consumers that catch
up together, and read what they get, stay within the bound.
"""

import mmap
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from sparkraft.base.ids import Millis

HARD_FACTOR = 2
"""This multiple of the bound is exceeded by one response at most."""

PATIENCE_MS = 5_000
"""Without progress for this long, a connection counts as one that does not read."""


ROOM_MIN = 1 << 20
"""A response may have as many bytes of records without room for it: all clients progress."""


class Reader(Protocol):
    """A connection with responses that wait for its client."""

    def drop_unread(self, why: str) -> None:
        """Close it at once, and drop its responses."""
        ...


@dataclass(slots=True)
class _Backlog:
    """Bytes of a connection, and when they last changed."""

    count: int
    changed_ms: Millis

    def change(self, count: int, now: Millis) -> None:
        """There are `count` bytes from now on."""
        self.count, self.changed_ms = count, now


class ResponseMemory:
    """The unsent responses of a node's connections.

    Args:
        bytes_max: the bound; 0 or less: none.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.dropped = 0
        """Connections that were closed because of their unread responses."""
        self._bytes_max = bytes_max
        self._backlogs: dict[Reader, _Backlog] = {}

    @property
    def room(self) -> int:
        """Bytes of records that the next response should have at most."""
        if self._bytes_max <= 0:
            return sys.maxsize
        return max(ROOM_MIN, self._bytes_max - self.bytes)

    def on_backlog(self, reader: Reader, parts: Iterable[Any], now: Millis) -> None:
        """`parts` of a reader's responses wait; none: all are sent."""
        count = memory_of(parts)
        known = self._backlogs.get(reader)
        if known is not None:
            self.bytes += count - known.count
            if count != known.count:
                known.change(count, now)
        elif count:
            self.bytes += count
            self._backlogs[reader] = _Backlog(count, now)
        if not count:
            self._backlogs.pop(reader, None)
        elif 0 < self._bytes_max * HARD_FACTOR < self.bytes:
            self._drop(max(self._backlogs, key=lambda each: self._backlogs[each].count))

    def forget(self, reader: Reader) -> None:
        """Its connection is closed."""
        known = self._backlogs.pop(reader, None)
        if known is not None:
            self.bytes -= known.count

    def check_progress(self, now: Millis) -> None:
        """Close connections that do not read, until the rest is within the bound."""
        if not 0 < self._bytes_max < self.bytes:
            return
        silent = [
            (known.count, place, reader)
            for place, (reader, known) in enumerate(self._backlogs.items())
            if now - known.changed_ms >= PATIENCE_MS
        ]
        for _, _, reader in sorted(silent, reverse=True, key=lambda each: each[:2]):
            if self.bytes <= self._bytes_max:
                break
            self._drop(reader)

    def _drop(self, reader: Reader) -> None:
        self.dropped += 1
        self.forget(reader)
        reader.drop_unread("it does not read its responses, and they fill the memory for responses")


def memory_of(parts: Iterable[Any]) -> int:
    """Bytes of `parts` in this process's own memory; a buffer that is sent again counts once."""
    buffers: dict[int, int] = {}
    for part in parts:
        buffer = part.obj if isinstance(part, memoryview) else part
        if not isinstance(buffer, mmap.mmap):
            buffers[id(buffer)] = max(len(part), buffers.get(id(buffer), 0))
    return sum(buffers.values())
