"""Requests that the core has not responded to yet: a request id and a future each."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeAlias

from sparkraft.raft import events

ResponseFuture: TypeAlias = asyncio.Future[events.Response]


class PendingRequests:
    """Pairs the core's responses with the callers that wait for them."""

    def __init__(self, on_cancelled: Callable[[int], None]) -> None:
        """`on_cancelled` gets the id of a request whose caller stopped waiting."""
        self._on_cancelled = on_cancelled
        self._futures: dict[int, ResponseFuture] = {}
        self.last_id = 0

    def next_id(self) -> int:
        """A request id that was never used before."""
        self.last_id += 1
        return self.last_id

    def add(self) -> tuple[int, ResponseFuture]:
        """A new request id and the future of its response; cancel it to drop the request."""
        request_id = self.next_id()
        future: ResponseFuture = asyncio.get_running_loop().create_future()
        self._futures[request_id] = future
        future.add_done_callback(lambda done: self._on_done(request_id, done))
        return request_id, future

    def _on_done(self, request_id: int, future: ResponseFuture) -> None:
        self._futures.pop(request_id, None)
        if future.cancelled():
            self._on_cancelled(request_id)

    def complete(self, responses: Iterable[events.Respond]) -> None:
        """Hand out responses; one that is no longer awaited is dropped."""
        for respond in responses:
            future = self._futures.get(respond.request_id)
            if future is not None and not future.done():
                future.set_result(respond.response)

    def fail_all(self, make_error: Callable[[], Exception]) -> None:
        """End every request with an error of its own."""
        for future in list(self._futures.values()):
            if not future.done():
                future.set_exception(make_error())
