"""A request's work in slices: bounded, in turns with other clients, ended with its connection."""

import asyncio
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.network.slices import SLICE_UNITS_MAX, SlicedWork


class Clock:
    """Every slice takes all of an iteration's time."""

    def __init__(self) -> None:
        self.now = 0

    def mono_ms(self) -> int:
        self.now += 5
        return self.now


def work(log: list[str], name: str, pieces: int, units: int = SLICE_UNITS_MAX) -> Any:
    for number in range(pieces):
        log.append(f"{name}{number}")
        yield units
    return name


def in_loop(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


def test_small_work_is_done_at_once():
    async def test():
        budget = LoopBudget(Clock())
        assert SlicedWork(work([], "a", 3, 10), budget).start() == "a"
        assert (budget.slices, budget.slice_units_max) == (1, 30)

    in_loop(test())


def test_two_requests_take_turns_slice_by_slice():
    async def test():
        budget = LoopBudget(Clock())
        log: list[str] = []
        futures = [SlicedWork(work(log, name, 3), budget).start() for name in "ab"]
        assert await asyncio.gather(*futures) == ["a", "b"]
        assert log == ["a0", "b0", "a1", "b1", "a2", "b2"]
        assert budget.slice_units_max == SLICE_UNITS_MAX

    in_loop(test())


def test_other_callbacks_of_the_loop_run_between_slices():
    async def test():
        log: list[str] = []
        future = SlicedWork(work(log, "a", 20), LoopBudget(Clock())).start()
        while not future.done():
            log.append("other")
            await asyncio.sleep(0)
        assert log.count("other") >= 10

    in_loop(test())


def test_work_waits_for_what_it_yields_and_gets_its_result_or_error():
    async def answer(result: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(result, Exception):
            raise result
        return result

    def steps() -> Any:
        first = yield answer(5)
        try:
            yield answer(KafkaError(ErrorCode.NOT_COORDINATOR))
        except KafkaError as error:
            return first, error.code

    async def test():
        future = SlicedWork(steps(), LoopBudget(Clock())).start()
        assert await future == (5, ErrorCode.NOT_COORDINATOR)

    in_loop(test())


def test_the_result_may_be_awaited_too():
    def steps() -> Any:
        yield SLICE_UNITS_MAX
        return asyncio.sleep(0, "done")

    async def test():
        assert await SlicedWork(steps(), LoopBudget(Clock())).start() == "done"

    in_loop(test())


def test_an_error_in_a_later_slice_is_the_futures():
    def steps() -> Any:
        yield SLICE_UNITS_MAX
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    async def test():
        with pytest.raises(KafkaError):
            await SlicedWork(steps(), LoopBudget(Clock())).start()

    in_loop(test())


def test_a_cancelled_future_ends_the_work():
    async def test():
        log: list[str] = []
        future = SlicedWork(work(log, "a", 50), LoopBudget(Clock())).start()
        future.cancel()
        await asyncio.sleep(0.01)
        assert log == ["a0"]

    in_loop(test())
