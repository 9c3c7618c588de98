"""Partitions of a follower's session that have nothing new: skipped, until there is."""

import asyncio
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from sparkraft.server.api.fetch_work import FetchWork
from tests.server.harness import append, batch, run, until, values_of
from tests.server.test_leading import OTHER, Place, place


class Session:
    """Broker 2's fetch session, of requests that name nothing."""

    def __init__(self, there: Place, session_id: int) -> None:
        self.there = there
        self.id = session_id
        self.epoch = 1

    async def poll(self, *, wait_ms: int = 0) -> list[Any]:
        """What an empty request is answered: partitions."""
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=OTHER, replica_epoch=self.there.broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.id,
            session_epoch=self.epoch,
        )
        self.epoch += 1
        answer = await self.there.follower.send(request)
        assert answer.error_code == 0, answer
        return [part for topic in answer.responses for part in topic.partitions]

    @property
    def is_quiet(self) -> bool:
        session = self.there.node.broker.fetch_sessions._sessions[self.id]
        (asked,) = session.partitions.values()
        return asked.quiet is not None and asked.is_quiet(asked.quiet)


async def quiet(there: Place) -> Session:
    """A follower in sync that has the topic's one record, and knows that it is committed."""
    await there.create()
    await append(there.client, there.topic_id, batch(b"first"), acks=1)
    await there.fetches(0)
    opened = await there.follower.send(there.fetch_request(1, session=(0, 0)))
    session = Session(there, opened.session_id)
    while await session.poll():
        pass
    assert session.is_quiet
    return session


def test_a_quiet_partition_is_not_read_and_its_follower_counts_as_caught_up(tmp_path, monkeypatch):
    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            follower = there.partition.followers[OTHER]
            follower.last_caught_up_ms = follower.last_fetch_ms = 0
            monkeypatch.setattr(FetchWork, "_read_one", None)  # whoever reads now, fails
            assert await session.poll() == []
            assert follower.last_caught_up_ms > 0
            assert follower.last_fetch_ms == follower.last_caught_up_ms
            assert session.is_quiet

    run(test())


def test_records_end_the_quiet(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            await append(there.client, there.topic_id, batch(b"second"), acks=1)
            assert not session.is_quiet
            (part,) = await session.poll()
            assert values_of(part) == [b"second"]

    run(test())


def test_records_wake_a_follower_whose_partitions_are_all_quiet(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            task = asyncio.ensure_future(session.poll(wait_ms=25_000))
            await until(lambda: there.partition.replica_waiters)
            await append(there.client, there.topic_id, batch(b"second"), acks=1)
            (part,) = await task
            assert values_of(part) == [b"second"]

    run(test())


def test_a_moved_log_start_ends_the_quiet(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            there.partition.delete_records(1, 1_000)
            assert not session.is_quiet
            (part,) = await session.poll()
            assert (part.log_start_offset, values_of(part)) == (1, [])

    run(test())


def test_the_end_of_leadership_ends_the_quiet(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            await there.lead(OTHER)
            assert not session.is_quiet
            (part,) = await session.poll()
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test())


def test_a_new_leader_epoch_ends_the_quiet(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            await there.lead(OTHER)
            await there.lead(1)
            assert not session.is_quiet
            (part,) = await session.poll()
            assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH

    run(test())


def test_a_session_of_an_earlier_life_is_never_quiet(tmp_path, monkeypatch):
    """KIP-903: broker 2 was registered anew; its old process still polls."""

    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            follower = there.partition.followers[OTHER]
            follower.last_caught_up_ms = 0
            newer = there.broker_epoch + 1
            brokers = there.node.broker.replica_manager.brokers
            monkeypatch.setattr(brokers, "alive_epoch", lambda _: newer)
            (part,) = await session.poll()
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert follower.last_caught_up_ms == 0

    run(test())


def test_a_follower_that_is_not_in_sync_is_looked_at_each_time(tmp_path):
    """Else it could never join."""

    async def test():
        async with place(tmp_path) as there:
            session = await quiet(there)
            await there.beat(fence=True)
            await until(lambda: there.isr == (1,))
            await there.beat()
            await until(lambda: not there.node.broker.image.brokers[OTHER].fenced)

            async def back() -> bool:
                await session.poll()
                return set(there.isr) == {1, OTHER}

            await until(back)

    run(test())
