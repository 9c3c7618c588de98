"""`sparkraft.http.listener`: /health as JSON and /metrics for Prometheus, over HTTP/1.1.

    GET /health    200 only while this node serves and the quorum has a leader, else 503
    GET /metrics   the node's metrics in Prometheus' text format

For monitoring systems: GET and HEAD only, and small limits. A connection serves one request after
another. As `http://host:port` or `host:port` it is for trusted networks. `https://host:port` takes
the `ssl.*` configs. `http_access` describes who may read /metrics.

Connections that send nothing must not keep health checks out: a request's head has a deadline, and
if every connection is taken, a new one replaces the one that has been idle longest.

Not here: the metrics themselves (`metrics`). This module is loaded only if the listener is enabled.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, cast

from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.server.config import ConfigError
from sparkraft.server.health import health_of
from sparkraft.server.http_hosts import is_allowed_host, own_names
from sparkraft.tls.stream import RECEIVE_BYTES, TlsFailedError, TlsSide, TlsStream

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from sparkraft.server.env import Network
    from sparkraft.server.http_access import HttpAccess
    from sparkraft.server.status import NodeStatus

HEAD_BYTES_MAX = 8_192
"""Request line and headers; browsers send about 1 KiB."""

CONNECTIONS_MAX = 64
"""Open connections; a scraper keeps one or two."""

IDLE_SECONDS_MAX = 75
"""Longer than Prometheus' default scrape interval, so that its connection stays open."""

HEAD_SECONDS_MAX = 10
"""From a request's first byte to the end of its head; a head is one packet or two."""

PIPELINED_BYTES_MAX = 2 * HEAD_BYTES_MAX
"""Received bytes of a connection's further requests; beyond it they wait in the kernel."""

LINGER_SECONDS_MAX = 2
"""After a refusal: closing at once with unread data makes TCP discard the response."""

_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
METRICS = "/metrics"
_TEXT = "text/plain; charset=utf-8"
_PORT_MAX = 0xFFFF
_METHODS = ("GET", "HEAD")

log = logging.getLogger(__name__)

Response = tuple[int, str, bytes]
"""Status, content type, body."""


_FAILED: Response = 500, _TEXT, b"Internal error; see the node's log.\n"


class HttpServer:
    """The listener of one node."""

    def __init__(
        self,
        node: NodeStatus,
        network: Network,
        address: str,
        access: HttpAccess | None = None,
    ) -> None:
        """Serve on `address`, `host:port` or `[host]:port`; port 0 is any free one.

        Args:
            node: to report on.
            network: of the node.
            address: to listen on.
            access: its TLS, and who may read /metrics; everyone by default.

        Raises:
            ConfigError: `address` is invalid.
        """
        self._node = node
        self._network = network
        self._access = access
        self._tls_side = None
        if access is not None and access.context is not None:
            self._tls_side = self._tls_side_of(access, access.context)
        self._handshakes: dict[TlsStream, None] = {}
        """Connections whose handshake can continue, in order of their turns."""
        self.host, self.port = parse_address(address)
        advertised = (address.host for address in node.config.advertised_listeners)
        self._own_names = own_names((self.host, *advertised))
        # Ordered by the time of the last request, or of the connection's start: oldest first.
        self._connections: dict[_Connection, None] = {}
        self._server: asyncio.AbstractServer | None = None
        self._waiting: dict[_Connection, None] = {}
        """Connections with a whole request, in order of their turns."""
        self._turn_is_due = False
        self._chunks = 0
        """Received so far, of all connections."""
        self._exposition = b""
        self._exposition_of = 0
        """The chunks received before it was rendered: it is current for their requests."""
        self._rendering: Iterator[bytes] | None = None
        self._rendered: list[bytes] = []
        self._routes: dict[str, Callable[[], Response]] = {
            "/": self._index,
            "/health": self._health,
        }

    async def start(self) -> None:
        """Bind and accept; OSError if the port is taken."""
        self._server = await self._network.listen(self._new_protocol, self.host or None, self.port)
        await self._server.start_serving()
        sockets = getattr(self._server, "sockets", ())
        if sockets:
            self.port = sockets[0].getsockname()[1]
        scheme = "HTTP" if self._tls_side is None else "HTTPS"
        place = self.host or "*"
        log.info("%s listener on %s:%d serves /health and /metrics", scheme, place, self.port)

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        await self._server.wait_closed()

    # ---- TLS

    def _new_protocol(self) -> asyncio.Protocol:
        connection = _Connection(self)
        if self._tls_side is None:
            return connection
        # asyncio's transports take buffered protocols, too.
        return cast("asyncio.Protocol", TlsStream(connection, self._tls_side))

    def _tls_side_of(self, access: HttpAccess, context: Callable[[], ssl.SSLContext]) -> TlsSide:
        def on_secured(stream: TlsStream) -> None:
            assert isinstance(stream.protocol, _Connection)
            stream.protocol.admit(access.principal_of(stream.peer_certificate))

        def on_failed(stream: TlsStream, error: TlsFailedError) -> None:
            assert isinstance(stream.protocol, _Connection)
            log.debug("TLS handshake of %s failed: %s", stream.protocol.client_host, error)

        return TlsSide(
            context=context,
            server_side=True,
            buffer=bytearray(RECEIVE_BYTES),
            may_work=self._queue_handshake,
            on_secured=on_secured,
            on_failed=on_failed,
        )

    def _queue_handshake(self, stream: TlsStream) -> bool:
        """Give a handshake its turn: a part of it takes half a millisecond."""
        self._handshakes[stream] = None
        self._schedule_turn()
        return False

    def may_read(self, path: str, connection: _Connection) -> bool:
        """Whether the client may read the page."""
        if self._access is None or path != METRICS:
            return True
        return self._access.may_read_metrics(connection)

    def on_denied(self, connection: _Connection) -> None:
        """Log that the client may not read /metrics."""
        if self._access is not None:
            self._access.log_denied(connection)

    def add(self, connection: _Connection) -> None:
        """Register a new connection; the one idle longest makes room for it."""
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.abort()
        self._connections[connection] = None

    def renew(self, connection: _Connection) -> None:
        """Note a complete request of `connection`."""
        if self._connections.pop(connection, ...) is None:
            self._connections[connection] = None

    def discard(self, connection: _Connection) -> None:
        """Forget a closed connection."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)

    # ---- turns: in an event-loop iteration, one response or one piece of the metrics, and one part
    # of a handshake

    def count_chunk(self) -> int:
        """Number a received chunk."""
        self._chunks += 1
        return self._chunks

    def wait(self, connection: _Connection) -> None:
        """Give `connection`, which has a whole request, its turn."""
        self._waiting[connection] = None
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_is_due = False
        if self._handshakes:
            stream = next(iter(self._handshakes))
            del self._handshakes[stream]
            stream.run()
        if self._rendering is not None:
            self._render(self._rendering)
        elif self._waiting:
            connection = next(iter(self._waiting))
            if connection.wants_metrics and connection.chunk > self._exposition_of:
                self._start_rendering()
            else:
                del self._waiting[connection]
                connection.respond()
        if self._waiting or self._handshakes:
            self._schedule_turn()

    def _start_rendering(self) -> None:
        # prometheus_client takes 20 ms and 3 MiB: only nodes that are scraped pay for it.
        from sparkraft.server.metrics import exposition

        self._exposition_of = self._chunks
        self._rendering = iter(exposition(self._node))
        self._rendered = []

    def _render(self, rendering: Iterator[bytes]) -> None:
        try:
            self._rendered.append(next(rendering))
        except StopIteration:
            self._exposition = b"".join(self._rendered)
            self._rendering = None
        except Exception:  # a scrape must not stop a node
            log.exception("GET /metrics failed")
            self._exposition = b""
            self._rendering = None
        if self._rendering is None:
            self._rendered = []

    def serves(self, host: str) -> bool:
        """Whether a request with the Host header `host` is for this node."""
        return is_allowed_host(host, self._own_names)

    def respond(self, path: str) -> Response:
        """The response to a GET of `path`."""
        if path == METRICS:
            return self._metrics()
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(sorted((*self._routes, METRICS)))
            return 404, _TEXT, f"No page {path[:80]}; available: {known}\n".encode()
        try:
            return route()
        except Exception:  # a scrape must not stop a node
            log.exception("GET %s failed", path)
            return _FAILED

    def _index(self) -> Response:
        return 200, _TEXT, b"sparkraft: /health /metrics\n"

    def _health(self) -> Response:
        found = health_of(self._node)
        body = json.dumps(found, indent=2).encode() + b"\n"
        return 200 if found["healthy"] else 503, "application/json", body

    def _metrics(self) -> Response:
        if not self._exposition:
            return _FAILED
        from sparkraft.server.metrics import CONTENT_TYPE

        return 200, CONTENT_TYPE, self._exposition


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` as a pair; an empty host is every interface."""
    bare = text.rsplit("://", 1)[-1]
    host, colon, port = bare.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise ConfigError(f"sparkraft.http.listener must be host:port, not {text!r}")
    return host.strip("[]"), int(port)


class _Connection(asyncio.Protocol):
    """Reads requests; the server gives each its turn, in which it is answered.

    Attributes:
        wants_metrics: whether the next request is for the metrics.
        chunk: the last one received (`HttpServer.count_chunk`).
        principal: of the client's certificate.
        client_host: the client's IP address as text.
    """

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._is_full = False
        """The client does not read its responses."""
        self._at_end = False
        """The client sends no more."""
        self.wants_metrics = False
        self.chunk = 0
        self.principal: KafkaPrincipal = ANONYMOUS
        self.client_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.client_host = str((transport.get_extra_info("peername") or [""])[0])
        self._server.add(self)
        self._close_in(HEAD_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._server.discard(self)
        self._cancel_deadline()

    def admit(self, principal: KafkaPrincipal) -> None:
        """Take the user of the client's certificate."""
        self.principal = principal

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without sending what is still buffered."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._look_for_request()

    def eof_received(self) -> bool:
        """Answer what was received, then close."""
        self._at_end = True
        self._look_for_request()
        return not self._is_closing

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if not self._buffer:
            self._close_in(HEAD_SECONDS_MAX)
        self._buffer += data
        self.chunk = self._server.count_chunk()
        if len(self._buffer) > PIPELINED_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._look_for_request()

    def _look_for_request(self) -> None:
        """Wait for a turn if there is a whole request and room for its response."""
        if self._is_closing or self._is_full:
            return
        head, end, _ = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_BYTES_MAX:
            self._refuse(431)
            return
        if end:
            names_metrics = METRICS.encode() in head.split(b"\r\n", 1)[0]
            self.wants_metrics = names_metrics and self._server.may_read(METRICS, self)
            self._server.wait(self)
        elif self._at_end:
            self._is_closing = True
            self.close()

    def respond(self) -> None:
        """Answer the next request."""
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        self._buffer = rest
        self._server.renew(self)
        self._on_request(head)
        if self._is_closing:
            return
        self._close_in(HEAD_SECONDS_MAX if rest else IDLE_SECONDS_MAX)
        if len(rest) <= PIPELINED_BYTES_MAX and self._transport is not None:
            self._transport.resume_reading()
        self._look_for_request()

    def _close_in(self, seconds: float) -> None:
        self._cancel_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _on_request(self, head: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        parts = line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):  # noqa: PLR2004 (GET / HTTP/1.1)
            self._refuse(400)
            return
        method, target, version = parts
        pairs = [field.partition(":") for field in fields]
        headers = [(name.strip().lower(), value.strip().lower()) for name, _, value in pairs]
        problem = self._problem(method, headers)
        if problem is not None:
            self._refuse(problem)
            return
        keep = "close" not in dict(headers).get("connection", "") and version == "HTTP/1.1"
        path = target.partition("?")[0]
        if not self._server.may_read(path, self):
            self._server.on_denied(self)
            self._refuse(403)
            return
        response = self._server.respond(path)
        self._write(response, keep=keep, with_body=method == "GET")

    def _problem(self, method: str, headers: list[tuple[str, str]]) -> int | None:
        """The status that refuses a request; None if it is served."""
        names = [name for name, _ in headers]
        fields = dict(headers)
        length = fields.get("content-length", "0")
        # Two lengths: a proxy in front of us may believe the other one (RFC 9112, 6.3).
        if names.count("content-length") > 1 or names.count("host") > 1 or not length.isdecimal():
            return 400
        if "host" in fields and not self._server.serves(fields["host"]):
            return 421
        if method not in _METHODS:
            return 405
        return 413 if int(length[:20]) or "transfer-encoding" in fields else None

    def _refuse(self, status: int) -> None:
        text = _REASONS[status]
        if status == 421:  # noqa: PLR2004 (a status)
            text += ": use an IP address, localhost or an advertised listener's host name"
        self._write((status, _TEXT, text.encode() + b"\n"), keep=False, with_body=True)

    def _write(self, response: Response, *, keep: bool, with_body: bool) -> None:
        assert self._transport is not None
        status, content_type, body = response
        fields = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
        ]
        if status == 405:  # noqa: PLR2004 (a status)
            fields.append(f"Allow: {', '.join(_METHODS)}")
        if not keep:
            fields.append("Connection: close")
        head = "\r\n".join((*fields, "", "")).encode()
        self._transport.write(head + (body if with_body else b""))
        if not keep:
            self._finish()

    def _finish(self) -> None:
        """End the response; the client closes the connection, or we do so soon."""
        assert self._transport is not None
        self._is_closing = True
        self._buffer = b""
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._close_in(LINGER_SECONDS_MAX)
