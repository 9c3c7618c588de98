"""The requests that a shard has parked: futures of their responses, by number.

A rebalance replies to all members of a group, and there may be any number. Each reply wakes a task,
which encodes and sends the response in the next iteration of the event loop. A large number of
replies is therefore given in steps.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import ReplyTo
from sparkraft.coordinator.steps import Steps

REPLY_UNITS: Final = 20
"""Units of work of a reply, with the response: 80 µs."""


class ParkedRequests:
    """See the module docstring."""

    def __init__(self) -> None:
        self._futures: dict[ReplyTo, asyncio.Future[Any]] = {}
        self._last: ReplyTo = 0

    def park(self) -> tuple[ReplyTo, "asyncio.Future[Any]"]:
        """Number a request; its future ends with the response, or as the caller ends it."""
        self._last += 1
        future = self._futures[self._last] = asyncio.get_running_loop().create_future()
        return self._last, future

    def forget(self, reply_to: ReplyTo) -> None:
        """The request ends otherwise."""
        self._futures.pop(reply_to, None)

    def reply(self, reply_to: ReplyTo, response: Any) -> None:
        """End a request, unless it has ended."""
        future = self._futures.pop(reply_to, None)
        if future is not None and not future.done():
            future.set_result(response)

    def reply_in_steps(self, replies: Iterable[tuple[ReplyTo, Any]]) -> Steps[None]:
        """End requests, in pieces."""
        for reply_to, response in replies:
            self.reply(reply_to, response)
            yield REPLY_UNITS

    def fail(self) -> Steps[None]:
        """End all that are left with NOT_COORDINATOR, in pieces."""
        for reply_to in list(self._futures):
            future = self._futures.pop(reply_to)
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
            yield REPLY_UNITS

    def left(self) -> list[ReplyTo]:
        """Those that have not ended."""
        return [number for number, future in self._futures.items() if not future.done()]
