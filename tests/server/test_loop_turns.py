"""Slices of long work: bounded by units and time, one per event-loop iteration."""

import asyncio

from sparkraft.base.ids import Millis
from sparkraft.server.loop_turns import SLICE_MS_MAX, LoopTurns, Turn


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def mono_ms(self) -> Millis:
        return Millis(self.now)

    def wall_ms(self) -> Millis:
        return Millis(self.now)


def test_a_slice_ends_after_its_units_of_work() -> None:
    turn = Turn(LoopTurns(), Clock(), 10)
    assert [turn.is_over(4) for _ in range(3)] == [False, False, True]


def test_a_slice_ends_after_its_time_whatever_it_did() -> None:
    clock = Clock()
    turn = Turn(LoopTurns(), clock, 1000)
    assert not turn.is_over(1)
    clock.now = SLICE_MS_MAX
    assert turn.is_over(1)


def test_one_slice_runs_in_an_iteration_in_the_order_of_arrival() -> None:
    async def run() -> list[str]:
        turns = LoopTurns()
        seen: list[str] = []

        async def work(name: str) -> None:
            turn = Turn(turns, Clock(), 1)
            for _ in range(2):
                assert turn.is_over(1)
                await turn.next()
                seen.append(name)

        def other() -> None:
            seen.append(".")
            if len(seen) < 40:
                asyncio.get_running_loop().call_soon(other)

        asyncio.get_running_loop().call_soon(other)
        await asyncio.gather(*(work(name) for name in "abc"))
        return seen

    seen = asyncio.run(run())
    text = "".join(seen)
    assert text.replace(".", "") == "abcabc"
    assert ".a.b.c.a.b.c" in text


def test_a_cancelled_slice_does_not_hold_up_the_others() -> None:
    async def run() -> bool:
        turns = LoopTurns()
        first = asyncio.ensure_future(turns.next())
        second = asyncio.ensure_future(turns.next())
        await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(10):
            await second
        return turns.waiting == 0

    assert asyncio.run(run())


def test_of_the_timers_of_an_iteration_one_may_begin_at_once() -> None:
    async def run() -> list[list[bool]]:
        turns = LoopTurns()
        found = []
        for _ in range(2):
            found.append([Turn(turns, Clock(), 1).is_first() for _ in range(3)])
            await asyncio.sleep(0)
        return found

    assert asyncio.run(run()) == [[True, False, False]] * 2
