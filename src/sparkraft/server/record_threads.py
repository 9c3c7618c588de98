"""Threads that check, compress and decompress records.

    run → works → a thread → results → `_hand_over` on the loop → the futures

An executor of the standard library needs 50 µs of processor time for each piece of work, a fifth of
what lz4 takes for 64 KB: it wakes the loop for every result. Here a thread wakes it only if earlier
results have been handed over.

Works start in their order and may end in another. They are as many as requests wait for them, whose
number and bytes the connections bound.
"""

import asyncio
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparkraft.base.loop_work import LoopBound

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

Work = tuple["asyncio.Future[Any]", "Callable[..., Any]", tuple[Any, ...]]

Ended = tuple["asyncio.Future[Any]", Any, BaseException | None]
"""A work's future, and its result or error."""

RESULTS_AT_ONCE: Final[LoopBound] = 8
"""Results handed over in one event-loop iteration; each appends a batch, usually of up to 1 MB."""


class RecordThreads:
    """Threads for one event loop; they run from the start, because later there may be no memory.

    Args:
        count: of threads.
    """

    def __init__(self, count: int) -> None:
        self._works: SimpleQueue[Work | None] = SimpleQueue()
        self._results: deque[Ended] = deque()
        self._is_woken = False
        """Whether `_hand_over` is called without another wake-up."""
        self._count = count
        for number in range(count):
            name = f"records_{number}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def run(self, work: "Callable[..., Result]", *arguments: Any) -> "asyncio.Future[Result]":
        """Run `work` in a thread; the future has its result, or the exception that it raised."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._works.put((future, work, arguments))
        return future

    def shutdown(self) -> None:
        """End the threads after the works that are queued."""
        for _ in range(self._count):
            self._works.put(None)

    def _serve(self) -> None:
        while True:
            work = self._works.get()
            if work is None:
                return
            loop = work[0].get_loop()
            self._results.append(_carried_out(*work))
            del work  # the records are not kept until the next work
            if not self._is_woken:
                self._is_woken = True
                self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(self._hand_over)
        except RuntimeError:
            if not loop.is_closed():  # the node has ended: nothing waits
                raise

    def _hand_over(self) -> None:
        results = self._results
        count = RESULTS_AT_ONCE
        if len(results) > count:
            asyncio.get_running_loop().call_soon(self._hand_over)
        else:
            self._is_woken = False  # before the last look: a result after it wakes the loop again
            count = len(results)
        for _ in range(count):
            future, result, error = results.popleft()
            if future.done():  # cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _carried_out(
    future: "asyncio.Future[Any]", work: "Callable[..., Any]", arguments: tuple[Any, ...]
) -> Ended:
    if future.cancelled():
        return future, None, None
    try:
        return future, work(*arguments), None
    except BaseException as error:  # the future raises it
        return future, None, error
