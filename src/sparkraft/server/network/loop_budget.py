"""The time that client connections may use in one iteration of the event loop.

Clients share the loop with the controller. An iteration's budget starts with the first client that
runs in it, and ends after everything the loop had to do then, the quorum's sockets and due timers
included. Clients that come too late, or are not done, wait for the next iteration, in order.
"""

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol

from sparkraft.server.network.loop_load import LoopLoad
from sparkraft.server.network.loop_wakes import LoopWakes

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock

ITERATION_MS_MAX = 8
"""Client work in one iteration before the quorum's sockets are looked at again."""


class Runnable(Protocol):
    """A client connection with frames to handle, or a request's work with slices left."""

    def run(self) -> None: ...


class LoopBudget:
    """Shared by the listeners of a node.

    Attributes:
        slices: how many slices of requests' work have run (`slices`).
        slice_units_max: the units of the largest one.
        load: how busy the loop is.
        wakes: measures the time between two pieces of clients' work.
    """

    def __init__(self, clock: "Clock", thread_s: "Callable[[], float]" = float) -> None:
        """Nothing waits.

        Args:
            clock: the node's.
            thread_s: `Env.thread_s`.
        """
        self.wakes = LoopWakes(thread_s)
        self.slices = 0
        self.slice_units_max = 0
        self.load = LoopLoad(clock)
        self._clock = clock
        self._started_ms: int | None = None
        self._queue: OrderedDict[Runnable, Runnable] = OrderedDict()
        self._slices: deque[Runnable] = deque()

    @property
    def waiting(self) -> int:
        """Clients and slices that wait for the next iteration."""
        return len(self._queue) + len(self._slices)

    def try_run(self, client: Runnable) -> bool:
        """Whether `client` may run now; otherwise it is queued for a later iteration."""
        if not self._queue and not self.exhausted():
            return True
        self.queue(client)
        return False

    def queue(self, client: Runnable) -> None:
        """Run `client` when there is time, after those that wait already."""
        self.exhausted()  # starts the budget, and so the next iteration's
        self._queue.setdefault(client, client)

    def queue_slice(self, work: Runnable) -> None:
        """Run the next slice of `work` in a later iteration, one slice in each."""
        self.exhausted()
        self._slices.append(work)

    def on_slice(self, units: int) -> None:
        """Count a slice of a request's work."""
        self.slices += 1
        self.slice_units_max = max(self.slice_units_max, units)

    def exhausted(self) -> bool:
        """Whether this iteration's time is used up; starts the budget if none has started."""
        now = self._clock.mono_ms()
        if self._started_ms is None:
            self._started_ms = now
            asyncio.get_running_loop().call_soon(self._next_iteration)
        return now - self._started_ms >= ITERATION_MS_MAX

    def _next_iteration(self) -> None:
        """Run the clients that waited, in order, as far as the time goes; then one slice."""
        if self._started_ms is not None:
            self.load.on_iteration(self._started_ms)
        self._started_ms = None
        while self._queue and not self.exhausted():
            _, client = self._queue.popitem(last=False)
            client.run()
        if self._slices:
            self.exhausted()
            self._slices.popleft().run()
