"""ISR changes on their way: one request at a time, and what each answer does (KIP-497)."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.replication.in_sync import Committed
from sparkraft.replication.leader import PartitionLeader
from sparkraft.server.broker.alter_partition import AlterPartitionQueue
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.broker.isr_expiration import expire_isrs
from sparkraft.server.broker.isr_journal import IsrJournal
from sparkraft.simulation.world.loop import SimLoop
from tests.server.harness import run, until

TOPIC_ID = Uuid(bytes(range(16)))
EVERYBODY = SimpleNamespace(alive_epoch=lambda _: 7, may_join_isr=lambda _: True)


class FakeChannel:
    """Holds each request until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, asyncio.Future[Any]]] = []

    async def send(self, request: Any, _key: Any, **_: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((request, answer))
        return await answer

    async def request(self, count: int) -> Any:
        """The last request once `count` were sent."""
        await until(lambda: len(self.sent) >= count)
        assert len(self.sent) == count
        return self.sent[-1][0]

    def answer(self, *partitions: Any, error: ErrorCode = ErrorCode.NONE) -> None:
        topic = k56.AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=list(partitions))
        self.sent[-1][1].set_result(
            k56.AlterPartitionResponse(error_code=int(error), topics=[topic])
        )


class FakeHosted:
    """A led partition whose follower 2 is out of sync and has caught up."""

    def __init__(self, index: int) -> None:
        self.topic, self.topic_id, self.index = "t", TOPIC_ID, index
        self.partition_epoch = 3
        self.advanced = 0
        self.leading: PartitionLeader | None = PartitionLeader(
            EVERYBODY, local_id=1, lag_ms_max=10_000
        )
        self.leading.on_metadata(
            replicas=(1, 2), isr=(1,), leader_epoch=5, partition_epoch=3, log_end_offset=0, now_ms=0
        )
        self.leading.on_fetch(2, 0, log_start_offset=0, leader_end=0, broker_epoch=7, now_ms=0)

    def expand(self) -> Any:
        assert self.leading is not None
        pending = self.leading.maybe_expand(2, 0)
        assert pending is not None
        return pending

    def on_isr_changed(self, partition_epoch: int) -> None:
        self.partition_epoch = partition_epoch
        self.advanced += 1


class Bench:
    def __init__(self, channel: Any = None) -> None:
        self.channel = channel or FakeChannel()
        clock: Any = SimpleNamespace(mono_ms=lambda: 0, wall_ms=lambda: 1_000)
        epoch = BrokerEpoch()
        epoch.on_registered(7)
        self.journal = IsrJournal(clock)
        self.changes = AlterPartitionQueue(
            self.channel, self.journal, node_id=1, broker_epoch=epoch
        )

    def submit(self, hosted: Any) -> Any:
        pending = hosted.expand()
        self.changes.submit(hosted, pending)
        return pending


def agreed(index: int, *, partition_epoch: int = 4) -> Any:
    return k56.AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=1,
        leader_epoch=5,
        isr=[1, 2],
        partition_epoch=partition_epoch,
    )


def refused(index: int, code: ErrorCode) -> Any:
    return k56.AlterPartitionResponsePartitionData(partition_index=index, error_code=int(code))


def indexes(request: Any) -> list[int]:
    return [part.partition_index for topic in request.topics for part in topic.partitions]


def with_changes(test: Any) -> None:
    async def whole() -> None:
        bench = Bench()
        task = asyncio.ensure_future(bench.changes.run())
        try:
            await test(bench)
        finally:
            task.cancel()

    run(whole())


def test_what_comes_while_one_is_on_its_way_goes_together_with_the_next():
    async def test(bench: Bench) -> None:
        partitions = [FakeHosted(index) for index in range(3)]
        bench.submit(partitions[0])
        first = await bench.channel.request(1)
        (part,) = first.topics[0].partitions
        told = [(state.broker_id, state.broker_epoch) for state in part.new_isr_with_epochs]
        assert told == [(1, 7), (2, 7)]
        assert (first.broker_id, first.broker_epoch) == (1, 7)
        assert (part.leader_epoch, part.partition_epoch) == (5, 3)
        bench.submit(partitions[2])
        bench.submit(partitions[1])
        bench.channel.answer(agreed(0))
        assert indexes(await bench.channel.request(2)) == [1, 2]
        bench.channel.answer(agreed(1), agreed(2))
        await until(lambda: all(hosted.advanced == 1 for hosted in partitions))
        for hosted in partitions:
            assert hosted.leading is not None
            assert hosted.leading.in_sync == Committed(isr=(1, 2))
            assert hosted.partition_epoch == 4
        assert [change.joined for change in bench.journal.changes] == [2, 2, 2]

    with_changes(test)


def test_a_partition_left_out_of_the_answer_is_sent_again():
    async def test(bench: Bench) -> None:
        left_out, answered = FakeHosted(0), FakeHosted(1)
        bench.submit(left_out)
        await bench.channel.request(1)
        bench.submit(answered)
        bench.channel.answer()
        assert indexes(await bench.channel.request(2)) == [0, 1]

    with_changes(test)


def test_a_request_refused_as_a_whole_is_sent_again():
    async def test(bench: Bench) -> None:
        hosted = FakeHosted(0)
        bench.submit(hosted)
        await bench.channel.request(1)
        bench.channel.answer(error=ErrorCode.STALE_BROKER_EPOCH)
        await bench.channel.request(2)
        bench.channel.sent[-1][1].set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        await bench.channel.request(3)
        bench.channel.answer(agreed(0))
        await until(lambda: hosted.advanced)

    with_changes(test)


def test_a_zombie_controller_s_answer_is_asked_again_and_a_final_one_not():
    async def test(bench: Bench) -> None:
        zombie, final, ineligible = (FakeHosted(index) for index in range(3))
        bench.submit(FakeHosted(9))
        await bench.channel.request(1)
        bench.submit(zombie)
        stays = bench.submit(final)
        bench.submit(ineligible)
        bench.channel.answer(agreed(9))
        await bench.channel.request(2)
        bench.channel.answer(
            refused(0, ErrorCode.NOT_CONTROLLER),
            refused(1, ErrorCode.INVALID_UPDATE_VERSION),
            refused(2, ErrorCode.INELIGIBLE_REPLICA),
        )
        assert indexes(await bench.channel.request(3)) == [0]
        assert final.leading is not None
        assert final.leading.in_sync is stays
        assert ineligible.leading is not None
        assert ineligible.leading.in_sync == Committed(isr=(1,))
        assert bench.changes.failures == 3

    with_changes(test)


def test_a_change_that_metadata_overtook_is_not_sent_for_ever():
    async def test(bench: Bench) -> None:
        overtaken, lost, kept = (FakeHosted(index) for index in range(3))
        for hosted in (overtaken, lost, kept):
            bench.submit(hosted)
        await bench.channel.request(1)
        assert overtaken.leading is not None
        overtaken.leading.on_metadata(
            replicas=(1, 2), isr=(1,), leader_epoch=6, partition_epoch=4, log_end_offset=0, now_ms=0
        )
        lost.leading = None
        bench.channel.answer(error=ErrorCode.STALE_BROKER_EPOCH)
        assert indexes(await bench.channel.request(2)) == [2]

    with_changes(test)


class RefusingChannel:
    """Refuses as a whole as often as it is told to, notes when; then it agrees."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked_at_ms: list[int] = []

    async def send(self, request: Any, _key: Any, **_: Any) -> Any:
        self.asked_at_ms.append(round(asyncio.get_running_loop().time() * 1000))
        if len(self.asked_at_ms) <= self.refusals:
            return k56.AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        partitions = [agreed(index) for index in indexes(request)]
        topic = k56.AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=partitions)
        return k56.AlterPartitionResponse(topics=[topic])

    @property
    def pauses_ms(self) -> list[int]:
        return [after - before for before, after in pairwise(self.asked_at_ms)]


def test_pauses_grow_up_to_a_bound_and_start_small_again_after_a_success():
    async def test() -> None:
        channel = RefusingChannel(8)
        bench = Bench(channel)
        task = asyncio.ensure_future(bench.changes.run())
        refused_often, later = FakeHosted(0), FakeHosted(1)
        bench.submit(refused_often)
        await until(lambda: refused_often.advanced)
        assert channel.pauses_ms == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
        channel.refusals = 10
        bench.submit(later)
        await until(lambda: later.advanced)
        assert channel.pauses_ms[-1] == 50
        task.cancel()

    loop = SimLoop()
    try:
        loop.run_until_complete(test())
    finally:
        loop.close()


def test_followers_are_looked_at_twice_in_the_time_they_may_lag():
    """Kafka's `ReplicaManager` has isr-expiration at replica.lag.time.max.ms / 2."""
    lag_ms = 30_000
    loop = SimLoop()
    looked: list[int] = []

    def now_ms() -> int:
        return int(loop.time() * 1000)

    async def test() -> None:
        clock: Any = SimpleNamespace(mono_ms=now_ms)
        task = asyncio.ensure_future(
            expire_isrs(clock, lag_ms_max=lag_ms, maybe_shrink_isrs=lambda: looked.append(now_ms()))
        )
        await asyncio.sleep(4 * lag_ms / 1000 + 1)
        task.cancel()

    begun = now_ms()
    try:
        loop.run_until_complete(test())
    finally:
        loop.close()
    assert [at - begun for at in looked] == [lag_ms // 2 * turn for turn in range(1, 9)]
