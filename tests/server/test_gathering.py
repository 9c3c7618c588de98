"""While the event loop is busy, fetches of consumers that keep up are answered together."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.security.acls import AclOperation
from sparkraft.server.network import gathering
from sparkraft.server.network.gathering import Gathering
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.network.loop_load import WINDOW_MS, LoopLoad
from tests.server.harness import (
    append,
    batch,
    connect,
    create_topic,
    node_in,
    run,
    until,
    values_of,
)
from tests.server.test_changed_partitions import PARTITIONS, Consumer
from tests.support.sessions import Deciding

LATER_MS = 3_600_000


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0

    def mono_ms(self) -> int:
        return self.now


def work(load: LoopLoad, clock: Clock, *, busy: int, idle: int) -> None:
    """One window with iterations of 10 ms."""
    for _ in range(10):
        started = clock.now
        clock.now += busy
        load.on_iteration(started)
        clock.now += idle


def test_the_load_is_high_until_little_of_the_time_is_used() -> None:
    clock = Clock()
    load = LoopLoad(clock)  # type: ignore[arg-type]
    shares = [(5, 5), (9, 1), (5, 5), (5, 5), (3, 7), (3, 7), (5, 5)]
    found = []
    for busy, idle in shares:
        work(load, clock, busy=busy, idle=idle)
        work(load, clock, busy=busy, idle=idle)  # a window may begin within the one before
        found.append(load.is_high)
    assert found == [False, True, True, True, False, False, False]


def test_the_loop_reports_iterations_with_clients() -> None:
    async def test() -> None:
        clock = Clock()
        budget = LoopBudget(clock)  # type: ignore[arg-type]
        for _ in range(3):
            assert budget.try_run(SimpleNamespace(run=lambda: None))
            clock.now += WINDOW_MS
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert budget.load.is_high

    asyncio.run(test())


def new_gathering() -> Gathering:
    return Gathering(LoopBudget(Clock()))  # type: ignore[arg-type]


def test_what_is_held_is_answered_in_order_in_one_turn() -> None:
    async def test() -> None:
        held, order = new_gathering(), []

        def answer(number: int) -> int:
            order.append(number)
            return number

        futures = [held.hold(lambda number=number: answer(number)) for number in range(5)]
        assert order == []
        async with asyncio.timeout(30):
            assert await asyncio.gather(*futures) == [0, 1, 2, 3, 4]
        assert order == [0, 1, 2, 3, 4]
        assert held.fetches == 5

    asyncio.run(test())


def test_errors_long_polls_and_lost_clients_end_as_without_waiting() -> None:
    async def test() -> None:
        held = new_gathering()
        loop = asyncio.get_running_loop()
        polled, refused, abandoned = (loop.create_future() for _ in range(3))

        def fail() -> None:
            raise ValueError("wrong")

        called: list[str] = []
        failing, poll = held.hold(fail), held.hold(lambda: polled)
        refusal, left = held.hold(lambda: refused), held.hold(lambda: abandoned)
        gone = held.hold(lambda: called.append("gone"))
        gone.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(ValueError, match="wrong"):
                await failing
            left.cancel()
            polled.set_result("records")
            refused.set_exception(ValueError("late"))
            assert await poll == "records"
            with pytest.raises(ValueError, match="late"):
                await refusal
            await asyncio.wait({abandoned})
        assert abandoned.cancelled()
        assert called == []

    asyncio.run(test())


@asynccontextmanager
async def busy_node(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A node whose fetches wait until they are released, a consumer, and a writer."""
    monkeypatch.setattr(Gathering, "is_on", True)
    monkeypatch.setattr(gathering, "GATHER_MS", LATER_MS)
    async with node_in(tmp_path) as node:
        connection, writer = await connect(node), await connect(node)
        topic_id = await create_topic(writer, "t", partitions=PARTITIONS)
        yield Consumer(node, connection, topic_id), writer, node._listeners._gathering
        await connection.close()
        await writer.close()


def test_a_consumer_that_keeps_up_waits_and_gets_what_came_meanwhile(tmp_path, monkeypatch) -> None:
    async def test() -> None:
        async with busy_node(tmp_path, monkeypatch) as (consumer, writer, held):
            await consumer.open()
            task = asyncio.ensure_future(consumer.poll())
            await until(lambda: held.fetches == 1)
            await append(writer, consumer.topic_id, batch(b"x"), partition=3)
            await append(writer, consumer.topic_id, batch(b"y"), partition=1)
            assert not task.done()
            held._release()
            assert {part.partition_index: values_of(part) for part in await task} == {
                1: [b"y"],
                3: [b"x"],
            }

    run(test())


def test_rights_are_those_of_the_moment_of_the_response(tmp_path, monkeypatch) -> None:
    async def test() -> None:
        async with busy_node(tmp_path, monkeypatch) as (consumer, writer, held):
            rights = Deciding(lambda *_: True)
            for listener in consumer.node.listeners:
                listener.authorizer = rights
            consumer.connection = await connect(consumer.node)
            await consumer.open()
            await append(writer, consumer.topic_id, batch(b"x"), partition=3)
            task = asyncio.ensure_future(consumer.poll())
            await until(lambda: held.fetches == 1)
            rights.decide = lambda operation, *_: operation is not AclOperation.READ
            held._release()
            parts = await task
            assert {part.error_code for part in parts} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            assert all(not part.records for part in parts)

    run(test())


def test_a_consumer_that_catches_up_does_not_wait(tmp_path, monkeypatch) -> None:
    async def test() -> None:
        async with busy_node(tmp_path, monkeypatch) as (consumer, writer, held):
            size = len(batch(bytes(1_000)))
            for _ in range(4):
                await append(writer, consumer.topic_id, batch(bytes(1_000)), partition=0)
            await consumer.open(max_bytes=size)
            for offset in (1, 2, 3):
                (part,) = await consumer.poll({0: offset}, max_bytes=size)
                assert part.partition_index == 0
            assert held.fetches == 0
            await consumer.poll({0: 4}, max_bytes=10 * size)
            task = asyncio.ensure_future(consumer.poll())
            await until(lambda: held.fetches == 1)
            held._release()
            assert await task == []

    run(test())
