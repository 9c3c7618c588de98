"""The page that plays a recorded simulation, and the server of `simulate --show`.

/              the page
/static/NAME   its modules and stylesheet
/run           the run: nodes, seed, result, and the events that the whole run is drawn from
/window        what happens `from` a millisecond `to` another one
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response

from sparkraft.console.assets import asset_response, load_assets
from sparkraft.console.guard import RequestGuard
from sparkraft.console.json_text import json_text
from sparkraft.console.listen import allowed_hosts
from sparkraft.console.serve import server_config

if TYPE_CHECKING:
    import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from sparkraft.console.recorded_run import RecordedRun

WINDOW_MS_MAX = 60_000


class SimulatorPages:
    """Answers requests about one run."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._assets = load_assets()

    def application(self, hosts: frozenset[str]) -> ASGIApp:
        """Return the ASGI application, reached as one of `hosts`."""
        app = Starlette()
        app.add_route("/", self.page)
        app.add_route("/static/{name}", self.static)
        app.add_route("/run", self.run)
        app.add_route("/window", self.window)
        return RequestGuard(app, hosts=hosts)

    async def page(self, request: Request) -> Response:
        return asset_response(request, self._assets["simulator.html"])

    async def static(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            return PlainTextResponse("not found\n", 404)
        return asset_response(request, asset)

    async def run(self, _: Request) -> Response:
        run = self._run
        return _json(
            {
                **run.about,
                "endMs": run.end_ms,
                "result": run.result,
                "overview": run.overview,
                "omitted": run.omitted,
            }
        )

    async def window(self, request: Request) -> Response:
        query = request.query_params
        try:
            from_ms, to_ms = int(query["from"]), int(query["to"])
        except (KeyError, ValueError):
            return PlainTextResponse("from and to are milliseconds\n", 400)
        if not from_ms < to_ms <= from_ms + WINDOW_MS_MAX:
            return PlainTextResponse(f"a window has 1 to {WINDOW_MS_MAX} ms\n", 400)
        with_fetches = query.get("fetches") == "1"
        return _json(
            await asyncio.to_thread(self._run.window, from_ms, to_ms, with_fetches=with_fetches)
        )


def _json(document: dict[str, Any]) -> Response:
    return Response(json_text(document), media_type="application/json")


async def serve_run(run: RecordedRun, listening: socket.socket) -> None:
    """Serve the pages of `run` on `listening` until a signal stops the process."""
    application = SimulatorPages(run).application(allowed_hosts(listening.getsockname()[1]))
    await uvicorn.Server(server_config(application)).serve(sockets=[listening])
