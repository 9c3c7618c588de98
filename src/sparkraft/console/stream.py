"""Server-Sent Events: the newest document of each kind, for every page that is open.

A stream holds at most one pending document per kind, because a newer one replaces it. A slow
browser therefore takes no memory and never sees old states.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.console.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAMS_MAX = 64
"""Open pages; each has one stream while it is visible."""

PING_SECONDS = 15.0
"""A comment is sent this often, so that both sides notice a dead connection."""

RETRY_MS = 2_000


class TooManyStreamsError(Exception):
    """`STREAMS_MAX` pages are open."""


@dataclass(frozen=True, slots=True)
class Event:
    """A document of a kind, encoded once for all streams."""

    number: int
    kind: str
    text: str

    def encoded(self) -> bytes:
        """The event's bytes in a stream; JSON text has no line breaks."""
        return f"id: {self.number}\nevent: {self.kind}\ndata: {self.text}\n\n".encode()


class EventHub:
    """Passes documents to all open streams."""

    def __init__(self) -> None:
        self._newest: dict[str, Event] = {}
        self._keys: dict[str, Any] = {}
        self._streams: set[EventStream] = set()
        self._watched = asyncio.Event()
        self._number = 0
        self._is_closed = False

    @property
    def stream_count(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    async def wait_until_watched(self) -> None:
        """Return once a stream is open."""
        await self._watched.wait()

    def publish(self, kind: str, document: Any, *, key: Any = None) -> bool:
        """Send `document` to all streams unless it equals the last one of its kind.

        Args:
            kind: name of the event.
            document: its data.
            key: compared instead of the document, if parts of it change without being news.

        Returns:
            whether it was news.
        """
        compared = document if key is None else key
        if kind in self._keys and self._keys[kind] == compared:
            return False
        self._keys[kind] = compared
        self._number += 1
        event = Event(self._number, kind, json_text(document))
        self._newest[kind] = event
        for stream in self._streams:
            stream.offer(event)
        return True

    def open(self) -> EventStream:
        """Return a new stream, which begins with the newest document of each kind.

        Raises:
            TooManyStreamsError: there are `STREAMS_MAX` already.
        """
        if len(self._streams) >= STREAMS_MAX:
            raise TooManyStreamsError
        stream = EventStream()
        for event in self._newest.values():
            stream.offer(event)
        if self._is_closed:
            stream.close()
        self._streams.add(stream)
        self._watched.set()
        return stream

    def discard(self, stream: EventStream) -> None:
        """Forget a stream; without any, polling stops."""
        self._streams.discard(stream)
        if not self._streams:
            self._watched.clear()

    def close(self) -> None:
        """End all streams, and those that are opened later."""
        self._is_closed = True
        for stream in self._streams:
            stream.close()


class EventStream:
    """Pending events of one page."""

    def __init__(self) -> None:
        self._pending: dict[str, Event] = {}
        self._wake = asyncio.Event()
        self._is_closed = False

    def offer(self, event: Event) -> None:
        """Send `event` next, instead of an older one of its kind."""
        self._pending[event.kind] = event
        self._wake.set()

    def close(self) -> None:
        """End after the pending events."""
        self._is_closed = True
        self._wake.set()

    async def encoded(self) -> AsyncIterator[bytes]:
        """The stream's bytes until it is closed."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        while True:
            self._wake.clear()
            pending, self._pending = self._pending, {}
            for event in pending.values():
                yield event.encoded()
            if self._pending:
                continue
            if self._is_closed:
                return
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                yield b": ping\n\n"
