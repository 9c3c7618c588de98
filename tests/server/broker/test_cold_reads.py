"""Parts of files are read once, few at a time, and a fetch that waits may be cancelled."""

import asyncio
from typing import Any

import pytest

from sparkraft.server.broker.cold_reads import READS_MAX, ColdReads
from sparkraft.storage.disk import FilePart
from tests.server.harness import run


class Threads:
    """Reads that end when the test says so."""

    def __init__(self) -> None:
        self.running: dict[FilePart, asyncio.Future[None]] = {}
        self.started: list[FilePart] = []

    def off_loop(self, _work: Any, part: FilePart) -> "asyncio.Future[None]":
        self.started.append(part)
        self.running[part] = asyncio.get_running_loop().create_future()
        return self.running[part]


def part(number: int) -> FilePart:
    return FilePart(f"/{number}.log", 0, 100)


def test_a_part_that_several_fetches_lack_is_read_once():
    async def test():
        threads = Threads()
        reads = ColdReads(threads.off_loop, lambda _: None)
        waiting = [asyncio.ensure_future(reads.wait([part(0)])) for _ in range(3)]
        await asyncio.sleep(0)
        assert threads.started == [part(0)]
        waiting[0].cancel()
        await asyncio.sleep(0)
        threads.running[part(0)].set_result(None)
        await asyncio.gather(*waiting[1:])
        assert reads.reads == 1
        reads.start(part(0))
        assert reads.reads == 2, "it may have left the page cache again"
        threads.running[part(0)].set_result(None)
        await asyncio.sleep(0)

    run(test())


def test_few_are_read_at_a_time_in_order():
    async def test():
        threads = Threads()
        reads = ColdReads(threads.off_loop, lambda _: None)
        parts = [part(number) for number in range(5)]
        waiting = asyncio.ensure_future(reads.wait(parts))
        for done in range(5):
            await asyncio.sleep(0)
            assert threads.started == parts[: min(5, READS_MAX + done)]
            threads.running[parts[done]].set_result(None)
            await asyncio.sleep(0)
        await waiting

    run(test())


def test_nothing_is_begun_after_the_end():
    async def test():
        threads = Threads()
        reads = ColdReads(threads.off_loop, lambda _: None)
        for number in range(5):
            reads.start(part(number))
        reads.close()
        threads.running[part(0)].cancel()
        threads.running[part(1)].set_result(None)
        await asyncio.sleep(0)
        assert len(threads.started) == READS_MAX

    run(test())


def test_an_error_reaches_the_fetch():
    async def test():
        threads = Threads()
        reads = ColdReads(threads.off_loop, lambda _: None)
        waiting = asyncio.ensure_future(reads.wait([part(0)]))
        await asyncio.sleep(0)
        threads.running[part(0)].set_exception(MemoryError())
        with pytest.raises(MemoryError):
            await waiting

    run(test())
