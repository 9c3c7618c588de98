"""Threads for records: results reach the loop, all of them, whatever ends first."""

import asyncio
import threading
import weakref

import pytest

from sparkraft.server.env import record_thread_count
from sparkraft.server.record_threads import RESULTS_AT_ONCE, RecordThreads
from tests.server.harness import run


class Payload:
    """As large records are: they must not be kept."""


def with_threads(test, count=2):
    async def bounded():
        threads = RecordThreads(count)
        try:
            await test(threads)
        finally:
            threads.shutdown()

    run(bounded())


def test_results_and_errors_reach_their_futures():
    async def test(threads):
        def work(number):
            if number % 3 == 0:
                raise ValueError(number)
            return number * 2

        found = await asyncio.gather(
            *(threads.run(work, number) for number in range(500)), return_exceptions=True
        )
        for number, one in enumerate(found):
            if number % 3 == 0:
                assert isinstance(one, ValueError)
                assert one.args == (number,)
            else:
                assert one == number * 2

    with_threads(test)


def test_works_run_at_the_same_time_in_as_many_threads():
    async def test(threads):
        both = threading.Barrier(2, timeout=60)
        names = await asyncio.gather(
            *(threads.run(lambda: (both.wait(), threading.current_thread().name)) for _ in "ab")
        )
        assert len({name for _, name in names}) == 2

    with_threads(test)


def test_one_wake_up_hands_over_what_has_ended_by_then(monkeypatch):
    async def test(threads):
        woken = []
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *arguments: (woken.append(1), wake(*arguments))
        )
        last = threading.Event()
        works = [threads.run(int) for _ in range(99)]
        works.append(threads.run(last.set))
        assert last.wait(60)  # the loop cannot run meanwhile
        await asyncio.gather(*works)
        assert len(woken) <= 2, "one per result would be 100"

    with_threads(test, 1)


def test_an_iteration_hands_over_a_bounded_number():
    async def test(threads):
        last = threading.Event()
        works = [threads.run(int) for _ in range(RESULTS_AT_ONCE * 2 + 1)]
        works.append(threads.run(last.set))
        assert last.wait(60)
        most = before = 0
        while not all(work.done() for work in works):
            await asyncio.sleep(0)
            done = sum(work.done() for work in works)
            most, before = max(most, done - before), done
        assert RESULTS_AT_ONCE <= most <= RESULTS_AT_ONCE + 1  # the last may end meanwhile

    with_threads(test, 1)


def test_a_cancelled_future_is_skipped_and_its_work_is_not_begun():
    async def test(threads):
        begun, go, ran = threading.Event(), threading.Event(), []
        first = threads.run(lambda: (begun.set(), go.wait(60)))
        second = threads.run(ran.append, 1)
        third = threads.run(int)
        assert begun.wait(60)
        first.cancel()
        second.cancel()
        go.set()
        assert await third == 0
        assert ran == []

    with_threads(test, 1)


def test_records_are_not_kept_after_their_work():
    async def test(threads):
        payload = Payload()
        kept = weakref.ref(payload)
        await threads.run(id, payload)
        del payload
        await threads.run(int)
        assert kept() is None

    with_threads(test, 1)


def test_shutdown_ends_the_threads_after_what_is_queued():
    async def test():
        before = set(threading.enumerate())
        threads = RecordThreads(2)
        started = set(threading.enumerate()) - before
        assert len(started) == 2
        works = [threads.run(int) for _ in range(20)]
        threads.shutdown()
        await asyncio.gather(*works)
        for thread in started:
            thread.join(60)
            assert not thread.is_alive()

    run(test())


def test_a_result_after_the_end_of_the_loop_is_dropped():
    before = set(threading.enumerate())
    threads = RecordThreads(1)
    (thread,) = set(threading.enumerate()) - before
    begun, go = threading.Event(), threading.Event()

    async def test():
        threads.run(lambda: (begun.set(), go.wait(60)))
        assert begun.wait(60)

    asyncio.run(test())
    failed = []
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        go.set()
        threads.shutdown()
        thread.join(60)
        assert not thread.is_alive()
    finally:
        threading.excepthook = hook
    assert not failed


@pytest.mark.parametrize("count", [1, 2])
def test_no_result_is_lost_between_the_last_look_and_the_next_wake_up(count):
    async def test(threads):
        for _ in range(200):
            await asyncio.gather(*(threads.run(int) for _ in range(5)))

    with_threads(test, count)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (3, 2), (4, 3), (64, 4)])
def test_threads_leave_the_loop_a_core_if_there_are_three(cores, threads):
    assert record_thread_count(cores) == threads
