"""The outside world as a node sees it: everything handed in, no default globals (DESIGN D1).

`real_env()` is the machine's own; a simulator builds another `Env` around the same node.
"""

import asyncio
import os
import time
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.ids import Millis

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock, Entropy
    from sparkraft.storage.disk import Disk

DISK_THREADS_MAX = 4
"""Threads for fsync, recovery and deletion: enough to keep a disk's queue busy, few for memory."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> Millis:
        """See `Clock`."""
        return Millis(time.time_ns() // 1_000_000)

    def mono_ms(self) -> Millis:
        """See `Clock`."""
        return Millis(time.monotonic_ns() // 1_000_000)


class SystemEntropy:
    """The machine's dice."""

    def random_bytes(self, count: int) -> bytes:
        """See `Entropy`."""
        return os.urandom(count)

    def below(self, bound: int) -> int:
        """See `Entropy`."""
        size = (bound.bit_length() + 7) // 8 + 8  # the bias of the remainder is below 2**-64
        return int.from_bytes(os.urandom(size), "big") % bound


class Network(Protocol):
    """Listening sockets."""

    async def listen(
        self, factory: "Callable[[], asyncio.Protocol]", host: str | None, port: int
    ) -> asyncio.AbstractServer:
        """Bind for `factory`'s protocols, not accepting before `start_serving`.

        `host` None is every interface, port 0 any free one.
        """
        ...


class SystemNetwork:
    """The running asyncio loop's sockets."""

    async def listen(
        self, factory: "Callable[[], asyncio.Protocol]", host: str | None, port: int
    ) -> asyncio.AbstractServer:
        """See `Network`."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            factory, host, port, backlog=1024, reuse_address=True, start_serving=False
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """What a node may use of the world.

    Attributes:
        executor: runs blocking disk work (fsync, recovery) off the loop.
    """

    clock: "Clock"
    entropy: "Entropy"
    network: Network
    disk: "Disk"
    executor: Executor

    def run_all_and_wait(self, works: "list[Callable[[], None]]") -> None:
        """Run blocking works side by side; the first error is raised when all have ended."""
        running = [self.executor.submit(work) for work in works]
        wait(running)
        for done in running:
            done.result()


def real_env() -> Env:
    """The machine itself."""
    from sparkraft.storage.disk import OsDisk

    return Env(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        network=SystemNetwork(),
        disk=OsDisk(),
        executor=ThreadPoolExecutor(DISK_THREADS_MAX, thread_name_prefix="disk"),
    )
