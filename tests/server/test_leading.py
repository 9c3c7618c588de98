"""A leader with a follower that the test plays: acks, watermarks, ISR, and what is refused.

Broker 2 is a registration and hand-made fetches; broker 1 is a whole node.
"""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from sparkraft.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparkraft.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from sparkraft.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparkraft.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.server.harness import (
    append,
    batch,
    connect,
    fetch,
    node_in,
    produce,
    run,
    until,
    values_of,
)
from tests.support.registrations import registration_of

OTHER = 2
LAG_MS = 600
LATEST = -1


class Place:
    """Broker 1, a topic that it leads and broker 2 follows, and a client of it."""

    def __init__(self, node: Any, client: Any, controller: Any, follower: Any) -> None:
        self.node = node
        self.client = client
        self.controller = controller
        self.follower = follower
        self.broker_epoch = -1
        self.topic_id: Any = None

    async def register(self) -> None:
        """Broker 2 joins, and is unfenced."""
        answer = await self.controller.send(
            registration_of(
                OTHER, self.node.broker.cluster_id, previous_broker_epoch=self.broker_epoch
            )
        )
        assert answer.error_code == 0, answer
        self.broker_epoch = answer.broker_epoch
        await until(self._unfenced)

    async def _unfenced(self) -> bool:
        await self.beat()
        known = self.node.broker.image.brokers.get(OTHER)
        return known is not None and known.epoch == self.broker_epoch and not known.fenced

    async def beat(self, *, fence: bool = False) -> None:
        answer = await self.controller.send(
            BrokerHeartbeatRequest(
                broker_id=OTHER,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self.broker_epoch + 1_000_000,
                want_fence=fence,
            )
        )
        assert answer.error_code == 0, answer

    async def create(self, **configs: str) -> None:
        self.topic_id = await self.create_topic("t", **configs)

    async def create_topic(self, name: str, **configs: str) -> Any:
        """One partition, led by broker 1 and followed by broker 2; the topic's id."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, OTHER])],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer = await self.client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0, answer
        manager = self.node.broker.replica_manager
        await until(lambda: (made := manager.hosted(name, 0)) is not None and made.is_leader)
        return answer.topics[0].topic_id

    @property
    def partition(self) -> Any:
        return self.node.broker.replica_manager.hosted("t", 0)

    @property
    def isr(self) -> tuple[int, ...]:
        return self.node.broker.image.partition(self.topic_id, 0).isr

    def fetch_request(
        self,
        offset: int,
        *,
        topic_id: Any = None,
        replica: int = OTHER,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        log_start: int = 0,
        max_wait_ms: int = 0,
        session: tuple[int, int] = (0, -1),
    ) -> FetchRequest:
        part = FetchPartition(
            partition=0,
            current_leader_epoch=self.partition.leader_epoch
            if leader_epoch is None
            else leader_epoch,
            fetch_offset=offset,
            log_start_offset=log_start,
            partition_max_bytes=1 << 20,
        )
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=replica,
                replica_epoch=self.broker_epoch if broker_epoch is None else broker_epoch,
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic_id=topic_id or self.topic_id, partitions=[part])],
        )

    async def fetches(self, offset: int, **given: Any) -> Any:
        """Broker 2 fetches from `offset`; the partition as it was answered."""
        answer = await self.follower.send(self.fetch_request(offset, **given))
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def silence(self) -> None:
        """Broker 2 has been silent for longer than it may, and is found so."""
        known = self.partition.followers[OTHER]
        known.last_caught_up_ms -= self.node.broker.replica_manager.lag_ms_max + 1
        self.node.broker.replica_manager.maybe_shrink_isrs()

    async def latest(self, version: int | None = None) -> Any:
        topic = ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=1_000)
        answer = await self.client.send(request, version=version)
        return answer.topics[0].partitions[0]

    async def lead(self, leader: int) -> None:
        """Let `leader` lead, as the preferred one."""
        other = OTHER if leader == 1 else 1
        part = ReassignablePartition(partition_index=0, replicas=[leader, other])
        answer = await self.client.send(
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name="t", partitions=[part])], timeout_ms=10_000
            )
        )
        assert answer.responses[0].partitions[0].error_code == 0, answer
        await self.client.send(ElectLeadersRequest(election_type=0, topic_partitions=None))
        await until(lambda: self.partition.leader_id == leader)


@asynccontextmanager
async def place(path: Any, **overrides: str):
    """A cluster of broker 1, a whole node, and broker 2, which the test plays."""
    overrides = {"broker_session_timeout_ms": "60000", **overrides}
    async with node_in(path, **overrides) as node:
        connections = [await connect(node), await connect(node, "CONTROLLER"), await connect(node)]
        try:
            there = Place(node, *connections)
            await there.register()
            yield there
        finally:
            for connection in connections:
                await connection.close()


def test_acks_all_waits_for_the_follower_and_acks_1_does_not(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            for number in range(3):  # from the second on by the short way
                offset = 2 * number
                assert (
                    await append(there.client, there.topic_id, batch(b"1"), acks=1)
                ).error_code == 0
                waiting = asyncio.ensure_future(
                    append(there.client, there.topic_id, batch(b"all"), acks=-1)
                )
                await until(lambda end=offset + 2: there.partition.log.log_end_offset == end)
                assert (await there.fetches(offset + 1)).high_watermark == offset + 1
                assert not waiting.done()
                assert (await there.fetches(offset + 2)).high_watermark == offset + 2
                answer = await waiting
                assert (answer.error_code, answer.base_offset) == (0, offset + 1)
            assert len(there.node.broker.produce_shapes.shapes) == 2

    run(test())


def test_consumers_see_what_the_follower_has_and_the_follower_sees_all(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            for value in (b"a", b"b"):
                await append(there.client, there.topic_id, batch(value), acks=1)
            assert values_of(await there.fetches(0)) == [b"a", b"b"]
            consumer = await connect(there.node)
            waiting = consumer.send_nowait(fetch(there.topic_id, max_wait_ms=25_000))
            await until(lambda: there.partition.waiters)
            await there.fetches(1)
            answer = (await waiting).responses[0].partitions[0]
            assert (values_of(answer), answer.high_watermark) == ([b"a"], 1)
            await consumer.close()

    run(test())


def test_acks_all_gives_up_after_the_request_s_timeout(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            request = produce(there.topic_id, batch(b"late"))
            request.timeout_ms = 50
            for _ in range(2):  # the second by the long way too: a failed shape is not learnt
                answer = (await there.client.send(request)).responses[0].partition_responses[0]
                assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert there.partition.log.log_end_offset == 2, "it is there, and may be committed yet"

    run(test())


def test_acks_all_hears_that_leadership_ended(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            writer = await connect(there.node)
            waiting = asyncio.ensure_future(append(writer, there.topic_id, batch(b"x")))
            await until(lambda: there.partition.log.log_end_offset == 1)
            await there.client.send(
                DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
            )
            assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await writer.close()

    run(test())


def test_a_silent_follower_leaves_the_isr_and_min_insync_replicas_is_kept(tmp_path):
    async def test():
        # By hand: it must not leave before the record is there, nor again once it is back.
        async with place(tmp_path, replica_lag_time_max_ms="20000") as there:
            await there.create(min_insync_replicas="2")
            request = produce(there.topic_id, batch(b"short"))
            request.timeout_ms = 25_000
            waiting = there.client.send_nowait(request)
            await until(lambda: there.partition.log.log_end_offset == 1)
            there.silence()
            await until(lambda: there.isr == (1,))
            assert not waiting.done(), "one replica has it, and two must"
            writer = await connect(there.node)
            refused = await append(writer, there.topic_id, batch(b"refused"))
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await append(writer, there.topic_id, batch(b"1"), acks=1)).error_code == 0
            assert there.partition.log.high_watermark == 0
            (change,) = there.node.broker.isr_journal.changes
            assert (change.isr_before, change.isr, change.joined) == ((1, OTHER), (1,), None)
            assert (change.left[0].replica, change.left[0].log_end_offset) == (OTHER, -1)
            assert change.left[0].behind_ms > 20_000
            await there.fetches(2)
            await until(lambda: there.isr == (1, OTHER))
            answer = (await waiting).responses[0].partition_responses[0]
            assert answer.error_code == 0
            assert there.partition.log.high_watermark == 2
            await writer.close()

    run(test())


def test_a_batch_behind_a_refused_one_is_refused_until_its_sender_was_told(tmp_path):
    """Appending is possible again, but it would be out of order: a client gives up for that."""

    async def test():
        # Nobody must leave the ISR, nor come back, at another moment.
        by_hand = {
            "replica_lag_time_max_ms": "20000",
            "broker_refused_connection_fence_enable": "false",
        }
        async with place(tmp_path, **by_hand) as there:
            await there.create(min_insync_replicas="2")
            other = await there.create_topic("other")
            behind = there.node.broker.replica_manager.hosted("other", 0)
            batches = [
                batch(b"%d" % n, producer_id=7, producer_epoch=0, base_sequence=n) for n in range(4)
            ]

            async def sent(number: int) -> asyncio.Future[Any]:
                """A batch, and a record behind it, which tells that the batch was looked at."""
                found = there.client.send_nowait(produce(there.topic_id, batches[number]))
                end = behind.log.log_end_offset
                there.client.send_nowait(produce(other, batch(b"x")))
                await until(lambda: behind.log.log_end_offset == end + 1)
                return found

            for number in range(2):  # so that its shape is known
                answer = asyncio.ensure_future(
                    append(there.client, there.topic_id, batches[number])
                )
                await until(lambda end=number + 1: there.partition.log.log_end_offset == end)
                await there.fetches(number + 1)
                assert (await answer).error_code == 0
            late = await append(there.client, there.topic_id, batch(b"late"), acks=1)
            assert (late.error_code, late.base_offset) == (0, 2)
            waiting = there.client.send_nowait(produce(other, batch(b"holds answers back")))
            await until(lambda: behind.log.log_end_offset == 1)
            there.silence()
            await until(lambda: there.isr == (1,))
            first = await sent(2)
            await there.fetches(3)
            await until(lambda: there.isr == (1, OTHER))
            second = await sent(3)
            assert not waiting.done()
            await there.fetches(
                behind.log.log_end_offset, topic_id=other, leader_epoch=behind.leader_epoch
            )
            for refused in (first, second):
                answer = (await refused).responses[0].partition_responses[0]
                assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert there.partition.log.log_end_offset == 3
            for number in (2, 3):
                retried = await append(there.client, there.topic_id, batches[number], acks=1)
                assert (retried.error_code, retried.base_offset) == (0, number + 1)

    run(test())


def test_with_one_left_in_sync_and_one_enough_producers_go_on(tmp_path):
    async def test():
        async with place(tmp_path, replica_lag_time_max_ms=str(LAG_MS)) as there:
            await there.create(min_insync_replicas="1")
            answer = await append(there.client, there.topic_id, batch(b"x"))
            assert (answer.error_code, there.isr) == (0, (1,))
            assert (await append(there.client, there.topic_id, batch(b"y"))).error_code == 0

    run(test())


def test_a_follower_of_another_life_does_not_count(tmp_path):
    """KIP-903: broker 2 was registered anew, and its old fetch comes late."""

    async def test():
        async with place(tmp_path) as there:
            await there.create()
            await append(there.client, there.topic_id, batch(b"x"), acks=1)
            late = await there.fetches(1, broker_epoch=there.broker_epoch - 1)
            assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert there.partition.log.high_watermark == 0
            await there.fetches(1)
            assert there.partition.log.high_watermark == 1

    run(test())


@pytest.mark.parametrize(
    ("replica", "epoch_ahead", "code"),
    [
        (3, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, None, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (OTHER, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (OTHER, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_strangers_and_wrong_epochs_are_refused_and_change_nothing(
    tmp_path, replica, epoch_ahead, code
):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            await there.lead(OTHER)
            await there.lead(1)
            await append(there.client, there.topic_id, batch(b"x"), acks=1)
            epoch = -1 if epoch_ahead is None else there.partition.leader_epoch + epoch_ahead
            answer = await there.fetches(1, replica=replica, leader_epoch=epoch)
            assert answer.error_code == code
            assert values_of(answer) == []
            assert there.partition.log.high_watermark == 0

    run(test())


def test_a_waiting_follower_hears_soon_of_the_high_watermark(tmp_path):
    """KIP-1166: not only with the next records, or when its wait is over."""

    async def test():
        async with place(tmp_path) as there:
            await there.create()
            opened = await there.follower.send(there.fetch_request(0, session=(0, 0)))
            session = opened.session_id
            await append(there.client, there.topic_id, batch(b"x"), acks=1)
            read = await there.follower.send(there.fetch_request(0, session=(session, 1)))
            assert read.responses[0].partitions[0].high_watermark == 0
            answer = await there.follower.send(
                there.fetch_request(1, session=(session, 2), max_wait_ms=25_000)
            )
            assert answer.responses[0].partitions[0].high_watermark == 1

    run(test())


def test_a_new_leader_tells_no_offsets_before_it_knows_what_is_committed(tmp_path):
    """KIP-207: clients of the earlier leader may have seen more."""

    async def test():
        async with place(tmp_path) as there:
            await there.create()
            for value in (b"a", b"b"):
                await append(there.client, there.topic_id, batch(value), acks=1)
            await there.lead(OTHER)
            await there.lead(1)
            assert (await there.latest()).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await there.latest(4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
            await there.fetches(2)
            answer = await there.latest()
            assert (answer.error_code, answer.offset) == (0, 2)

    run(test())


def test_deleted_records_are_gone_when_they_are_gone_everywhere(tmp_path):
    async def test():
        async with place(tmp_path) as there:
            await there.create()
            await append(there.client, there.topic_id, batch(b"a", b"b", b"c"), acks=1)
            await there.fetches(3)

            async def delete(offset: int, timeout_ms: int) -> Any:
                part = DeleteRecordsPartition(partition_index=0, offset=offset)
                topic = DeleteRecordsTopic(name="t", partitions=[part])
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
                answer = await there.client.send(request)
                return answer.topics[0].partitions[0]

            assert (await delete(2, 50)).error_code == ErrorCode.REQUEST_TIMED_OUT
            waiting = asyncio.ensure_future(delete(2, 25_000))
            told = await there.fetches(3)
            assert told.log_start_offset == 2
            assert not waiting.done()
            await there.fetches(3, log_start=2)
            answer = await waiting
            assert (answer.error_code, answer.low_watermark) == (0, 2)

    run(test())


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_producer_that_waits_while_leadership_moves_hears_who_leads_and_where(tmp_path, version):
    """KIP-951, on the short way, which knows requests that it has seen before."""

    async def test():
        async with place(tmp_path) as there:
            await there.create()
            topic = there.topic_id if version >= 13 else "t"
            await there.client.send(produce(topic, batch(b"1"), acks=1), version=version)

            def write(client: Any, value: bytes, end: int) -> Any:
                request = produce(topic, batch(value))
                task = asyncio.ensure_future(client.send(request, version=version))
                return task, until(lambda: there.partition.log.log_end_offset == end)

            first, written = write(there.client, b"2", 2)
            await written
            await there.fetches(2)
            assert (await first).responses[0].partition_responses[0].error_code == 0
            shapes = len(there.node.broker.produce_shapes.shapes)
            writer = await connect(there.node)
            waiting, written = write(writer, b"3", 3)
            await written
            assert len(there.node.broker.produce_shapes.shapes) == shapes == 2, "not the short way"
            await there.lead(OTHER)
            epoch = there.partition.leader_epoch
            told_while_waiting = await waiting
            told_at_once = await writer.send(produce(topic, batch(b"4")), version=version)
            for answer in (told_while_waiting, told_at_once):
                refused = answer.responses[0].partition_responses[0]
                assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                leader = refused.current_leader
                places = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
                if version >= 10:
                    assert (leader.leader_id, leader.leader_epoch) == (OTHER, epoch)
                    assert places == [(OTHER, "127.0.0.1", 1)]
                else:
                    assert (leader.leader_id, places) == (-1, [])
            await writer.close()

    run(test())


@pytest.mark.parametrize("version", [15, 16, 18])
def test_a_consumer_at_the_wrong_leader_or_epoch_hears_who_leads_and_where(tmp_path, version):
    """KIP-951: both of the errors that say so."""

    async def test():
        async with place(tmp_path) as there:
            await there.create()
            await there.lead(OTHER)
            await there.lead(1)

            async def refusal(code: ErrorCode, leader: int, port: int, **given: Any) -> None:
                request = fetch(there.topic_id, **given)
                answer = await there.client.send(request, version=version)
                data = answer.responses[0].partitions[0]
                assert data.error_code == code
                told = data.current_leader
                places = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
                if version >= 16:
                    epoch = there.partition.leader_epoch
                    assert (told.leader_id, told.leader_epoch) == (leader, epoch)
                    assert places == [(leader, "127.0.0.1", port)]
                else:
                    assert (told.leader_id, places) == (-1, [])

            here = there.node.ports["PLAINTEXT"]
            old = there.partition.leader_epoch - 1
            await refusal(ErrorCode.FENCED_LEADER_EPOCH, 1, here, current_leader_epoch=old)
            await there.lead(OTHER)
            request = there.fetch_request(0, broker_epoch=-1)
            answer = await there.client.send(request, version=version)
            told = answer.responses[0].partitions[0]
            assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.node_endpoints == []  # a broker is told who, not where, as by Kafka's
            assert told.current_leader.leader_id == (OTHER if version >= 16 else -1)

    run(test())
