"""A started node loads its handlers between other work, before a request needs them."""

import subprocess
import sys

LOADING = """
import asyncio, sys
import sparkraft.server.broker_assembly, sparkraft.server.node, sparkraft.server.quorum
from sparkraft.server.api.preload import HandlerLoader
from sparkraft.server.api.registry import SERVED, served_ranges

def loaded():
    return sum(name.startswith("sparkraft.server.api.k") for name in sys.modules)

async def test():
    HandlerLoader(zookeeper=False).start()
    known, turns = set(sys.modules), 0
    while loaded() < len(SERVED):
        await asyncio.sleep(0)
        new = {name for name in sys.modules if name.startswith("sparkraft.")} - known
        assert len(new) <= 3, sorted(new)
        known |= new
        turns += 1
        assert turns < 10_000
    await asyncio.sleep(0.1)
    before = set(sys.modules)
    for controller_listener in (False, True):
        served_ranges(controller_listener=controller_listener)
    assert set(sys.modules) == before, set(sys.modules) - before

asyncio.run(test())
"""


def test_handlers_are_loaded_one_by_one_and_apiversions_then_loads_nothing():
    subprocess.run([sys.executable, "-c", LOADING], check=True, timeout=60)
