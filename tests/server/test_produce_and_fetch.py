"""Produce and Fetch against a whole node: acks, errors, sessions, long polls, limits."""

import asyncio
import os
import threading
import time

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages.k01_fetch import FetchRequest, FetchTopic, ReplicaState
from sparkraft.protocol.messages.k19_create_topics import CreateTopicsRequest
from sparkraft.records.batch import HEADER, BatchHeader
from sparkraft.records.crc import crc32c
from sparkraft.storage.mapped import CAN_MAP
from tests.server.harness import (
    NOW_MS,
    PATIENCE_S,
    FaultyDisk,
    append,
    batch,
    connect,
    create_topic,
    fetch,
    make_env,
    node_in,
    produce,
    run,
    until,
    values_of,
)


async def read(connection, topic_id, offset=0, **given):
    answer = await connection.send(fetch(topic_id, offset, **given))
    return answer.responses[0].partitions[0]


def resealed(raw, **changes):
    """`raw` with header fields changed and its CRC made right again."""
    header = BatchHeader._make(HEADER.unpack_from(raw))._replace(**changes)
    data = bytearray(HEADER.pack(*header) + raw[61:])
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("version", [*range(3, 14)])
def test_what_is_produced_is_fetched_in_every_version_also_by_the_short_way(tmp_path, version):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            topic = topic_id if version >= 13 else "t"
            for number in range(4):  # from the second on the broker knows the request's shape
                answer = await append(
                    connection, topic, batch(b"a%d" % number, b"b"), version=version
                )
                assert (answer.error_code, answer.base_offset) == (0, 2 * number)
                assert answer.index == 0
                if version >= 5:
                    assert answer.log_start_offset == 0
            if version >= 7:
                assert len(node.broker.produce_shapes.shapes) == 1
            data = await read(connection, topic_id)
            assert values_of(data) == [b"a0", b"b", b"a1", b"b", b"a2", b"b", b"a3", b"b"]
            assert (data.high_watermark, data.log_start_offset) == (8, 0)
            await connection.close()

    run(test())


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_reads(tmp_path, version):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"x"))
            request = fetch(topic_id)
            if version < 13:
                request.topics[0].topic = "t"
            answer = await connection.send(request, version=version)
            assert values_of(answer.responses[0].partitions[0]) == [b"x"]
            await connection.close()

    run(test())


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            connection.send_without_answer(produce(topic_id, batch(b"x"), acks=0))
            assert values_of(await read(connection, topic_id)) == [b"x"]
            connection.send_without_answer(produce(topic_id, batch(b"x"), acks=0, partition=9))
            await connection.wait_closed()

    run(test())


def test_errors_stand_at_their_partitions(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            good = batch(b"value")

            async def error_of(records=good, topic=topic_id, **given):
                answer = await append(connection, topic, records, **given)
                assert answer.base_offset == -1
                return ErrorCode(answer.error_code)

            corrupt = bytearray(good)
            corrupt[-1] ^= 1
            assert await error_of(bytes(corrupt)) == ErrorCode.CORRUPT_MESSAGE
            assert await error_of(good[:40]) == ErrorCode.INVALID_RECORD
            assert await error_of(b"") == ErrorCode.INVALID_RECORD
            assert await error_of(None) == ErrorCode.INVALID_RECORD
            old = bytearray(good)
            old[16] = 1
            assert await error_of(bytes(old)) == ErrorCode.INVALID_RECORD
            lying = resealed(good, records_count=7)
            assert await error_of(lying) == ErrorCode.INVALID_RECORD
            lying = resealed(good, last_offset_delta=-1, records_count=0)
            assert await error_of(lying) == ErrorCode.INVALID_RECORD
            control = resealed(good, attributes=0x20)
            assert await error_of(control) == ErrorCode.INVALID_RECORD
            assert await error_of(good + good) == ErrorCode.INVALID_RECORD
            assert await error_of(batch(bytes(2 << 20))) == ErrorCode.MESSAGE_TOO_LARGE
            assert await error_of(acks=2) == ErrorCode.INVALID_REQUIRED_ACKS
            assert await error_of(partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown = Uuid(b"0123456789abcdef")
            assert await error_of(topic=unknown) == ErrorCode.UNKNOWN_TOPIC_ID
            assert await error_of(topic="no", version=12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = await append(connection, topic_id, good)
            assert (answer.error_code, answer.base_offset) == (0, 0)
            await connection.close()

    run(test())


def test_a_known_shape_gives_the_same_errors_as_an_unknown_one(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            for _ in range(2):
                assert (await append(connection, topic_id, batch(b"x"))).error_code == 0
            corrupt = bytearray(batch(b"x"))
            corrupt[-1] ^= 1
            answer = await append(connection, topic_id, bytes(corrupt))
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            assert answer.error_message
            transactional = resealed(batch(b"x"), attributes=0x10)
            answer = await append(connection, topic_id, transactional)
            assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await connection.close()

    run(test())


def test_shapes_of_a_deleted_topic_are_of_no_use(tmp_path):
    async def test():
        from sparkraft.protocol.messages.k20_delete_topics import (
            DeleteTopicsRequest,
            DeleteTopicState,
        )

        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            for _ in range(2):
                assert (await append(connection, "t", batch(b"x"), version=9)).error_code == 0
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            await connection.send(request)
            answer = await append(connection, "t", batch(b"x"), version=9)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await create_topic(connection, "t")
            answer = await append(connection, "t", batch(b"x"), version=9)
            assert (answer.error_code, answer.base_offset) == (0, 0)
            await connection.close()

    run(test())


def test_an_idempotent_producer_gets_the_original_offset_for_a_duplicate(tmp_path):
    async def test():
        from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest

        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            ids = [
                await connection.send(InitProducerIdRequest(transactional_id=None)) for _ in "ab"
            ]
            assert ids[0].producer_id != ids[1].producer_id
            assert [i.error_code for i in ids] == [0, 0]

            def numbered(sequence):
                return batch(
                    b"x", producer_id=ids[0].producer_id, producer_epoch=0, base_sequence=sequence
                )

            offsets = [
                (await append(connection, topic_id, numbered(s))).base_offset for s in (0, 1, 0, 1)
            ]
            assert offsets == [0, 1, 0, 1]
            answer = await append(connection, topic_id, numbered(5))
            assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            await connection.close()

    run(test())


def test_flush_messages_1_syncs_before_the_answer_and_shares_syncs(tmp_path):
    async def test():
        disk = FaultyDisk()
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", flush_messages="1")

            def synced():
                return sum("/t-0/" in path and path.endswith(".log") for path in disk.fsyncs)

            for number in range(3):
                before = synced()
                answer = await append(connection, topic_id, batch(b"x"), acks=1)
                assert (answer.error_code, answer.base_offset) == (0, number)
                assert synced() == before + 1
            before = synced()
            answers = [connection.send_nowait(produce(topic_id, batch(b"y"))) for _ in range(100)]
            for answer in answers:
                assert (await answer).responses[0].partition_responses[0].error_code == 0
            assert synced() - before < 50, "each of a hundred appends was synced by itself"
            assert (await read(connection, topic_id)).high_watermark == 103
            await connection.close()

    run(test())


def test_what_comes_right_after_an_fsync_is_seen_though_it_asks_for_none(tmp_path):
    """The disk is done, and the loop has not heard of it yet: then an append needs no fsync."""

    class Slow(FaultyDisk):
        begun, go_on = threading.Event(), threading.Event()

        def fsync(self, path: str) -> None:
            if "/t-0/" in path and path.endswith(".log"):
                self.begun.set()
                self.go_on.wait(PATIENCE_S)
            super().fsync(path)

    async def test():
        disk = Slow()
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", flush_messages="3")
            partition = node.broker.replica_manager.leader("t", 0)
            first = append(connection, topic_id, batch(b"a", b"b", b"c"))
            answer = asyncio.ensure_future(first)
            await until(disk.begun.is_set)
            disk.go_on.set()
            while partition.log.recovery_point < 3:
                time.sleep(0.001)  # noqa: ASYNC251 (the loop must not hear of it)
            info = partition.append(batch(b"d"), acks=1, now_ms=NOW_MS)
            assert partition.durable(info, acks=1) is None
            assert (await answer).error_code == 0
            await until(lambda: partition.log.high_watermark == 4)
            await connection.close()

    run(test())


def test_a_long_poll_wakes_when_a_record_comes(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            reader, writer = await connect(node), await connect(node)
            topic_id = await create_topic(writer, "t")
            waiting = reader.send_nowait(fetch(topic_id, max_wait_ms=25_000))
            await append(writer, topic_id, batch(b"woken"))
            data = (await waiting).responses[0].partitions[0]
            assert values_of(data) == [b"woken"]
            await reader.close()
            await writer.close()

    run(test())


def test_a_long_poll_waits_for_min_bytes_and_no_longer_than_max_wait(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            reader, writer = await connect(node), await connect(node)
            topic_id = await create_topic(writer, "t")
            waiting = reader.send_nowait(fetch(topic_id, max_wait_ms=25_000, min_bytes=1000))
            await append(writer, topic_id, batch(b"small"))
            await append(writer, topic_id, batch(bytes(1000)))
            data = (await waiting).responses[0].partitions[0]
            assert values_of(data) == [b"small", bytes(1000)]
            empty = await reader.send(fetch(topic_id, 2, max_wait_ms=20))
            assert values_of(empty.responses[0].partitions[0]) == []
            await reader.close()
            await writer.close()

    run(test())


def test_a_parked_fetch_dies_with_its_connection(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            reader, writer = await connect(node), await connect(node)
            topic_id = await create_topic(writer, "t")
            waiting = reader.send_nowait(fetch(topic_id, max_wait_ms=25_000))
            hosted = node.broker.replica_manager.hosted("t", 0)
            await until(lambda: hosted.waiters)
            reader.abort("the test leaves")
            with pytest.raises(KafkaError):
                await waiting
            await until(lambda: not hosted.waiters)
            assert (await append(writer, topic_id, batch(b"x"))).error_code == 0
            await writer.close()

    run(test())


def test_deleting_a_topic_ends_the_fetches_that_wait_for_it(tmp_path):
    async def test():
        from sparkraft.protocol.messages.k20_delete_topics import (
            DeleteTopicsRequest,
            DeleteTopicState,
        )

        async with node_in(tmp_path) as node:
            reader, writer = await connect(node), await connect(node)
            topic_id = await create_topic(writer, "t")
            waiting = reader.send_nowait(fetch(topic_id, max_wait_ms=25_000))
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            await writer.send(request)
            data = (await waiting).responses[0].partitions[0]
            assert data.error_code in {
                ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            }  # fmt: skip
            await reader.close()
            await writer.close()

    run(test())


def test_fetch_errors_stand_at_their_partitions(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"x"))

            async def error_of(offset=0, topic=topic_id, **given):
                return ErrorCode((await read(connection, topic, offset, **given)).error_code)

            assert await error_of(1) == ErrorCode.NONE
            assert await error_of(2) == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await error_of(-1) == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await error_of(partitions=(5,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await error_of(topic=Uuid(bytes(15) + b"x")) == ErrorCode.UNKNOWN_TOPIC_ID
            assert await error_of(current_leader_epoch=7) == ErrorCode.UNKNOWN_LEADER_EPOCH
            await connection.close()

    run(test())


def test_byte_limits_are_kept_except_for_the_first_batch(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=3)
            for partition in range(3):
                for _ in range(3):
                    await append(connection, topic_id, batch(bytes(10_000)), partition=partition)
            answer = await connection.send(
                fetch(topic_id, partitions=(0, 1, 2), max_bytes=100, partition_max_bytes=100)
            )
            sizes = [len(p.records or b"") for p in answer.responses[0].partitions]
            assert sizes[0] > 10_000, "the first batch comes whole"
            assert sizes[1:] == [0, 0]
            answer = await connection.send(
                fetch(topic_id, partitions=(0, 1, 2), partition_max_bytes=11_000)
            )
            assert [len(values_of(p)) for p in answer.responses[0].partitions] == [1, 1, 1]
            await connection.close()

    run(test())


def test_a_session_answers_only_what_is_new(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=3)
            first = await connection.send(
                fetch(topic_id, partitions=(0, 1, 2), session_id=0, session_epoch=0)
            )
            assert first.session_id > 0
            assert len(first.responses[0].partitions) == 3

            def incremental(epoch, topics=(), **given):
                return FetchRequest(
                    session_id=first.session_id, session_epoch=epoch, topics=list(topics),
                    max_wait_ms=0, min_bytes=1, **given,
                )  # fmt: skip

            nothing = await connection.send(incremental(1))
            assert (nothing.error_code, nothing.responses) == (0, [])
            await append(connection, topic_id, batch(b"x"), partition=1)
            news = await connection.send(incremental(2))
            assert [p.partition_index for p in news.responses[0].partitions] == [1]
            moved = fetch(topic_id, 1, partitions=(1,)).topics
            nothing = await connection.send(incremental(3, moved))
            assert nothing.responses == []
            await append(connection, topic_id, batch(b"x"), partition=2)
            from sparkraft.protocol.messages.k01_fetch import ForgottenTopic

            forgotten = [ForgottenTopic(topic_id=topic_id, partitions=[2])]
            nothing = await connection.send(incremental(4, forgotten_topics_data=forgotten))
            assert nothing.responses == []
            wrong = await connection.send(incremental(4))
            assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            gone = FetchRequest(session_id=12345, session_epoch=1, max_wait_ms=0, min_bytes=1)
            assert (await connection.send(gone)).error_code == (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            )
            assert len(node.broker.fetch_sessions) == 1
            await connection.send(
                FetchRequest(
                    session_id=first.session_id, session_epoch=-1, max_wait_ms=0, min_bytes=1,
                    topics=[FetchTopic(topic_id=topic_id)],
                )
            )  # fmt: skip
            assert len(node.broker.fetch_sessions) == 0
            await connection.close()

    run(test())


def test_a_session_parks_with_partitions_it_was_not_told_again(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            reader, writer = await connect(node), await connect(node)
            topic_id = await create_topic(writer, "t", partitions=2)
            first = await reader.send(
                fetch(topic_id, partitions=(0, 1), session_id=0, session_epoch=0)
            )
            waiting = reader.send_nowait(
                FetchRequest(
                    session_id=first.session_id, session_epoch=1, max_wait_ms=25_000, min_bytes=1
                )
            )
            await append(writer, topic_id, batch(b"x"), partition=1)
            (topic,) = (await waiting).responses
            assert [p.partition_index for p in topic.partitions] == [1]
            await reader.close()
            await writer.close()

    run(test())


def test_sessions_have_a_bound_and_without_one_fetches_still_work(tmp_path):
    async def test():
        slots = {"max_incremental_fetch_session_cache_slots": "2"}
        async with node_in(tmp_path, **slots) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            ids = [
                (await connection.send(fetch(topic_id, session_epoch=0))).session_id
                for _ in range(3)
            ]
            assert ids[0] > 0
            assert ids[1] > 0
            assert ids[2] == 0
            await connection.close()

    run(test())


def test_records_are_counted_by_default(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            lying = resealed(batch(b"x"), records_count=3, last_offset_delta=2)
            answer = await append(connection, topic_id, lying)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            await connection.close()

    run(test())


def test_a_compacted_topic_wants_keys_and_says_which_records_lack_them(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", cleanup_policy="compact")
            answer = await append(connection, topic_id, batch(b"x"))
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert [e.batch_index for e in answer.record_errors] == [0]
            assert (await append(connection, topic_id, batch(b"x", key=b"k"))).error_code == 0
            await connection.close()

    run(test())


def test_min_insync_replicas_above_what_there_is_counts_only_replicas(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", min_insync_replicas="3")
            assert (await append(connection, topic_id, batch(b"x"))).error_code == 0
            await connection.close()

    run(test())


def test_internal_topics_refuse_clients(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic = node.broker.groups.topic_to_create()
            await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            answer = await append(connection, "__consumer_offsets", batch(b"x"), version=9)
            assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            await connection.close()

    run(test())


@pytest.mark.skipif(not CAN_MAP, reason="files are mapped on Linux alone")
def test_consumers_are_sent_what_lies_in_the_page_cache_and_followers_what_was_read(tmp_path):
    """Whole, across windows, segments and log starts; nothing stays mapped that nobody reads."""

    async def test():
        overrides = {"replica.high.watermark.checkpoint.interval.ms": "100"}
        async with node_in(tmp_path, **overrides) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **{"segment.bytes": "9000000"})
            values = [b"%d" % number + os.urandom(300_000) for number in range(60)]
            for value in values:
                assert (await append(connection, topic_id, batch(value))).error_code == 0
            mapped_once = 0
            for step in (1_000_000, 700_000):
                found, offset = [], 0
                while offset < 60:
                    data = await read(
                        connection, topic_id, offset, partition_max_bytes=step, max_bytes=step
                    )
                    whole = values_of(data)
                    assert whole
                    found += whole
                    offset += len(whole)
                    mapped_once = max(mapped_once, maps_of("t-0"))
                assert found == values
            assert mapped_once > 2
            await until(lambda: maps_of("t-0") == 0)
            answer = await connection.send(
                fetch(topic_id, 0, replica_state=ReplicaState(replica_id=-2), max_bytes=1_000_000)
            )
            assert values_of(answer.responses[0].partitions[0])[0] == values[0]
            assert maps_of("t-0") == 0

    run(test())


def maps_of(name):
    """How many parts of a partition's files this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sum(f"/{name}/" in line for line in maps)
