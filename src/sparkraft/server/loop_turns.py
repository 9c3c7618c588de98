"""Long work on the event loop, cut into slices that take turns.

    turn = env.turn(env.work_max.partitions)
    for partition in partitions:
        ...
        if turn.is_over(1):
            await turn.next()

A slice ends after its units of work (`base.loop_work`) or after `SLICE_MS_MAX`. `next` returns in a
later event-loop iteration, after sockets and due timers. Every iteration runs one slice, whichever
work it belongs to, first come first served: twenty clients that ask for everything delay others no
more than one does. Work of timers begins in its iteration only if it is the first there
(`Turn.is_first`): fifty timers that are due together would otherwise run fifty slices.

Not here: work in threads, which only helps if its calls release the interpreter.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sparkraft.base.env import Clock

Result = TypeVar("Result")

SLICE_MS_MAX = 3
"""A slice ends then even if it has done little. A request may wait for two slices, one before it is
read and one before it is answered, and for the budget of clients and timers: 10 ms together."""


class LoopTurns:
    """The slices of one node that wait for their turn."""

    def __init__(self, delay_s: "Callable[[], float] | None" = None) -> None:
        """Nothing waits.

        Args:
            delay_s: a simulator's delay of the next slice; None: the next iteration.
        """
        self._delay_s = delay_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False
        self._claimed = False
        """Whether this iteration runs a slice of a timer."""

    def claim(self) -> bool:
        """Whether a timer's work may begin now: none has begun in this iteration."""
        if self._claimed:
            return False
        self._claimed = True
        asyncio.get_running_loop().call_soon(self._release)
        return True

    def _release(self) -> None:
        self._claimed = False

    @property
    def waiting(self) -> int:
        """How many slices wait."""
        return len(self._waiting)

    async def next(self) -> None:
        """Return in a later iteration of the loop, in which no other slice starts."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._schedule()
        await turn

    def _schedule(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if self._delay_s is None:
            loop.call_soon(self._start_one)
        else:
            loop.call_later(self._delay_s(), self._start_one)

    def _start_one(self) -> None:
        self._scheduled = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self._schedule()


class Turn:
    """One long piece of work: counts its units and ends its slices.

    Args:
        turns: shared by the node.
        clock: the node's.
        units_max: units of work in one slice.
    """

    __slots__ = ("_clock", "_left", "_started_ms", "_turns", "_units_max")

    def __init__(self, turns: LoopTurns, clock: "Clock", units_max: int) -> None:
        self._turns = turns
        self._clock = clock
        self._units_max = self._left = units_max
        self._started_ms = clock.mono_ms()

    def is_first(self) -> bool:
        """Whether a timer's work may begin at once; if not, `next` must be awaited before."""
        return self._turns.claim()

    def is_over(self, units: int) -> bool:
        """Count `units` of work; whether `next` must be awaited before more is done."""
        self._left -= units
        return self._left <= 0 or self._clock.mono_ms() - self._started_ms >= SLICE_MS_MAX

    async def next(self) -> None:
        """Let everything else run, and begin the next slice."""
        await self._turns.next()
        self._left = self._units_max
        self._started_ms = self._clock.mono_ms()

    async def carry_out(self, steps: "Generator[int, None, Result]") -> Result:
        """Do work that yields its units; returns its result."""
        while True:
            try:
                units = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if self.is_over(units):
                await self.next()
