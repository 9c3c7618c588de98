"""The drills of docs/OPERATIONS.md that no other test walks through, by its commands."""

import asyncio
import json
import logging
import re
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.groups import Groups
from sparkraft.client.producer import Producer
from sparkraft.client.values import Committed, ResourceType
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

log = logging.getLogger(__name__)

pytestmark = pytest.mark.real_clients

RECORDS = 2_000
VALUE_BYTES = 1_000


async def _send(bootstrap: str, topic: str, count: int) -> None:
    async with Client(bootstrap) as client, Producer(client) as producer:
        sent = [
            await producer.send(topic, b"%07d" % n + bytes(VALUE_BYTES), partition=n % 2)
            for n in range(count)
        ]
        for each in sent:
            await each


async def _read(bootstrap: str, topic: str, count: int) -> list[int]:
    """The numbers of the records, which must be `count`, in order."""
    found: list[int] = []
    settings = ConsumerSettings(auto_offset_reset="earliest")
    async with (
        asyncio.timeout(120),
        Client(bootstrap) as client,
        Consumer(client, settings) as consumer,
    ):
        consumer.assign([(topic, 0), (topic, 1)])
        while len(found) < count:
            found += [int((r.value or b"")[:7]) for r in await consumer.poll(500)]
    return sorted(found)


async def _commit(bootstrap: str, group: str, offset: int) -> None:
    async with Client(bootstrap) as client:
        outcome = await Groups(client).commit(group, {("kept", 0): Committed(offset=offset)})
        assert not any(outcome.values())


async def _committed(bootstrap: str, group: str) -> int:
    async with Client(bootstrap) as client:
        return (await Groups(client).offsets(group))["kept", 0].offset


def folder_of(cluster: Cluster, node_id: int) -> Path:
    return cluster.nodes[node_id].log_dir


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, [Member(1), Member(2), Member(3)], overrides=STEADY) as cluster:
        yield cluster


def test_a_backup_of_stopped_nodes_is_restored(three: Cluster, tmp_path: Path) -> None:
    """Backup and restore: topics, records, offsets and configs are as they were."""
    three.create_topic("kept", partitions=2, replicas=3)
    three.set_config("kept", **{"retention.ms": "86400000"})
    asyncio.run(_send(three.bootstrap, "kept", RECORDS))
    asyncio.run(_commit(three.bootstrap, "readers", 700))
    three.stop()
    begun = time.monotonic()  # The figures of docs/OPERATIONS.md: `pytest --log-cli-level=info`.
    for node_id in three.nodes:
        with tarfile.open(tmp_path / f"{node_id}.tar", "w") as archive:
            archive.add(folder_of(three, node_id), arcname=".")
    saved = time.monotonic()
    for node_id in three.nodes:
        shutil.rmtree(folder_of(three, node_id))
    removed = time.monotonic()
    for node_id in three.nodes:
        with tarfile.open(tmp_path / f"{node_id}.tar") as archive:
            archive.extractall(folder_of(three, node_id), filter="data")
    three.start()
    restored = time.monotonic()
    size = sum((tmp_path / f"{node_id}.tar").stat().st_size for node_id in three.nodes)
    log.info("backup: %d MiB in %.1f s", size >> 20, saved - begun)
    log.info("restored and started in %.1f s", restored - removed)
    assert asyncio.run(_read(three.bootstrap, "kept", RECORDS)) == list(range(RECORDS))
    assert asyncio.run(_committed(three.bootstrap, "readers")) == 700
    assert three.config("kept", "retention.ms", of=1) == "86400000"
    # It is a cluster as before: it takes new topics and records.
    three.create_topic("later", partitions=2, replicas=3)
    asyncio.run(_send(three.bootstrap, "later", 10))


@pytest.mark.long
def test_most_voters_are_lost_and_the_quorum_is_built_from_the_last_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost quorum: brokers serve meanwhile; the metadata log of the last voter is copied."""
    members = [*(Member(n, roles="controller") for n in (1, 2, 3)), Member(4, roles="broker")]
    with Cluster(tmp_path, members, overrides=STEADY) as cluster:
        cluster.create_topic("kept", partitions=2, replicas=1)
        # The broker gets a block of producer ids from the controller: new producers need them.
        asyncio.run(_send(cluster.bootstrap, "kept", 20))
        leader = cluster.leader()
        lost = [n for n in (1, 2, 3) if n != leader]
        cluster.kill(*lost)
        for node_id in lost:
            shutil.rmtree(folder_of(cluster, node_id))
        # Clients go on without a quorum.
        asyncio.run(_send(cluster.bootstrap, "kept", 100))
        assert len(asyncio.run(_read(cluster.bootstrap, "kept", 120))) == 120
        cluster.kill(leader)
        kept = folder_of(cluster, leader)
        log = next((kept / "__cluster_metadata-0").glob("*.log"))
        capsys.readouterr()
        dump = ["dump-log", "--cluster-metadata-decoder", "--files", str(log)]
        assert cli.main(dump) == 0
        printed = capsys.readouterr().out
        meta = (kept / "meta.properties").read_text()
        for node_id in lost:
            directory_id = cluster.directory_ids[node_id]
            assert directory_id in printed, "dump-log has the ids of the lost directories"
            target = folder_of(cluster, node_id)
            shutil.copytree(kept, target)
            (target / "__cluster_metadata-0" / "quorum-state").unlink()
            text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node_id}", meta)
            text = re.sub(r"(?m)^directory\.id=.*$", f"directory.id={directory_id}", text)
            (target / "meta.properties").write_text(text)
        cluster.start([1, 2, 3])
        cluster.leader()
        assert "kept" in cluster.topics()
        cluster.create_topic("later", partitions=1, replicas=1)
        assert len(asyncio.run(_read(cluster.bootstrap, "kept", 120))) == 120


@pytest.mark.long
def test_a_broker_joins_takes_partitions_and_another_one_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Expansion and replacement: broker 4 takes over from broker 3, which is unregistered."""
    members = [Member(1), Member(2, roles="broker"), Member(3, roles="broker")]
    with Cluster(tmp_path, members, overrides=STEADY) as cluster:
        cluster.create_topic("kept", partitions=2, replicas=3)
        asyncio.run(_send(cluster.bootstrap, "kept", RECORDS))
        cluster.add(Member(4, roles="broker"))
        cluster.start([4])
        servers = ["--bootstrap-server", cluster.bootstrap]
        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "kept"}]}))
        generate = ["reassign-partitions", *servers, "--generate", "--output", "json"]
        capsys.readouterr()
        assert cli.main(
            [*generate, "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,4"]
        ) == 0  # fmt: skip
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps(json.loads(capsys.readouterr().out)["proposed"]))
        move = ["reassign-partitions", *servers, "--reassignment-json-file", str(plan)]
        assert cli.main([*move, "--execute", "--throttle", "50000000"]) == 0

        def is_complete() -> bool:
            capsys.readouterr()
            assert cli.main([*move, "--verify", "--output", "json"]) == 0
            return not json.loads(capsys.readouterr().out)["anyOngoing"]

        wait_until(is_complete, "the partitions have moved", 120)
        cluster.stop(3)
        unregister = ["cluster", "unregister", "--id", "3"]
        assert (
            cli.main([*unregister, "--bootstrap-server", f"127.0.0.1:{cluster.ports[1][0]}"]) == 0
        )

        async def describe(admin: Admin) -> tuple[set[int], set[int], str | None]:
            info = (await admin.describe_topics(["kept"]))["kept"]
            assert not isinstance(info, KafkaError)
            nodes = (await admin.describe_cluster(include_fenced=True)).nodes
            resource = (ResourceType.BROKER, "4")
            throttle = "follower.replication.throttled.rate"
            found = (await admin.describe_configs([resource], names=[throttle]))[resource]
            assert not isinstance(found, KafkaError)
            replicas = {n for p in info.partitions.values() for n in p.isr}
            return replicas, {node.id for node in nodes}, next((c.value for c in found), None)

        def has_left() -> bool:
            replicas, nodes, throttle = cluster.ask(describe, of=1)
            return replicas == {1, 2, 4} and nodes == {1, 2, 4} and throttle is None

        wait_until(has_left, "broker 3 has left, in sync without it", 60)
        read = _read(f"127.0.0.1:{cluster.ports[4][0]}", "kept", RECORDS)
        assert asyncio.run(read) == list(range(RECORDS))
