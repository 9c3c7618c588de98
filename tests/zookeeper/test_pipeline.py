"""Requests of a session that wait for their turn, on a connection without a server."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from sparkraft.zookeeper.errors import Code, error_of
from sparkraft.zookeeper.pipeline import OnResult, Pipeline
from sparkraft.zookeeper.requests import GetData, Request

IN_FLIGHT_MAX = 3
LOST = error_of(Code.CONNECTION_LOSS)


class Server:
    """Keeps what was posted, oldest first, until it is answered."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, OnResult]] = []

    def post(self, request: Request, on_result: OnResult) -> None:
        self.posted.append((request.path, on_result))

    @property
    def in_flight(self) -> list[str]:
        return [path for path, _ in self.posted]

    def answer(self, result: Any = None) -> None:
        path, on_result = self.posted.pop(0)
        on_result(path if result is None else result)


def reads(count: int, name: str = "r") -> list[Request]:
    return [GetData(path=f"{name}{number}") for number in range(count)]


def run(play: Callable[[Pipeline, Server], Awaitable[None]]) -> None:
    async def start() -> None:
        server = Server()
        async with asyncio.timeout(10):
            await play(Pipeline(IN_FLIGHT_MAX, server.post), server)

    asyncio.run(start())


def send_all(pipeline: Pipeline, requests: list[Request], results: list[Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(pipeline.send_all(requests, range(len(requests)), results))


def test_a_result_makes_room_for_the_next_request_at_once() -> None:
    async def play(pipeline: Pipeline, server: Server) -> None:
        results: list[Any] = [None] * 5
        sending = send_all(pipeline, reads(5), results)
        await asyncio.sleep(0)
        assert server.in_flight == ["r0", "r1", "r2"]
        server.answer()
        assert server.in_flight == ["r1", "r2", "r3"]  # no other task has run
        for _ in range(4):
            server.answer()
        assert await sending == []
        assert results == ["r0", "r1", "r2", "r3", "r4"]

    run(play)


def test_a_long_list_does_not_delay_others_by_its_length() -> None:
    async def play(pipeline: Pipeline, server: Server) -> None:
        results: list[Any] = [None] * 100
        long = send_all(pipeline, reads(100), results)
        await asyncio.sleep(0)
        other = asyncio.create_task(pipeline.send(GetData(path="other")))
        await asyncio.sleep(0)
        answered = 0
        while "other" not in server.in_flight:
            server.answer()
            answered += 1
        assert answered <= IN_FLIGHT_MAX
        while server.posted:
            server.answer()
        assert await other == "other"
        assert await long == []
        assert results == [f"r{number}" for number in range(100)]

    run(play)


def test_a_refusal_is_the_result_of_its_request() -> None:
    async def play(pipeline: Pipeline, server: Server) -> None:
        refusal = error_of(Code.NO_NODE, "r1")
        results: list[Any] = [None] * 2
        sending = send_all(pipeline, reads(2), results)
        single = asyncio.create_task(pipeline.send(GetData(path="r2")))
        await asyncio.sleep(0)
        server.answer()
        server.answer(refusal)
        server.answer(refusal)
        assert await sending == []
        assert results == ["r0", refusal]
        with pytest.raises(type(refusal)):
            await single

    run(play)


def test_a_disconnect_leaves_what_has_no_result_in_order() -> None:
    async def play(pipeline: Pipeline, server: Server) -> None:
        results: list[Any] = [None] * 6
        sending = send_all(pipeline, reads(6), results)
        await asyncio.sleep(0)
        server.answer()
        for _ in range(IN_FLIGHT_MAX):
            server.answer(LOST)
        assert await sending == [1, 2, 3, 4, 5]
        assert results == ["r0", *[None] * 5]
        assert server.in_flight == []
        again = asyncio.create_task(pipeline.send_all(reads(6), [1, 2, 3, 4, 5], results))
        await asyncio.sleep(0)
        for _ in range(5):
            server.answer()
        assert await again == []
        assert results == [f"r{number}" for number in range(6)]

    run(play)


def test_a_cancelled_submitter_sends_nothing_more() -> None:
    async def play(pipeline: Pipeline, server: Server) -> None:
        results: list[Any] = [None] * 9
        first = send_all(pipeline, reads(9), results)
        second = asyncio.create_task(pipeline.send(GetData(path="single")))
        await asyncio.sleep(0)
        for each in (first, second):
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each
        third = asyncio.create_task(pipeline.send(GetData(path="third")))
        await asyncio.sleep(0)
        for _ in range(IN_FLIGHT_MAX):
            server.answer()
        assert server.in_flight == ["third"]
        server.answer()
        assert await third == "third"

    run(play)


def test_a_request_that_cannot_be_sent_leaves_room_for_others() -> None:
    async def play(_: Pipeline, server: Server) -> None:
        def post(request: Request, on_result: OnResult) -> None:
            if request.path == "r0":
                asyncio.get_running_loop().call_soon(partial(on_result, ValueError()))
            else:
                server.post(request, on_result)

        results: list[Any] = [None] * 2
        sending = send_all(Pipeline(1, post), reads(2), results)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert server.in_flight == ["r1"]
        server.answer()
        assert await sending == []
        assert isinstance(results[0], ValueError)

    run(play)
