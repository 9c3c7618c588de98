"""Markers of a transaction coordinator elsewhere: WriteTxnMarkers, read_committed, producers."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparkraft.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from sparkraft.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from sparkraft.records.control import ControlType, parse_control_key
from sparkraft.records.record import decode_records
from sparkraft.records.validate import Origin
from tests.server.harness import batch, connect, create_topic, fetch, node_in, run, values_of

PRODUCER = 4000


def data(*values, epoch=0, sequence=0):
    return batch(
        *values,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def append(node, topic, records):
    replicas = node.broker.replica_manager
    return replicas.append_to(replicas.leader(topic, 0), records, acks=-1, origin=Origin.CLIENT)


async def open_transaction(node, topic, *values, **given):
    """What a verified transactional Produce leaves in the log."""
    return append(node, topic, data(*values, **given))


async def mark(connection, *topics, commit=False, epoch=0, coordinator_epoch=1, **given):
    """Error codes of one marker by (topic, partition)."""
    producer_id = given.pop("producer_id", PRODUCER)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=given.pop("transaction_version", 0),
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in topics],
    )
    answer = await connection.send(WriteTxnMarkersRequest(markers=[marker]), **given)
    assert [result.producer_id for result in answer.markers] == [producer_id]
    return {
        (topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in answer.markers[0].topics
        for part in topic.partitions
    }


async def read_committed(connection, topic_id, offset=0, **given):
    answer = await connection.send(fetch(topic_id, offset, isolation_level=1, **given))
    return answer.responses[0].partitions[0]


async def latest(connection, topic, isolation):
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    return (await connection.send(request)).topics[0].partitions[0].offset


@pytest.mark.parametrize("version", [1, 2])
def test_an_aborted_transaction_is_told_to_read_committed_consumers(tmp_path, version):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await open_transaction(node, "t", b"a", b"b")
            hidden = await read_committed(connection, topic_id)
            assert (hidden.high_watermark, hidden.last_stable_offset) == (2, 0)
            assert (values_of(hidden), hidden.aborted_transactions) == ([], [])
            assert (await latest(connection, "t", 0), await latest(connection, "t", 1)) == (2, 0)
            assert await mark(connection, "t", version=version) == {("t", 0): ErrorCode.NONE}
            seen = await read_committed(connection, topic_id)
            assert (seen.high_watermark, seen.last_stable_offset) == (3, 3)
            told = [(each.producer_id, each.first_offset) for each in seen.aborted_transactions]
            assert told == [(PRODUCER, 0)]
            assert values_of(seen) == [b"a", b"b"]
            (marker,) = batches_of(await read_committed(connection, topic_id, 2))
            (record,) = decode_records(marker)
            assert parse_control_key(record.key) is ControlType.ABORT
            plain = (await connection.send(fetch(topic_id))).responses[0].partitions[0]
            assert plain.aborted_transactions is None
            await connection.close()

    run(test())


def test_a_marker_without_partitions_is_not_answered(tmp_path):
    """As in Kafka, whose answer has the producers with a result only."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            empty = WritableTxnMarker(producer_id=PRODUCER + 1)
            full = WritableTxnMarker(
                producer_id=PRODUCER,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            )
            for markers, answered in (([empty], []), ([empty, full], [PRODUCER])):
                answer = await connection.send(WriteTxnMarkersRequest(markers=markers))
                assert [one.producer_id for one in answer.markers] == answered
            await connection.close()

    run(test())


def batches_of(partition_data):
    from sparkraft.records.batch import iter_batches

    return [view for _, view in iter_batches(partition_data.records)]


def test_a_committed_transaction_is_read_and_nothing_is_told(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await open_transaction(node, "t", b"a")
            await mark(connection, "t", commit=True)
            seen = await read_committed(connection, topic_id)
            assert values_of(seen)[0] == b"a"
            assert (seen.aborted_transactions, seen.last_stable_offset) == ([], 2)
            await connection.close()

    run(test())


def test_markers_that_are_late_or_lost_are_refused(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await open_transaction(node, "t", b"a", epoch=2)

            async def error_of(topic="t", **given):
                return (await mark(connection, topic, **given))[topic, 0]

            assert await error_of("nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await error_of(epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
            late = ErrorCode.INVALID_PRODUCER_EPOCH
            assert await error_of(epoch=2, transaction_version=2) == late
            assert await error_of(epoch=2, coordinator_epoch=9) == ErrorCode.NONE
            fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert await error_of(epoch=2, coordinator_epoch=8) == fenced
            both = await mark(connection, "t", "nowhere", epoch=2, coordinator_epoch=9)
            assert both == {
                ("t", 0): ErrorCode.NONE,
                ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            end = await latest(connection, "t", 0)
            for wrong in ({"producer_id": -1}, {"epoch": -1}):
                assert await error_of(**wrong) == ErrorCode.INVALID_REQUEST
            assert await error_of(producer_id=7, coordinator_epoch=-2) == fenced
            assert await latest(connection, "t", 0) == end
            node.broker.replica_manager.hosted("t", 0).is_leader = False
            assert await error_of(epoch=2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await connection.close()

    run(test())


def test_open_transactions_are_described(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            append(node, "t", batch(b"x"))
            await open_transaction(node, "t", b"a", b"b")

            async def producer():
                request = DescribeProducersRequest(
                    topics=[TopicRequest(name="t", partition_indexes=[0])]
                )
                answer = await connection.send(request)
                (found,) = answer.topics[0].partitions[0].active_producers
                return found

            found = await producer()
            assert (found.current_txn_start_offset, found.coordinator_epoch) == (1, -1)
            assert found.last_sequence == 1
            # A follower describes its own producer state, as in Kafka.
            node.broker.replica_manager.hosted("t", 0).is_leader = False
            assert await producer() == found
            node.broker.replica_manager.hosted("t", 0).is_leader = True
            await mark(connection, "t", coordinator_epoch=6)
            found = await producer()
            assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 6)
            await connection.close()

    run(test())


def test_transactions_outlive_a_restart(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await open_transaction(node, "t", b"a")
            await mark(connection, "t")
            await open_transaction(node, "t", b"open", sequence=1)
            await connection.close()
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            seen = await read_committed(connection, topic_id)
            assert (seen.last_stable_offset, seen.high_watermark) == (2, 3)
            told = [(each.producer_id, each.first_offset) for each in seen.aborted_transactions]
            assert told == [(PRODUCER, 0)]
            assert await mark(connection, "t", commit=True) == {("t", 0): ErrorCode.NONE}
            assert await latest(connection, "t", 1) == 4
            await connection.close()

    run(test())
