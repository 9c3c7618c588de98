"""One TCP connection of a session: handshake, pings, requests in flight, their replies."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.zookeeper.errors import Code, ZooKeeperError, error_of
from sparkraft.zookeeper.exchange import (
    XID_PING,
    XID_SET_WATCHES,
    Exchange,
    Reply,
    SessionOpened,
    SessionState,
    WatchEvent,
)
from sparkraft.zookeeper.pipeline import fail_soon, settle
from sparkraft.zookeeper.requests import Check, Multi, Ping, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.zookeeper.pipeline import OnResult
    from sparkraft.zookeeper.watches import Watches


REFUSED = (
    " in place of a session: it has no quorum, is read-only (readonlymode.enabled), or has not "
    "seen all transactions of this session"
)
"""Why a server closes a connection without a response to the handshake. It gives no reason: a
server in read-only mode does so because clients of Kafka, and ours, do not ask for read-only
sessions."""


class _InFlight(NamedTuple):
    request: Request
    on_result: OnResult
    size: int
    """Bytes of its frame."""


class Line(asyncio.Protocol):
    """A connection to one server.

    Attributes:
        opened: the server's response to the handshake; fails with the reason if none arrives.
        closed: done when the connection is closed; its result is the reason.
    """

    def __init__(  # noqa: PLR0913 (the parts it shares with its session)
        self,
        session: SessionState,
        watches: Watches,
        clock: Clock,
        *,
        chroot: str,
        timeout_ms: int,
        on_event: Callable[[WatchEvent], None],
        on_end: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[SessionOpened] = loop.create_future()
        self.closed: asyncio.Future[str] = loop.create_future()
        self._session = session
        self._watches = watches
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_event = on_event
        self._on_end = on_end
        self._exchange = Exchange(chroot)
        self._in_flight: deque[_InFlight] = deque()
        self._unsent: list[bytes] | None = None
        """Frames of requests that replies caused; None while no replies are being handled."""
        self._transport: asyncio.Transport | None = None
        self._heard_ms = clock.mono_ms()

    @property
    def peer_address(self) -> str | None:
        """The server's IP address; None if the transport does not know it."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else None

    def open(self) -> None:
        """Begin the handshake; to be called once the connection is secured."""
        if self._transport is not None and not self.closed.done():
            self._transport.write(self._exchange.open(self._session, self._timeout_ms))

    async def send(self, request: Request) -> Any:
        """Send `request` after those in flight; return its result.

        Raises:
            ConnectionLossError: the connection was lost before the reply arrived.
            ZooKeeperError: the server refused it.
        """
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(request, partial(settle, result))
        return await result

    def post(self, request: Request, on_result: OnResult) -> None:
        """Send `request` after those in flight; call `on_result` with its result or exception.

        The requests that `on_result` posts are sent in one write, after all replies that have
        arrived are handled.
        """
        if self._transport is None or self.closed.done():
            fail_soon(on_result, error_of(Code.CONNECTION_LOSS, request.path))
            return
        try:
            frame = self._exchange.encode(request)
        except UnicodeEncodeError as error:  # of a name from JSON, in which half a pair is valid
            fail_soon(on_result, error)
            return
        self._in_flight.append(_InFlight(request, on_result, len(frame)))
        if self._unsent is None:
            self._transport.write(frame)
        else:
            self._unsent.append(frame)

    def renew_watches(self) -> None:
        """Set the session's watches on this server; to be called before any request."""
        assert self._transport is not None
        for request in self._watches.renewals(self._session.last_zxid):
            self._transport.write(self._exchange.encode(request, XID_SET_WATCHES))

    async def keep_alive(self, timeout_ms: int) -> str:
        """Ping until the connection is closed, or the server is silent for too long.

        A third of the session timeout between pings; after two thirds without a byte the server
        counts as lost, so that a third is left for another one. Returns the reason of the end.
        """
        while not self.closed.done():
            await asyncio.wait({self.closed}, timeout=timeout_ms / 3000)
            if self._clock.mono_ms() - self._heard_ms > timeout_ms * 2 // 3:
                self.abort("the server is silent")
            elif self._transport is not None and not self.closed.done():
                self._transport.write(self._exchange.encode(Ping(), XID_PING))
        return self.closed.result()

    def abort(self, reason: str) -> None:
        """Close at once; requests in flight fail with `ConnectionLossError`."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard_ms = self._clock.mono_ms()
        unsent: list[bytes] = []
        self._unsent = unsent
        try:
            for found in self._exchange.feed(data):
                self._on_found(found)
        except DecodeError as error:
            self.abort(f"{error}{self._awaited()}")
        finally:
            self._unsent = None
        if unsent and self._transport is not None and not self.closed.done():
            self._transport.write(b"".join(unsent))

    def _awaited(self) -> str:
        """Name the request whose reply comes next, for a message: a reply has no path."""
        if not self._in_flight:
            return ""
        request = self._in_flight[0].request
        return f", in place of the reply to {type(request).__name__} {request.path}"

    def _largest(self) -> str:
        """Name the largest request in flight, for a message.

        A server closes the connection on a request above its limit (`jute.maxbuffer`, 1 MiB unless
        configured), without a reply; those that it received before may lose their replies, too.
        """
        if not self._in_flight:
            return ""
        request, _, size = max(self._in_flight, key=lambda each: each.size)
        count = len(self._in_flight)
        return f"; the largest of {count} requests in flight is {_named(request)}, {size} bytes"

    def connection_lost(self, exc: Exception | None) -> None:
        why = self._largest() if self.opened.done() else REFUSED
        self._end(f"{exc or 'the server closed the connection'}{why}")

    def _on_found(self, found: SessionOpened | WatchEvent | Reply) -> None:
        match found:
            case SessionOpened():
                if not self.opened.done():
                    self.opened.set_result(found)
            case WatchEvent():
                self._watches.on_event(found)
                self._on_event(found)
            case Reply(xid=xid) if xid > 0:
                self._on_reply(found)

    def _on_reply(self, reply: Reply) -> None:
        self._session.last_zxid = max(self._session.last_zxid, reply.zxid)
        request, on_result, _ = self._in_flight[0]
        result = _result(request, reply, self._exchange.chroot)
        self._in_flight.popleft()
        self._watches.add(request, reply.code)
        on_result(result)

    def _end(self, reason: str) -> None:
        if self.closed.done():
            return
        self.closed.set_result(reason)
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(reason))
            self.opened.exception()  # retrieved: it has no waiter if the connection failed
        self._on_end()
        lost, self._in_flight = self._in_flight, deque()
        for request, on_result, _ in lost:
            on_result(error_of(Code.CONNECTION_LOSS, request.path))


def _named(request: Request) -> str:
    """The kind of a request and its znode; of a transaction, the first one that it writes."""
    path = request.path
    if isinstance(request, Multi):
        writes = (each.path for each in request.operations if not isinstance(each, Check))
        path = next(writes, path)
    return f"{type(request).__name__} {path}".rstrip()


def _result(request: Request, reply: Reply, chroot: str) -> Any:
    """Return the result in a reply, or the server's refusal as an exception.

    Raises:
        DecodeError: the reply is malformed.
    """
    has_body = isinstance(request, Multi) and reply.reader.has_more  # a code for each operation
    if reply.code != Code.OK and not has_body:
        return error_of(reply.code, request.path)
    try:
        return request.decode(reply.reader, chroot)
    except ZooKeeperError as refused:
        return refused
