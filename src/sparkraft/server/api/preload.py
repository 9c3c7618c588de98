"""Loads the handlers of a started node before a request needs them.

ApiVersions needs every handler, and is the first request of every client: without this, the first
one loads them all in one piece of work on the event loop.
"""

import asyncio
from collections.abc import Iterator

from sparkraft.protocol.api_keys import API_INFO
from sparkraft.server.api.registry import SERVED, SERVED_ON_CONTROLLER, load_api


class HandlerLoader:
    """Loads one module per turn of the event loop, so that requests and timers run in between.

    Args:
        zookeeper: whether the node is a broker in ZooKeeper mode.
    """

    def __init__(self, *, zookeeper: bool) -> None:
        self._zookeeper = zookeeper

    def start(self) -> None:
        """Begin to load; returns at once."""
        self._load_next(self._modules())

    def _load_next(self, modules: Iterator[None]) -> None:
        for _ in modules:
            asyncio.get_running_loop().call_soon(self._load_next, modules)
            return

    def _modules(self) -> Iterator[None]:
        for key in sorted({*SERVED, *SERVED_ON_CONTROLLER}):
            API_INFO[key].request_class()
            yield
            for controller_listener in (False, True):
                load_api(key, controller_listener=controller_listener, zookeeper=self._zookeeper)
                yield
