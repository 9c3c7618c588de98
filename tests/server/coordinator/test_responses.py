"""A coroutine that is run up to its first wait: the rest of it behaves as the whole would."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.coordinator.responses import begin


class Work:
    """Waits for each future in turn, and notes what happens."""

    def __init__(self, *waits: Any) -> None:
        self.waits = waits
        self.notes: list[Any] = []

    async def run(self) -> str:
        try:
            for wait in self.waits:
                self.notes.append(await wait)
        except BaseException as error:
            self.notes.append(type(error))
            raise
        return "done"


def future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


def test_a_coroutine_that_does_not_wait_ends_at_once() -> None:
    assert begin(Work().run()) == "done"


def test_an_error_before_the_first_wait_is_raised() -> None:
    async def refuse() -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    with pytest.raises(KafkaError):
        begin(refuse())


@pytest.mark.parametrize("in_a_task", [False, True])
def test_the_rest_continues_after_each_wait(in_a_task: bool) -> None:
    async def test() -> None:
        first, second = future(), future()
        work = Work(first, asyncio.sleep(0, "slept"), second)
        rest: Any = begin(work.run())
        assert isinstance(rest, Awaitable)
        first.set_result(1)  # before anything waits for the rest
        running = asyncio.ensure_future(rest if in_a_task else awaited(rest))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not running.done()
        second.set_result(2)
        assert await running == "done"
        assert work.notes == [1, "slept", 2]

    async def awaited(rest: Awaitable[Any]) -> Any:
        return await rest

    asyncio.run(test())


@pytest.mark.parametrize("steps", [0, 1])
def test_the_rest_can_be_cancelled(steps: int) -> None:
    """Before its task has run and after that."""

    async def test() -> None:
        work = Work(future())
        running = asyncio.ensure_future(begin(work.run()))  # type: ignore[arg-type]
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert work.notes == [asyncio.CancelledError]

    asyncio.run(test())


def test_an_error_of_a_wait_reaches_the_rest() -> None:
    async def test() -> None:
        wait = future()
        work = Work(wait)
        rest: Any = begin(work.run())
        wait.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await rest
        assert work.notes == [KafkaError]

    asyncio.run(test())


def test_the_rest_can_be_closed() -> None:
    async def test() -> None:
        work = Work(future())
        rest: Any = begin(work.run())
        rest.close()
        assert work.notes == [GeneratorExit]

    asyncio.run(test())
