"""The writes of one shard that are not committed yet, and the responses that wait for them.

    write → `note` → `when_committed` → the response, at once or when the write is committed
                   → `on_commit`      ← the write is committed, or failed

A log is committed in order, so the last write stands for all before it. A response waits for it
even if its own decision wrote nothing (see `shard_runtime`), at most for the write timeout.
"""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.coordinator.responses import Response
    from sparkraft.server.coordinator.shard_spec import ShardSpec

T = TypeVar("T")


class UncommittedWrites:
    """See the module docstring.

    Attributes:
        last: ends when everything written so far is committed; None if it is.
        timeout_s: how long a response waits.
    """

    def __init__(self, spec: "ShardSpec[Any, Any]", clock: "Clock") -> None:
        self.last: asyncio.Future[None] | None = None
        self.timeout_s = spec.write_timeout_ms / 1000
        self._spec = spec
        self._clock = clock
        self._progress_at = Millis(0)
        """The last commit, or the first write since everything was committed."""

    def note(self, future: "asyncio.Future[None] | None") -> None:
        """Let later responses wait for `future`; None: everything is committed."""
        if self.is_empty:
            self._progress_at = self._clock.mono_ms()
        self.last = future

    def on_commit(self, future: "asyncio.Future[None]") -> None:
        """A write has ended."""
        self._progress_at = self._clock.mono_ms()
        if self.last is future:
            self.last = None

    @property
    def is_empty(self) -> bool:
        """Whether everything written so far is committed."""
        return self.last is None or self.last.done()

    @property
    def is_overdue(self) -> bool:
        """Whether nothing was committed within the write timeout, although something waits."""
        waits = self.last is not None and not self.last.done()
        return waits and self._clock.mono_ms() - self._progress_at >= self.timeout_s * 1000

    def when_committed(self, response: T) -> "Response[T]":
        """The response, once everything written so far is committed."""
        if self.last is None or self.last.done():
            return response
        return self._wait(self.last, response)

    async def _wait(self, future: "asyncio.Future[None]", response: T) -> T:
        await self.committed(future)
        return response

    async def committed(self, future: "asyncio.Future[None]") -> None:
        """Wait for one write.

        Raises:
            KafkaError: it failed, or COORDINATOR_NOT_AVAILABLE after the write timeout.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                # Shielded: other responses wait for the same future.
                await asyncio.shield(future)
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed within the write timeout"
            ) from error
        except KafkaError as error:
            raise self._spec.translated(error) from error
