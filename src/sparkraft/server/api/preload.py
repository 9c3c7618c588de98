"""Loads the handlers of a started node before a request needs them.

ApiVersions needs every handler, and is the first request of every client: without this, the first
one loads them all in one piece of work on the event loop.
"""

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.server.api.registry import SERVED, SERVED_ON_CONTROLLER, load_api

IMPORTS: Final = {
    ApiKey.FETCH: (
        "server.api.encoded_array",
        "server.api.fetch_reading",
        "server.broker.read_replica",
        "server.api.fetch_work",
    ),
    ApiKey.LIST_OFFSETS: ("server.controller.audit", "server.controller.submission"),
    ApiKey.OFFSET_COMMIT: (
        "coordinator.group.journal",
        "protocol.messages.classic_group_records",
        "protocol.messages.consumer_group_records",
        "coordinator.group.records",
        "protocol.messages.k11_join_group",
        "coordinator.group.decision",
    ),
    ApiKey.END_TXN: (
        "coordinator.transaction.metadata",
        "protocol.messages.transaction_records",
        "coordinator.transaction.records",
        "coordinator.transaction.decision",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        "coordinator.group.consumer_records",
        "coordinator.group.describe",
        "coordinator.group.group",
        "coordinator.group.consumer_group",
        "coordinator.group.consumer_targets",
    ),
    ApiKey.DESCRIBE_HISTORY: (
        "controller.causes",
        "controller.history",
        "server.raft.past_reader",
    ),
}
"""Handlers that import much → modules to import before, each after those that it imports itself.
A test fails if a piece of work imports more than a few."""


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
            for name in IMPORTS.get(key, ()):
                import_module(f"sparkraft.{name}")
                yield
            for controller_listener in (False, True):
                load_api(key, controller_listener=controller_listener, zookeeper=self._zookeeper)
                yield
