"""A consumer's fetch session reads only the partitions that changed, and misses no change."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.messages.k01_fetch import FetchRequest, FetchTopic, ForgottenTopic
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.security.acls import AclOperation
from sparkraft.server.api import fetch_work
from sparkraft.server.api.fetch_work import FetchWork
from sparkraft.server.broker import fetch_sessions
from tests.server.harness import (
    NOW_MS,
    append,
    batch,
    connect,
    create_topic,
    fetch,
    node_in,
    run,
    until,
    values_of,
)
from tests.server.test_leading import OTHER, place
from tests.support.sessions import Deciding

PARTITIONS = 5


class Consumer:
    """A session over all partitions of topic `t`; `reads` counts what the broker read for it."""

    def __init__(self, node: Any, connection: Any, topic_id: Any) -> None:
        self.node = node
        self.connection = connection
        self.topic_id = topic_id
        self.id = self.epoch = 0
        self.reads: Counter[int] = Counter()

    async def open(self, partitions: int = PARTITIONS, **given: Any) -> None:
        request = fetch(
            self.topic_id, partitions=tuple(range(partitions)), session_epoch=0, **given
        )
        self.id, self.epoch = (await self.connection.send(request)).session_id, 1
        assert self.id

    def request(self, moved: dict[int, int] | None = None, **given: Any) -> FetchRequest:
        """An incremental request; `moved` has new fetch offsets by partition."""
        topics = [
            fetch(self.topic_id, offset, partitions=(index,)).topics[0]
            for index, offset in (moved or {}).items()
        ]
        settings = {"max_wait_ms": 0, "min_bytes": 1, "topics": topics} | given
        request = FetchRequest(session_id=self.id, session_epoch=self.epoch, **settings)
        self.epoch += 1
        return request

    async def poll(self, moved: dict[int, int] | None = None, **given: Any) -> list[Any]:
        """The partitions of the response; `reads` has what it took."""
        self.reads.clear()
        response = await self.connection.send(self.request(moved, **given))
        assert response.error_code == 0, response
        return [part for topic in response.responses for part in topic.partitions]

    @property
    def session(self) -> fetch_sessions.FetchSession:
        return self.node.broker.fetch_sessions._sessions[self.id]


@pytest.fixture
def read_of(monkeypatch):
    """Count the partitions that are read, for one consumer at a time."""
    original = FetchWork._read_one
    counters: list[Counter[int]] = []

    def counted(self: Any, asked: Any, *rest: Any, **more: Any) -> int:
        counters[-1][asked.index] += 1
        return original(self, asked, *rest, **more)

    monkeypatch.setattr(FetchWork, "_read_one", counted)
    return counters


@asynccontextmanager
async def consuming(tmp_path, counters, **overrides: str):
    async with node_in(tmp_path, **overrides) as node:
        connection, writer = await connect(node), await connect(node)
        topic_id = await create_topic(writer, "t", partitions=PARTITIONS)
        consumer = Consumer(node, connection, topic_id)
        counters.append(consumer.reads)
        yield consumer, writer
        await connection.close()
        await writer.close()


def test_only_partitions_with_new_records_are_read(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            assert await consumer.poll() == []
            assert not consumer.reads
            await append(writer, consumer.topic_id, batch(b"x"), partition=3)
            (part,) = await consumer.poll()
            assert (part.partition_index, values_of(part)) == (3, [b"x"])
            assert consumer.reads == {3: 1}
            assert await consumer.poll({3: 1}) == []
            assert consumer.reads == {3: 1}
            assert await consumer.poll() == []
            assert not consumer.reads

    run(test())


def test_records_are_returned_again_until_the_consumer_moves(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            await append(writer, consumer.topic_id, batch(b"x"), partition=2)
            for _ in range(2):
                (part,) = await consumer.poll()
                assert values_of(part) == [b"x"]

    run(test())


def test_a_long_poll_reads_what_woke_it_and_counts_bytes_of_all_partitions(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            size = len(batch(bytes(500)))
            task = asyncio.ensure_future(consumer.poll(max_wait_ms=25_000, min_bytes=2 * size))
            await until(lambda: consumer.session.waiters)
            await append(writer, consumer.topic_id, batch(bytes(500)), partition=0)
            await append(writer, consumer.topic_id, batch(bytes(500)), partition=4)
            assert [part.partition_index for part in await task] == [0, 4]
            assert consumer.reads == {0: 1, 4: 1}
            assert not consumer.session.waiters

    run(test())


def test_a_parked_fetch_of_a_session_dies_with_its_connection(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, _):
            await consumer.open()
            waiting = consumer.connection.send_nowait(consumer.request(max_wait_ms=25_000))
            await until(lambda: consumer.session.waiters)
            consumer.connection.abort("the test leaves")
            with pytest.raises(KafkaError):
                await waiting
            await until(lambda: not consumer.session.waiters)

    run(test())


def test_a_moved_log_start_is_reported_once(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await append(writer, consumer.topic_id, batch(b"a", b"b"), partition=1)
            await consumer.open()
            await consumer.poll({1: 2})
            hosted = consumer.node.broker.replica_manager.leader("t", 1)
            hosted.delete_records(2, 1_000)
            (part,) = await consumer.poll()
            assert (part.partition_index, part.log_start_offset) == (1, 2)
            assert await consumer.poll() == []
            assert not consumer.reads

    run(test())


def test_an_offset_below_a_moved_log_start_is_out_of_range(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await append(writer, consumer.topic_id, batch(b"a", b"b"), partition=1)
            await consumer.open()
            hosted = consumer.node.broker.replica_manager.leader("t", 1)
            hosted.delete_records(2, 1_000)
            (part,) = await consumer.poll()
            assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(test())


def test_another_isolation_level_reads_every_partition_again(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, _):
            await consumer.open()
            await consumer.poll()
            await consumer.poll(isolation_level=1)
            assert consumer.reads == dict.fromkeys(range(PARTITIONS), 1)
            await consumer.poll(isolation_level=1)
            assert not consumer.reads

    run(test())


def test_partitions_with_records_take_turns(tmp_path, read_of):
    """KIP-227: a partition whose records were returned is read last the next time."""

    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            for index in (4, 2, 0):
                await append(writer, consumer.topic_id, batch(bytes(1_000)), partition=index)
            served = [
                [part.partition_index for part in await consumer.poll(max_bytes=1)]
                for _ in range(6)
            ]
            with_records = [indexes[0] for indexes in served]
            assert with_records == [0, 2, 4, 0, 2, 4]

    run(test())


def test_a_forgotten_partition_is_not_read_and_reports_nothing(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            forgotten = [ForgottenTopic(topic_id=consumer.topic_id, partitions=[2])]
            await consumer.poll(forgotten_topics_data=forgotten)
            await append(writer, consumer.topic_id, batch(b"x"), partition=2)
            assert await consumer.poll() == []
            assert not consumer.reads
            assert not consumer.node.broker.replica_manager.leader("t", 2).waiters

    run(test())


def test_an_ended_session_leaves_its_partitions(tmp_path, read_of, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "LEFT_AT_ONCE_MAX", 2)

    async def test():
        async with consuming(tmp_path, read_of) as (consumer, _):
            await consumer.open()
            manager = consumer.node.broker.replica_manager
            hosted = [manager.leader("t", index) for index in range(PARTITIONS)]
            assert all(each.waiters for each in hosted)
            end = FetchRequest(
                session_id=consumer.id, session_epoch=-1, max_wait_ms=0, min_bytes=1,
                topics=[FetchTopic(topic_id=consumer.topic_id)],
            )  # fmt: skip
            await consumer.connection.send(end)
            for _ in range(3):  # two partitions with each request that follows
                await consumer.connection.send(fetch(consumer.topic_id, session_epoch=0))
            watched = [len(each.waiters) for each in hosted]
            assert watched == [3, 0, 0, 0, 0]  # the three new sessions, each of partition 0

    run(test())


def test_a_deleted_topic_is_an_error_at_once_and_wakes_the_long_poll(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            task = asyncio.ensure_future(consumer.poll(max_wait_ms=25_000))
            await until(lambda: consumer.session.waiters)
            delete = DeleteTopicsRequest(
                topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=10_000
            )
            await writer.send(delete)
            assert {part.error_code for part in await task} == {ErrorCode.UNKNOWN_TOPIC_ID}

    run(test())


def test_a_revoked_right_is_noticed_though_nothing_changed(tmp_path, read_of):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            rights = Deciding(lambda *_: True)
            for listener in consumer.node.listeners:
                listener.authorizer = rights
            consumer.connection = await connect(consumer.node)
            await consumer.open()
            assert await consumer.poll() == []
            assert not consumer.reads
            rights.decide = lambda operation, *_: operation != AclOperation.READ
            refused = await consumer.poll()
            assert len(refused) == PARTITIONS
            assert {p.error_code for p in refused} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            rights.decide = lambda *_: True
            assert {p.error_code for p in await consumer.poll()} == {0}
            await append(writer, consumer.topic_id, batch(b"x"))
            (part,) = await consumer.poll()
            assert values_of(part) == [b"x"]
            await consumer.connection.close()

    run(test())


def test_a_new_role_ends_the_quiet_and_returns_the_partition(tmp_path, read_of):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            consumer = Consumer(there.node, there.client, there.topic_id)
            read_of.append(consumer.reads)
            await consumer.open(1)
            assert await consumer.poll() == []
            assert not consumer.reads
            await there.lead(OTHER)
            assert await consumer.poll() == []  # a follower serves consumers, too (KIP-392)
            assert consumer.reads == {0: 1}
            await there.lead(1)
            await consumer.poll()
            assert consumer.reads == {0: 1}

    run(test())


def test_records_of_an_earlier_leader_are_read_once_they_are_committed(tmp_path, read_of):
    """Their appends were not counted here; the high watermark alone reports them."""

    async def test():
        async with place(tmp_path) as there:
            await there.create()
            consumer = Consumer(there.node, there.client, there.topic_id)
            read_of.append(consumer.reads)
            await there.fetches(0)
            await append(there.client, there.topic_id, batch(b"first"), acks=1)
            await consumer.open(1)
            assert await consumer.poll() == []
            there.partition._unseen.clear()
            task = asyncio.ensure_future(consumer.poll(max_wait_ms=25_000))
            await until(lambda: consumer.session.waiters)
            await there.fetches(1)
            (part,) = await task
            assert values_of(part) == [b"first"]

    run(test())


def test_a_fetch_reads_a_bounded_part_of_the_changes_and_the_next_one_the_rest(
    tmp_path, read_of, monkeypatch
):
    monkeypatch.setattr(fetch_work, "WHOLE_PARTITIONS_MAX", 2)

    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            await consumer.open()
            for _ in range(4):
                await consumer.poll()
            for index in range(PARTITIONS):
                await append(writer, consumer.topic_id, batch(b"x"), partition=index)
            served = [
                [part.partition_index for part in await consumer.poll(max_wait_ms=25_000)]
                for _ in range(4)
            ]
            assert served == [[0, 1], [2, 3], [4, 0], [1, 2]]

    run(test())


def large(monkeypatch) -> None:
    """Let every fetch of more than two partitions be a large one."""
    monkeypatch.setattr(fetch_work, "WHOLE_PARTITIONS_MAX", 2)


def test_a_large_fetch_waits_for_records_of_each_partition(tmp_path, read_of, monkeypatch):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            large(monkeypatch)
            every = tuple(range(PARTITIONS))
            for index in (4, 0):
                request = fetch(consumer.topic_id, partitions=every)
                request.max_wait_ms = 25_000
                if not index:
                    request.topics[0].partitions[4].fetch_offset = 1  # it has a record by now
                waiting = consumer.connection.send_nowait(request)
                hosted = consumer.node.broker.replica_manager.leader("t", index)
                await until(lambda hosted=hosted: hosted.waiters)
                await append(writer, consumer.topic_id, batch(b"x"), partition=index)
                (topic,) = (await waiting).responses
                values = {part.partition_index: values_of(part) for part in topic.partitions}
                assert values[index] == [b"x"]
                assert sorted(values) == list(every)

    run(test())


def test_records_that_come_while_a_large_fetch_is_read_are_not_missed(
    tmp_path, read_of, monkeypatch
):
    """Partition 0 gets its record after it was read, and before the fetch waits for it."""

    async def test():
        async with consuming(tmp_path, read_of) as (consumer, _):
            large(monkeypatch)
            hosted = consumer.node.broker.replica_manager.leader("t", 0)
            original = FetchWork.wait_everywhere

            def late(self: Any, waiter: Any) -> Any:
                hosted.append(batch(b"late"), acks=1, now_ms=NOW_MS)
                return original(self, waiter)

            monkeypatch.setattr(FetchWork, "wait_everywhere", late)
            request = fetch(consumer.topic_id, partitions=tuple(range(PARTITIONS)))
            request.max_wait_ms = 25_000
            response = await consumer.connection.send(request)
            assert response.error_code == 0
            (topic,) = response.responses
            assert values_of(topic.partitions[0]) == [b"late"]

    run(test())


def test_a_large_session_is_opened_and_continued(tmp_path, read_of, monkeypatch):
    async def test():
        async with consuming(tmp_path, read_of) as (consumer, writer):
            large(monkeypatch)
            await append(writer, consumer.topic_id, batch(b"a"), partition=1)
            await consumer.open()
            await consumer.poll({1: 1})
            await append(writer, consumer.topic_id, batch(b"b"), partition=3)
            (part,) = await consumer.poll()
            assert (part.partition_index, values_of(part)) == (3, [b"b"])

    run(test())


def test_a_truncation_is_noticed():
    """A consumer of a follower: its offset may be out of range from now on."""
    session = fetch_sessions.FetchSession(1, now=0, uses_ids=True, is_consumers=True)
    part = fetch_sessions.SessionPartition("t", b"", 0)
    session.add((b"", 0), part)
    session.changed.clear()
    part.on_bounds()
    assert session.to_read(1) == ([part], False)
