"""`sparkraft.http.listener`: /health as JSON and /metrics for Prometheus, over HTTP/1.1.

    GET /health    200 only while this node serves and the quorum has a leader, else 503
    GET /metrics   the node's metrics in Prometheus' text format

For monitoring systems in a trusted network: no TLS, no authentication, GET and HEAD only, and small
limits. A connection serves one request after another.

Not here: what is measured (`metrics`). This module is loaded only if the listener is enabled.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from sparkraft.server.config import ConfigError
from sparkraft.server.health import health_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.env import Network
    from sparkraft.server.status import NodeStatus

HEAD_BYTES_MAX = 8_192
"""Request line and headers; browsers send about 1 KiB."""

CONNECTIONS_MAX = 64
"""Open connections; a scraper keeps one or two."""

IDLE_SECONDS_MAX = 75
"""Longer than Prometheus' default scrape interval, so that its connection stays open."""

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_TEXT = "text/plain; charset=utf-8"
_PORT_MAX = 0xFFFF

log = logging.getLogger(__name__)

Response = tuple[int, str, bytes]
"""Status, content type, body."""


class HttpServer:
    """The listener of one node."""

    def __init__(self, node: NodeStatus, network: Network, address: str) -> None:
        """Serve on `address`, `host:port` or `[host]:port`; port 0 is any free one.

        Raises:
            ConfigError: `address` is invalid.
        """
        self._node = node
        self._network = network
        self.host, self.port = parse_address(address)
        self.connections: set[_Connection] = set()
        self._server: asyncio.AbstractServer | None = None
        self._routes: dict[str, Callable[[], Response]] = {
            "/": self._index,
            "/health": self._health,
            "/metrics": self._metrics,
        }

    async def start(self) -> None:
        """Bind and accept; OSError if the port is taken."""
        self._server = await self._network.listen(
            lambda: _Connection(self), self.host or None, self.port
        )
        await self._server.start_serving()
        sockets = getattr(self._server, "sockets", ())
        if sockets:
            self.port = sockets[0].getsockname()[1]
        log.info("HTTP listener on %s:%d serves /health and /metrics", self.host or "*", self.port)

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._server.wait_closed()

    def respond(self, path: str) -> Response:
        """The response to a GET of `path`."""
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(sorted(self._routes))
            return 404, _TEXT, f"No page {path[:80]}; available: {known}\n".encode()
        try:
            return route()
        except Exception:  # a scrape must not stop a node
            log.exception("GET %s failed", path)
            return 500, _TEXT, b"Internal error; see the node's log.\n"

    def _index(self) -> Response:
        return 200, _TEXT, b"sparkraft: /health /metrics\n"

    def _health(self) -> Response:
        found = health_of(self._node)
        body = json.dumps(found, indent=2).encode() + b"\n"
        return 200 if found["healthy"] else 503, "application/json", body

    def _metrics(self) -> Response:
        # prometheus_client takes 20 ms and 3 MiB: only nodes that are scraped pay for it.
        from sparkraft.server.metrics import CONTENT_TYPE, exposition

        return 200, CONTENT_TYPE, exposition(self._node)


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` as a pair; an empty host is every interface."""
    bare = text.rsplit("://", 1)[-1]
    host, colon, port = bare.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise ConfigError(f"sparkraft.http.listener must be host:port, not {text!r}")
    return host.strip("[]"), int(port)


class _Connection(asyncio.Protocol):
    """Reads requests and responds at once; there is no queue."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._server.connections) >= CONNECTIONS_MAX:
            transport.abort()
            return
        self._server.connections.add(self)
        self._restart_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._idle is not None:
            self._idle.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        # The client sends requests without reading the responses.
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._restart_idle()
        self._buffer += data
        while self._transport is not None and not self._transport.is_closing():
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if len(head) > HEAD_BYTES_MAX:
                self._refuse(431)
                return
            if not end:
                return
            self._buffer = rest
            self._on_request(head)

    def _restart_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS_MAX, self.close)

    def _on_request(self, head: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        parts = line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):  # noqa: PLR2004 (GET / HTTP/1.1)
            self._refuse(400)
            return
        method, target, version = parts
        pairs = (field.partition(":") for field in fields)
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in pairs}
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            self._refuse(413)
            return
        if method not in {"GET", "HEAD"}:
            self._refuse(405)
            return
        keep = "close" not in headers.get("connection", "") and version == "HTTP/1.1"
        response = self._server.respond(target.partition("?")[0])
        self._write(response, keep=keep, with_body=method == "GET")

    def _refuse(self, status: int) -> None:
        self._write((status, _TEXT, _REASONS[status].encode() + b"\n"), keep=False, with_body=True)

    def _write(self, response: Response, *, keep: bool, with_body: bool) -> None:
        assert self._transport is not None
        status, content_type, body = response
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
            f"{'' if keep else 'Connection: close' + chr(13) + chr(10)}\r\n"
        )
        self._transport.write(head.encode() + (body if with_body else b""))
        if not keep:
            self._transport.close()
