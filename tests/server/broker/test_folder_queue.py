"""Work on folders: in the order of each topic-partition, in threads, with shared fsyncs."""

import asyncio
from typing import Any

import pytest

from sparkraft.server.broker.folder_queue import FolderQueue
from sparkraft.server.loop_turns import LoopTurns, Turn
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.log_dir import DiskJob
from sparkraft.storage.log_dirs import LogDirs
from tests.server.harness import until
from tests.storage.worlds import HandClock

BATCH = 4


class Threads:
    """Disk threads whose work begins when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[Any], Any]] = []
        self.is_open = True
        self.calls = 0

    def off_loop(self, work: Any, *arguments: Any) -> Any:
        self.calls += 1
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((future, lambda: work(*arguments)))
        if self.is_open:
            self.release()
        return future

    def release(self) -> None:
        for future, work in self.waiting:
            future.set_result(work())
        self.waiting.clear()


class Bench:
    """A queue over two directories of one disk."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.dirs = LogDirs(self.disk, ["/one", "/two"])
        self.dirs.lock()
        self.threads = Threads()
        self.idle = 0
        self.events: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        turns = LoopTurns()
        self.queue = FolderQueue(
            self.dirs,
            off_loop=self.threads.off_loop,
            new_turn=lambda: Turn(turns, HandClock(), 2),
            batch_max=BATCH,
            spawn=lambda work, _: self.tasks.append(asyncio.ensure_future(work)),
            on_idle=self.on_idle,
        )

    def on_idle(self) -> None:
        self.idle += 1

    def steps(
        self, name: str, *, path: str = "/one", syncs: bool = False, works: Any = None
    ) -> Any:
        log_dir = self.dirs.at(path)
        self.events.append(f"{name} begins")
        job = works or (lambda: self.events.append(f"{name} works"))
        yield DiskJob(log_dir, name, job, syncs=syncs)
        try:
            log_dir.require_online()
        except StorageFault:
            self.events.append(f"{name} fails")
            return
        self.events.append(f"{name} ends")

    def submit(self, name: str, index: int, **more: Any) -> None:
        self.queue.submit(("t", index), self.steps(name, **more))

    async def until_idle(self) -> None:
        await until(lambda: self.queue.is_idle)


def on_a_bench(test: Any) -> None:
    async def work() -> None:
        bench = Bench()
        await test(bench)
        for task in bench.tasks:
            await task

    asyncio.run(work())


def test_work_on_one_partition_keeps_its_order_and_others_share_a_thread() -> None:
    async def test(bench: Bench) -> None:
        bench.submit("create", 0)
        bench.submit("other", 1)
        bench.submit("delete", 0)
        bench.submit("again", 0)
        assert bench.queue.is_busy(("t", 0))
        await bench.until_idle()
        of_one = [event for event in bench.events if not event.startswith("other")]
        assert of_one == [
            f"{name} {what}"
            for name in ("create", "delete", "again")
            for what in ("begins", "works", "ends")
        ]
        assert bench.threads.calls == 3
        assert not bench.queue.is_busy(("t", 0))
        assert bench.idle == 1

    on_a_bench(test)


def test_a_batch_has_a_bound_and_one_fsync_for_each_directory() -> None:
    async def test(bench: Bench) -> None:
        before = len(bench.disk.journal)
        for index in range(10):
            bench.submit(f"{index}", index, path="/two" if index == 3 else "/one", syncs=True)
        await bench.until_idle()
        assert bench.threads.calls == 3
        syncs = [entry.path for entry in bench.disk.journal[before:]]
        assert syncs == ["/one", "/two", "/one", "/one"]

    on_a_bench(test)


def test_a_failing_directory_stops_its_jobs_and_no_others() -> None:
    async def test(bench: Bench) -> None:
        def fail() -> None:
            raise OSError(5, "injected")

        bench.submit("bad", 0, works=fail)
        bench.submit("behind", 1)
        bench.submit("good", 2, path="/two")
        await bench.until_idle()
        assert bench.dirs.at("/one").fault is not None
        assert bench.dirs.at("/two").fault is None
        ends = [event for event in bench.events if "begins" not in event]
        assert ends == ["good works", "bad fails", "behind fails", "good ends"]

    on_a_bench(test)


def test_a_failing_fsync_of_the_directory_fails_its_jobs() -> None:
    async def test(bench: Bench) -> None:
        bench.disk.fail("fsync_dir", path="/one")
        bench.submit("renamed", 0, syncs=True)
        bench.submit("other", 1, path="/two", syncs=True)
        await bench.until_idle()
        assert {"renamed fails", "other ends"} <= set(bench.events)

    on_a_bench(test)


def test_of_a_file_that_several_replace_only_the_last_content_is_written() -> None:
    async def test(bench: Bench) -> None:
        def steps(content: bytes) -> Any:
            log_dir = bench.dirs.at("/one")
            write = lambda: bench.disk.replace("/one/f", content)  # noqa: E731
            yield DiskJob(log_dir, "write", write, replaces="/one/f")

        before = len(bench.disk.journal)
        for index in range(3):
            bench.queue.submit(("t", index), steps(b"%d" % index))
        await bench.until_idle()
        assert bench.disk.read("/one/f") == b"2"
        kinds = [entry.kind for entry in bench.disk.journal[before:]]
        assert kinds.count("rename") == 1

    on_a_bench(test)


def test_closing_waits_for_the_thread_and_begins_nothing_more() -> None:
    async def test(bench: Bench) -> None:
        bench.threads.is_open = False
        for index in range(BATCH + 1):
            bench.submit(f"{index}", index)
        await until(lambda: bench.threads.waiting)
        closing = asyncio.ensure_future(bench.queue.close())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not closing.done()
        bench.threads.release()
        await closing
        assert f"{BATCH - 1} ends" in bench.events
        assert f"{BATCH} begins" not in bench.events
        bench.submit("late", 99)
        assert len(bench.tasks) == 1

    on_a_bench(test)


@pytest.mark.parametrize("count", [1, 7])
def test_nothing_is_idle_twice(count: int) -> None:
    async def test(bench: Bench) -> None:
        await bench.queue.close()
        assert bench.queue.is_idle

        other = Bench()
        for index in range(count):
            other.submit(f"{index}", index)
        await other.until_idle()
        await asyncio.gather(*other.tasks)
        assert other.idle == 1

    on_a_bench(test)
