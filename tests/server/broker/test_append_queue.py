"""Batches that a thread prepares: their order, and what is checked again after the thread."""

import asyncio
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from sparkraft.records.validate import Rules
from sparkraft.server.broker.append_queue import AppendQueue, QueuedAppend

HEAVY = Rules(codec=Codec.ZSTD)


def batch(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, bytes(size))
    return builder.build()


class World:
    """A partition whose threads end when the test says so."""

    def __init__(self) -> None:
        self.partition = SimpleNamespace(
            leader_epoch=5, is_leader=True, log=SimpleNamespace(rules=HEAVY)
        )
        self.threads: list[asyncio.Future] = []
        self.prepared_for: list[Rules] = []
        self.appended: list[object] = []
        self.refused: list[tuple[object, ErrorCode]] = []
        self.error: KafkaError | None = None
        self.queue: AppendQueue | None = None

    def in_thread(self, _work, _records, rules, _now_ms, _origin):
        self.prepared_for.append(rules)
        self.threads.append(asyncio.get_running_loop().create_future())
        return self.threads[-1]

    def append(self, _partition, one):
        if self.error is not None:
            raise self.error
        self.appended.append(one.prepared or one.records)
        return len(self.appended)

    def submit(self, size=5000, *, sender="a", check=None):
        ended = asyncio.get_running_loop().create_future()

        def on_ended(info, error):
            if error is None:
                ended.set_result(info)
                return
            ended.set_exception(error)
            if isinstance(error, KafkaError):
                self.refused.append((sender, error.code))

        one = QueuedAppend(batch(size), acks=1, sender=sender, check=check, on_ended=on_ended)
        self.queue = self.queue or AppendQueue(
            self.partition,
            on_empty=self.on_empty,
            in_thread=self.in_thread,
            now_ms=lambda: 0,
            work_max=LOOP_WORK_MAX,
            append=self.append,
        )
        self.queue.submit(one)
        return ended

    def on_empty(self, queue):
        if queue is self.queue:
            self.queue = None

    async def end(self, index, result="done"):
        if isinstance(result, Exception):
            self.threads[index].set_exception(result)
        else:
            self.threads[index].set_result(result)
        for _ in range(4):
            await asyncio.sleep(0)


def run(test):
    asyncio.run(test(World()))


def test_appends_happen_in_the_order_of_submission():
    async def test(world):
        first, second = world.submit(), world.submit(sender="b")
        light = world.submit(10)
        await world.end(1, "second")
        assert not world.appended, "the first is still in its thread"
        await world.end(0, "first")
        assert world.appended[:2] == ["first", "second"]
        assert len(world.appended) == 3
        assert [await one for one in (first, second, light)] == [1, 2, 3]
        assert world.queue is None

    run(test)


def test_another_leader_epoch_refuses_what_waited():
    async def test(world):
        waits = world.submit()
        world.partition.leader_epoch = 6
        await world.end(0)
        with pytest.raises(KafkaError) as caught:
            await waits
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not world.appended

    run(test)


def test_another_config_prepares_the_records_again():
    async def test(world):
        waits = world.submit()
        world.partition.log.rules = Rules(codec=Codec.LZ4)
        await world.end(0, "zstd")
        assert not world.appended
        await world.end(1, "lz4")
        assert await waits == 1
        assert world.appended == ["lz4"]
        assert world.prepared_for == [HEAVY, Rules(codec=Codec.LZ4)]

    run(test)


def test_the_guard_is_checked_right_before_the_append():
    async def test(world):
        checked = []

        def check(_partition, _records):
            checked.append(True)
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

        waits = world.submit(check=check)
        assert not checked
        await world.end(0)
        with pytest.raises(KafkaError):
            await waits
        assert checked
        assert not world.appended

    run(test)


def test_a_temporary_refusal_refuses_later_batches_of_its_sender_alone():
    async def test(world):
        waits = [world.submit(sender=sender) for sender in "aab"]
        world.error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        await world.end(0)
        world.error = None
        assert world.refused == [("a", ErrorCode.NOT_ENOUGH_REPLICAS)] * 2
        await world.end(2, "b's")
        assert world.appended == ["b's"]
        await world.end(1, "late")
        assert world.appended == ["b's"]
        codes = [one.exception() for one in waits]
        assert [error is None for error in codes] == [False, False, True]
        assert world.queue is None

    run(test)


def test_a_refused_batch_leaves_later_ones_alone():
    async def test(world):
        first, second = world.submit(), world.submit()
        await world.end(0, KafkaError(ErrorCode.INVALID_RECORD))
        await world.end(1, "second")
        assert first.exception().code == ErrorCode.INVALID_RECORD
        assert await second == 1

    run(test)


def test_a_late_thread_does_not_end_a_newer_queue():
    async def test(world):
        world.submit().add_done_callback(lambda done: done.exception())
        late = world.submit()
        world.error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        await world.end(0)
        world.error = None
        assert late.done()
        late.exception()
        newer = world.submit()
        await world.end(1, "late")
        assert world.queue is not None
        await world.end(2, "newer")
        assert await newer == 1

    run(test)
