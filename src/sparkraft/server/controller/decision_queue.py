"""The decisions of a controller, one after another; long ones in slices of the event loop's time.

A decision without another one before it begins at once, so a short one ends in the same event-loop
iteration. After a slice everything else on the node runs, but no other decision: like an event of
Kafka's controller, each decision sees all effects of those before it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.controller.steps import Steps

if TYPE_CHECKING:
    from sparkraft.server.loop_turns import Turn

T = TypeVar("T")


class DecisionQueue:
    """See the module docstring."""

    def __init__(self, new_turn: "Callable[[], Turn]") -> None:
        """Nothing waits; `new_turn` begins work on the event loop."""
        self._new_turn = new_turn
        self._waiting: deque[tuple[Steps[Any], asyncio.Future[Any]]] = deque()
        """The decision in progress, then those that wait for it. Bounded by the requests that
        clients and brokers may have unanswered."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a new decision must wait for others."""
        return self._task is not None

    def run(self, steps: Steps[T]) -> "T | asyncio.Future[T]":
        """Carry out a decision after those before it.

        Returns its result, or a future of it if it does not end now. The future has the decision's
        exception, or the one of `abandon`.
        """
        turn = None
        if not self.is_busy:
            turn = self._new_turn()
            try:
                while not turn.is_over(next(steps)):
                    pass
            except StopIteration as end:
                result: T = end.value
                return result
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append((steps, future))
        if turn is not None:
            self._task = loop.create_task(self._drain(turn), name="controller decisions")
        return future

    def abandon(self, error: Callable[[], Exception]) -> None:
        """End all decisions with an error. One that is executing must end by itself."""
        waiting, self._waiting = self._waiting, deque()
        for steps, future in waiting:
            if getgeneratorstate(steps) != GEN_RUNNING:
                steps.close()
            _fail(future, error())

    async def stop(self) -> None:
        """End the task; `abandon` must have been called."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _drain(self, turn: "Turn") -> None:
        try:
            while self._waiting:
                await turn.next()
                self._work(turn)
        finally:
            self._task = None

    def _work(self, turn: "Turn") -> None:
        """Work until the slice is over, or nothing waits."""
        is_over = False
        while self._waiting and not is_over:
            steps, future = self._waiting[0]
            try:
                is_over = turn.is_over(next(steps))
                continue
            except StopIteration as end:
                if not future.done():
                    future.set_result(end.value)
            except Exception as error:  # of the one who awaits the future
                _fail(future, error)
            if self._waiting and self._waiting[0][1] is future:  # else it was abandoned
                self._waiting.popleft()
            is_over = turn.is_over(1)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # Retrieve it: the waiting task may be cancelled.
