"""Waiting requests and their deadlines: a wheel turned by hand, offsets reached in any order."""

import asyncio
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.broker.purgatory import OffsetWaiters
from sparkraft.server.broker.timing_wheel import TimingWheel
from tests.server.harness import run


class HandClock:
    def __init__(self) -> None:
        self.now = 5_000

    def mono_ms(self) -> int:
        return self.now


class Turned:
    """A wheel whose time is the test's, and what it called."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.wheel = TimingWheel(self.clock)  # type: ignore[arg-type] # (all it needs of a clock)
        self.called: list[Any] = []

    def add(self, wait_ms: int) -> Any:
        return self.wheel.add(wait_ms, lambda: self.called.append((wait_ms, self.clock.now)))

    def go_to(self, wait_ms: int) -> None:
        """Let `wait_ms` since the start have passed."""
        self.clock.now = 5_000 + wait_ms
        self.wheel._expire()


def in_a_loop(test: Any) -> None:
    async def whole() -> None:
        test()

    run(whole())


@pytest.mark.parametrize("wait_ms", [0, 1, 40, 64, 65, 500, 501, 1_999, 30_000, 86_400_000])
def test_a_deadline_is_met_never_early_and_at_most_a_sixteenth_late(wait_ms):
    def test() -> None:
        turned = Turned()
        turned.add(wait_ms)
        turned.go_to(wait_ms - 1)
        assert turned.called == []
        turned.go_to(wait_ms + wait_ms // 16)
        assert len(turned.called) == 1
        turned.go_to(3 * wait_ms + 10)
        assert len(turned.called) == 1

    in_a_loop(test)


def test_a_cancelled_deadline_is_never_met():
    def test() -> None:
        turned = Turned()
        gone, stays = turned.add(100), turned.add(100)
        gone.cancel()
        gone.cancel()
        turned.go_to(200)
        assert len(turned.called) == 1
        stays.cancel()

    in_a_loop(test)


def test_one_deadline_may_cancel_another_of_its_slot_and_add_new_ones():
    def test() -> None:
        turned = Turned()
        other: Any = None

        def first() -> None:
            other.cancel()
            turned.add(0)

        turned.wheel.add(10, first)
        other = turned.add(10)
        turned.go_to(10)
        turned.go_to(10)
        assert [wait for wait, _ in turned.called] == [0]

    in_a_loop(test)


def test_the_loop_s_timer_is_set_for_the_nearest_deadline():
    async def test() -> None:
        from sparkraft.server.env import SystemClock

        wheel = TimingWheel(SystemClock())
        called: list[int] = []
        done = asyncio.Event()
        wheel.add(60_000, lambda: called.append(60_000))
        wheel.add(300, lambda: (called.append(300), done.set()))
        wheel.add(5, lambda: called.append(5))
        await done.wait()
        assert called == [5, 300]

    run(test())


def test_offsets_that_are_reached_end_their_waits_in_any_order():
    def test() -> None:
        turned, waiters = Turned(), OffsetWaiters()
        futures = {offset: waiters.add(offset, turned.wheel, None) for offset in (5, 9, 7, 5)}
        waiters.reach(7)
        assert [offset for offset, f in sorted(futures.items()) if f.done()] == [5, 7]
        waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        failure = futures[9].exception()
        assert isinstance(failure, KafkaError)
        assert failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not waiters

    in_a_loop(test)


def test_a_wait_that_is_over_time_is_given_up_and_the_offset_may_still_be_reached():
    def test() -> None:
        turned, waiters = Turned(), OffsetWaiters()
        late, patient = waiters.add(5, turned.wheel, 100), waiters.add(5, turned.wheel, 10_000)
        turned.go_to(120)
        failure = late.exception()
        assert isinstance(failure, KafkaError)
        assert failure.code is ErrorCode.REQUEST_TIMED_OUT
        waiters.reach(5)
        assert patient.result() is None
        turned.go_to(20_000)

    in_a_loop(test)
