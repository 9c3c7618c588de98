"""The console's routes. All of them only read, and all answers are about the whole cluster.

/                 and the other screens: one page, whose modules draw the screen of its path
/static/NAME      modules, stylesheet
/api/cluster      the document of `explain cluster --output json`
/api/quorum       the document of `explain quorum --output json`, and its lines of text
/events           Server-Sent Events: the same documents when they change
"""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sparkraft.base.errors import KafkaError
from sparkraft.client.errors import sentence_of
from sparkraft.console.assets import accepts_gzip, asset_response, load_assets
from sparkraft.console.guard import RequestGuard
from sparkraft.console.json_text import json_text
from sparkraft.console.stream import TooManyStreamsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from sparkraft.console.stream import EventHub, EventStream
    from sparkraft.console.watch import ClusterWatch

SCREENS = ("/", "/quorum")
"""Paths that a page is served for; `static/app.js` draws them."""

GZIP_BYTES_MIN = 500

GZIP_IN_THREAD_BYTES_MIN = 64 << 10
"""From here on compression takes milliseconds, and runs outside the event loop."""


class Console:
    """Answers requests from what the watch and the hub know."""

    def __init__(self, watch: ClusterWatch, hub: EventHub) -> None:
        self._watch = watch
        self._hub = hub
        self._assets = load_assets()

    def application(self, *, hosts: frozenset[str]) -> ASGIApp:
        """The ASGI application, reached as one of `hosts`."""
        routes = [
            *(Route(path, self.page) for path in SCREENS),
            Route("/static/{name}", self.static),
            Route("/api/cluster", self.cluster),
            Route("/api/quorum", self.quorum),
            Route("/events", self.events),
        ]
        return RequestGuard(Starlette(routes=routes), hosts=hosts)

    async def page(self, request: Request) -> Response:
        return asset_response(request, self._assets["index.html"])

    async def static(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            return PlainTextResponse("no such file\n", 404)
        return asset_response(request, asset)

    async def cluster(self, request: Request) -> Response:
        return await json_response(request, await self._watch.cluster())

    async def quorum(self, request: Request) -> Response:
        try:
            return await json_response(request, await self._watch.quorum())
        except KafkaError as error:
            return PlainTextResponse(f"{sentence_of(error)}\n", 502)

    async def events(self, _request: Request) -> Response:
        try:
            stream = self._hub.open()
        except TooManyStreamsError:
            return PlainTextResponse("too many pages are open\n", 503)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(
            self._bytes_of(stream), media_type="text/event-stream", headers=headers
        )

    async def _bytes_of(self, stream: EventStream) -> AsyncIterator[bytes]:
        try:
            async for piece in stream.encoded():
                yield piece
        finally:
            self._hub.discard(stream)


async def json_response(request: Request, document: Any) -> Response:
    """Return a document as JSON, compressed if it is large."""
    body = json_text(document).encode()
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= GZIP_BYTES_MIN and accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        if len(body) >= GZIP_IN_THREAD_BYTES_MIN:
            body = await asyncio.to_thread(gzip.compress, body, 5)
        else:
            body = gzip.compress(body, 5)
    return Response(body, media_type="application/json", headers=headers)
