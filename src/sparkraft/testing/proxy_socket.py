"""One socket of the fault proxy: what came in waits, with its time, until it is taken.

Invariant: it holds at most a window and a chunk; then its sender waits, as TCP has it.
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
"""What one direction of a connection holds before its sender is made to wait."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class End(asyncio.Protocol):
    """One socket: what came in waits until it is taken."""

    def __init__(self) -> None:
        """Connected to nobody yet."""
        self.ended: str | None = None
        """`eof` or `reset` once nothing more comes."""
        self.swallows = False
        """Half-open: nobody will read what comes."""
        self.lost = False
        """Nothing can be written any more."""
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
        """The socket is connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.on_made(self)

    def data_received(self, data: bytes) -> None:
        """Keep it until it is taken."""
        if self.swallows:
            return
        self._inbox.append((asyncio.get_running_loop().time(), data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > WINDOW_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        """The other side sends no more; we still may."""
        self.ended = self.ended or "eof"
        self._gone.set()
        self._news.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.lost = True
        self.ended = self.ended or ("reset" if exc else "eof")
        self._gone.set()
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        """The other side reads slower than we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It caught up."""
        self._writable.set()

    # for the lanes

    async def first(self, count: int) -> bytes:
        """At least so many of the first bytes, which stay to be taken; fewer where it ended."""
        while True:
            known = b"".join(data for _, data in self._inbox)
            if len(known) >= count or self.ended:
                return known
            self._news.clear()
            await self._news.wait()

    async def gone(self) -> None:
        """Return once nothing more comes."""
        await self._gone.wait()

    async def take(self) -> tuple[float, bytes] | None:
        """The next piece and when it came; None at the end."""
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
        """Send; return once there is room for more."""
        assert self._transport is not None
        self._transport.write(data)
        await self._writable.wait()

    def finish(self) -> None:
        """Nothing more is written; the other side may still send."""
        if self._transport is not None and not self._transport.is_closing():
            # A socket that was reset is told of only later, and has nobody to tell any more.
            with contextlib.suppress(OSError):
                self._transport.write_eof()

    def swallow(self) -> None:
        """Read on, and drop it: nobody is there."""
        self.swallows = True
        self._inbox.clear()
        if self._transport is not None and not self.ended:
            self._transport.resume_reading()

    def close(self, *, reset: bool = False) -> None:
        """Close; `reset` tells the other side at once, and what is on its way is lost."""
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
