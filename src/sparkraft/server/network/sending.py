"""Writes a connection's responses without copying large ones.

An asyncio transport copies the bytes its socket does not accept at once. On a plain socket, the
responses are therefore written here, with `writev`, and the rest waits uncopied until there is room
(`SocketSender`). With something in between the transport gets them piece by piece: a simulated
network (`TransportSender`), or TLS (`TlsSender`).

Mapped parts of files (`storage.disk`) are only given to plain sockets: if the file has been
truncated, the kernel refuses to read them and the connection is closed, as in Kafka; reading them
in this process would kill the process.

Not here: when a connection writes, and in which order (`connection`).
"""

import asyncio
import errno
import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from sparkraft.base.loop_work import LoopBound

log = logging.getLogger(__name__)

PIECE_BYTES = 64 * 1024
"""Bytes given to a transport at once: it copies those the socket does not accept."""

TLS_BYTES_MAX = 256 * 1024
"""The same for TLS, as long as its peer keeps up."""

_SMALL_BYTES = 32 * 1024
"""Parts below it are joined with small neighbors: a copy is cheaper than another buffer. Mapped
parts are larger (`storage.mapped.VIEW_BYTES_MIN`)."""

_JOINED_BYTES_MAX = 512 * 1024

_BUFFERS_MAX = 64
"""Buffers of one writev: more than a response has, and far below Linux's 1024."""

WRITE_BYTES: LoopBound = 4 << 20
"""Bytes gathered for one writev: all that `responses.RUN_BYTES_MAX` collects. Two responses of 1 MB
in one call cost a fifth less than in two."""

COPIED_BYTES_MAX: LoopBound = 1 << 20
"""Bytes of small parts that are joined for one writev: 0.3 ms."""

RUN_BYTES_MAX: LoopBound = 8 << 20
"""Bytes written at once to a peer that reads as fast as we write: 3 ms; then others have a turn."""


def join_front(backlog: deque[Any]) -> list[Any]:
    """The parts at the front of `backlog` for one write; they stay in it.

    Small neighbors are joined in place, no earlier than they are needed: a response may consist of
    a thousand references to one part. Large parts are not copied.
    """
    out: list[Any] = []
    small: list[Any] = []
    small_bytes = copied = total = 0
    while backlog and total < WRITE_BYTES and copied < COPIED_BYTES_MAX and len(out) < _BUFFERS_MAX:
        part = backlog.popleft()
        size = len(part)
        total += size
        if size < _SMALL_BYTES:
            small.append(part)
            small_bytes += size
            copied += size
            if small_bytes < _JOINED_BYTES_MAX:
                continue
        if small:
            out.append(b"".join(small) if len(small) > 1 else small[0])
            small, small_bytes = [], 0
        if size >= _SMALL_BYTES:
            out.append(memoryview(part))
    if small:
        out.append(b"".join(small) if len(small) > 1 else small[0])
    backlog.extendleft(reversed(out))
    return out


class Sender(ABC):
    """Sends one connection's responses in order; bytes the socket does not accept wait.

    Attributes:
        backlog: the parts that wait, in order; read-only to others.
        unsent: their bytes.
    """

    __slots__ = ("backlog", "unsent")

    def __init__(self) -> None:
        self.backlog: deque[Any] = deque()
        self.unsent = 0

    @property
    def waits(self) -> bool:
        """Whether anything waits for the peer to read."""
        return bool(self.backlog)

    @property
    def takes_views(self) -> bool:
        """Whether parts may be mapped from files: they are given to the kernel and never read."""
        return False

    @abstractmethod
    def send(self, parts: list[Any], size: int) -> None:
        """Send `parts`, `size` bytes in all, after the backlog."""

    @abstractmethod
    def close(self) -> None:
        """Close the transport once all has been sent."""

    @abstractmethod
    def pause(self) -> None:
        """The transport holds enough."""

    @abstractmethod
    def resume(self) -> None:
        """The transport has room."""

    def drop(self) -> None:
        """Drop the backlog: the connection is lost."""
        self.backlog.clear()
        self.unsent = 0


class SocketSender(Sender):
    """Writes to a plain socket itself; its transport only reads, and closes.

    Args:
        transport: the connection's; it must never be given anything to write.
        fd: of its socket.
        on_room: called whenever a part of the backlog has been sent.
        on_unreadable: called if a mapped part cannot be read any more.
    """

    __slots__ = ("_closes", "_fd", "_on_room", "_on_unreadable", "_transport", "_watched")

    def __init__(
        self,
        transport: asyncio.Transport,
        fd: int,
        on_room: Callable[[], None],
        on_unreadable: Callable[[], None],
    ) -> None:
        """Write to `fd`."""
        super().__init__()
        self._on_unreadable = on_unreadable
        self._transport = transport
        self._fd = fd
        self._on_room = on_room
        # A second descriptor of the socket: asyncio watches only descriptors that no transport has.
        self._watched = -1
        self._closes = False

    @property
    def takes_views(self) -> bool:
        """Always."""
        return True

    def send(self, parts: list[Any], size: int) -> None:
        """See `Sender.send`."""
        backlog = self.backlog
        if backlog:
            backlog.extend(parts)
            self.unsent += size
            return
        if self._fd < 0:
            return
        if size > PIECE_BYTES:
            backlog.extend(parts)
        else:
            backlog.append(parts[0] if len(parts) == 1 else b"".join(parts))
        self.unsent = size
        self._write()

    def close(self) -> None:
        """See `Sender.close`."""
        if self.backlog and self._fd >= 0:
            self._closes = True
            self._transport.pause_reading()
        else:
            self._transport.close()

    def pause(self) -> None:
        """See `Sender.pause`; this transport writes nothing."""

    def resume(self) -> None:
        """See `Sender.resume`."""

    def drop(self) -> None:
        """See `Sender.drop`."""
        super().drop()
        self._fd = -1
        self._unwatch()

    def _write(self) -> None:
        """Send from the front of the backlog what the socket takes now; then wait for room."""
        backlog = self.backlog
        budget = RUN_BYTES_MAX
        while backlog and budget > 0:
            try:
                if len(backlog) == 1:
                    sent = os.write(self._fd, backlog[0])
                else:
                    sent = os.writev(self._fd, join_front(backlog))
            except BlockingIOError:
                break
            except OSError as error:
                self._fail(error)
                return
            self.unsent -= sent
            budget -= sent
            while backlog and sent >= len(backlog[0]):
                sent -= len(backlog.popleft())
            if sent:
                backlog[0] = memoryview(backlog[0])[sent:]
                break
        if backlog and self._watched < 0:
            try:
                self._watched = os.dup(self._fd)
            except OSError as error:
                self._fail(error)
                return
            asyncio.get_running_loop().add_writer(self._watched, self._on_writable)

    def _on_writable(self) -> None:
        self._write()
        if self._fd < 0:
            return
        if self._closes:
            if not self.backlog:
                self._unwatch()
                self._transport.close()
            return
        self._on_room()
        if not self.backlog:
            self._unwatch()

    def _unwatch(self) -> None:
        if self._watched >= 0:
            asyncio.get_running_loop().remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1

    def _fail(self, error: OSError) -> None:
        """The peer or the file is lost: nothing more can be sent."""
        if error.errno == errno.EFAULT:
            log.warning(
                "Closing a connection: records on their way to it were truncated or cannot be read"
            )
            self._on_unreadable()
        elif error.errno == errno.EMFILE:
            log.warning("A connection of a slow reader is closed: %s (ulimit -n)", error)
        self.drop()
        self._transport.abort()


class TransportSender(Sender):
    """Hands answers to a transport, in pieces that it may copy."""

    __slots__ = ("_paused", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        """Write to `transport`, whose protocol passes on `pause` and `resume`."""
        super().__init__()
        self._transport = transport
        self._paused = False

    @property
    def waits(self) -> bool:
        """See `Sender.waits`."""
        return self._paused or bool(self.backlog)

    def send(self, parts: list[Any], size: int) -> None:
        """See `Sender.send`."""
        if self.backlog or self._paused or size > PIECE_BYTES or len(parts) > 1:
            self.backlog.extend(parts)
            self.unsent += size
            self._drain()
        elif not self._transport.is_closing():
            self._transport.write(parts[0])

    def close(self) -> None:
        """See `Sender.close`; the transport keeps what it hasn't sent until it has."""
        while self.backlog and not self._transport.is_closing():
            self._transport.write(self.backlog.popleft())
        self.unsent = 0
        self._transport.close()

    def pause(self) -> None:
        """See `Sender.pause`."""
        self._paused = True

    def resume(self) -> None:
        """See `Sender.resume`."""
        self._paused = False
        self._drain()

    def _drain(self) -> None:
        while self.backlog and not self._paused:
            if self._transport.is_closing():  # the peer is gone, and `connection_lost` on its way
                self.drop()
                return
            piece = _next_piece(self.backlog)
            self.unsent -= len(piece)
            self._transport.write(piece)


class TlsSender(TransportSender):
    """Hands responses to a TLS stream, several pieces at once.

    A small part in front of a large one is sent together with it, and wakes the peer only once. As
    the transport copies what the socket does not take, a peer that does not keep up gets one piece
    at once.
    """

    __slots__ = ("_bytes_max",)

    def __init__(self, transport: asyncio.Transport) -> None:
        """Write to `transport`, a TLS stream."""
        super().__init__(transport)
        self._bytes_max = PIECE_BYTES

    def pause(self) -> None:
        """See `Sender.pause`."""
        super().pause()
        self._bytes_max = PIECE_BYTES

    def _drain(self) -> None:
        while self.backlog and not self._paused:
            if self._transport.is_closing():
                self.drop()
                return
            pieces, size = self._next_pieces()
            self.unsent -= size
            self._bytes_max = min(2 * self._bytes_max, TLS_BYTES_MAX)
            self._transport.writelines(pieces)  # may pause

    def _next_pieces(self) -> tuple[list[Any], int]:
        """Take the pieces that are sent at once from the front of the backlog, and their bytes."""
        pieces: list[Any] = []
        left = self._bytes_max
        while self.backlog and left > 0:
            piece = _next_piece(self.backlog, left)
            pieces.append(piece)
            left -= len(piece)
        return pieces, self._bytes_max - left


def _next_piece(backlog: deque[Any], bytes_max: int = PIECE_BYTES) -> Any:
    """Take what a transport gets next from the front of a `backlog` that isn't empty."""
    front = backlog[0]
    if len(front) < _SMALL_BYTES and len(backlog) > 1:
        front = join_front(backlog)[0]
    if len(front) <= bytes_max:
        return backlog.popleft()
    view = memoryview(front)
    backlog[0] = view[bytes_max:]
    return view[:bytes_max]


def sender_of(
    transport: asyncio.Transport, on_room: Callable[[], None], on_unreadable: Callable[[], None]
) -> Sender:
    """The sender for a transport: itself on a plain socket, else through the transport."""
    if transport.get_extra_info("sslcontext") is not None:
        return TlsSender(transport)
    socket = transport.get_extra_info("socket")
    if socket is None:
        return TransportSender(transport)
    return SocketSender(transport, int(socket.fileno()), on_room, on_unreadable)
