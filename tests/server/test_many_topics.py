"""Requests for many topics: decided in parts, answered as one."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
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
