"""One socket of the fault proxy: buffers received data with its arrival time.

Invariant: it buffers at most one window plus one chunk, then applies TCP back-pressure.
"""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_BYTES_MAX = 1 << 20
"""Bytes buffered per direction of a connection before reading pauses."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class End(asyncio.Protocol):
    """One socket with a buffer of received data."""

    def __init__(self) -> None:

        self.ended: str | None = None
        """`eof` or `reset` once no more data can arrive."""
        self.swallows = False
        """Half-open: received data is discarded."""
        self.lost = False
        """The connection is lost; writes are no longer possible."""
        self._gone = asyncio.Event()
        self._inbox: deque[tuple[float, bytes]] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self.on_made: Callable[[End], object] = lambda _: None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:

        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.on_made(self)

    def data_received(self, data: bytes) -> None:
        """Buffer the data until `take`."""
        if self.swallows:
            return
        self._inbox.append((asyncio.get_running_loop().time(), data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > WINDOW_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        """Note that the peer sends no more data; we may still send."""
        self.ended = self.ended or "eof"
        self._gone.set()
        self._news.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:

        self.lost = True
        self.ended = self.ended or ("reset" if exc else "eof")
        self._gone.set()
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:

        self._writable.clear()

    def resume_writing(self) -> None:

        self._writable.set()

    # for the lanes

    async def first(self, count: int) -> bytes:
        """Wait for the first `count` bytes without consuming them; fewer if the stream ends."""
        while True:
            known = b"".join(data for _, data in self._inbox)
            if len(known) >= count or self.ended:
                return known
            self._news.clear()
            await self._news.wait()

    async def gone(self) -> None:
        """Wait until no more data can arrive."""
        await self._gone.wait()

    async def take(self) -> tuple[float, bytes] | None:
        """Return the next chunk with its arrival time; None at the end of the stream."""
        while not self._inbox:
            if self.ended:
                return None
            self._news.clear()
            await self._news.wait()
        came, data = self._inbox.popleft()
        self._waiting_bytes -= len(data)
        if self._waiting_bytes <= WINDOW_BYTES_MAX and self._transport and not self.ended:
            self._transport.resume_reading()
        return came, data

    async def write(self, data: bytes) -> None:
        """Send and wait until the write buffer has room."""
        assert self._transport is not None
        self._transport.write(data)
        await self._writable.wait()

    def finish(self) -> None:
        """Close the sending direction; the peer may still send."""
        if self._transport is not None and not self._transport.is_closing():
            # The socket may already be reset although `connection_lost` has not been called yet.
            with contextlib.suppress(OSError):
                self._transport.write_eof()

    def swallow(self) -> None:
        """Discard buffered and future data."""
        self.swallows = True
        self._inbox.clear()
        if self._transport is not None and not self.ended:
            self._transport.resume_reading()

    def close(self, *, reset: bool = False) -> None:
        """Close the socket; `reset` sends a TCP reset and discards data in flight."""
        if self._transport is None:
            return
        raw = self._transport.get_extra_info("socket")
        if reset and raw is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if reset:
            self._transport.abort()
        else:
            self._transport.close()
