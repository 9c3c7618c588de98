"""A started node loads its handlers and coordinators between other work, before it needs them."""

import subprocess
import sys

import pytest

LOADING = """
import asyncio, sys
from unittest.mock import MagicMock
import sparkraft.server.broker_assembly, sparkraft.server.node
ZOOKEEPER = sys.argv[1] == "zookeeper"
if ZOOKEEPER:
    import sparkraft.server.zookeeper_node
else:
    import sparkraft.server.quorum
from sparkraft.server.api.preload import HandlerLoader
from sparkraft.server.api.registry import served_ranges
from sparkraft.server.coordinator.group_service import GroupCoordinatorService
from sparkraft.server.coordinator.transaction_service import TransactionCoordinatorService

LAST = "sparkraft.coordinator.transaction.shard"
SERVICE = MagicMock()

async def test():
    HandlerLoader(zookeeper=ZOOKEEPER).start()
    known, turns = set(sys.modules), 0
    while LAST not in sys.modules:
        await asyncio.sleep(0)
        new = {name for name in sys.modules if name.startswith("sparkraft.")} - known
        assert len(new) <= 3, sorted(new)
        known |= new
        turns += 1
        assert turns < 10_000
    await asyncio.sleep(0.1)
    before = set(sys.modules)
    for controller_listener in (False,) if ZOOKEEPER else (False, True):
        served_ranges(controller_listener=controller_listener, zookeeper=ZOOKEEPER)
    GroupCoordinatorService.new_spec(SERVICE)
    TransactionCoordinatorService.new_spec(SERVICE)
    assert set(sys.modules) == before, set(sys.modules) - before

asyncio.run(test())
"""


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_handlers_are_loaded_one_by_one_and_apiversions_and_coordinators_then_load_nothing(mode):
    subprocess.run([sys.executable, "-c", LOADING, mode], check=True, timeout=60)
