"""Requests that change very many items: carried out in bounded slices, in order, each item once.

What is counted is work, not time.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, decode_few, encode, encode_slices
from sparkraft.protocol.headers import request_header_version
from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k18_api_versions as k18
from sparkraft.protocol.messages import k21_delete_records as k21
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k26_end_txn as k26
from sparkraft.protocol.messages import k27_write_txn_markers as k27
from sparkraft.protocol.messages.headers import RequestHeader
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.security.acls import AclResourceType
from sparkraft.server.api import k00_produce
from sparkraft.server.api.registry import (
    EVERYTHING,
    REFUSALS_MAX,
    RequestContext,
    load_api,
    result_of,
)
from sparkraft.server.broker.envelope import seal_envelope
from sparkraft.server.network import loop_budget
from sparkraft.server.network.responses import ResponseQueue
from sparkraft.server.network.slices import SLICE_UNITS_MAX
from tests.server.harness import append, batch, connect, create_topic, node_in, run, until
from tests.server.test_large_requests import flooding
from tests.server.test_transaction_coordinator import Client
from tests.support.envelopes import response_in
from tests.support.sessions import Deciding, client_session

STEP_UNITS_MAX = 300
"""Units of one step at most: about a millisecond."""

MANY = 6_000
"""Items of one request: 100 ms of work and more."""


async def answered(node: Any, message: Any, version: int | None = None) -> tuple[Any, int, int]:
    """The response, how many slices it took, and the units of the largest slice so far."""
    connection = await connect(node)
    budget = node.listeners[0]._budget
    before = budget.slices
    response = await connection.send(message, version=version)
    await connection.close()
    return response, budget.slices - before, budget.slice_units_max


def produce_request(indexes: Any, records: bytes, acks: int = 1, topic: str = "t") -> Any:
    parts = [k00.PartitionProduceData(index=index, records=records) for index in indexes]
    data = k00.TopicProduceData(name=topic, partition_data=parts)
    return k00.ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[data])


def test_a_produce_for_very_many_partitions_is_decoded_appended_and_answered_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=2)
            await connection.close()
            request = produce_request([i % 3 for i in range(MANY)], batch(b"v"))
            response, slices, largest = await answered(node, request, version=12)
            parts = response.responses[0].partition_responses
            assert [part.index for part in parts] == [i % 3 for i in range(MANY)]
            offsets = [part.base_offset for part in parts]
            assert offsets[::3] == offsets[1::3] == list(range(len(offsets[::3])))
            assert {part.error_code for part in parts[2::3]} == {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
            assert slices > 40
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX

    run(test())


def frame(message: Any, version: int, correlation_id: int) -> bytes:
    key = ApiKey(message.SCHEMA.key)
    header = RequestHeader(
        request_api_key=int(key),
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="x",
    )
    body = encode(header, request_header_version(key, version)) + encode(message, version)
    return len(body).to_bytes(4, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_after_a_large_one_is_appended_after_all_of_its_batches(tmp_path, acks):
    """The second waits until the first has had its effects: its batch is the last of each log."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=2)
            await connection.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            large = produce_request([0, 1] * 3_000, batch(b"v"), acks=acks)
            small = produce_request([0], batch(b"last"), acks=acks)
            writer.write(frame(large, 9, 1) + frame(small, 9, 2) + frame(small, 9, 3))
            for number in (1, 2, 3):
                body = memoryview(await read_frame(reader))
                assert int.from_bytes(body[:4], "big") == number
                response = decode(k00.ProduceResponse, 9, body[5:])
                parts = response.responses[0].partition_responses
                assert {part.error_code for part in parts} == {0}
                last = parts[-2].base_offset if number == 1 else parts[0].base_offset
                assert last == 2_998 + number
            writer.close()

    run(test())


def test_a_large_produce_without_acks_is_carried_out_although_its_client_leaves(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            _, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            writer.write(frame(produce_request([0] * 5_000, batch(b"v"), acks=0), 9, 1))
            await writer.drain()
            budget, begun = node.listeners[0]._budget, node.listeners[0]._budget.slices
            await until(lambda: budget.slices >= begun + 5)
            writer.transport.abort()
            log = node.broker.replica_manager.hosted("t", 0).log
            await until(lambda: log.log_end_offset == 5_000)
            await connection.close()

    run(test())


def test_other_clients_are_served_beside_a_large_produce(tmp_path, monkeypatch):
    monkeypatch.setattr(loop_budget, "ITERATION_MS_MAX", 1)

    async def test():
        async with node_in(tmp_path) as node, flooding(node) as flood:
            connection = await connect(node)
            await create_topic(connection, "t")
            flood.send(ApiKey.PRODUCE, produce_request([0] * MANY, batch(b"v")), 9)
            begun, probes = flood.budget.slices, 0
            while flood.budget.slices < begun + 40:
                await connection.send(k18.ApiVersionsRequest(client_software_name="x"))
                probes += 1
            assert probes >= 3
            await connection.close()

    run(test())


def test_a_produce_of_few_partitions_is_decoded_at_once_whatever_its_bytes():
    few = encode(produce_request(range(999), bytes(10_000)), 9)
    found = decode_few(k00.ProduceRequest, 9, memoryview(few), 1_000)
    assert found is not None
    assert len(found.topic_data[0].partition_data) == 999
    many = encode(produce_request(range(1_000), b""), 9)
    assert decode_few(k00.ProduceRequest, 9, memoryview(many), 1_000) is None
    assert decode_few(k00.ProduceRequest, 9, memoryview(few[:-4]), 1_000) is None


def test_the_entries_of_refused_partitions_are_bounded():
    """Beyond the bound everything is refused that the client sends before it knows."""
    connection = SimpleNamespace(pipelined_refusals={})
    context = RequestContext(
        0, 9, 1, "x", session=client_session(), connection=connection, received_ms=0
    )
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for index in range(REFUSALS_MAX + 10):
        context.refuse_pipelined_after(("t", index), error)
    assert len(connection.pipelined_refusals) == REFUSALS_MAX + 1
    assert connection.pipelined_refusals[EVERYTHING] is error
    queue = ResponseQueue()
    queue.refusals.update(connection.pipelined_refusals)
    queue.forget_refusals(context)
    assert not queue.refusals


def test_everything_is_refused_after_too_many_refusals(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            context = RequestContext(
                0, 9, 1, "x", session=client_session(), received_ms=0,
                connection=SimpleNamespace(pipelined_refusals={EVERYTHING: error}),
            )  # fmt: skip
            response = k00_produce.handle(node.broker, context, produce_request([0], batch(b"v")))
            (part,) = response.responses[0].partition_responses
            assert part.error_code == error.code
            await connection.close()

    run(test())


# ---- DeleteRecords


def test_records_of_very_many_partitions_are_deleted_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            for _ in range(3):
                await append(connection, topic_id, batch(b"v"))
            parts = [
                k21.DeleteRecordsPartition(partition_index=index, offset=2)
                for index in [0, *range(1, MANY)]
            ]
            topic = k21.DeleteRecordsTopic(name="t", partitions=parts)
            request = k21.DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)
            response, slices, largest = await answered(node, request)
            found = response.topics[0].partitions
            assert [part.partition_index for part in found] == list(range(MANY))
            assert (found[0].error_code, found[0].low_watermark) == (0, 2)
            assert (found[1].error_code, found[1].low_watermark) == (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                -1,
            )
            assert slices > 40
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX
            starts = (tmp_path / "log-start-offset-checkpoint").read_text().splitlines()
            assert "t 0 2" in starts
            await connection.close()

    run(test())


# ---- transactions


async def a_transaction(node: Any, partitions: int) -> tuple[Any, Client]:
    connection = await connect(node)
    await create_topic(connection, "t", partitions=partitions)
    client = Client(connection, epochs=False)
    assert await client.init() == ErrorCode.NONE
    return connection, client


def add_request(client: Client, partitions: list[int]) -> Any:
    return k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=client.name,
        v3_and_below_producer_id=client.producer_id,
        v3_and_below_producer_epoch=client.epoch,
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=partitions)],
    )


def test_unknown_partitions_of_a_transaction_are_refused_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection, client = await a_transaction(node, 1)
            request = add_request(client, [*range(MANY), *range(5)])
            response, slices, largest = await answered(node, request, version=3)
            (topic,) = response.results_by_topic_v3_and_below
            codes = [part.partition_error_code for part in topic.results_by_partition]
            assert len(codes) == MANY
            assert codes[0] == ErrorCode.OPERATION_NOT_ATTEMPTED
            assert set(codes[1:]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert slices > 20
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX
            await connection.close()

    run(test())


def test_a_transaction_with_very_many_partitions_is_added_verified_and_committed(tmp_path):
    partitions = 200

    async def test():
        async with node_in(tmp_path) as node:
            connection, client = await a_transaction(node, partitions)
            every = list(range(partitions))
            response = (await answered(node, add_request(client, every), version=3))[0]
            (topic,) = response.results_by_topic_v3_and_below
            assert {part.partition_error_code for part in topic.results_by_partition} == {0}
            verify = k24.AddPartitionsToTxnRequest(
                transactions=[
                    k24.AddPartitionsToTxnTransaction(
                        transactional_id=client.name,
                        producer_id=client.producer_id,
                        producer_epoch=client.epoch,
                        verify_only=True,
                        topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=every)],
                    )
                ]
            )
            response, slices, largest = await answered(node, verify, version=5)
            (result,) = response.results_by_transaction
            found = result.topic_results[0].results_by_partition
            assert {part.partition_error_code for part in found} == {0}
            assert len(found) == partitions
            assert slices > 0
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX
            end = k26.EndTxnRequest(
                transactional_id=client.name,
                producer_id=client.producer_id,
                producer_epoch=client.epoch,
                committed=True,
            )
            assert (await connection.send(end, version=4)).error_code == 0
            replicas = node.broker.replica_manager
            logs = [replicas.hosted("t", index).log for index in every]
            await until(lambda: all(log.log_end_offset for log in logs))
            again = k22.InitProducerIdRequest(
                transactional_id=client.name, transaction_timeout_ms=60_000
            )
            assert (await client.retried(again)).error_code == 0
            ends = {log.log_end_offset for log in logs}
            assert ends == {1}, "one marker in each partition"
            await connection.close()

    run(test())


def test_markers_for_very_many_partitions_are_written_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=2)
            topic = k27.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(MANY)))
            marker = k27.WritableTxnMarker(
                producer_id=5, producer_epoch=0, transaction_result=True, topics=[topic]
            )
            request = k27.WriteTxnMarkersRequest(markers=[marker])
            response, slices, largest = await answered(node, request, version=1)
            (result,) = response.markers
            found = result.topics[0].partitions
            assert [part.partition_index for part in found] == list(range(MANY))
            assert [part.error_code for part in found[:3]] == [
                0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]  # fmt: skip
            assert slices > 20
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX
            await connection.close()

    run(test())


# ---- LeaveGroup


def test_strangers_leave_a_group_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            client = Client(connection, epochs=False)
            await client.coordinator_of("g", 0)
            await client.retried(k13.LeaveGroupRequest(group_id="g"))  # until its shard is loaded
            members = [k13.MemberIdentity(member_id=f"m-{n}") for n in range(MANY)]
            request = k13.LeaveGroupRequest(group_id="g", members=members)
            response, slices, largest = await answered(node, request)
            assert [one.member_id for one in response.members] == [f"m-{n}" for n in range(MANY)]
            assert {one.error_code for one in response.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
            assert slices > 10
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX
            await connection.close()

    run(test())


# ---- refusals


def test_a_refusal_of_very_many_items_comes_in_slices(tmp_path):
    async def test():
        rights = Deciding(lambda _operation, kind, _name: kind != AclResourceType.CLUSTER)
        async with node_in(tmp_path) as node:
            node.listeners[0].authorizer = rights
            topic = k27.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(MANY)))
            marker = k27.WritableTxnMarker(producer_id=5, producer_epoch=0, topics=[topic])
            request = k27.WriteTxnMarkersRequest(markers=[marker])
            response, slices, largest = await answered(node, request, version=1)
            found = response.markers[0].topics[0].partitions
            assert len(found) == MANY
            assert {part.error_code for part in found} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
            assert slices > 20
            assert largest < SLICE_UNITS_MAX + STEP_UNITS_MAX

    run(test())


def carried_out(steps: Any) -> tuple[list[int], Any]:
    """The units of each piece, and the result."""
    units = []
    while True:
        try:
            units.append(next(steps))
        except StopIteration as end:
            return units, end.value


def test_a_request_is_forwarded_in_pieces_with_equal_bytes():
    for key in (ApiKey.CREATE_TOPICS, ApiKey.PRODUCE, ApiKey.ELECT_LEADERS, ApiKey.METADATA):
        info = API_INFO[key]
        version = info.max_version
        request = many_items(info.request_class(), version)
        units, encoded = carried_out(encode_slices(request, version))
        assert encoded == encode(request, version)
        assert max(units) <= 2 * STEP_UNITS_MAX
        assert sum(units) >= 1_000 or key is ApiKey.ELECT_LEADERS, "numbers are written at once"


def test_a_large_request_of_a_client_reaches_the_controller_in_pieces(tmp_path):
    """Through the envelope of another broker, and so does its response."""
    names = [f"t-{n}" for n in range(1_000)]
    topics = [CreatableTopic(name=name, num_partitions=0, replication_factor=1) for name in names]
    context = RequestContext(
        int(ApiKey.CREATE_TOPICS), 7, 1, "x", session=client_session(), connection=None,
        received_ms=0,
    )  # fmt: skip
    request = CreateTopicsRequest(topics=topics, timeout_ms=1_000)
    envelope = result_of(seal_envelope(request, ApiKey.CREATE_TOPICS, 7, context))

    async def test():
        async with node_in(tmp_path) as node:
            controller = await connect(node, "CONTROLLER")
            answer = await controller.send(envelope)
            response = response_in(answer, ApiKey.CREATE_TOPICS, 7, 1)
            assert [each.name for each in response.topics] == names
            assert {each.error_code for each in response.topics} == {ErrorCode.INVALID_PARTITIONS}
            await controller.close()

    run(test())


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_COMMIT,
        ApiKey.DELETE_RECORDS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS,
    ],
)  # fmt: skip
def test_whole_refusals_are_made_in_pieces(key):
    api = load_api(key, controller_listener=False)
    info = API_INFO[key]
    lowest, highest = api.version_range()
    version = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}.get(key, highest)
    request = many_items(info.request_class(), version)
    steps = api.refuse(
        info.response_class(), request, version, KafkaError(ErrorCode.NOT_COORDINATOR)
    )
    units, response = carried_out(steps)
    assert max(units) <= STEP_UNITS_MAX
    assert sum(units) >= 1_000
    decoded = decode(info.response_class(), version, encode(response, version))
    assert decoded is not None
    assert lowest <= version


def many_items(cls: Any, version: int) -> Any:
    """A request with 1,000 elements in its deepest arrays."""
    request = cls()
    for field in cls.SCHEMA.fields:
        if field.name == "acks":
            request.acks = 1
        if field.kind != "array" or version not in field.versions:
            continue
        if isinstance(field.element, str):
            setattr(request, field.name, ["g"] * 1_000)
            continue
        inner = [each for each in field.element.SCHEMA.fields if each.kind == "array"]
        count = 1 if inner else 1_000
        elements = [field.element() for _ in range(count)]
        for each in inner:
            is_number = isinstance(each.element, str)
            setattr(
                elements[0], each.name, [n if is_number else each.element() for n in range(1_000)]
            )
        setattr(request, field.name, elements)
    return request
