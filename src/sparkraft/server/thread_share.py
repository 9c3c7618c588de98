"""Leaves a thread its share of a busy event loop's time.

A thread needs the interpreter after each of its system calls. While the loop runs one request after
the other, the thread gets it once in several milliseconds. Work of many small calls, such as
creating folders, then takes hundreds of times as long: clients that never pause could delay the
partitions of a new topic for minutes.

    an iteration took longer than `BUSY_S` → the loop waits up to `SHARE_S` for the work to end
    otherwise, or if the executor has not begun it → look again after `CHECK_S`
"""

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

Result = TypeVar("Result")

CHECK_S = 0.001
"""Between two looks at a loop that is not busy."""

BUSY_S = 0.001
"""An iteration of a loop that is not busy takes less."""

SHARE_S = 0.003
"""Time of the thread in each iteration of a busy loop: as long as a slice of other work."""


def run_with_share(
    executor: "Executor", work: "Callable[..., Result]", *arguments: Any
) -> "Awaitable[Result]":
    """Run `work` in a thread of `executor`, and leave it its share until it ends.

    Await its result, or the exception that it raises. A loop runs one such work at a time.
    """
    loop = asyncio.get_running_loop()
    begun, ended = threading.Event(), threading.Event()

    def run() -> Result:
        begun.set()
        try:
            return work(*arguments)
        finally:
            ended.set()

    def check(due: float) -> None:
        if ended.is_set() or result.cancelled():
            return
        now = loop.time()
        if begun.is_set() and now - due > BUSY_S:
            ended.wait(SHARE_S)
            loop.call_soon(check, loop.time())
        else:
            loop.call_at(now + CHECK_S, check, now + CHECK_S)

    result = loop.run_in_executor(executor, run)
    check(loop.time())
    return result
