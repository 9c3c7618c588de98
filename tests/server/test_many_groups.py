"""Very many groups, and members with very many topics, on a node: slices, responses, order."""

import asyncio

from sparkraft.base.errors import ErrorCode
from sparkraft.client.connection import Connection
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k42_delete_groups as k42
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from sparkraft.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.server.test_group_memory import coordinated
from tests.server.test_large_requests import work_on

TOPICS = [f"topic-{number:04d}" for number in range(400)]
GROUPS = [f"group-{number:05d}" for number in range(2_000)]


async def with_topics(connection: Connection) -> None:
    """Create the topics, and wait until the broker coordinates groups."""
    topics = [
        k19.CreatableTopic(name=one, num_partitions=2, replication_factor=1) for one in TOPICS
    ]
    await connection.send(k19.CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    await coordinated(connection)

    async def joins() -> bool:
        return (await connection.send(heartbeat("first", topics=["none"]))).error_code == 0

    await until(joins)


def heartbeat(
    group_id: str, *, member_id: str = "m", epoch: int = 0, topics: list[str] | None = None
) -> k68.ConsumerGroupHeartbeatRequest:
    request = k68.ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch
    )
    if topics is not None:
        request.subscribed_topic_names = topics
        request.rebalance_timeout_ms = 60_000
        request.topic_partitions = []
    return request


def commit(group_id: str, topic: str, partitions: int = 1) -> k08.OffsetCommitRequest:
    offsets = [
        k08.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata=""
        )
        for index in range(partitions)
    ]
    return k08.OffsetCommitRequest(
        group_id=group_id, topics=[k08.OffsetCommitRequestTopic(name=topic, partitions=offsets)]
    )


def test_members_with_very_many_topics_get_and_show_their_assignments(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection, other = await connect(node), await connect(node)
            await with_topics(connection)
            # Sent together: they wait for each other, as their groups are in one shard or in two.
            answers = await asyncio.gather(
                connection.send(heartbeat("g", topics=TOPICS)),
                other.send(heartbeat("g", member_id="n", topics=TOPICS)),
                connection.send(heartbeat("h", topics=TOPICS[:3])),
                other.send(commit("plain", TOPICS[0]), version=9),
            )
            assert [one.error_code for one in answers[:3]] == [0, 0, 0]
            assert answers[3].topics[0].partitions[0].error_code == 0
            assigned = answers[0].assignment.topic_partitions
            ids = node.broker.image.topics_by_name
            assert {one.topic_id for one in assigned} == {ids[one] for one in TOPICS}
            assert all(one.partitions == [0, 1] for one in assigned)
            request = ConsumerGroupDescribeRequest(group_ids=["g", "h", "g", "none"])
            found = (await connection.send(request)).groups
            assert found[0] == found[2]
            assert found[3].error_code == ErrorCode.GROUP_ID_NOT_FOUND
            m, n = found[0].members
            names = sorted(one.topic_name for one in m.assignment.topic_partitions)
            assert names == TOPICS
            assert m.subscribed_topic_names == n.subscribed_topic_names == TOPICS
            left = await other.send(heartbeat("g", member_id="n", epoch=-1))
            assert left.error_code == 0
            await connection.close()
            await other.close()

    run(test())


def test_many_groups_are_listed_and_deleted_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await coordinated(connection)

            async def committed() -> bool:
                answer = await connection.send(commit(GROUPS[0], "t"), version=9)
                return answer.topics[0].partitions[0].error_code == 0

            await until(committed)
            for at in range(0, len(GROUPS), 100):
                requests = [
                    connection.send(commit(one, "t"), version=9) for one in GROUPS[at : at + 100]
                ]
                await asyncio.gather(*requests)
            units, buffers = work_on(node, ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)
            assert max(units) <= 64
            assert sum(units) == len(GROUPS)
            listed = decode(ListGroupsResponse, 5, b"".join(buffers)).groups
            assert sorted(one.group_id for one in listed) == GROUPS
            request = ListGroupsRequest(states_filter=["EMPTY "], types_filter=["Consumer"])
            assert (await connection.send(request)).groups == []
            names = [*GROUPS, "none", GROUPS[0]]
            deleted = await connection.send(k42.DeleteGroupsRequest(groups_names=names))
            codes = {one.group_id: one.error_code for one in deleted.results}
            assert codes == {**dict.fromkeys(GROUPS, 0), "none": ErrorCode.GROUP_ID_NOT_FOUND}
            assert (await connection.send(ListGroupsRequest())).groups == []
            await connection.close()

    run(test())
