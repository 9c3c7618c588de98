"""A node's life: who may start where, failing disks, separate roles, restarts."""

import asyncio
import errno
import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.metadata.apply import apply
from sparkraft.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from sparkraft.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from sparkraft.protocol.messages.metadata_records import (
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sparkraft.server import node as node_module
from sparkraft.server.broker import background
from sparkraft.server.broker.lifecycle import BrokerState
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import Env
from sparkraft.server.identity import StartRefused
from sparkraft.server.node import Node
from sparkraft.storage.checkpoints import read_offsets
from sparkraft.storage.disk import DirectoryLocked, OsDisk, StorageFault
from sparkraft.storage.log import Origin
from sparkraft.storage.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS
from tests.server.harness import (
    CLUSTER_ID,
    FaultyDisk,
    append,
    batch,
    config_of,
    connect,
    create_topic,
    fetch,
    format_dir,
    make_env,
    node_in,
    run,
    running,
    until,
    values_of,
)
from tests.support.ports import lasting_ports


async def refused(properties, error):
    with pytest.raises(error) as caught:
        async with running(properties):
            pass
    return str(caught.value)


def test_an_unformatted_directory_stops_the_start_with_a_sentence(tmp_path):
    async def test():
        said = await refused(config_of(tmp_path / "new"), StartRefused)
        assert "not formatted" in said
        assert "storage format" in said

    run(test())


def test_the_directory_of_another_node_or_cluster_stops_the_start(tmp_path):
    async def test():
        format_dir(tmp_path / "a", node_id=7)
        assert "node 7" in await refused(config_of(tmp_path / "a"), StartRefused)
        format_dir(tmp_path / "b")
        format_dir(tmp_path / "c", cluster_id="L3vqrRfFSKCVFCNyvqWGcA")
        said = await refused(config_of(tmp_path / "b", tmp_path / "c"), StartRefused)
        assert CLUSTER_ID in said

    run(test())


def test_a_damaged_meta_properties_stops_the_start(tmp_path):
    async def test():
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=one\ncluster.id=x\n")
        assert "damaged" in await refused(config_of(tmp_path), StartRefused)

    run(test())


def test_a_second_node_on_a_locked_directory_is_turned_away_and_the_first_lives(tmp_path):
    """POSIX locks belong to processes, so the second node is one."""

    async def test():
        import sys

        async with node_in(tmp_path) as node:
            connection = await connect(node)
            code = (
                "import sys; from sparkraft.storage.disk import OsDisk, DirectoryLocked\n"
                "try: OsDisk().lock(sys.argv[1])\n"
                "except DirectoryLocked as e: print(e); sys.exit(3)\n"
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, str(tmp_path / ".lock"),
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await process.communicate()
            assert process.returncode == 3
            assert b"another process" in out
            await create_topic(connection, "t")
            await connection.close()

    run(test())
    assert issubclass(DirectoryLocked, Exception)


def test_a_port_in_use_stops_the_start_and_releases_the_directory(tmp_path):
    async def test():
        format_dir(tmp_path / "a")
        format_dir(tmp_path / "b")
        first = config_of(tmp_path / "a")
        async with running(first):
            second = first | {"log.dirs": str(tmp_path / "b")}
            await refused(second, OSError)
        async with running(first | {"log.dirs": str(tmp_path / "b")}):
            pass

    run(test())


def test_records_topics_and_configs_survive_a_restart(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=2, retention_ms="77777777")
            await append(connection, topic_id, batch(b"before"), partition=1)
            await connection.close()
        for number in range(2):
            async with node_in(tmp_path) as node:
                connection = await connect(node)
                answer = await connection.send(fetch(topic_id, partitions=(1,)))
                assert values_of(answer.responses[0].partitions[0])[0] == b"before"
                log = node.broker.replica_manager.get_log("t", 1)
                assert log.config.retention_ms == 77777777
                added = await append(connection, topic_id, batch(b"after"), partition=1)
                assert added.base_offset == 1 + number
                await connection.close()
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    run(test())


def test_a_topic_made_again_under_its_name_starts_empty_after_a_restart(tmp_path):
    """History is replayed at a start: the old topic's log must not come back, nor the new's go."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"old"))
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            await connection.send(request)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"new"))
            await connection.close()
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            answer = await connection.send(fetch(topic_id))
            assert values_of(answer.responses[0].partitions[0]) == [b"new"]
            assert not [name for name in os.listdir(tmp_path) if name.endswith("-stray")]
            await connection.close()

    run(test())


@pytest.mark.parametrize("later_id", [Uuid(bytes(15) + b"\1"), Uuid(b"\xff" * 16)])
def test_a_topic_made_again_under_its_name_keeps_its_log_when_one_image_tells_both(
    tmp_path, later_id
):
    """As a snapshot does to a broker that was away: deleted and made again in one step."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"old"))
            manager = node.broker.replica_manager
            image = manager.image
            again = apply(image, RemoveTopicRecord(topic_id=topic_id))
            again = apply(again, TopicRecord(name="t", topic_id=later_id))
            partition = PartitionRecord(
                partition_id=0, topic_id=later_id, replicas=[1], isr=[1], leader=1, leader_epoch=0
            )
            manager.on_image(apply(again, partition), None)
            await manager.settle()
            log = manager.get_log("t", 0)
            assert (log.topic_id, log.log_end_offset) == (later_id, 0)
            leader = manager.leader("t", 0)
            info = manager.append_to(leader, batch(b"new"), acks=-1, origin=Origin.CLIENT)
            assert info.base_offset == 0
            assert manager.log_manager.get("t", 0) is log
            assert not [name for name in os.listdir(tmp_path) if name.endswith("-stray")]
            await connection.close()

    run(test())


def test_a_deleted_topics_files_go_after_their_delay_not_with_the_next_retention(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(background, "INITIAL_DELAY_MS", 10**9)

    async def test():
        async with node_in(tmp_path, replica_high_watermark_checkpoint_interval_ms="20") as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", file_delete_delay_ms="0")
            await append(connection, topic_id, batch(b"x"))
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            await connection.send(request)
            await until(lambda: not [name for name in os.listdir(tmp_path) if name[:2] == "t-"])
            await connection.close()

    run(test())


@pytest.mark.parametrize(("delay_ms", "is_removed"), [("0", True), ("1000000", False)])
def test_the_first_retention_waits_for_the_configured_delay(tmp_path, delay_ms, is_removed):
    configs = {"log_retention_check_interval_ms": "20", "log_initial_task_delay_ms": delay_ms}

    async def test():
        async with node_in(tmp_path, **configs) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", retention_ms="1")
            await append(connection, topic_id, batch(b"x"))
            log = node.broker.replica_manager.get_log("t", 0)
            if is_removed:
                await until(lambda: log.log_start_offset == 1)
            else:
                await asyncio.sleep(0.3)
                assert log.log_start_offset == 0
            await connection.close()

    run(test())


def test_a_folder_of_no_known_topic_is_set_aside_and_said(tmp_path, caplog):
    async def test():
        format_dir(tmp_path)
        (tmp_path / "foreign-0").mkdir()
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await connection.close()
        assert [name for name in os.listdir(tmp_path) if name.endswith("-stray")]

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "aside: this broker is not a replica" in caplog.text


def test_a_full_disk_refuses_takes_the_directory_offline_and_ends_the_node(tmp_path, caplog):
    async def test():
        disk = FaultyDisk()
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            assert (await append(connection, topic_id, batch(b"kept"))).error_code == 0
            disk.fault = lambda operation, path: errno.ENOSPC if operation == "append" else 0
            answer = await append(connection, topic_id, batch(b"lost"))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await node._tasks.stop_requested.wait()  # it was the last directory
            assert node.failure is not None
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            data = (await connection.send(fetch(topic_id))).responses[0].partitions[0]
            assert values_of(data) == [b"kept"]
            await connection.close()

    with caplog.at_level(logging.ERROR):
        run(test())
    assert "goes offline" in caplog.text


def test_a_failing_fsync_acknowledges_nothing(tmp_path):
    async def test():
        disk = FaultyDisk()
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", flush_messages="1")
            disk.fault = lambda operation, path: (
                errno.EIO if operation == "fsync" and "/t-0/" in path else 0
            )
            for _ in range(2):
                answer = await append(connection, topic_id, batch(b"x"), acks=1)
                assert answer.error_code in {
                    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER
                }  # fmt: skip
            await node._tasks.stop_requested.wait()

    run(test())


def test_one_of_two_directories_failing_leaves_the_other_serving(tmp_path):
    async def test():
        disk = FaultyDisk()
        good, bad = tmp_path / "good", tmp_path / "bad"
        format_dir(good)
        format_dir(bad)
        async with running(config_of(good, bad), make_env(disk)) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=4)
            places = {}
            for partition in range(4):
                log = node.broker.replica_manager.get_log("t", partition)
                places.setdefault(log.log_dir, []).append(partition)
            assert len(places) == 2, "partitions spread over the directories"

            def told():
                topic = node.broker.image.topic("t")
                ids = {p.directory(1) for p in topic.partitions.values()}
                return ids == set(node.identity.directory_ids.values())

            await until(told)
            disk.fault = lambda operation, path: errno.EIO if str(bad) in path else 0
            for partition in places[str(bad)]:
                answer = await append(connection, topic_id, batch(b"x"), partition=partition)
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for partition in places[str(good)]:
                answer = await append(connection, topic_id, batch(b"x"), partition=partition)
                assert answer.error_code == 0
            dirs = (await connection.send(DescribeLogDirsRequest(topics=None))).results
            by_path = {d.log_dir: d.error_code for d in dirs}
            assert by_path == {str(good): 0, str(bad): ErrorCode.KAFKA_STORAGE_ERROR}
            assert node.failure is None
            await connection.close()

    run(test())


def test_broker_and_controller_as_two_nodes(tmp_path):
    """Forwarding, registration and replication of metadata cross the controller listener."""

    async def test():
        format_dir(tmp_path / "c", node_id=100)
        format_dir(tmp_path / "b")
        both = config_of(tmp_path / "c")
        client, quorum = both["listeners"].split(",")
        voters = "100@" + quorum.partition("://")[2]
        controller = both | {
            "process.roles": "controller",
            "node.id": "100",
            "listeners": quorum,
            "controller.quorum.voters": voters,
        }
        broker = both | {
            "process.roles": "broker",
            "listeners": client,
            "controller.quorum.voters": voters,
            "log.dirs": str(tmp_path / "b"),
        }
        async with running(controller) as one, running(broker) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            assert (await append(connection, topic_id, batch(b"x"))).error_code == 0
            answer = await connection.send(DescribeClusterRequest())
            assert [b.broker_id for b in answer.brokers] == [1]
            await connection.close()
            admin = await connect(one, "CONTROLLER")
            answer = await admin.send(DescribeClusterRequest(endpoint_type=2))
            assert (answer.error_code, answer.controller_id) == (0, 100)
            answer = await admin.send(DescribeClusterRequest(endpoint_type=1))
            assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            await admin.close()

    run(test())


def test_asking_for_metadata_makes_a_topic_where_that_is_allowed(tmp_path):
    async def test():
        async with node_in(tmp_path, num_partitions="3") as node:
            connection = await connect(node)

            async def ask(name, **given):
                request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], **given)
                return (await connection.send(request)).topics[0]

            found = await ask("made", allow_auto_topic_creation=False)
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await ask("bad name!")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            await ask("made")

            async def there():
                return len((await ask("made")).partitions) == 3

            await until(there)
            await connection.close()
        async with node_in(tmp_path, auto_create_topics_enable="false") as node:
            connection = await connect(node)
            await ask("never")
            await ask("never")
            assert "never" not in node.broker.image.topics_by_name
            await connection.close()

    run(test())


def test_list_offsets_by_every_special_time(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            for _ in range(3):
                await append(connection, topic_id, batch(b"x"))

            async def ask(timestamp, version=11):
                part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                request = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])]
                )
                answer = await connection.send(request, version=version)
                found = answer.topics[0].partitions[0]
                return ErrorCode(found.error_code), found.offset

            assert await ask(-1) == (ErrorCode.NONE, 3)
            assert await ask(-2) == (ErrorCode.NONE, 0)
            assert await ask(-3) == (ErrorCode.NONE, 0)
            assert await ask(-4) == (ErrorCode.NONE, 0)
            assert await ask(-5) == (ErrorCode.NONE, -1)
            assert await ask(-6) == (ErrorCode.NONE, -1)
            assert await ask(0) == (ErrorCode.NONE, 0)
            assert await ask(1 << 60) == (ErrorCode.NONE, -1)
            assert await ask(-3, version=6) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            assert await ask(-7) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            await connection.close()

    run(test())


def test_stopping_twice_and_before_the_start_is_fine(tmp_path):
    async def test():
        format_dir(tmp_path)
        node = Node(NodeConfig(config_of(tmp_path)), make_env())
        await node.stop()
        async with node_in(tmp_path) as node:
            await node.stop()

    run(test())


def test_a_broker_that_no_controller_answers_stops_at_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(node_module, "STOP_MS_MAX", 5_000)

    async def test():
        format_dir(tmp_path)
        port, nobody = lasting_ports(2)
        lonely = {
            "controller.quorum.voters": f"9@127.0.0.1:{nobody}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }
        node = Node(NodeConfig(config_of(tmp_path, roles="broker") | lonely), make_env())
        start = asyncio.create_task(node.start())
        await until(lambda: node.broker is not None)
        assert node.broker.lifecycle.state is BrokerState.STARTING
        await node.stop()
        with pytest.raises(StartRefused, match="the broker was stopped"):
            await start

    run(test())
    assert "aborting" not in caplog.text


def test_a_node_whose_disk_fails_while_it_leaves_waits_for_nobody(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(node_module, "STOP_MS_MAX", 5_000)

    async def test():
        async with node_in(tmp_path) as node:
            lifecycle, asked = node.broker.lifecycle, asyncio.Event()

            async def not_yet(*, want_shut_down: bool) -> Any:
                asked.set()
                return SimpleNamespace(is_fenced=False, should_shut_down=False)

            monkeypatch.setattr(lifecycle, "_heartbeat", not_yet)
            stop = asyncio.create_task(node.stop())
            await asked.wait()
            assert lifecycle.state is BrokerState.CONTROLLED_SHUTDOWN
            node.fail(StorageFault(str(tmp_path), "sync __cluster_metadata-0", "injected"))
            await stop

    run(test())
    assert "aborting" not in caplog.text


def test_a_replica_that_could_not_be_hosted_is_not_set_aside(tmp_path):
    """A disk that failed once at a start must not cost the logs of all replicas."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"kept"))
            manager = node.broker.replica_manager
            hosted = dict(manager._hosted)
            manager._hosted.clear()
            await manager.set_strays_aside()
            manager._hosted.update(hosted)
            assert not [name for name in os.listdir(tmp_path) if name.endswith("-stray")]
            answer = await connection.send(fetch(topic_id))
            assert values_of(answer.responses[0].partitions[0]) == [b"kept"]
            await connection.close()

    run(test())


def test_logs_are_recovered_by_as_many_threads_as_are_wanted_and_it_is_said(
    tmp_path, caplog, monkeypatch
):
    side_by_side = []
    run_all = Env.run_all_and_wait

    def counting(env, works):
        side_by_side.append(len(works))
        run_all(env, works)

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=5)
            for partition in range(5):
                await append(connection, topic_id, batch(b"x"), partition=partition)
            await connection.close()
        (tmp_path / CLEAN_SHUTDOWN).unlink()  # as if it had been killed
        caplog.clear()
        monkeypatch.setattr(Env, "run_all_and_wait", counting)
        with caplog.at_level(logging.INFO):
            async with node_in(tmp_path, num_recovery_threads_per_data_dir="3"):
                pass

    run(test())
    assert side_by_side[0] == 3  # and later those that close
    assert f"Recovered 5 of 5 logs in {tmp_path}" in caplog.text


def test_high_watermarks_are_written_down_while_it_runs(tmp_path):
    """Every replica.high.watermark.checkpoint.interval.ms, for a start after a kill."""

    async def test():
        async with node_in(tmp_path, replica_high_watermark_checkpoint_interval_ms="20") as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=2)
            for count in (1, 2):
                await append(connection, topic_id, batch(b"x"), partition=1)
                expected = {("t", 0): 0, ("t", 1): count}
                await until(lambda now=expected: checkpointed(tmp_path) == now)
            await connection.close()

    run(test())


def checkpointed(path):
    disk = OsDisk()
    try:
        return read_offsets(disk, str(path / HIGH_WATERMARKS))
    finally:
        disk.close()
