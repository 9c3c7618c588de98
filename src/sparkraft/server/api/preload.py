"""Loads the handlers and coordinators of a started node before they are needed.

ApiVersions needs every handler, and is the first request of every client: without this, the first
one loads them all in one piece of work on the event loop. The first partition of an internal topic
that a broker leads would load a coordinator in one piece, such as the first LeaderAndIsr of a
ZooKeeper cluster.
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
    ApiKey.LEADER_AND_ISR: ("protocol.messages.k06_update_metadata", "server.zookeeper.old_forms"),
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
    ApiKey.VOTE: (
        "protocol.messages.k53_begin_quorum_epoch",
        "protocol.messages.k54_end_quorum_epoch",
        "protocol.messages.k59_fetch_snapshot",
        "protocol.messages.k80_add_raft_voter",
        "protocol.messages.k81_remove_raft_voter",
        "protocol.messages.k82_update_raft_voter",
        "protocol.messages.raft_records",
        "storage.snapshot_files",
        "storage.raft_log",
        "raft.log_view",
        "server.raft.records",
        "server.raft.wire",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        "coordinator.group.consumer_records",
        "coordinator.group.describe",
        "coordinator.group.group",
        "coordinator.group.consumer_group",
        "coordinator.group.consumer_targets",
    ),
    ApiKey.LIST_TRANSACTIONS: (
        "coordinator.group.consumer_regex",
        "coordinator.transaction.listing",
    ),
    ApiKey.DESCRIBE_IMAGE: ("server.api.metadata_visibility", "server.raft.past_images"),
    ApiKey.DESCRIBE_HISTORY: (
        "controller.causes",
        "controller.history",
        "server.raft.past_reader",
    ),
}
"""Handlers that import much → modules to import before, each after those that it imports itself.
A test fails if a piece of work imports more than a few."""

COORDINATORS: Final = (
    "server.coordinator.group_journal",
    "coordinator.group.classic_group",
    "coordinator.group.groups",
    "coordinator.group.consumer_protocol_data",
    "coordinator.group.rebalance",
    "coordinator.group.classic",
    "coordinator.group.topic_hash",
    "coordinator.group.consumer_migration",
    "coordinator.group.consumer_reconciliation",
    "coordinator.group.consumer_update",
    "coordinator.group.consumer",
    "coordinator.group.classic_members",
    "coordinator.group.commits",
    "coordinator.group.loading",
    "coordinator.group.transactional_commits",
    "coordinator.group.shard",
    "coordinator.transaction.producer_ids",
    "coordinator.transaction.shard",
)
"""Modules of coordinators, each after those that it imports."""


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
        kinds = (False,) if self._zookeeper else (False, True)
        for key in sorted({*SERVED, *SERVED_ON_CONTROLLER}):
            API_INFO[key].request_class()
            yield
            for name in IMPORTS.get(key, ()):
                import_module(f"sparkraft.{name}")
                yield
            for controller_listener in kinds:
                load_api(key, controller_listener=controller_listener, zookeeper=self._zookeeper)
                yield
        for name in COORDINATORS:
            import_module(f"sparkraft.{name}")
            yield
