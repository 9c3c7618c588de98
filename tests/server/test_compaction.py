"""A node compacts its topics: in the background, at its pace, and says what it can't."""

import errno
import logging

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.records.record import BatchBuilder, decode_records
from tests.server.harness import (
    NOW_MS,
    append,
    connect,
    create_topic,
    fetch,
    node_in,
    run,
    until,
)

QUICK = {"log_cleaner_backoff_ms": "5", "log_cleaner_min_cleanable_ratio": "0.01"}
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


def keyed(*records):
    builder = BatchBuilder()
    for key, value in records:
        builder.append(NOW_MS, key, value)
    return builder.build()


async def read_all(connection, topic_id, end):
    found, offset = [], 0
    while offset < end:
        answer = await connection.send(fetch(topic_id, offset))
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0
        for header, view in batches(data):
            found += [(r.offset, r.key, r.value) for r in decode_records(view)]
            offset = header.next_offset
    return sorted(set(found))


def batches(data):
    from sparkraft.records.batch import iter_batches

    return iter_batches(data.records)


def test_a_compacted_topic_keeps_the_last_value_of_each_key_while_it_is_used(tmp_path):
    async def test():
        async with node_in(tmp_path, **QUICK) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **COMPACT)
            log = node.broker.replica_manager.get_log("t", 0)
            for index in range(30):
                answer = await append(
                    connection, topic_id, keyed((b"k%d" % (index % 3), b"%d" % index))
                )
                assert answer.error_code == 0
                if index % 10 == 9:
                    log.roll()
            expected = [(27 + n, b"k%d" % n, b"%d" % (27 + n)) for n in range(3)]
            await until(lambda: node.broker.log_manager.directories[0].cleaned == {("t", 0): 30})
            assert await read_all(connection, topic_id, 30) == expected
            checkpoint = tmp_path / "cleaner-offset-checkpoint"
            # It is written after each cleaning, so an earlier one may be there first.
            await until(lambda: checkpoint.exists() and checkpoint.read_text() == "0\n1\nt 0 30\n")
            last = node.broker.compaction.last
            assert last is not None
            assert last.took_ms >= 0
            assert 0 < last.recopied_percent < 100
            await connection.close()
        async with node_in(tmp_path, **QUICK) as node:
            connection = await connect(node)
            assert await read_all(connection, topic_id, 30) == expected
            await connection.close()

    run(test())


def test_the_offsets_topic_is_compacted_and_groups_keep_their_offsets(tmp_path):
    def commit(offset):
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
        return OffsetCommitRequest(group_id="g", topics=topics)

    async def committed(connection):
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        answer = await connection.send(request, version=9)
        return answer.groups[0].topics[0].partitions[0].committed_offset

    async def found(connection):
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        return (await connection.send(request)).coordinators[0].error_code == 0

    async def test():
        async with node_in(tmp_path, **QUICK) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await until(lambda: found(connection))
            await until(lambda: committed_well(connection, 0))
            index = node.broker.groups.partition_for("g")
            log = node.broker.replica_manager.get_log("__consumer_offsets", index)
            for offset in range(50):
                assert await committed_well(connection, offset)
            log.roll()
            key = ("__consumer_offsets", index)
            await until(lambda: key in node.broker.log_manager.directories[0].cleaned)
            left = sum(h.records_count for h, _ in log.read_batches(0, log.log_end_offset))
            assert left == 1
            await connection.close()
        async with node_in(tmp_path, **QUICK) as node:
            connection = await connect(node)
            await until(lambda: found(connection))
            await until(lambda: is_loaded(connection))
            assert await committed(connection) == 49
            await connection.close()

    async def is_loaded(connection):
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        return (await connection.send(request, version=9)).groups[0].error_code == 0

    async def committed_well(connection, offset):
        answer = await connection.send(commit(offset), version=9)
        return answer.topics[0].partitions[0].error_code == 0

    run(test())


def test_a_damaged_log_is_named_and_left_and_others_are_compacted(tmp_path, caplog):
    async def test():
        overrides = {**QUICK, "log_cleaner_threads": "0"}
        async with node_in(tmp_path, **overrides) as node:
            connection = await connect(node)
            ids = [await create_topic(connection, name, **COMPACT) for name in ("bad", "good")]
            for topic_id in ids:
                for index in range(8):
                    await append(connection, topic_id, keyed((b"k", b"value %d" % index)))
            for name in ("bad", "good"):
                node.broker.replica_manager.get_log(name, 0).roll()
            path = tmp_path / "bad-0" / "00000000000000000000.log"
            data = bytearray(path.read_bytes())
            data[70] ^= 1
            path.write_bytes(data)
            with caplog.at_level(logging.WARNING):
                await set_dynamic(connection, "log.cleaner.threads", "2")
                await until(lambda: node.broker.compaction.manager.uncleanable)
            assert list(node.broker.compaction.manager.uncleanable) == [("bad", 0)]
            assert "Cannot compact bad-0" in caplog.text
            cleaned = node.broker.log_manager.directories[0].cleaned
            await until(lambda: cleaned == {("good", 0): 8})
            assert path.read_bytes() == data
            await connection.close()

    run(test())


async def set_dynamic(connection, key, value):
    from sparkraft.protocol.messages.k44_incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )
    answer = await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_the_rate_is_kept(tmp_path):
    """10 KB read twice and a little written at 100 KB/s: a good fifth of a second."""

    async def test():
        rate = {"log_cleaner_io_max_bytes_per_second": "100000", "log_cleaner_io_buffer_size": "9"}
        async with node_in(tmp_path, **QUICK, **rate) as node:
            slept = []
            compaction = node.broker.compaction
            pay = compaction._pay

            async def noted(size):
                before = compaction._free_at_ms
                await pay(size)
                slept.append((size, compaction._free_at_ms - before))

            compaction._pay = noted
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **COMPACT)
            for _ in range(10):
                await append(connection, topic_id, keyed((b"k", b"v" * 1000)))
            node.broker.replica_manager.get_log("t", 0).roll()
            await until(lambda: node.broker.log_manager.directories[0].cleaned)
            assert sum(size for size, _ in slept) > 20_000
            assert all(waited >= size / 100 - 1e-6 for size, waited in slept)
            await connection.close()

    run(test())


SLOW = {"log_cleaner_io_max_bytes_per_second": "20000", "log_cleaner_io_buffer_size": "9"}


def test_a_log_that_goes_away_while_it_is_compacted_is_no_fault(tmp_path):
    async def test():
        async with node_in(tmp_path, **QUICK, **SLOW) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **COMPACT)
            for _ in range(10):
                await append(connection, topic_id, keyed((b"k", b"v" * 1000)))
            log = node.broker.replica_manager.get_log("t", 0)
            compaction = node.broker.compaction
            log.roll()
            await until(lambda: compaction._running)
            topics = [DeleteTopicState(name="t")]
            await connection.send(DeleteTopicsRequest(topics=topics, timeout_ms=10_000))
            await until(lambda: not compaction._running)
            assert not node.broker.log_manager.offline_directories
            assert compaction.manager.uncleanable == {}
            await connection.close()

    run(test())


def test_a_disk_that_fails_meanwhile_goes_offline(tmp_path):
    async def test():
        async with node_in(tmp_path, **QUICK) as node:
            faults = []
            node.broker.compaction._on_storage_fault = faults.append
            node.env.disk.fault = lambda _, path: errno.EIO if path.endswith(".cleaned") else 0
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **COMPACT)
            for _ in range(3):
                await append(connection, topic_id, keyed((b"k", b"v")))
            node.broker.replica_manager.get_log("t", 0).roll()
            await until(lambda: faults)
            assert str(faults[0]).startswith(f"clean t-0 in {tmp_path}")
            await connection.close()

    run(test())


def test_nothing_is_compacted_where_it_is_switched_off(tmp_path):
    async def test():
        async with node_in(tmp_path, **QUICK, log_cleaner_enable="false") as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **COMPACT)
            for index in range(5):
                await append(connection, topic_id, keyed((b"k", b"%d" % index)))
            node.broker.replica_manager.get_log("t", 0).roll()
            await node.broker.compaction.run()
            assert len(await read_all(connection, topic_id, 5)) == 5
            await connection.close()

    run(test())
