"""`explain partition`, `broker` and `topic` in ZooKeeper mode, from the journals of all brokers."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import Cluster
from sparkraft.client.explain.broker import broker_document, broker_lines
from sparkraft.client.explain.partition import partition_document, partition_lines
from sparkraft.client.explain.topic import topic_document, topic_lines
from sparkraft.client.history import HistoryReport, fetch_history
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.values import NewTopic
from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryRequest, HistoryTopic
from tests.server.harness import run, until
from tests.zookeeper.broker.nodes import Nodes, nodes_in

pytestmark = [pytest.mark.real_time]


async def report_of(nodes: Nodes, *brokers: int, topic: str = "", **fields: int) -> HistoryReport:
    topics = [HistoryTopic(name=topic)] if topic else []
    request = DescribeHistoryRequest(
        topics=topics, broker_ids=list(brokers), events_max=50, **fields
    )
    async with Cluster(nodes.bootstrap) as cluster:
        return await fetch_history(cluster, request)


async def partition_of(nodes: Nodes, topic: str) -> dict:
    report = await report_of(nodes, topic=topic)
    return partition_document(report, report.history.partitions[0], last=50)


async def create(nodes: Nodes, name: str, replicas: dict[int, list[int]]) -> None:
    async with nodes.admin() as admin:
        await nodes.create(admin, name, replicas)


def test_leaders_and_isrs_are_explained_across_controllers_and_restarts(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2, 3)
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1, 2, 3])
            await create(nodes, "t", {0: [1, 2, 3]})
            await nodes.stop(1)
            await until(lambda: nodes.controller() in {2, 3})
            await until(lambda: nodes.states("t", 3) == {0: (2, [2, 3])})
            await nodes.start(1)
            await until(lambda: nodes.states("t", 3) == {0: (2, [1, 2, 3])})
            found = await partition_of(nodes, "t")
            assert (found["leader"], found["leaderEpoch"]) == (2, 1)
            won, made = found["elections"]
            # The first controller decided both, before it stopped; its journal is on disk.
            assert (made["kind"], made["leader"], made["controllerEpoch"]) == ("made", 1, 1)
            assert (won["kind"], won["previous"], won["leader"]) == ("controlled shutdown", 1, 2)
            assert won["cause"] == "broker 1 asked to shut down"
            assert won["candidates"] == [1, 2, 3]
            assert won["ruledOut"] == [{"replica": 1, "why": "broker shutting down"}]
            joined = found["isrChanges"][0]
            assert (joined["joined"], joined["leader"]) == ([1], 2)
            text = "\n".join(partition_lines(found))
            assert "leader 2 in epoch 1, since 20" in text
            assert "ruled out: 1 (broker shutting down)" in text
            assert "in ZooKeeper mode" in text
            assert "1 caught up" in text
            assert "offset" not in text
            of_broker = await report_of(nodes, 1)
            document = broker_document(of_broker, of_broker.history.brokers[0], last=50)
            assert document["state"] == "serving"
            whats = [change["what"] for change in document["changes"]]
            assert whats[0] == "started"
            assert "shutting down" in whats
            assert [e["leader"] for e in document["elections"]] == [2, 1]
            assert "its changes, newest first:" in list(broker_lines(document))

    run(test())


def test_deletions_and_reassignments_are_explained(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1, 2])
            await create(nodes, "moved", {0: [1]})
            await create(nodes, "deleted", {0: [1, 2]})
            async with nodes.admin() as admin:
                leaders = LeadershipAdmin(admin.cluster)
                assert await leaders.reassign({("moved", 0): [2]}) == {("moved", 0): None}
                await until(lambda: nodes.states("moved", 1) == {0: (2, [2])})
                await nodes.stop(2)
                assert await admin.delete_topics(["deleted"]) == {"deleted": None}
            moved = await report_of(nodes, topic="moved")
            document = topic_document(moved, "moved", last=50)
            texts = [note["what"] for note in reversed(document["notes"])]
            assert texts == ["moved-0: adds [2], then removes [1]", "moved-0: completed"]
            assert any("moved-0: completed" in line for line in topic_lines(document))
            elected = document["partitions"][0]["elections"]
            # The stop of the only replica, its move, and the creation.
            assert [each["leader"] for each in elected][-2:] == [2, 1]
            assert "reassignment" in [each["kind"] for each in elected]
            text = [note["what"] for note in (await notes_of(nodes, "deleted"))]
            assert text == [
                "deleted: requested",
                "deleted: started",
                "deleted: waits for offline replicas",
            ]
            await nodes.start(2)
            gone = ["/brokers/topics", "/admin/delete_topics"]
            await until(lambda: all("deleted" not in nodes.children(path) for path in gone))
            deleted = topic_document(await report_of(nodes, topic="deleted"), "deleted", last=50)
            assert deleted["notes"][0]["what"] == "deleted: deleted"
            assert not deleted["partitions"][0]["exists"]

    run(test())


async def notes_of(nodes: Nodes, topic: str) -> list[dict]:
    document = topic_document(await report_of(nodes, topic=topic), topic, last=50)
    notes: list[dict] = document["notes"]
    return notes[::-1]


def test_the_past_and_unknown_topics_are_refused(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            with pytest.raises(KafkaError, match="topic x does not exist") as unknown:
                await report_of(nodes, topic="x")
            assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError, match="only the present") as past:
                await report_of(nodes, 1, at_offset=3)
            assert past.value.code is ErrorCode.UNSUPPORTED_VERSION
            async with nodes.admin() as admin:
                await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
            unknown_broker = (await report_of(nodes, 9)).history.brokers[0]
            assert not unknown_broker.is_registered

    run(test())
