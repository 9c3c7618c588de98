"""Requests for many topics: decided in parts, answered as one."""

import asyncio

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k37_create_partitions as k37
from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.server.api import k20_delete_topics as k20
from sparkraft.server.api import k37_create_partitions as k37_handler
from sparkraft.server.api.k19_create_topics import PARTITIONS_PER_PART, _parts
from tests.server.harness import connect, node_in, run


def topics(count, partitions=4):
    return [
        CreatableTopic(name=f"t{index}", num_partitions=partitions, replication_factor=1)
        for index in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 30, 1000])
def test_every_topic_is_in_one_part(count):
    request = CreateTopicsRequest(topics=topics(count), timeout_ms=7, validate_only=True)
    parts = _parts(request, 1)
    assert [topic for part in parts for topic in part.topics] == request.topics
    assert all(part.timeout_ms == 7 and part.validate_only for part in parts)
    most = max(sum(topic.num_partitions for topic in part.topics) for part in parts)
    assert most <= PARTITIONS_PER_PART


def test_a_name_given_twice_is_refused_however_far_apart(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            asked = topics(120)
            asked.append(CreatableTopic(name="t0", num_partitions=1, replication_factor=1))
            response = await connection.send(CreateTopicsRequest(topics=asked, timeout_ms=60_000))
            codes = {topic.name: topic.error_code for topic in response.topics}
            assert len(response.topics) == 120
            assert codes.pop("t0") == ErrorCode.INVALID_REQUEST
            assert set(codes.values()) == {0}
            assert all(topic.configs for topic in response.topics if topic.error_code == 0)
            again = await connection.send(
                CreateTopicsRequest(topics=topics(120), timeout_ms=60_000)
            )
            codes = [topic.error_code for topic in again.topics]
            assert codes.count(ErrorCode.TOPIC_ALREADY_EXISTS) == 119

    run(test())


def test_too_many_partitions_are_refused_as_a_whole(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            asked = topics(5, partitions=2_001)
            response = await connection.send(CreateTopicsRequest(topics=asked, timeout_ms=60_000))
            assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}

    run(test())


def test_assigned_partitions_count():
    assigned = CreatableTopic(
        name="a",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1])
            for index in range(300)
        ],
    )
    parts = _parts(CreateTopicsRequest(topics=[assigned, *topics(2)]), 1)
    assert [len(part.topics) for part in parts] == [1, 2]


def test_many_topics_are_deleted_in_parts_and_answered_as_one(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            count = 2 * k20.TOPICS_PER_PART + 20
            made = await connection.send(CreateTopicsRequest(topics=topics(count, 1)))
            ids = {topic.name: topic.topic_id for topic in made.topics}
            states = [DeleteTopicState(name=name) for name in ids]
            states.append(DeleteTopicState(name="t0"))
            states.append(DeleteTopicState(topic_id=ids["t1"]))
            states.append(DeleteTopicState(name="unknown"))
            request = DeleteTopicsRequest(topics=states, timeout_ms=60_000)
            parts = k20._parts(request, ids)
            assert [len(part.topics) for part in parts] == [4, 100, 100, 19]
            others = [topic for part in parts[1:] for topic in part.topics]
            assert others == states[2:-3] + states[-1:]
            response = await connection.send(request)
            codes = {}
            for result in response.responses:
                codes.setdefault(result.name, []).append(result.error_code)
            assert codes.pop("t0") == [ErrorCode.INVALID_REQUEST]
            assert codes.pop("t1") == [ErrorCode.INVALID_REQUEST]
            assert codes.pop("unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert list(codes.values()) == [[0]] * (count - 2)
            left = await connection.send(MetadataRequest(topics=None))
            assert sorted(topic.name for topic in left.topics) == ["t0", "t1"]

    run(test())


def test_other_requests_are_answered_while_topics_are_deleted(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection, other = await connect(node), await connect(node)
            count = 5 * k20.TOPICS_PER_PART
            await connection.send(CreateTopicsRequest(topics=topics(count, 1)))
            names = [DeleteTopicState(name=f"t{number}") for number in range(count)]
            request = DeleteTopicsRequest(topics=names, timeout_ms=60_000)
            deleting = asyncio.ensure_future(connection.send(request))
            seen = set()
            while not deleting.done():
                answer = await other.send(MetadataRequest(topics=None))
                seen.add(len(answer.topics))
            await deleting
            assert seen - {0, count}, "nothing was answered between two parts"

    run(test())


def test_many_topics_are_grown_in_parts_and_answered_as_one(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await connection.send(CreateTopicsRequest(topics=topics(90, 1), timeout_ms=60_000))
            grown = [(f"t{index}", 5) for index in range(90)] + [("t0", 7), ("unknown", 7)]
            wanted = [
                k37.CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in grown
            ]
            image = node.broker.image
            request = k37.CreatePartitionsRequest(topics=wanted, timeout_ms=60_000)
            parts = k37_handler._parts(request, image)
            assert [len(part.topics) for part in parts] == [27, 25, 25, 15]
            assert {topic.name for topic in parts[0].topics} >= {"t0", "t1"}
            response = await connection.send(request)
            codes = {result.name: result.error_code for result in response.results}
            assert len(response.results) == 91
            assert codes.pop("t0") == ErrorCode.INVALID_REQUEST
            assert codes.pop("unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert set(codes.values()) == {0}
            answer = await connection.send(MetadataRequest(topics=None))
            counts = {topic.name: len(topic.partitions) for topic in answer.topics}
            assert counts.pop("t0") == 1
            assert set(counts.values()) == {5}

    run(test())
