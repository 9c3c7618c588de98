"""A thread that makes many small system calls beside a loop that never pauses."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparkraft.server.thread_share import CHECK_S, run_with_share
from tests.server.harness import PATIENCE_S, run

CALLS = 1_000
PIECE_S = 0.004


def small_calls() -> str:
    """As creating folders does, give the interpreter away in each call, and ask for it again."""
    for _ in range(CALLS):
        os.stat("/")
    return "done"


class Busy:
    """Keeps the running loop busy, piece after piece, until it is stopped."""

    def __init__(self) -> None:
        self.pieces = 0
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._piece)

    def _piece(self) -> None:
        end = time.monotonic() + PIECE_S
        while time.monotonic() < end:
            pass
        self.pieces += 1
        if not self._is_over:
            self._loop.call_soon(self._piece)

    def stop(self) -> None:
        self._is_over = True


def test_a_busy_loop_leaves_a_thread_its_share():
    async def test():
        with ThreadPoolExecutor(1) as threads:
            busy = Busy()
            assert await run_with_share(threads, small_calls) == "done"
            busy.stop()
            # without a share, each of the calls waits for a piece or for several
            assert busy.pieces < CALLS / 4

    run(test())


class ScriptedLoop:
    """Takes each call's moment from a list; notes how the next look is scheduled."""

    def __init__(self, *moments: float) -> None:
        self._moments = list(moments)
        self.next: tuple[str, Any, Any] = ("", None, None)

    def time(self) -> float:
        return self._moments.pop(0)

    def run_in_executor(self, executor: Any, work: Any) -> Any:
        return executor.submit(work)

    def call_soon(self, check: Any, due: float) -> None:
        self.next = ("soon", check, due)

    def call_at(self, _when: float, check: Any, due: float) -> None:
        self.next = ("later", check, due)


def test_a_loop_that_pauses_does_not_wait_for_the_thread(monkeypatch):
    loop = ScriptedLoop(1.0, 1.0, 1.0011, 1.0025, 1.0032, 1.0033)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    blocked, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        blocked.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as threads:
        run_with_share(threads, work)
        assert begun.wait(PATIENCE_S)
        how, check, due = loop.next
        assert (how, due) == ("later", 1.0 + CHECK_S)
        check(due)  # on time
        how, check, due = loop.next
        assert (how, due) == ("later", 1.0011 + CHECK_S)
        check(due)  # at 1.0025: on time
        how, check, due = loop.next
        assert how == "later"
        check(1.0)  # late: it waits, and looks again in the next iteration
        assert loop.next[0] == "soon"
        blocked.set()


def test_a_busy_loop_does_not_wait_for_work_that_no_thread_has_begun(monkeypatch):
    loop = ScriptedLoop(1.0, 1.0, 2.0)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    occupied = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(occupied.wait, PATIENCE_S)
        work: Any = run_with_share(threads, small_calls)
        _, check, due = loop.next
        loop.next = ("", None, None)
        check(due)  # late: the only thread does something else
        assert loop.next[0] == "later"
        work.cancel()
        loop.next = ("", None, None)
        check(due)
        assert loop.next[0] == "", "work that is canceled is forgotten"
        occupied.set()


def test_an_error_of_the_work_is_raised():
    async def test():
        with ThreadPoolExecutor(1) as threads, pytest.raises(FileNotFoundError):
            await run_with_share(threads, os.stat, "/does/not/exist")

    run(test())
