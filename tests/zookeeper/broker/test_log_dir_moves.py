"""Replicas of brokers in ZooKeeper mode move between log directories (KIP-113)."""

import os
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.producer import Producer
from sparkraft.client.values import ConfigOperation
from sparkraft.metadata.image import ResourceType
from tests.server.harness import run, until
from tests.zookeeper.broker.nodes import nodes_in

pytestmark = [pytest.mark.real_time]

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def log_dirs(folder, broker):
    return f"{folder}/{broker}a,{folder}/{broker}b"


def place(nodes, broker):
    """The directory of the broker's replica of t-0, and of its copy."""
    manager = nodes[broker].broker.log_manager
    copy = manager.futures.get("t", 0)
    return manager.get("t", 0).log_dir, None if copy is None else copy.log_dir


def other(path):
    return path[:-1] + ("b" if path.endswith("a") else "a")


async def until_registered(nodes):
    """Return when the controller knows all brokers that started."""
    await until(lambda: len(nodes[1].broker.image.brokers) == len(nodes.bootstrap.split(",")))


async def until_at(nodes, broker, path):
    await until(lambda: place(nodes, broker) == (path, None))


def segment_in(path):
    return Path(path, "t-0", "00000000000000000000.log").read_bytes()


async def move(nodes, broker, path):
    async with nodes.admin() as admin:
        wanted = (("t", 0), broker)
        return (await LeadershipAdmin(admin.cluster).move_replicas({wanted: path}))[wanted]


async def produce(nodes, count):
    async with nodes.admin() as admin, Producer(admin.cluster) as producer:
        sent = [await producer.send("t", bytes(1000), partition=0) for _ in range(count)]
        await producer.flush()
        for each in sent:
            await each


async def set_rate(admin, value):
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    resource = (ResourceType.BROKER, "")
    assert await admin.alter_configs({resource: [(RATE, operation, value)]}) == {resource: None}


@pytest.mark.parametrize("version", ["3.9", "2.6"])
def test_a_leader_and_a_follower_move_their_replica(tmp_path, version):
    """Below 2.8 the topic has no id."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            for broker in (1, 2):
                await nodes.start(
                    broker,
                    log_dirs=log_dirs(tmp_path, broker),
                    inter_broker_protocol_version=version,
                )
            await until_registered(nodes)
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", {0: [1, 2]})
            await produce(nodes, 20)
            for broker in (1, 2):
                source, _ = place(nodes, broker)
                assert await move(nodes, broker, other(source)) == ErrorCode.NONE
                await until_at(nodes, broker, other(source))
                await until(lambda at=source: "t-0" not in os.listdir(at))
            await produce(nodes, 20)
            ends = [nodes[b].broker.log_manager.get("t", 0).log_end_offset for b in (1, 2)]
            assert ends == [40, 40]
            first, second = (segment_in(place(nodes, b)[0]) for b in (1, 2))
            assert first == second
            assert nodes.states("t", 1) == {0: (1, [1, 2])}

    run(test())


def test_a_move_continues_after_a_restart_and_ends_with_the_topic(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            settings = {
                "replica_fetch_max_bytes": "2000",
                "log_dirs": log_dirs(tmp_path, 1),
            }
            await nodes.start(1, **settings)
            await until_registered(nodes)
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", {0: [1]})
                await set_rate(admin, "1")
            await produce(nodes, 20)
            source, _ = place(nodes, 1)
            assert await move(nodes, 1, other(source)) == ErrorCode.NONE
            assert place(nodes, 1) == (source, other(source))
            async with nodes.admin() as admin:
                found = (await admin.describe_log_dirs([1]))[1]
            marks = {each.path: [r.is_future for r in each.replicas] for each in found}
            assert marks == {source: [False], other(source): [True]}
            await nodes.stop(1)
            await nodes.start(1, **settings)
            await until(lambda: nodes.states("t", 1) == {0: (1, [1])})
            assert place(nodes, 1) == (source, other(source))
            async with nodes.admin() as admin:
                await set_rate(admin, None)
                await until_at(nodes, 1, other(source))
                assert nodes[1].broker.log_manager.get("t", 0).log_end_offset == 20
                # A topic that is deleted takes the copy with it.
                await set_rate(admin, "1")
                assert await move(nodes, 1, source) == ErrorCode.NONE
                await admin.delete_topics(["t"])
                manager = nodes[1].broker.log_manager
                await until(lambda: manager.get("t", 0) is None)
                assert manager.futures.all() == []

    run(test())


def test_what_kafka_refuses_is_refused(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, log_dirs=log_dirs(tmp_path, 1))
            first, second = log_dirs(tmp_path, 1).split(",")
            await until_registered(nodes)
            assert await move(nodes, 1, first) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await move(nodes, 1, f"{tmp_path}/c") == ErrorCode.LOG_DIR_NOT_FOUND
            # The directory is remembered for a replica that is not here yet.
            assert await move(nodes, 1, second) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", {0: [1]})
            assert place(nodes, 1) == (second, None)

    run(test())
