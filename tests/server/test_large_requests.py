"""Requests that ask for very much: worked on in bounded slices, from shared encodings, while other
clients are served. What is counted is work, not time."""

import asyncio
from collections.abc import Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import Encoded, decode, encode, encode_elements
from sparkraft.protocol.headers import request_header_version
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k02_list_offsets as k02
from sparkraft.protocol.messages import k03_metadata as k03
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k18_api_versions as k18
from sparkraft.protocol.messages import k32_describe_configs as k32
from sparkraft.protocol.messages import k35_describe_log_dirs as k35
from sparkraft.protocol.messages import k61_describe_producers as k61
from sparkraft.protocol.messages import k75_describe_topic_partitions as k75
from sparkraft.protocol.messages.headers import RequestHeader
from sparkraft.security.acls import AclResourceType
from sparkraft.server.api.registry import RequestContext, load_api
from sparkraft.server.network import loop_budget
from sparkraft.server.network.slices import SLICE_UNITS_MAX
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.support.sessions import Deciding, client_session

STEP_UNITS_MAX = 1_000
"""Units of one step at most: 4 ms. The largest is a broker's configs."""


def work_on(node: Any, key: ApiKey, request: Any, version: int, authorizer: Any = None):
    """The units of each step of a handler that awaits nothing, and the buffers of its response."""
    api = load_api(key, controller_listener=False)
    assert api is not None
    context = RequestContext(
        int(key), version, 1, "test", session=client_session(authorizer=authorizer),
        connection=SimpleNamespace(takes_views=False, response_room=1 << 30), received_ms=0,
    )  # fmt: skip
    steps = api.call(node.broker, context, request)
    units = []
    while True:
        try:
            units.append(next(steps))
        except StopIteration as end:
            return units, end.value


def distinct(buffers: Iterable[Any]) -> int:
    """Bytes of memory, however often a buffer is referred to."""
    return sum(len(each) for each in {id(each): each for each in buffers}.values())


def size_of(buffers: Iterable[Any]) -> int:
    return sum(map(len, buffers))


class Flood:
    """A connection that sends one request and reads nothing."""

    def __init__(self, node: Any, writer: asyncio.StreamWriter) -> None:
        self.node = node
        self.writer = writer

    def send(self, key: ApiKey, message: Any, version: int) -> None:
        header = RequestHeader(
            request_api_key=int(key), request_api_version=version, correlation_id=1, client_id="x"
        )
        frame = encode(header, request_header_version(key, version)) + encode(message, version)
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    @property
    def budget(self) -> Any:
        return self.node.listeners[0]._budget


@asynccontextmanager
async def flooding(node: Any):
    _, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
    try:
        yield Flood(node, writer)
    finally:
        writer.transport.abort()


async def probes_beside(node: Any, flood: Flood, send: Any, *, slices: int) -> int:
    """How many requests of another client are answered from `send` until `slices` have run."""
    probe = await connect(node)
    await probe.send(k18.ApiVersionsRequest(client_software_name="x"))
    start, answered = flood.budget.slices, 0
    send()
    while flood.budget.slices - start < slices:
        await probe.send(k18.ApiVersionsRequest(client_software_name="x"))
        answered += 1
    await probe.close()
    return answered


def configs_request(name: str, count: int, kind: int = ResourceType.BROKER) -> Any:
    resource = k32.DescribeConfigsResource(resource_type=kind, resource_name=name)
    return k32.DescribeConfigsRequest(
        resources=[resource] * count, include_synonyms=True, include_documentation=True
    )


def test_a_broker_named_3000_times_is_encoded_once(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            units, buffers = work_on(
                node, ApiKey.DESCRIBE_CONFIGS, configs_request("1", 3_000), version=4
            )
            assert max(units) <= STEP_UNITS_MAX
            assert size_of(buffers) > 50_000_000
            assert distinct(buffers) < 300_000
            few = b"".join(work_on(node, ApiKey.DESCRIBE_CONFIGS, configs_request("1", 2), 4)[1])
            response = decode(k32.DescribeConfigsResponse, 4, few)
            assert response.results[0] == response.results[1]
            assert response.results[0].resource_name == "1"
            assert len(response.results[0].configs) > 200

    run(test())


@pytest.mark.parametrize("version", [1, 3, 4])
def test_equal_topics_share_one_encoding_of_their_configs(tmp_path, version):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            for name in ("a", "b"):
                await create_topic(connection, name)
            await create_topic(connection, "c", retention_ms="5")
            resources = [
                k32.DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name)
                for name in "abcax"
            ]
            request = k32.DescribeConfigsRequest(resources=resources, include_synonyms=True)
            _, buffers = work_on(node, ApiKey.DESCRIBE_CONFIGS, request, version)
            results = decode(k32.DescribeConfigsResponse, version, b"".join(buffers)).results
            assert [each.resource_name for each in results] == list("abcax")
            assert results[0].configs == results[1].configs == results[3].configs
            shown = {each.name: each.value for each in results[2].configs}
            assert shown["retention.ms"] == "5"
            assert results[4].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert distinct(buffers) < size_of(buffers)
            await connection.close()

    run(test())


def test_a_denied_resource_gets_nothing_of_a_shared_encoding(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            for name in ("open", "secret"):
                await create_topic(connection, name)
            resources = [
                k32.DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name)
                for name in ("open", "secret", "open")
            ]
            rights = Deciding(lambda _operation, _type, name: name == "open")
            request = k32.DescribeConfigsRequest(resources=resources)
            _, buffers = work_on(node, ApiKey.DESCRIBE_CONFIGS, request, 4, rights)
            results = decode(k32.DescribeConfigsResponse, 4, b"".join(buffers)).results
            assert [(each.resource_name, each.error_code) for each in results] == [
                ("open", 0), ("open", 0), ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]  # fmt: skip
            assert not results[2].configs
            await connection.close()

    run(test())


def test_another_client_is_served_while_30000_brokers_are_described(tmp_path, monkeypatch):
    monkeypatch.setattr(loop_budget, "ITERATION_MS_MAX", 1)

    async def test():
        async with node_in(tmp_path) as node, flooding(node) as flood:
            request = configs_request("1", 30_000)
            send = partial(flood.send, ApiKey.DESCRIBE_CONFIGS, request, 4)
            assert await probes_beside(node, flood, send, slices=60) >= 3
            assert flood.budget.slice_units_max < SLICE_UNITS_MAX + STEP_UNITS_MAX

    run(test())


async def commit(connection: Any, group: str, partitions: int, metadata: str) -> None:
    coordinator = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])

    async def found() -> bool:
        return (await connection.send(coordinator)).coordinators[0].error_code == 0

    await until(found)
    request = k08.OffsetCommitRequest(
        group_id=group,
        topics=[
            k08.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    k08.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index, committed_metadata=metadata
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )

    async def committed() -> bool:
        answer = await connection.send(request, version=8)
        codes = {part.error_code for topic in answer.topics for part in topic.partitions}
        return codes == {0}

    await until(committed)


def group_request(names: Iterable[str], indexes: list[int] | None = None) -> Any:
    topics = None
    if indexes is not None:
        topics = [k09.OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]
    return k09.OffsetFetchRequest(
        groups=[k09.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names]
    )


def test_a_group_named_20000_times_is_encoded_once(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=100)
            await commit(connection, "g", 100, "x" * 4_000)
            units, buffers = work_on(node, ApiKey.OFFSET_FETCH, group_request(["g"] * 20_000), 9)
            assert max(units) <= STEP_UNITS_MAX
            assert size_of(buffers) > 4_000_000_000
            assert distinct(buffers) < 1_000_000
            two = b"".join(work_on(node, ApiKey.OFFSET_FETCH, group_request(["g", "g"]), 9)[1])
            first, second = decode(k09.OffsetFetchResponse, 9, two).groups
            assert first == second
            parts = first.topics[0].partitions
            assert [part.committed_offset for part in parts] == list(range(100))
            await connection.close()

    run(test())


def test_a_response_above_2_gigabytes_closes_the_connection_and_nothing_else(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=100)
            await commit(connection, "g", 100, "x" * 4_000)
            reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            Flood(node, writer).send(ApiKey.OFFSET_FETCH, group_request(["g"] * 20_000), 9)
            assert await reader.read() == b""
            assert (await connection.send(group_request(["g"]), version=9)).groups[0].topics
            writer.close()
            await connection.close()

    run(test())


@pytest.mark.parametrize("version", [1, 2, 5, 7, 8, 9])
def test_offsets_are_as_committed_in_every_version(tmp_path, version):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=3)
            await commit(connection, "g", 2, "m")
            for indexes in ([0, 1, 2], None):
                if version < 2 and indexes is None:
                    continue
                request = group_request(["g"], indexes)
                if version < 8:
                    topics = None
                    if indexes is not None:
                        topics = [k09.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)]
                    request = k09.OffsetFetchRequest(group_id="g", topics=topics)
                answer = await connection.send(request, version=version)
                (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
                found = [
                    (p.partition_index, p.committed_offset, p.metadata) for p in topic.partitions
                ]
                want = [(0, 0, "m"), (1, 1, "m")]
                assert found == (want if indexes is None else [*want, (2, -1, "")])
            await connection.close()

    run(test())


def test_a_group_of_many_partitions_is_read_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await commit(connection, "g", 1, "")
            request = group_request(["g"], list(range(100_000)))
            units, buffers = work_on(node, ApiKey.OFFSET_FETCH, request, 9)
            assert max(units) <= STEP_UNITS_MAX
            assert len(units) > 100
            (group,) = decode(k09.OffsetFetchResponse, 9, b"".join(buffers)).groups
            assert len(group.topics[0].partitions) == 100_000
            await connection.close()

    run(test())


def test_groups_named_1000_times_are_described_once(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await commit(connection, "g", 1, "")
            request = k15.DescribeGroupsRequest(groups=["g"] * 1_000)
            units, buffers = work_on(node, ApiKey.DESCRIBE_GROUPS, request, 5)
            assert max(units) <= STEP_UNITS_MAX
            assert distinct(buffers) < size_of(buffers) / 100
            groups = decode(k15.DescribeGroupsResponse, 5, b"".join(buffers)).groups
            assert [each.group_id for each in groups] == ["g"] * 1_000
            await connection.close()

    run(test())


def test_a_fetch_of_100000_unknown_partitions_is_answered_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            partitions = [k01.FetchPartition(partition=index) for index in range(100_000)]
            topic = k01.FetchTopic(topic_id=Uuid(b"x" * 16), partitions=partitions)
            request = k01.FetchRequest(topics=[topic], max_wait_ms=500, min_bytes=1)
            units, buffers = work_on(node, ApiKey.FETCH, request, 17)
            assert max(units) <= STEP_UNITS_MAX
            assert len(units) > 500
            (topic,) = decode(k01.FetchResponse, 17, b"".join(buffers)).responses
            assert len(topic.partitions) == 100_000
            assert {part.error_code for part in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}

    run(test())


def test_a_large_request_is_decoded_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node, flooding(node) as flood:
            partitions = [k01.FetchPartition(partition=index) for index in range(50_000)]
            topic = k01.FetchTopic(topic_id=Uuid(b"x" * 16), partitions=partitions)
            request = k01.FetchRequest(topics=[topic], max_wait_ms=500, min_bytes=1)
            send = partial(flood.send, ApiKey.FETCH, request, 17)
            assert await probes_beside(node, flood, send, slices=50) >= 3
            assert flood.budget.slice_units_max < SLICE_UNITS_MAX + STEP_UNITS_MAX

    run(test())


def test_a_large_request_that_cannot_be_decoded_closes_its_connection(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            head = int(ApiKey.FETCH).to_bytes(2, "big") + b"\0\x11" + bytes(4) + b"\xff\xff\0"
            frame = head + b"\xff" * 200_000
            writer.write(len(frame).to_bytes(4, "big") + frame)
            assert await reader.read() == b""
            writer.close()

    run(test())


# ---- lists of partitions


def test_list_offsets_of_100000_partitions_is_answered_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            parts = [
                k02.ListOffsetsPartition(partition_index=index, timestamp=-1)
                for index in [*range(100_000), 7]
            ]
            request = k02.ListOffsetsRequest(
                replica_id=-1, topics=[k02.ListOffsetsTopic(name="t", partitions=parts)]
            )
            units, buffers = work_on(node, ApiKey.LIST_OFFSETS, request, 8)
            assert max(units) <= STEP_UNITS_MAX
            (topic,) = decode(k02.ListOffsetsResponse, 8, b"".join(buffers)).topics
            codes = [part.error_code for part in topic.partitions]
            assert codes[0] == 0
            assert codes[7] == codes[-1] == ErrorCode.INVALID_REQUEST
            assert codes[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await connection.close()

    run(test())


def test_log_dirs_producers_and_topic_partitions_are_described_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=300)
            await node.broker.replica_manager.settle()
            units, buffers = work_on(
                node, ApiKey.DESCRIBE_LOG_DIRS, k35.DescribeLogDirsRequest(topics=None), 4
            )
            assert max(units) <= STEP_UNITS_MAX
            (found,) = decode(k35.DescribeLogDirsResponse, 4, b"".join(buffers)).results
            counts = {topic.name: len(topic.partitions) for topic in found.topics}
            assert counts["t"] == 300
            units, buffers = work_on(
                node, ApiKey.DESCRIBE_PRODUCERS,
                k61.DescribeProducersRequest(
                    topics=[k61.TopicRequest(name="t", partition_indexes=[0] * 50_000)]
                ), 0,
            )  # fmt: skip
            assert max(units) <= STEP_UNITS_MAX
            assert len(units) > 50_000
            request = k75.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=200)
            units, response = work_on(node, ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
            assert max(units) <= STEP_UNITS_MAX
            assert response.next_cursor.partition_index == 200
            await connection.close()

    run(test())


# ---- Metadata


def all_topics(node: Any, version: int = 12, authorizer: Any = None, **given: Any):
    request = k03.MetadataRequest(topics=None, **given)
    units, buffers = work_on(node, ApiKey.METADATA, request, version, authorizer)
    return units, buffers, decode(k03.MetadataResponse, version, b"".join(buffers))


def test_topics_are_encoded_once_for_all_clients_and_again_when_they_change(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            for name in ("b", "a"):
                await create_topic(connection, name, partitions=300)
            first, _, response = all_topics(node)
            assert [topic.name for topic in response.topics] == ["a", "b"]
            assert [len(topic.partitions) for topic in response.topics] == [300, 300]
            again, _, same = all_topics(node)
            assert same.topics == response.topics
            assert sum(again) < sum(first) / 5
            await create_topic(connection, "c", partitions=300)
            changed, _, response = all_topics(node)
            assert [topic.name for topic in response.topics] == ["a", "b", "c"]
            assert sum(changed) < sum(first)
            await connection.close()

    run(test())


def test_a_client_sees_the_topics_that_it_may_describe_of_the_shared_ones(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            for name in ("open", "secret"):
                await create_topic(connection, name)
            assert len(all_topics(node)[2].topics) == 2
            rights = Deciding(lambda _operation, _type, name: name == "open")
            shown = all_topics(node, authorizer=rights)[2].topics
            assert [topic.name for topic in shown] == ["open"]
            assert b"secret" not in b"".join(all_topics(node, authorizer=rights)[1])
            assert len(all_topics(node)[2].topics) == 2
            await connection.close()

    run(test())


def test_authorized_operations_are_each_clients_own(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            given = {"include_topic_authorized_operations": True}
            every = all_topics(node, **given)[2].topics[0].topic_authorized_operations
            few = Deciding(
                lambda operation, kind, _: kind == AclResourceType.TOPIC and operation in {3, 8}
            )
            own = all_topics(node, authorizer=few, **given)[2].topics[0]
            assert own.topic_authorized_operations == 1 << 3 | 1 << 8
            assert every not in {own.topic_authorized_operations, -(1 << 31)}
            assert all_topics(node)[2].topics[0].topic_authorized_operations == -(1 << 31)
            await connection.close()

    run(test())


def test_100000_unknown_names_are_answered_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path, auto_create_topics_enable="false") as node:
            topics = [k03.MetadataRequestTopic(name=f"t{n}") for n in range(100_000)]
            units, buffers = work_on(
                node, ApiKey.METADATA, k03.MetadataRequest(topics=topics), version=12
            )
            assert max(units) <= STEP_UNITS_MAX
            response = decode(k03.MetadataResponse, 12, b"".join(buffers))
            assert len(response.topics) == 100_000
            assert {topic.error_code for topic in response.topics} == {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }

    run(test())


def test_a_response_may_have_elements_that_are_encoded_already():
    topics = [
        k03.MetadataResponseTopic(name="a"),
        k03.MetadataResponseTopic(topic_id=Uuid(b"x" * 16)),
    ]
    for version in range(14):
        plain = [topics[0], topics[0]] if version < 12 else topics
        whole = k03.MetadataResponse(topics=plain)

        pieces = [encode_elements(k03.MetadataResponse, version, [one]) for one in plain]
        joined = k03.MetadataResponse(topics=Encoded(2, pieces))  # type: ignore[arg-type]
        assert encode(joined, version) == encode(whole, version)
