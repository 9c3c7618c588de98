"""Calls to one shard, in order: long ones take turns with everything else on the event loop.

Without steps in progress a call is executed at once. Otherwise it waits for their end, and for the
calls before it: the shard must not change between two pieces of its work.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.steps import Steps

if TYPE_CHECKING:
    from sparkraft.server.coordinator.host import ShardHost
    from sparkraft.server.coordinator.responses import Response
    from sparkraft.server.loop_turns import Turn

T = TypeVar("T")


class WorkQueue:
    """See the module docstring.

    Args:
        host: runs the task that executes what waits.
        name: of the shard.
    """

    def __init__(self, host: "ShardHost", name: str) -> None:
        self._host = host
        self._name = name
        self._steps: Steps[Any] | None = None
        """In progress."""
        self._result: asyncio.Future[Any] | None = None
        """Of these steps; None if no client waits for it."""
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any] | None]] = deque()
        """Calls, and the futures of their results. Bounded by what clients may send unanswered."""
        self._turn: Turn | None = None
        """The current turn of the task; None without a task."""
        self._calls = False
        """Whether the task is executing a call."""
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a call must wait."""
        return self._turn is not None and not self._calls

    # Steps

    def run(self, steps: Steps[T]) -> "T | asyncio.Future[T]":
        """Execute a client's steps: their result, or a future of it if they are long."""
        try:
            turn = self._first_piece(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        self._result = asyncio.get_running_loop().create_future()
        self._continue(steps, turn)
        return self._result

    def run_timer(self, steps: Steps[None]) -> None:
        """Execute steps of a timer. Of the shards whose timers are due together, one begins now."""
        turn = self._host.turn()
        if turn.is_first():
            self.run_event(steps)
        else:
            self._result = None
            self._continue(steps, turn)

    def run_event(self, steps: Steps[None]) -> None:
        """Execute steps that no client waits for."""
        try:
            turn = self._first_piece(steps)
        except StopIteration:
            return
        self._result = None
        self._continue(steps, turn)

    def _first_piece(self, steps: Steps[Any]) -> "Turn":
        """Raises StopIteration with the result if that is all."""
        turn = self._host.turn() if self._turn is None else self._turn
        while not (units := next(steps)) or not turn.is_over(units):
            pass
        return turn

    def _continue(self, steps: Steps[Any], turn: "Turn") -> None:
        assert self._steps is None
        self._steps = steps
        if self._turn is None:
            self._turn = turn
            self._host.spawn(self._drain(turn), f"steps of {self._name}")

    # Calls that wait

    def later(self, call: "Callable[[], Response[T]]") -> Awaitable[T]:
        """Execute a client's call when it is next.

        The result raises KafkaError: that of the call; NOT_COORDINATOR if the queue is closed
        before.
        """
        future: asyncio.Future[Response[T]] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        return _response_of(future)

    def later_event(self, call: Callable[[], None]) -> None:
        """Execute a call when it is next; dropped if the queue is closed before."""
        self._waiting.append((call, None))

    # The task

    async def _drain(self, turn: "Turn") -> None:
        """Finish the steps in progress, then execute what waits."""
        try:
            while (self._steps is not None or self._waiting) and not self._closed:
                await turn.next()
                if not self._closed:
                    self._run_until(turn)
        finally:
            self._turn = None
            if self._steps is not None:
                self._steps.close()
                self._steps = None
            self._fail()

    def _run_until(self, turn: "Turn") -> None:
        """Work until the slice is over, or nothing is left."""
        is_over = False
        while not is_over:
            if self._steps is not None:
                is_over = self._next_piece(self._steps, turn)
            elif self._waiting:
                self._call(*self._waiting.popleft())
                is_over = turn.is_over(1)
            else:
                return

    def _next_piece(self, steps: Steps[Any], turn: "Turn") -> bool:
        """Run one piece; whether the slice is over."""
        future = self._result
        try:
            return turn.is_over(next(steps))
        except StopIteration as end:
            self._steps = self._result = None
            _settle(future, end.value)
        except Exception as error:  # the connection turns it into an error response
            self._steps = self._result = None
            if future is None:
                raise
            if not future.done():
                future.set_exception(error)
        return False

    def _call(self, call: Callable[[], Any], future: asyncio.Future[Any] | None) -> None:
        if future is not None and future.done():
            return  # The client is gone.
        self._calls = True
        try:
            result = call()
        except Exception as error:  # a request's: it becomes an error response
            if future is None:
                raise
            future.set_exception(error)
        else:
            _settle(future, result)
        finally:
            self._calls = False

    # The end

    def close(self) -> None:
        """Resign: whatever waits fails with NOT_COORDINATOR; steps in progress are abandoned."""
        self._closed = True
        self._fail()

    def _fail(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        result, self._result = self._result, None
        for future in (result, *(future for _, future in waiting)):
            if future is not None and not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))


async def _response_of(future: "asyncio.Future[Response[T]]") -> T:
    response = await future
    return await response if isinstance(response, Awaitable) else response


def _settle(future: asyncio.Future[Any] | None, result: Any) -> None:
    if future is None:
        return
    if not future.done():
        future.set_result(result)
    elif hasattr(result, "close"):
        result.close()  # a coroutine that will not be awaited
