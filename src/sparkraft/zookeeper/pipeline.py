"""The requests of a session: some in flight, the others wait for their turn.

    submitters ─► queue ─► at most `in_flight_max` in flight ─► results, in the order of sending

`send_all` has at most `in_flight_max` requests in the queue, so a long list delays the request of
another submitter by that many at most. Its next request is sent from the result that makes room for
it, without a task in between, so that replies which arrive together are followed by one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkraft.zookeeper.errors import ConnectionLossError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.zookeeper.requests import Request

OnResult = Callable[[Any], None]
"""Takes the result of a request, or the exception with which it failed."""


class _Queued:
    """A request in the queue; its submitter may drop it."""

    __slots__ = ("is_dropped", "on_result", "request")

    def __init__(self, request: Request, on_result: OnResult) -> None:
        self.request = request
        self.on_result = on_result
        self.is_dropped = False


class Pipeline:
    """See the module's docstring."""

    def __init__(self, in_flight_max: int, post: Callable[[Request, OnResult], None]) -> None:
        """Start empty.

        Args:
            in_flight_max: requests without a result.
            post: sends a request, and passes on its result after it has returned.
        """
        self._in_flight_max = self._free = in_flight_max
        self._post = post
        self._queue: deque[_Queued] = deque()

    async def send(self, request: Request) -> Any:
        """Send a request once; return its result, or raise the exception.

        A request whose submitter is cancelled before its turn is not sent.
        """
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        queued = self.put(request, partial(settle, result))
        try:
            return await result
        finally:
            queued.is_dropped = True

    async def send_all(
        self, requests: Sequence[Request], indexes: Iterable[int], results: list[Any]
    ) -> list[int]:
        """Send `requests[index]` for each index, in order.

        Put the result or the exception of each into `results[index]`. Return the indexes that a
        disconnect left without one: their requests were in flight or not sent yet.
        """
        many = _Many(self, requests, indexes, results)
        return await many.send(self._in_flight_max)

    def put(self, request: Request, on_result: OnResult) -> _Queued:
        """Append a request to the queue."""
        queued = _Queued(request, on_result)
        self._queue.append(queued)
        self._advance()
        return queued

    def _advance(self) -> None:
        while self._free and self._queue:
            queued = self._queue.popleft()
            if not queued.is_dropped:
                self._free -= 1
                self._post(queued.request, partial(self._on_result, queued.on_result))

    def _on_result(self, on_result: OnResult, result: Any) -> None:
        self._free += 1
        on_result(result)
        self._advance()


class _Many:
    """The requests of one `Pipeline.send_all`."""

    def __init__(
        self,
        pipeline: Pipeline,
        requests: Sequence[Request],
        indexes: Iterable[int],
        results: list[Any],
    ) -> None:
        self._pipeline = pipeline
        self._requests = requests
        self._unsent = iter(indexes)
        self._results = results
        self._lost: list[int] = []
        self._pending: dict[int, _Queued] = {}
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, in_flight_max: int) -> list[int]:
        for index in islice(self._unsent, in_flight_max):
            self._put(index)
        try:
            if self._pending:
                await self._ended
        finally:
            left = [*self._lost, *self._unsent]  # leaves none to send, if it was cancelled
            for queued in self._pending.values():
                queued.is_dropped = True
        return left

    def _put(self, index: int) -> None:
        on_result = partial(self._on_result, index)
        self._pending[index] = self._pipeline.put(self._requests[index], on_result)

    def _on_result(self, index: int, result: Any) -> None:
        del self._pending[index]
        if isinstance(result, ConnectionLossError):
            self._lost.append(index)
        else:
            self._results[index] = result
        if not self._lost:
            for following in islice(self._unsent, 1):
                self._put(following)
        if not self._pending and not self._ended.done():
            self._ended.set_result(None)


def settle(waiter: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result or exception, unless it was cancelled."""
    if waiter.done():
        return
    if isinstance(result, BaseException):
        waiter.set_exception(result)
    else:
        waiter.set_result(result)


def fail_soon(on_result: OnResult, error: Exception) -> None:
    """Pass on the failure of a request that is not sent, when its submitter has returned."""
    asyncio.get_running_loop().call_soon(on_result, error)
