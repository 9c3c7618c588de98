"""The same operations under Kafka's controller and under ours leave the same znodes.

Broker 1 is the controller and serves all requests, broker 2 stops, fails and returns, and one of
its two log directories fails. In one cluster broker 1 is Kafka's and 2 ours, in the other it is the
reverse. All keys of all znodes and the versions of all znodes are compared, also while the deletion
of a topic waits for an offline replica; `allowed_differences.json` has the few that may differ,
with the reasons.
"""

import asyncio
import errno
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.values import NewTopic
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import k34_alter_replica_log_dirs as k34
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.errors import NoNodeError
from sparkraft.zookeeper.requests import Create, GetChildren, GetData
from tests.support.failing_disk import FailingDisk
from tests.support.outside_tools import Missing
from tests.support.zookeeper import Ensemble
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

pytestmark = [pytest.mark.java, pytest.mark.real_time, pytest.mark.long]

ALLOWED = json.loads((Path(__file__).parent / "allowed_differences.json").read_text())
SETTINGS = {"zookeeper.session.timeout.ms": "4000"}
PATIENCE_S = 60
SETTLED_S = 2

Tree = dict[str, Any]

TOGETHER = {"a_0": (1, [1, 2]), "a_1": (1, [1, 2]), "a_2": (1, [1, 2]), "b_0": (2, [2])}
"""The states while both brokers run."""
ALONE = {"a_0": (1, [1]), "a_1": (1, [1]), "a_2": (1, [1]), "b_0": (-1, [2])}
"""The states while broker 2 is away."""


class Operator:
    """Changes one cluster, and reads its znodes."""

    def __init__(self, connect: str, bootstrap: str) -> None:
        self.session = ZooKeeperClient(
            parse_connect_string(connect),
            connect=SystemNetwork().connect,
            clock=SystemClock(),
            entropy=SystemEntropy(),
        )
        self.cluster = Cluster(bootstrap)
        self.admin = Admin(self.cluster)

    async def tree(self, path: str = "") -> Tree:
        """Path → data as values, and the version of the znode, without those deleted meanwhile."""
        try:
            data, stat = await self.session.submit(GetData(path=path or "/"))
            names, _ = await self.session.submit(GetChildren(path=path or "/"))
        except NoNodeError:
            return {}
        found: Tree = {path or "/": {"data": values_of(data), "version": stat.version}}
        for name in sorted(names):
            found |= await self.tree(f"{path}/{name}")
        return found

    async def states(self) -> dict[str, tuple[int, list[int]]]:
        """Topic-partition → leader and sorted ISR."""
        found = {}
        for path, node in (await self.tree("/brokers/topics")).items():
            if match := re.fullmatch(r"/brokers/topics/(.+)/partitions/(\d+)/state", path):
                state = node["data"]
                found[f"{match[1]}-{match[2]}"] = (state["leader"], sorted(state["isr"]))
        return found

    async def settled(self) -> Tree:
        """The znodes once nothing has been written for a while."""
        tree = await self.tree()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.sleep(SETTLED_S)
                before, tree = tree, await self.tree()
                if before == tree:
                    return tree

    async def create(self, name: str, replicas: dict[int, list[int]], **configs: str) -> None:
        topic = NewTopic(name=name, assignment=replicas, configs=configs)
        made = await self.admin.create_topics([topic])
        assert not isinstance(made[name], KafkaError), made

    async def delete(self, topic: str) -> Tree:
        """Delete a topic that has an offline replica: the znodes while the deletion waits."""
        await self.admin.delete_topics([topic])

        async def has_no_leader() -> bool:
            return (await self.states())[f"{topic}-0"][0] == -1

        await eventually(has_no_leader)
        tree = await self.settled()
        assert f"/admin/delete_topics/{topic}" in tree
        return tree

    async def until(self, **expected: tuple[int, list[int]]) -> None:
        """Wait for the states; underscores stand for dashes."""
        wanted = {name.replace("_", "-"): state for name, state in expected.items()}

        async def holds() -> bool:
            return await self.states() == wanted

        await eventually(holds)

    async def ask(self, request: Any) -> None:
        response = await self.cluster.ask_any(request)
        assert not getattr(response, "error_code", 0), response
        lists = ("responses", "entries", "replica_election_results")
        assert any(getattr(response, name, None) for name in lists), response


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.1)


def values_of(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def setting(kind: int, name: str, key: str, value: str) -> k44.AlterConfigsResource:
    config = k44.AlterableConfig(name=key, value=value)
    return k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])


def quota(key: str, value: float, *, remove: bool = False, **entity: str | None) -> Any:
    parts = [
        k49.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    op = k49.OpData(key=key, value=value, remove=remove)
    return k49.AlterClientQuotasRequestEntryData(entity=parts, ops=[op])


def move(topic: str, partition: int, replicas: list[int]) -> k45.AlterPartitionReassignmentsRequest:
    part = k45.ReassignablePartition(partition_index=partition, replicas=replicas)
    topics = [k45.ReassignableTopic(name=topic, partitions=[part])]
    return k45.AlterPartitionReassignmentsRequest(topics=topics)


Other = KafkaBroker | OurBroker


async def operate(at: Operator, other: Other, disk: FailingDisk) -> dict[str, Tree]:
    """Do everything, and return the znodes after each part."""
    await at.session.start()
    await change(at, other)
    await end_and_return(at, other)
    trees = {"both": await at.settled()}
    trees["offline replica"] = await delete_while_away(at, other)
    failed, deleted = await fail_directory(at, other, disk)
    trees |= {"failed directory": failed, "deletion with it": deleted, "end": await at.settled()}
    await at.cluster.close()
    await at.session.close()
    return trees


async def change(at: Operator, other: Other) -> None:
    """Topics, configs, quotas, a deletion, reassignments and elections."""
    await place(other, "a", a=[0, 1, 2], b=[0], c=[0])
    await at.create("a", {0: [1, 2], 1: [2, 1]}, **{"retention.ms": "3600000"})
    await at.create("b", {0: [1]})
    await at.create("c", {0: [2, 1]})
    assert (await at.admin.create_partitions({"a": 3}, assignments={"a": [[1, 2]]}))["a"] is None
    settings = [
        setting(ResourceType.TOPIC, "b", "min.insync.replicas", "1"),
        setting(ResourceType.BROKER, "", "log.cleaner.threads", "2"),
        setting(ResourceType.BROKER, "1", "log.cleaner.threads", "1"),
    ]
    for one in settings:
        await at.ask(k44.IncrementalAlterConfigsRequest(resources=[one]))
    for one in (
        quota("producer_byte_rate", 1024, user="CN=a b,O=x*"),
        quota("request_percentage", 12.5, user="alice", client_id="app"),
        quota("consumer_byte_rate", 2048, client_id=None),
        quota("connection_creation_rate", 100, ip="127.0.0.9"),
        quota("consumer_byte_rate", 0, remove=True, client_id=None),
    ):
        await at.ask(k49.AlterClientQuotasRequest(entries=[one]))
    await at.admin.delete_topics(["c"])
    all_in_sync = TOGETHER | {"a_1": (2, [1, 2])}
    await at.until(**(all_in_sync | {"b_0": (1, [1])}))
    await at.ask(move("b", 0, [2]))
    await at.until(**all_in_sync)
    await at.ask(move("a", 1, [1, 2]))
    await at.ask(
        k43.ElectLeadersRequest(topic_partitions=[k43.TopicPartitions(topic="a", partitions=[1])])
    )
    await at.until(**TOGETHER)
    elected = json.dumps({"version": 1, "partitions": [{"topic": "a", "partition": 0}]}).encode()
    await at.session.submit(Create(path="/admin/preferred_replica_election", data=elected))


async def end_and_return(at: Operator, other: Other) -> None:
    """Broker 2 stops and returns, then fails and returns."""
    for end in (other.stop, other.kill):
        await asyncio.to_thread(end)
        await at.until(**ALONE)
        await asyncio.to_thread(other.start)
        await at.until(**TOGETHER)


async def delete_while_away(at: Operator, other: Other) -> Tree:
    """A topic is deleted while broker 2 is away; the deletion ends when it returns."""
    await place(other, "a", d=[0])
    await at.create("d", {0: [1, 2]})
    await at.until(**TOGETHER, d_0=(1, [1, 2]))
    await asyncio.to_thread(other.stop)
    await at.until(**ALONE, d_0=(1, [1]))
    tree = await at.delete("d")
    await asyncio.to_thread(other.start)
    await at.until(**TOGETHER)
    return tree


async def fail_directory(at: Operator, other: Other, disk: FailingDisk) -> tuple[Tree, Tree]:
    """A log directory of broker 2 fails; a topic with a replica in it is deleted.

    The deletion ends when the broker returns with a new disk.
    """
    await place(other, "b", e=[0])
    await at.create("e", {0: [2, 1]})
    await at.until(**TOGETHER, e_0=(2, [1, 2]))
    disk.fail("write", errno.EIO, f"{other.log_dir}/b/")
    # An idempotent one would take a producer id through either broker, which a znode names.
    async with Producer(at.cluster, ProducerSettings(idempotence=False)) as producer:
        await (await producer.send("e", b"v", partition=0))
    await at.until(**TOGETHER, e_0=(1, [1]))
    failed = await at.settled()
    deleted = await at.delete("e")
    disk.heal()
    await asyncio.to_thread(other.stop)
    await at.until(**ALONE, e_0=(-1, [1]))
    await asyncio.to_thread(other.start)
    await at.until(**TOGETHER)
    return failed, deleted


async def place(other: Other, directory: str, **partitions: list[int]) -> None:
    """Choose the log directory of replicas that broker 2 does not have yet."""
    topics = [
        k34.AlterReplicaLogDirTopic(name=name, partitions=indexes)
        for name, indexes in partitions.items()
    ]
    chosen = k34.AlterReplicaLogDir(path=f"{other.log_dir}/{directory}", topics=topics)
    async with Cluster(other.bootstrap) as cluster:
        await cluster.ask_any(k34.AlterReplicaLogDirsRequest(dirs=[chosen]))


def differences(kafka: Tree, ours: Tree) -> list[str]:
    """What differs and is not allowed to, a line each."""
    found = []
    for path in sorted(kafka.keys() | ours.keys()):
        if path not in ours or path not in kafka:
            found.append(f"{path}: only under {'Kafka' if path in kafka else 'ours'}")
            continue
        left, right = flat(kafka[path]), flat(ours[path])
        found += [
            f"{path} {key}: {left.get(key)!r} under Kafka, {right.get(key)!r} under ours"
            for key in sorted(left.keys() | right.keys())
            if left.get(key) != right.get(key)
        ]
    return [line for line in found if not any(re.match(each["match"], line) for each in ALLOWED)]


def flat(node: dict[str, Any]) -> dict[str, Any]:
    """Key → value of an object; an ISR is a set."""
    data = node["data"]
    fields = dict(data) if isinstance(data, dict) else {"data": data}
    if "isr" in fields:
        fields["isr"] = sorted(fields["isr"])
    return fields | {"znode version": node["version"]}


def run(ensemble: Ensemble, chroot: str, one: Other, two: Other, folder: Path) -> dict[str, Tree]:
    """Broker 1 starts first and is the controller; broker 2 has two log directories."""
    disk = FailingDisk.in_folder(folder)
    if isinstance(disk, Missing):
        pytest.skip(disk.reason)
    two.environment = disk.environment
    two.overrides = {**two.overrides, "log.dirs": f"{two.log_dir}/a,{two.log_dir}/b"}
    two.write_properties()
    with one, two:
        at = Operator(f"{ensemble.connect}{chroot}", one.bootstrap)
        return asyncio.run(operate(at, two, disk))


def test_the_same_operations_leave_the_same_znodes(zookeeper_jars, tmp_path):
    with Ensemble(zookeeper_jars, tmp_path) as ensemble:

        def kafka(chroot: str, broker: int) -> KafkaBroker:
            connect = ensemble.connect + chroot
            folder = tmp_path / chroot[1:] / str(broker)
            return KafkaBroker(folder, broker, connect, zookeeper_jars, SETTINGS)

        def ours(chroot: str, broker: int) -> OurBroker:
            allowed = {"sparkraft.controllership.enable": str(broker == 1).lower()}
            folder = tmp_path / chroot[1:] / str(broker)
            return OurBroker(folder, broker, ensemble.connect + chroot, SETTINGS | allowed)

        under_kafka = run(ensemble, "/k", kafka("/k", 1), ours("/k", 2), tmp_path / "k")
        under_ours = run(ensemble, "/o", ours("/o", 1), kafka("/o", 2), tmp_path / "o")
    for name, trees in (("kafka", under_kafka), ("ours", under_ours)):
        (tmp_path / f"{name}.json").write_text(json.dumps(trees, indent=1, sort_keys=True))
    found = {name: differences(tree, under_ours[name]) for name, tree in under_kafka.items()}
    assert found == {name: [] for name in under_kafka}
