"""Brings parts of log files into the page cache, for fetches that would wait for a device.

A read on the event loop must not wait for a disk: every producer would wait with it. A fetch whose
bytes are not cached (`Disk.cold_part`) reads nothing. It has the part warmed here, and then starts
over: leadership, epoch, rights and offsets are checked again, and the bytes are located once more.
So nothing found before the wait is in the response.

Parts that several fetches wait for are read once. `READS_MAX` parts are read at a time, so that
threads are left for fsyncs; the others wait in order.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sparkraft.storage.disk import FilePart

READS_MAX = 2
"""Parts read at a time: half of the disk's threads."""

ATTEMPTS_MAX = 4
"""Parts that one fetch waits for, one after the other: two indexes, a place in the log, its bytes.
If it lacks another one then, memory is short, and it reads in place."""


class ColdReads:
    """The reads of one broker.

    Attributes:
        reads: how many parts were read, or are being read.
    """

    def __init__(
        self, off_loop: Callable[..., Awaitable[Any]], warm: Callable[[FilePart], None]
    ) -> None:
        """`warm` is `Disk.warm`, which `off_loop` runs in a thread."""
        self.reads = 0
        self._off_loop = off_loop
        self._warm = warm
        self._known: dict[FilePart, asyncio.Future[None]] = {}
        self._queue: deque[FilePart] = deque()
        self._running = 0

    def start(self, part: FilePart) -> "asyncio.Future[None]":
        """Begin to read `part`, unless that has begun; the future completes when it is done.

        Others may wait for the same future: shield it from cancellation.
        """
        known = self._known.get(part)
        if known is not None:
            return known
        future = self._known[part] = asyncio.get_running_loop().create_future()
        self._queue.append(part)
        self._run_next()
        return future

    async def wait(self, parts: "list[FilePart]") -> None:
        """Return when all `parts` have been read."""
        for future in [self.start(part) for part in parts]:
            await asyncio.shield(future)

    def close(self) -> None:
        """Begin no more reads: the threads end."""
        self._queue.clear()

    def _run_next(self) -> None:
        while self._queue and self._running < READS_MAX:
            part = self._queue.popleft()
            self._running += 1
            self.reads += 1
            running = asyncio.ensure_future(self._off_loop(self._warm, part))
            running.add_done_callback(partial(self._on_done, part))

    def _on_done(self, part: FilePart, done: "asyncio.Future[None]") -> None:
        self._running -= 1
        future = self._known.pop(part)
        if done.cancelled():  # the node stops
            future.cancel()
            return
        error = done.exception()
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        self._run_next()
