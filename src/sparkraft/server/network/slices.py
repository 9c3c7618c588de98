"""Work on a request in slices, so that no request holds the event loop.

A handler with much to do is a generator (`registry.Steps`) that yields the units of work it has
done. The first slice runs at once, so small requests are answered without a detour. The others wait
in `LoopBudget`: each iteration of the loop runs one, whichever request it belongs to, so other
clients wait for one slice at most.

    def handle(broker, context, request):
        for topic in request.topics:
            ...
            yield len(topic.partitions)
        return response

Not here: how the bytes of a large response leave (`sending`).
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.loop_work import LoopBound
from sparkraft.server.api.registry import Steps
from sparkraft.server.network.loop_budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_UNITS_MAX: LoopBound = 500
"""Units in one slice: about 2.5 ms, a fraction of what clients may use of an iteration."""


class SlicedWork:
    """One request's work; `start` begins it."""

    __slots__ = ("_budget", "_error", "_future", "_on_end", "_sent", "_steps")

    def __init__(
        self, steps: Steps, budget: LoopBudget, on_end: "Callable[[], None] | None" = None
    ) -> None:
        """Work by `steps`; slices after the first one wait in `budget`.

        `on_end` is called when work that took several slices ends. Its result may be an awaitable.
        """
        self._on_end = on_end
        self._steps = steps
        self._budget = budget
        self._future: asyncio.Future[Any] | None = None
        self._sent: Any = None
        """The result of the last awaitable, for the next step."""
        self._error: BaseException | None = None
        """The same if it failed."""

    def start(self) -> Any:
        """Run the first slice: the result if that is all, else a future of it.

        A cancelled future ends the work.
        """
        try:
            awaited = self._slice()
        except StopIteration as end:
            return end.value
        self._future = asyncio.get_running_loop().create_future()
        self._continue_after(awaited)
        return self._future

    def run(self) -> None:
        """Run the next slice."""
        future = self._future
        assert future is not None
        if future.done():
            self._steps.close()
            self._end()
            return
        try:
            awaited = self._slice()
        except StopIteration as end:
            _complete(future, end.value)
        except asyncio.CancelledError:
            future.cancel()
        except Exception as error:  # the connection turns it into an error response
            future.set_exception(error)
        else:
            self._continue_after(awaited)
            return
        self._end()

    def _end(self) -> None:
        if self._on_end is not None:
            self._on_end()

    def _slice(self) -> Any:
        """Work until the slice is full: returns None, or what to wait for before the next one."""
        units = 0
        steps = self._steps
        try:
            if self._error is not None:
                error, self._error = self._error, None
                got = steps.throw(error)
            else:
                sent, self._sent = self._sent, None
                got = steps.send(sent)
            while type(got) is int:
                units += got
                if units >= SLICE_UNITS_MAX:
                    return None
                got = next(steps)
        finally:
            self._budget.on_slice(units)
        return got

    def _continue_after(self, awaited: Any) -> None:
        if awaited is None:
            self._budget.queue_slice(self)
        else:
            asyncio.ensure_future(awaited).add_done_callback(self._on_awaited)

    def _on_awaited(self, done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            self._error = asyncio.CancelledError()
        elif (error := done.exception()) is not None:
            self._error = error
        else:
            self._sent = done.result()
        self._budget.queue_slice(self)


def _complete(future: "asyncio.Future[Any]", result: Any) -> None:
    """Set the result, or that of the awaitable that it is."""
    if not hasattr(result, "__await__"):
        future.set_result(result)
        return

    def copy(task: "asyncio.Future[Any]") -> None:
        if task.cancelled():
            future.cancel()
        elif future.done():
            task.exception()  # retrieved: the client is gone
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    asyncio.ensure_future(result).add_done_callback(copy)
