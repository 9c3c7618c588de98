"""The outside world as a node sees it: everything is passed in, nothing is a global.

`real_env()` is the machine's own; a simulator builds another `Env` around the same node.
"""

import asyncio
import os
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparkraft.base.env import no_faults
from sparkraft.base.ids import Millis
from sparkraft.base.loop_work import LOOP_WORK_MAX, LoopBound, WorkMax
from sparkraft.server.loop_turns import LoopTurns, Turn
from sparkraft.server.record_threads import RecordThreads

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from sparkraft.base.env import Clock, Entropy, FaultPoint
    from sparkraft.storage.disk import Disk

Result = TypeVar("Result")

DISK_THREADS_MAX = 4
"""Threads for fsync, recovery and deletion: enough to keep a disk busy, few to save memory."""

RECORD_THREADS_MIN, RECORD_THREADS_MAX = 2, 4
"""Threads for codecs: one less than cores, since more would wait for the interpreter. On two cores
two, since the loop needs half of one."""

THREAD_STACK_BYTES = 1 << 20
"""Address space of a thread's stack, 8 MiB by default; no work in threads recurses."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)

    def mono_ms(self) -> Millis:
        return Millis(time.monotonic_ns() // 1_000_000)


class SystemEntropy:
    """The machine's random numbers."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def below(self, bound: int) -> int:
        size = (bound.bit_length() + 7) // 8 + 8  # the bias of the remainder is below 2**-64
        return int.from_bytes(os.urandom(size), "big") % bound


class Network(Protocol):
    """Sockets, listening and connected."""

    async def listen(
        self, factory: "Callable[[], asyncio.Protocol]", host: str | None, port: int
    ) -> asyncio.AbstractServer:
        """Bind for `factory`'s protocols, not accepting before `start_serving`.

        `host` None is every interface, port 0 any free one.
        """
        ...

    async def connect(
        self, factory: "Callable[[], asyncio.Protocol]", host: str, port: int
    ) -> object:
        """Open a connection for `factory`'s protocol; every connection of a node is made here.

        Raises:
            OSError: the peer cannot be reached.
        """
        ...


ACCEPTED_AT_ONCE: LoopBound = 32
"""Connections that a listener accepts in one event-loop iteration: 0.1 ms each."""

BACKLOG = 1_024
"""Connections that the kernel keeps until they are accepted."""


class SystemServer(asyncio.AbstractServer):
    """asyncio's server, which accepts as many connections at once as its backlog.

    The kernel's backlog is set here.
    """

    def __init__(self, server: asyncio.Server) -> None:
        """Take over a server that does not accept yet."""
        self._server = server

    @property
    def sockets(self) -> "tuple[socket, ...]":
        """The listening sockets."""
        return self._server.sockets

    async def start_serving(self) -> None:
        """Accept connections."""
        await self._server.start_serving()
        for listening in self.sockets:
            with listening.dup() as same:
                same.listen(BACKLOG)

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()

    async def serve_forever(self) -> None:
        await self._server.serve_forever()

    def is_serving(self) -> bool:
        return self._server.is_serving()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._server.get_loop()


class SystemNetwork:
    """The running asyncio loop's sockets."""

    async def listen(
        self, factory: "Callable[[], asyncio.Protocol]", host: str | None, port: int
    ) -> asyncio.AbstractServer:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            factory, host, port, backlog=ACCEPTED_AT_ONCE, reuse_address=True, start_serving=False
        )
        return SystemServer(server)

    async def connect(
        self, factory: "Callable[[], asyncio.Protocol]", host: str, port: int
    ) -> object:
        return await asyncio.get_running_loop().create_connection(factory, host, port)


BREATH_S = 0.0001
"""Long enough for the loop's thread to wake up and take the interpreter, which a waiting thread
otherwise gets only after 5 ms."""


def go_on() -> None:
    """Do not pause: no other thread wants the interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """The parts of the outside world that a node uses.

    Attributes:
        executor: runs blocking disk work (fsync, recovery) off the loop.
        record_threads: compress and check records; None: `executor` does.
        folder_executor: creates and renames folders of logs; None: `executor` does.
        fault_point: fault points; the same as `Disk.fault_point`.
        breathe: called now and then by long work in a thread, to give the loop the interpreter.
        shares_time: whether a busy loop waits for work on folders (`thread_share`).
        work_max: units of work in one slice on the event loop.
        turns: the slices that wait for theirs.
        thread_s: returns the processor time of the calling thread in seconds; a simulator has none.
    """

    clock: "Clock"
    entropy: "Entropy"
    network: Network
    disk: "Disk"
    executor: Executor
    record_threads: RecordThreads | None = None
    folder_executor: Executor | None = None
    fault_point: "FaultPoint" = no_faults
    breathe: "Callable[[], None]" = go_on
    shares_time: bool = False
    work_max: WorkMax = LOOP_WORK_MAX
    turns: LoopTurns = field(default_factory=LoopTurns)
    thread_s: "Callable[[], float]" = float

    def turn(self, units_max: int) -> Turn:
        """Begin long work on the event loop, of at most `units_max` units a slice."""
        return Turn(self.turns, self.clock, units_max)

    def run_on_records(
        self, work: "Callable[..., Result]", *arguments: Any
    ) -> "asyncio.Future[Result]":
        """Run work on records in a thread, with `breathe` as its last argument."""
        if self.record_threads is None:
            loop = asyncio.get_running_loop()
            return loop.run_in_executor(self.executor, partial(work, *arguments, self.breathe))
        return self.record_threads.run(work, *arguments, self.breathe)

    def run_all_and_wait(self, works: "list[Callable[[], None]]") -> None:
        """Run blocking functions in parallel; raise the first error when all have ended."""
        running = [self.executor.submit(work) for work in works]
        wait(running)
        for done in running:
            done.result()


def _threads(count: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads run already: without memory none could be started later."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_run = threading.Barrier(count)
    for done in [pool.submit(all_run.wait) for _ in range(count)]:
        done.result()
    return pool


def record_thread_count(cores: int) -> int:
    """Number of threads for codecs on a machine with `cores`."""
    return min(max(cores - 1, RECORD_THREADS_MIN), cores, RECORD_THREADS_MAX)


def real_env() -> Env:
    """The machine itself."""
    from sparkraft.storage.disk import OsDisk

    threading.stack_size(THREAD_STACK_BYTES)
    return Env(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        network=SystemNetwork(),
        disk=OsDisk(),
        executor=_threads(DISK_THREADS_MAX, "disk"),
        record_threads=RecordThreads(record_thread_count(os.cpu_count() or 1)),
        breathe=partial(time.sleep, BREATH_S),
        shares_time=True,
        thread_s=time.thread_time,
    )
