"""Answers that say that no node serves a request of sparkraft, kept for a minute.

Apache Kafka's nodes close the connection at such a request, and log an error each time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

KEPT_SECONDS = 60.0

REFUSALS_MIN = 2
"""Refusals in a row: one may be of a node that was stopped meanwhile."""


class RefusalTimer:
    """Counts the refusals in a row, and decides when the next request is due."""

    def __init__(self) -> None:
        self._count = 0
        self._until = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether to send a request at `now`, in seconds of the event loop."""
        return now >= self._until

    def count(self, now: float, *, is_refused: bool) -> None:
        """Record the outcome of a request that ended at `now`."""
        self._count = self._count + 1 if is_refused else 0
        if self._count >= REFUSALS_MIN:
            self._until = now + KEPT_SECONDS


class UnservedRequest(Generic[T]):
    """A request whose answer shows whether any node serves it."""

    def __init__(self, is_refusal: Callable[[T], bool]) -> None:
        """Keep answers for which `is_refusal` holds."""
        self._is_refusal = is_refusal
        self._timer = RefusalTimer()
        self._kept: T | None = None

    async def get(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns, or its last refusal if the next request is not due."""
        loop = asyncio.get_running_loop()
        if self._kept is not None and not self._timer.is_due(loop.time()):
            return self._kept
        found = await ask()
        is_refused = self._is_refusal(found)
        self._timer.count(loop.time(), is_refused=is_refused)
        self._kept = found if is_refused else None
        return found
