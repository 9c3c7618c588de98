"""Parked requests, without a task each (Kafka's purgatories).

A `FetchWaiter` waits for bytes (min_bytes, max_wait_ms), an `OffsetWaiter` for a watermark to reach
an offset: the high watermark for a produce with acks=all, the low watermark for DeleteRecords. All
timeouts are in one `TimingWheel`.

A `FetchWaiter` is registered with the partitions it reads, or with its fetch session, which is
registered with them for as long as it lasts. They report new bytes: at the log's end to a
follower's fetch, below the high watermark to a consumer's. Once there are enough bytes, its time is
up or the partition changes (leadership, deletion), it completes: once, at the end of the current
event-loop iteration, so that several appends wake it only once. If its connection closes, its
future is cancelled and it unregisters.
"""

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkraft.server.broker.timing_wheel import Deadline, TimingWheel


class PartitionReader(Protocol):
    """Registered with a partition that consumers read: a parked fetch, or a session's partition."""

    def on_bytes(self, count: int) -> None:
        """`count` more bytes may be read."""

    def on_bounds(self) -> None:
        """The log start offset moved, or the log was truncated: no reason to wake."""

    def finish(self) -> None:
        """The partition changed: leadership, epoch, log, or it is gone."""


class FetchWaiter:
    """One parked fetch."""

    __slots__ = (
        "_deadline",
        "_linger",
        "_linger_ms",
        "_loop",
        "_missing",
        "_queues",
        "_read",
        "_scheduled",
        "_wheel",
        "future",
    )

    def __init__(
        self,
        wheel: "TimingWheel",
        queues: "Iterable[dict[Any, None]]",
        *,
        missing_bytes: int,
        wait_ms: int,
        linger_ms: int | None,
        answer: Callable[[], Any],
    ) -> None:
        """Wait for `missing_bytes` more bytes, at most `wait_ms`; then `answer()` is the result.

        It is in all `queues` (of partitions or of a session) until then. `linger_ms` is set for a
        follower's fetch, which reads to the log's end: how long it still waits for records once
        the high watermark has moved. Needs a running event loop.
        """
        self._wheel = wheel
        wheel.park()
        self._loop = asyncio.get_running_loop()
        self._queues = list(queues)
        self._missing = missing_bytes
        self._linger_ms = linger_ms
        self._linger: Deadline | None = None
        self._read = answer
        self._scheduled = False
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.future.add_done_callback(self._leave)
        self._deadline: Deadline = wheel.add(wait_ms, self._finish_now)
        for queue in self._queues:
            queue[self] = None

    def join(self, queue: "dict[Any, None]") -> None:
        """Wait in one more queue."""
        if not self.future.done():
            self._queues.append(queue)
            queue[self] = None

    def on_bytes(self, count: int) -> None:
        """Count `count` more readable bytes in one of the partitions."""
        self._missing -= count
        if self._missing <= 0:
            self.finish()

    def on_bounds(self) -> None:
        """See `PartitionReader.on_bounds`."""

    def on_watermark(self) -> None:
        """Complete a follower's fetch soon: a high watermark or log start offset moved."""
        if self._linger is None and self._linger_ms is not None:
            self._linger = self._wheel.add(self._linger_ms, self._finish_now)

    def finish(self) -> None:
        """Complete at the end of this event-loop iteration."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._finish_now)

    def _finish_now(self) -> None:
        if self.future.done():
            return
        try:
            result = self._read()
        except Exception as error:  # the connection turns it into an error response
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def _leave(self, _: "asyncio.Future[Any]") -> None:
        self._wheel.unpark()
        self._deadline.cancel()
        if self._linger is not None:
            self._linger.cancel()
        for queue in self._queues:
            queue.pop(self, None)


class OffsetWaiter:
    """One request that waits for a watermark of a partition to reach `offset`."""

    __slots__ = ("_deadline", "future", "offset")

    def __init__(self, offset: int) -> None:
        """Wait indefinitely; `OffsetWaiters.add` may set a deadline."""
        self.offset = offset
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deadline: Deadline | None = None

    def __lt__(self, other: "OffsetWaiter") -> bool:
        return self.offset < other.offset

    def expire_after(self, wheel: "TimingWheel", timeout_ms: int) -> None:
        """Fail with REQUEST_TIMED_OUT once `timeout_ms` have passed."""
        self._deadline = wheel.add(timeout_ms, self._on_deadline)

    def _on_deadline(self) -> None:
        self.finish(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"offset {self.offset} is not reached"))

    def finish(self, error: KafkaError | None) -> None:
        """End the wait, with an error if there is one."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
            self.future.exception()  # retrieved: the request may be gone


class OffsetWaiters:
    """The offset waiters of one partition, by offset."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[OffsetWaiter] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        """Whether there are waiters; expired ones count until their offset is reached."""
        return bool(self._waiting)

    def add(
        self, offset: int, wheel: "TimingWheel", timeout_ms: int | None
    ) -> "asyncio.Future[None]":
        """A future that completes once `offset` is reached.

        It fails with the KafkaError of `fail`, and REQUEST_TIMED_OUT after `timeout_ms` (None:
        never).
        """
        waiter = OffsetWaiter(offset)
        waiting = self._waiting
        if waiting and waiter < waiting[-1]:
            insort(waiting, waiter)
        else:
            waiting.append(waiter)
        if timeout_ms is not None:
            waiter.expire_after(wheel, timeout_ms)
        return waiter.future

    def reach(self, offset: int, error: KafkaError | None = None) -> None:
        """End the waits for `offset` and below, with an error if there is one."""
        waiting = self._waiting
        passed = 0
        for waiter in waiting:
            if waiter.offset > offset:
                break
            passed += 1
        if passed:
            self._waiting = waiting[passed:]
            for waiter in waiting[:passed]:
                waiter.finish(error)

    def fail(self, error: KafkaError) -> None:
        """End every wait with an error."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.finish(error)
