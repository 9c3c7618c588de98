"""Fetches that wait for bytes (min_bytes, max_wait_ms), without a task each.

A `FetchWaiter` hangs on the partitions it reads. An append tells it how many bytes came; once
enough are there, or its time is up, or something else happened (leadership, deletion), it answers:
once, at the end of the current round of the loop, so that the appends of one round wake it once.

A waiter whose connection goes away is cancelled through its future and leaves its partitions.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkraft.server.broker.partition import HostedPartition


class FetchWaiter:
    """One parked fetch."""

    __slots__ = ("_answer", "_loop", "_missing", "_partitions", "_scheduled", "_timer", "future")

    def __init__(
        self,
        partitions: "Iterable[HostedPartition]",
        *,
        missing_bytes: int,
        wait_ms: int,
        answer: Callable[[], Any],
    ) -> None:
        """Wait until `missing_bytes` more came or `wait_ms` passed; then `answer()` is the answer.

        Must be made in a running loop.
        """
        self._loop = asyncio.get_running_loop()
        self._partitions = list(partitions)
        self._missing = missing_bytes
        self._answer = answer
        self._scheduled = False
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.future.add_done_callback(self._leave)
        self._timer = self._loop.call_later(wait_ms / 1000, self._finish_now)
        for partition in self._partitions:
            partition.waiters[self] = None

    def on_bytes(self, count: int) -> None:
        """`count` bytes were appended to one of the partitions."""
        self._missing -= count
        if self._missing <= 0:
            self.finish()

    def finish(self) -> None:
        """Answer at the end of this round of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._finish_now)

    def _finish_now(self) -> None:
        if self.future.done():
            return
        try:
            answer = self._answer()
        except Exception as error:  # the connection turns it into an answer
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)

    def _leave(self, _: "asyncio.Future[Any]") -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.pop(self, None)
