"""Cyclic garbage is found without pauses that grow with the heap."""

import gc
import subprocess
import sys

from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.server.garbage import GROWN_BLOCKS_MIN, GarbageSearch
from tests.server.harness import connect, create_topic, node_in, run, until

GROWING = """
import asyncio, gc
from sparkraft.server import garbage

async def test():
    garbage.CHECK_SECONDS = 0.01
    searched = []
    gc.callbacks.append(lambda phase, info: searched.append(info["generation"]))
    search = garbage.GarbageSearch()
    search.start()
    kept = [[number] for number in range(300_000)]
    assert searched.count(0) > 10 and searched.count(1) > 10 and 2 not in searched
    await asyncio.sleep(0.05)
    assert search.searches == 0, "the heap has not grown by enough"
    for _ in range(garbage.GROWN_BLOCKS_MIN // 2):
        kept.append([None])
        kept[-1][0] = kept[-1]
    gc.collect(1)
    del kept[300_000:]  # garbage of old objects
    while not search.searches:
        await asyncio.sleep(0.01)
    assert 2 in searched
    gc.callbacks.clear()
    print(gc.collect())

asyncio.run(test())
"""


def test_old_objects_are_searched_when_the_heap_has_doubled_and_not_before():
    """In a process of its own, since the collector's settings are the process's."""
    done = subprocess.run(
        [sys.executable, "-c", GROWING], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 1_000, "the search found the garbage"


def test_the_growth_that_is_worth_a_search():
    search = GarbageSearch()
    search._blocks = 100
    assert not search.is_due(GROWN_BLOCKS_MIN)
    assert search.is_due(GROWN_BLOCKS_MIN + 100)
    search._blocks = 3 * GROWN_BLOCKS_MIN
    assert not search.is_due(6 * GROWN_BLOCKS_MIN - 1)
    assert search.is_due(6 * GROWN_BLOCKS_MIN)


def test_a_deleted_partition_leaves_no_cycle(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", 3)
            manager = node.broker.replica_manager
            gc.collect()
            gc.disable()
            try:
                hosted = manager.hosted("t", 0)
                kinds = {type(hosted), type(hosted.log)}
                del hosted
                before = count_of(kinds)
                topics = [DeleteTopicState(name="t")]
                await connection.send(DeleteTopicsRequest(topics=topics, timeout_ms=10_000))
                await until(lambda: manager.hosted("t", 0) is None)
                await until(lambda: count_of(kinds) == before - 6)
            finally:
                gc.enable()

    run(test())


def count_of(kinds):
    return sum(type(found) in kinds for found in gc.get_objects())
