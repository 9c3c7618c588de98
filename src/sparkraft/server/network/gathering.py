"""Fetches of consumers that keep up are answered together while the event loop is busy.

A response costs time for itself and for each of its partitions, far more than for their bytes. If
producers and consumers fill the loop, each Fetch finds the few batches that came since the last
one, and most of the loop's time goes into small responses. So while the loop is busy, such a Fetch
waits until the next of these moments, which come every `GATHER_MS`: it finds more, the loop has
time for producers, and all clients get more records. An idle loop answers at once.

    HIGH of the time for clients, in one window   → fetches are gathered
    below LOW                                     → they are answered at once again

Only incremental fetches whose last response left nothing to read wait: a consumer that catches up
gets its records as fast as it asks. Nothing is read before the wait, so rights, leadership and
offsets are those of the moment of the response.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkraft.server.network.loop_budget import LoopBudget

GATHER_MS = 5
"""How long a Fetch waits at most on a busy loop; then the loop's clients take turns as usual."""


class HeldFetch:
    """A Fetch that waits; the budget's client when its moment has come."""

    __slots__ = ("_answer", "future")

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Of the response. Cancelled if the client leaves."""
        self._answer = answer

    def run(self) -> None:
        """Respond, now or after a long poll."""
        future = self.future
        if future.done():
            return
        try:
            answer = self._answer()
        except Exception as error:  # the connection turns it into an error response
            future.set_exception(error)
            return
        if not hasattr(answer, "__await__"):
            future.set_result(answer)
            return
        waits = asyncio.ensure_future(answer)
        waits.add_done_callback(self._copy)
        future.add_done_callback(lambda done: waits.cancel() if done.cancelled() else None)

    def _copy(self, waits: "asyncio.Future[Any]") -> None:
        if waits.cancelled():
            self.future.cancel()
        elif self.future.done():
            waits.exception()  # retrieved: the client is gone
        elif (error := waits.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(waits.result())


class Gathering:
    """The fetches of a node that wait for the next moment.

    Args:
        budget: of the node's clients; they run in it, as far as there is time.
    """

    def __init__(self, budget: "LoopBudget") -> None:
        self.fetches = 0
        """How many have waited."""
        self._budget = budget
        self._held: list[HeldFetch] = []

    @property
    def is_on(self) -> bool:
        """Whether fetches wait."""
        return self._budget.load.is_high

    def hold(self, answer: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Call `answer` at the next moment: a future of its response."""
        self.fetches += 1
        held = HeldFetch(answer)
        if not self._held:
            asyncio.get_running_loop().call_later(GATHER_MS / 1000, self._release)
        self._held.append(held)
        return held.future

    def _release(self) -> None:
        held, self._held = self._held, []
        for one in held:
            self._budget.queue(one)
