"""Requests that wait for something other than time, without a task each (Kafka's purgatories).

`FetchWaiter` waits for bytes (min_bytes, max_wait_ms), `OffsetWaiter` for an offset to be passed:
the high watermark by a produce with acks=all, the low watermark by DeleteRecords. All give up by
one `TimingWheel`.

A `FetchWaiter` hangs on the partitions it reads. They tell it how many bytes came: to a follower's
fetch at the log's end, to a consumer's below the high watermark. Once enough are there, or its time
is up, or something else happened (leadership, deletion), it answers: once, at the end of the
current round of the loop, so that the appends of one round wake it once. A waiter whose connection
goes away is cancelled through its future and leaves its partitions.
"""

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.timing_wheel import Deadline, TimingWheel


class FetchWaiter:
    """One parked fetch."""

    __slots__ = (
        "_answer",
        "_deadline",
        "_linger",
        "_linger_ms",
        "_loop",
        "_missing",
        "_partitions",
        "_scheduled",
        "_wheel",
        "future",
    )

    def __init__(
        self,
        wheel: "TimingWheel",
        partitions: "Iterable[HostedPartition]",
        *,
        missing_bytes: int,
        wait_ms: int,
        linger_ms: int | None,
        answer: Callable[[], Any],
    ) -> None:
        """Wait until `missing_bytes` more came or `wait_ms` passed; then `answer()` is the answer.

        `linger_ms` is set for a follower's fetch, which reads to the log's end: so long it waits
        for records once the high watermark moved. Must be made in a running loop.
        """
        self._wheel = wheel
        self._loop = asyncio.get_running_loop()
        self._partitions = list(partitions)
        self._missing = missing_bytes
        self._linger_ms = linger_ms
        self._linger: Deadline | None = None
        self._answer = answer
        self._scheduled = False
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.future.add_done_callback(self._leave)
        self._deadline: Deadline = wheel.add(wait_ms, self._finish_now)
        for partition in self._partitions:
            self._place(partition)[self] = None

    def _place(self, partition: "HostedPartition") -> "dict[FetchWaiter, None]":
        return partition.waiters if self._linger_ms is None else partition.replica_waiters

    def on_bytes(self, count: int) -> None:
        """`count` bytes more may be read from one of the partitions."""
        self._missing -= count
        if self._missing <= 0:
            self.finish()

    def on_watermark(self) -> None:
        """A partition's high watermark or log start moved, which a follower wants to know soon."""
        if self._linger is None and self._linger_ms is not None:
            self._linger = self._wheel.add(self._linger_ms, self._finish_now)

    def finish(self) -> None:
        """Answer at the end of this round of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._finish_now)

    def _finish_now(self) -> None:
        if self.future.done():
            return
        try:
            answer = self._answer()
        except Exception as error:  # the connection turns it into an answer
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)

    def _leave(self, _: "asyncio.Future[Any]") -> None:
        self._deadline.cancel()
        if self._linger is not None:
            self._linger.cancel()
        for partition in self._partitions:
            self._place(partition).pop(self, None)


class OffsetWaiter:
    """One request that waits for a watermark of one partition to reach `offset`."""

    __slots__ = ("_deadline", "future", "offset")

    def __init__(self, offset: int) -> None:
        """Wait without end; `OffsetWaiters.add` sets the deadline."""
        self.offset = offset
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deadline: Deadline | None = None

    def __lt__(self, other: "OffsetWaiter") -> bool:
        """By offset."""
        return self.offset < other.offset

    def give_up_after(self, wheel: "TimingWheel", timeout_ms: int) -> None:
        """Fail with REQUEST_TIMED_OUT once `timeout_ms` have passed."""
        self._deadline = wheel.add(timeout_ms, self._on_deadline)

    def _on_deadline(self) -> None:
        self.finish(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"offset {self.offset} is not reached"))

    def finish(self, error: KafkaError | None) -> None:
        """End the wait, well or with an error."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
            self.future.exception()  # known: nobody need look where the request is gone


class OffsetWaiters:
    """Those of one partition, by offset."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: list[OffsetWaiter] = []

    def __bool__(self) -> bool:
        """Whether anybody waits; those who gave up count until they are passed."""
        return bool(self._waiting)

    def add(
        self, offset: int, wheel: "TimingWheel", timeout_ms: int | None
    ) -> "asyncio.Future[None]":
        """A future that ends once `offset` is reached.

        It fails with the KafkaError of `fail`, and REQUEST_TIMED_OUT after `timeout_ms` (None: it
        waits as long as it takes).
        """
        waiter = OffsetWaiter(offset)
        waiting = self._waiting
        if waiting and waiter < waiting[-1]:
            insort(waiting, waiter)
        else:
            waiting.append(waiter)
        if timeout_ms is not None:
            waiter.give_up_after(wheel, timeout_ms)
        return waiter.future

    def reach(self, offset: int, error: KafkaError | None = None) -> None:
        """Everything below `offset` is passed: end the waits for it, well or with an error."""
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
