"""Calls to a shard: at once, in turns with the rest of the loop, and in their order."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.steps import Steps
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.server.coordinator.work_queue import WorkQueue
from tests.server.coordinator.fake_host import FakeHost


def new_queue(units_max: int) -> WorkQueue:
    host = FakeHost(SimpleNamespace(image=EMPTY_IMAGE))
    host.units_max = units_max
    return WorkQueue(host.in_epoch("words", 0, 0), "words-0")  # type: ignore[arg-type]


class Notes(list[str]):
    """What was done, in order."""

    def steps(self, name: str, count: int) -> Steps[str]:
        for number in range(count):
            self.append(f"{name}{number}")
            yield 1
        return name

    def call(self, name: str) -> Any:
        def note() -> str:
            self.append(name)
            return name

        return note


def test_short_steps_are_executed_at_once() -> None:
    async def test() -> None:
        queue, notes = new_queue(5), Notes()
        assert queue.run(notes.steps("a", 4)) == "a"
        assert not queue.is_busy
        assert notes == ["a0", "a1", "a2", "a3"]

    asyncio.run(test())


def test_long_steps_take_turns_and_calls_wait_in_their_order() -> None:
    async def test() -> None:
        queue, notes = new_queue(2), Notes()
        result = queue.run(notes.steps("a", 6))
        assert queue.is_busy
        assert notes == ["a0", "a1"]

        def later_steps() -> Any:
            started = queue.run(notes.steps("d", 3))
            assert isinstance(started, asyncio.Future)
            return started

        waiting = [queue.later(notes.call("b"))]
        queue.later_event(notes.call("c"))
        waiting.append(queue.later(later_steps))
        waiting.append(queue.later(notes.call("e")))
        seen = []
        while queue.is_busy:
            await asyncio.sleep(0)
            seen.append(len(notes))
        assert notes == [*(f"a{at}" for at in range(6)), "b", "c", "d0", "d1", "d2", "e"]
        assert max(after - before for before, after in itertools.pairwise(seen)) <= 3
        assert isinstance(result, asyncio.Future)
        assert await result == "a"
        assert [await one for one in waiting] == ["b", "d", "e"]

    asyncio.run(test())


def test_an_error_ends_its_own_call_only() -> None:
    async def test() -> None:
        queue, notes = new_queue(1), Notes()

        def failing() -> Steps[str]:
            yield 1
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

        def refused() -> Any:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH)

        started = queue.run(failing())
        waiting = [queue.later(refused), queue.later(notes.call("b"))]
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await started  # type: ignore[misc]
        with pytest.raises(KafkaError, match="FENCED_MEMBER_EPOCH"):
            await waiting[0]
        assert await waiting[1] == "b"

    asyncio.run(test())


def test_whatever_waits_at_the_end_of_the_leadership_fails() -> None:
    async def test() -> None:
        queue, notes = new_queue(1), Notes()
        started = queue.run(notes.steps("a", 9))
        waiting = queue.later(notes.call("b"))
        queue.later_event(notes.call("c"))
        await asyncio.sleep(0)
        queue.close()
        for one in (started, waiting):
            with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
                await one  # type: ignore[misc]
        done = list(notes)
        for _ in range(5):
            await asyncio.sleep(0)
        assert notes == done
        assert "b" not in notes
        assert "c" not in notes

    asyncio.run(test())


def test_a_client_that_is_gone_does_not_delay_others() -> None:
    async def test() -> None:
        queue, notes = new_queue(1), Notes()
        queue.run(notes.steps("a", 2))
        gone = asyncio.ensure_future(queue.later(notes.call("b")))
        await asyncio.sleep(0)
        gone.cancel()
        assert await queue.later(notes.call("c")) == "c"
        assert "b" not in notes

    asyncio.run(test())
