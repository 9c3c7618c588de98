"""Facts for the health of a cluster, from a real node: offline log directories, unread groups."""

from sparkraft.client.explain.cluster import cluster_document, cluster_facts
from sparkraft.client.explain.health_facts import health_facts
from sparkraft.client.groups import Groups
from sparkraft.client.producer import Producer
from sparkraft.client.values import Committed
from sparkraft.storage.disk import StorageFault
from tests.server.harness import (
    config_of,
    connect,
    create_topic,
    format_dir,
    run,
    running,
)
from tests.server.test_earlier_metadata import client_of


def test_an_offline_directory_and_a_group_with_records_left(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        format_dir(folder)

    async def test():
        async with running(config_of(*folders)) as node, client_of(node) as cluster:
            connection = await connect(node)
            await create_topic(connection, "t")
            async with Producer(cluster) as producer:
                for _ in range(3):
                    await (await producer.send("t", b"x"))
            groups = Groups(cluster)
            for group, offset in (("left", 1), ("finished", 3)):
                outcome = await groups.commit(group, {("t", 0): Committed(offset=offset)})
                assert not any(outcome.values())
            await cluster.refresh()
            found = await health_facts(cluster)
            assert (found.offline_dirs, found.idle_groups) == ({}, {"left": 2})
            document = cluster_document(await cluster_facts(cluster))
            assert document["idleGroups"] == [{"group": "left", "lag": 2}]
            assert document["health"]["level"] == "ok"
            assert "Group without members: left (2 records" in document["health"]["sentence"]
            lost = next(str(each) for each in folders if str(each) != node.config.metadata_log_dir)
            node.on_storage_fault(StorageFault(lost, "write", "lost"))
            found = await health_facts(cluster)
            assert found.offline_dirs == {1: [lost]}
            document = cluster_document(await cluster_facts(cluster))
            assert document["health"]["level"] != "ok"
            assert document["offlineLogDirs"] == [{"broker": 1, "path": lost}]
            await connection.close()

    run(test())
