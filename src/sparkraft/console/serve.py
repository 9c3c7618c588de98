"""Runs the console: one process with one event loop, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvicorn

from sparkraft.console.access import Access
from sparkraft.console.application import Console
from sparkraft.console.changes import ClusterChanger
from sparkraft.console.listen import allowed_hosts
from sparkraft.console.messages import MessageReader
from sparkraft.console.more_views import MoreViews
from sparkraft.console.past_views import PastViews
from sparkraft.console.record_text import RecordText
from sparkraft.console.reset import GroupResetter
from sparkraft.console.send import RecordSender
from sparkraft.console.sign_in import SignIn
from sparkraft.console.stream import EventHub
from sparkraft.console.timeline import Timeline
from sparkraft.console.views import ClusterViews
from sparkraft.console.watch import ClusterWatch

if TYPE_CHECKING:
    import socket
    from pathlib import Path
    from types import FrameType

    from starlette.types import ASGIApp

    from sparkraft.client.cluster import Cluster
    from sparkraft.console.access import AccessSettings
    from sparkraft.console.message_config import MessageConfig

STOP_SECONDS_MAX = 2
"""Responses that take longer are cut off at a stop; streams end at once."""


CONNECTIONS_MAX = 512
"""Open connections, idle ones included; above them a request is answered with 503.

A browser opens at most six to one address. `STREAMS_MAX` pages, each in a browser of its own, take
384 of them with their streams and scans, so this bound is only reached by other clients.
"""


class ConsoleServer(uvicorn.Server):
    """uvicorn, which ends the streams at a signal instead of waiting for their pages."""

    def __init__(self, config: uvicorn.Config, hub: EventHub) -> None:
        super().__init__(config)
        self._hub = hub
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._hub.close)


def server_config(application: ASGIApp) -> uvicorn.Config:
    """Return how uvicorn serves `application`."""
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        # It would take the address of a visitor from a header, and with it that of a proxy.
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
    )


async def serve_console(  # noqa: PLR0913 (called in one place)
    cluster: Cluster,
    listening: socket.socket,
    *,
    bootstrap: str,
    access: AccessSettings,
    messages: MessageConfig,
    hosts: tuple[str, ...] = (),
    pipelines_folder: Path | None = None,
) -> None:
    """Serve on `listening` until a signal stops the process.

    Args:
        cluster: the cluster to show.
        listening: of `listen.bind`; closed at the end.
        bootstrap: servers as the shown commands name them.
        access: visitors and their roles.
        messages: how records are decoded, and what of them is hidden.
        hosts: more `HOST:PORT` than loopback names that browsers reach the console by.
        pipelines_folder: has checkpoints of pipelines, whose batches are shown.
    """
    hub = EventHub()
    watch = ClusterWatch(cluster, hub, bootstrap=bootstrap)
    port = listening.getsockname()[1]
    timeline = Timeline(cluster)
    views = ClusterViews(cluster, timeline, bootstrap=bootstrap)
    # Browsers send the cookies of a host to all of its ports.
    sign_in = SignIn(Access(access), f"sparkraft-console-{port}")
    sender = RecordSender(cluster, bootstrap=bootstrap)
    past = PastViews(timeline, bootstrap=bootstrap)
    resetter = GroupResetter(cluster, bootstrap=bootstrap)
    changer = ClusterChanger(cluster, bootstrap=bootstrap)
    text = RecordText(messages)
    more = MoreViews(cluster, text, bootstrap=bootstrap, pipelines_folder=pipelines_folder)
    reader = MessageReader(cluster, text, bootstrap=bootstrap)
    console = Console(
        watch, views, reader, hub, sign_in, sender,
        past=past, resetter=resetter, changer=changer, more=more,
    )  # fmt: skip
    application = console.application(hosts=allowed_hosts(port, hosts))
    config = server_config(application)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch.run())
        await ConsoleServer(config, hub).serve(sockets=[listening])
        watching.cancel()
    await sender.close()
