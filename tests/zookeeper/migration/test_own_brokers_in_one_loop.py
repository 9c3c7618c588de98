"""Brokers of ours are migrated by controllers of ours, in one event loop on a simulated ensemble.

Processes and a real ensemble are in `test_own_brokers.py`.
"""

import json
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.explain.zookeeper_controller import controller_document, controller_lines
from sparkraft.client.producer import Producer
from sparkraft.client.values import NewTopic
from sparkraft.metadata.features import level_of
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import k18_api_versions as k18
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.login import Login
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.server.config import NodeConfig
from sparkraft.server.families import whole
from sparkraft.server.health import health_of
from sparkraft.server.metrics import parts
from sparkraft.server.node import Node
from sparkraft.server.zookeeper_config import ACL_AUTHORIZER
from sparkraft.storage.disk import StorageFault
from sparkraft.zookeeper.migration.state import DriverState
from sparkraft.zookeeper.requests import Delete
from tests.server.harness import make_env, run, until
from tests.support.sasl import PASSWORDS, PLAIN, server_module
from tests.zookeeper.broker.nodes import Nodes, nodes_in
from tests.zookeeper.migration.test_driver import CLUSTER, RELEASE, Migrated

pytestmark = [pytest.mark.real_time]

PARTITIONS = 2


BETWEEN_NODES = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": PLAIN,
    "sasl.mechanism.inter.broker.protocol": PLAIN,
    "sasl.mechanism.controller.protocol": PLAIN,
    "listener.name.controller.plain.sasl.jaas.config": server_module(PLAIN),
    "listener.name.plaintext.plain.sasl.jaas.config": server_module(PLAIN),
    "super.users": "User:admin",
}
"""Each node authenticates itself to each other, and may do everything; others need entries."""


class OwnCluster:
    """Brokers 1 and 2 in ZooKeeper mode, and three controllers that are not started."""

    def __init__(self, folder: Path, nodes: Nodes, *, secured: bool, release: str) -> None:
        self.nodes, self._release = nodes, release
        self.controllers = Migrated(
            folder / "quorum", nodes.ensemble, nodes.ensemble_port, 3, release
        )
        self._security = BETWEEN_NODES if secured else {}
        self._login = Login(PLAIN, "admin", Secret(PASSWORDS["admin"])) if secured else None
        if secured:
            kraft = {"authorizer.class.name": STANDARD_AUTHORIZER}
            self.controllers.properties |= self._security | kraft
        self.kraft: dict[int, Node] = {}
        self._folder = folder
        self._records = 0
        self._bootstrap = ""

    async def start(self) -> None:
        self.controllers.put("/cluster/id", {"version": "1", "id": CLUSTER})
        self.controllers.format()
        await self.start_in_zookeeper_mode(1, 2)
        self._bootstrap = self.nodes.bootstrap
        await self.create("t", retention_ms="123456")

    async def start_in_zookeeper_mode(self, *brokers: int, **overrides: str) -> None:
        """Start brokers one after another."""
        security = self._security | {"authorizer.class.name": ACL_AUTHORIZER}
        named = {key.replace(".", "_"): text for key, text in security.items()}
        given = (named if self._security else {}) | overrides
        await self.nodes.start(*brokers, inter_broker_protocol_version=self._release, **given)

    def clients(self) -> Cluster:
        """A client, as super user if the cluster is secured."""
        return Cluster(self._bootstrap, login=self._login)

    async def create(self, name: str, **configs: str) -> None:
        values = {key.replace("_", "."): value for key, value in configs.items()}
        async with self.clients() as cluster:
            topic = NewTopic(name=name, partitions=PARTITIONS, replication_factor=2, configs=values)
            made = await Admin(cluster).create_topics([topic])
        assert not isinstance(made[name], KafkaError), made

    async def set_retention(self, topic: str, value: str) -> None:
        config = k44.AlterableConfig(name="retention.ms", value=value)
        resource = k44.AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic, configs=[config]
        )
        async with self.clients() as cluster:
            request = k44.IncrementalAlterConfigsRequest(resources=[resource])
            response = await cluster.ask_any(request)
        assert response.responses[0].error_code == 0, response

    async def produce(self, count: int = 20) -> None:
        async with self.clients() as cluster, Producer(cluster) as producer:
            for _ in range(count):
                await producer.send("t", b"%d" % self._records, partition=self._records % 2)
                self._records += 1

    async def check_records(self) -> None:
        """Every record is there, once."""
        found: list[int] = []
        settings = ConsumerSettings(auto_offset_reset="earliest")
        async with self.clients() as cluster, Consumer(cluster, settings) as consumer:
            consumer.assign([("t", partition) for partition in range(PARTITIONS)])
            while len(found) < self._records:
                found += [int(record.value or b"-1") for record in await consumer.poll(100)]
        assert sorted(found) == list(range(self._records))

    async def join(self, broker: int, **overrides: str) -> None:
        """Restart a broker in ZooKeeper mode, known to the quorum."""
        await self.leave(broker)
        if not self._security:
            overrides["listener_security_protocol_map"] = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        await self.start_in_zookeeper_mode(
            broker,
            zookeeper_metadata_migration_enable="true",
            controller_quorum_voters=self.controllers.properties["controller.quorum.voters"],
            controller_listener_names="CONTROLLER",
            broker_session_timeout_ms="2000",
            broker_heartbeat_interval_ms="200",
            **overrides,
        )

    async def leave(self, broker: int) -> None:
        """Stop a broker of either mode."""
        if broker in self.kraft:
            await self.kraft.pop(broker).stop()
        else:
            await self.nodes.stop(broker)

    async def restart_in_kraft_mode(self, broker: int) -> None:
        port = self.nodes[broker].ports["PLAINTEXT"]
        await self.leave(broker)
        properties = {
            "process.roles": "broker",
            "node.id": str(broker),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self._folder / str(broker)),
            "controller.quorum.voters": self.controllers.properties["controller.quorum.voters"],
            "controller.listener.names": "CONTROLLER",
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "200",
            **self._security,
        }
        if self._security:
            properties["authorizer.class.name"] = STANDARD_AUTHORIZER
        self.kraft[broker] = node = Node(NodeConfig(properties), make_env())
        await node.start()

    async def wait_until_whole(self) -> None:
        def whole() -> bool:
            image = self.controllers.image
            topic = image.topic("t")
            return topic is not None and all(
                sorted(each.isr) == [1, 2] and each.leader > 0 for each in topic.partitions.values()
            )

        await until(lambda: bool(self.controllers.active) and whole())

    @property
    def epoch(self) -> int:
        """Of the controller, in ZooKeeper."""
        return int(self.nodes.ensemble.znodes.get("/controller_epoch").data)

    def znode(self, path: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.nodes.ensemble.znodes.get(path).data)
        return found

    async def close(self) -> None:
        for broker in list(self.kraft):
            await self.leave(broker)
        await self.nodes.close()
        await self.controllers.stop()


@asynccontextmanager
async def own_cluster(folder: Path, *, secured: bool = False, release: str = RELEASE):
    async with nodes_in(folder) as nodes:
        cluster = OwnCluster(folder, nodes, secured=secured, release=release)
        try:
            await cluster.start()
            yield cluster
        finally:
            await cluster.close()


def _is_whole(nodes: Nodes, seen_by: int) -> bool:
    """Whether both brokers are live, and `t` is in sync, as a broker sees it."""
    states = nodes.states("t", seen_by).values()
    live = sorted(nodes[seen_by].broker.image.brokers)
    return live == [1, 2] and all(isr == [1, 2] for _, isr in states)


@pytest.mark.parametrize(
    "release",
    [
        RELEASE,
        pytest.param("3.6-IV1", marks=pytest.mark.long),  # test_driver.py has it, and stays
        pytest.param("3.6-IV2", marks=pytest.mark.long),
        pytest.param("3.7-IV0", marks=pytest.mark.long),
    ],
)
def test_brokers_of_ours_leave_zookeeper(tmp_path, release):
    async def test() -> None:
        async with own_cluster(tmp_path, release=release) as cluster:
            nodes, controllers = cluster.nodes, cluster.controllers
            await cluster.produce()
            await controllers.start()
            await until(lambda: controllers.state is DriverState.WAIT_FOR_BROKERS)
            await cluster.join(1)
            await until(lambda: 1 in controllers.image.brokers)
            registration = controllers.image.brokers[1]
            assert registration.is_migrating_zk_broker
            level = level_of(release)
            assert registration.supported_features["metadata.version"] == (level, level)
            assert not nodes.has_kraft_controller(), "broker 2 has not registered"
            await cluster.produce()
            await until(lambda: _is_whole(nodes, 1))
            await cluster.join(2)
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await _use_both(cluster)
            # The active controller ends; another one takes over.
            await controllers.stop(controllers.active)
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await cluster.create("during")
            await cluster.produce()
            for broker in (1, 2):
                await cluster.wait_until_whole()
                await cluster.restart_in_kraft_mode(broker)
                await cluster.produce()
            await until(lambda: nodes.children("/brokers/ids") == [])
            image = controllers.image
            assert sorted(image.topics_by_name) == ["during", "new", "t"]
            assert dict(image.config(ResourceType.TOPIC, "t")) == {"retention.ms": "654321"}
            await cluster.check_records()

    run(test())


async def _use_both(cluster: OwnCluster) -> None:
    """The brokers are in ZooKeeper mode, and a KRaft controller rules."""
    nodes = cluster.nodes
    assert nodes.has_kraft_controller()
    await until(lambda: nodes[1].broker.controlled.has_kraft_controller)
    assert health_of(nodes[1])["healthy"]
    names = [each.name for each in whole(parts(nodes[1]))]
    assert len(names) == len(set(names)), "each metric once"
    async with cluster.clients() as client:
        versions = await client.ask_any(
            k18.ApiVersionsRequest(client_software_name="t", client_software_version="1"), version=3
        )
        document = await controller_document(client)
    assert not versions.supported_features
    assert not versions.finalized_features
    assert versions.zk_migration_ready
    shown = next(controller_lines(document, 0))
    assert shown.startswith("controller  KRaft controller 300")
    assert shown.endswith(": it migrates the cluster")
    await cluster.create("new")
    await cluster.set_retention("t", "654321")
    expected = {"version": 1, "config": {"retention.ms": "654321"}}
    await until(lambda: cluster.znode("/config/topics/t") == expected)
    log = nodes[1].broker.log_manager.get("t", 0)
    await until(lambda: log.config.retention_ms == 654_321)
    await until(lambda: nodes.states("new", 1) == nodes.states("new", 2) != {})
    await cluster.produce()
    # A follower that left is removed from the ISR, and joins again: AlterPartition to the quorum.
    await cluster.join(2)
    await cluster.wait_until_whole()


def test_brokers_of_ours_return_to_zookeeper(tmp_path):
    """Roll-back after a broker ran in KRaft mode: the steps of docs/ZOOKEEPER.md."""

    async def test() -> None:
        async with own_cluster(tmp_path) as cluster:
            nodes, controllers = cluster.nodes, cluster.controllers
            await controllers.start()
            for broker in (1, 2):
                await cluster.join(broker)
                await until(lambda: _is_whole(nodes, broker))  # noqa: B023
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await cluster.produce()
            await cluster.wait_until_whole()
            await cluster.restart_in_kraft_mode(2)
            await cluster.create("made-by-kraft")
            await cluster.produce()
            await cluster.wait_until_whole()
            await cluster.join(2)
            await cluster.produce()
            await cluster.wait_until_whole()
            await controllers.stop()
            for path in ("/controller", "/migration"):
                await nodes.submit(Delete(path=path))
            await until(lambda: nodes.controller() > 0)
            await until(lambda: not nodes[1].broker.controlled.has_kraft_controller)
            for broker in (1, 2):
                await cluster.leave(broker)
                await cluster.start_in_zookeeper_mode(broker)
                await until(lambda: _is_whole(nodes, broker))  # noqa: B023
            await cluster.create("made-by-broker")
            await cluster.produce()
            assert nodes.children("/brokers/topics") == ["made-by-broker", "made-by-kraft", "t"]
            await cluster.check_records()

    run(test())


def test_a_broker_that_becomes_the_controller_during_dual_write_loses_it_again(tmp_path):
    """An operator deletes /controller too early; the brokers compete for it."""

    async def test() -> None:
        async with own_cluster(tmp_path) as cluster:
            nodes, controllers = cluster.nodes, cluster.controllers
            await controllers.start()
            for broker in (1, 2):
                await cluster.join(broker)
                await until(lambda: _is_whole(nodes, broker))  # noqa: B023
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await cluster.produce()
            before = cluster.epoch
            await nodes.submit(Delete(path="/controller"))
            await until(lambda: cluster.epoch > before and nodes.has_kraft_controller())
            await until(
                lambda: all(nodes[each].broker.controlled.has_kraft_controller for each in (1, 2))
            )
            await until(lambda: nodes.controller() == 0)
            await cluster.produce()
            await cluster.create("after")
            await until(lambda: nodes.children("/brokers/topics") == ["after", "t"])
            await cluster.check_records()

    run(test())


def test_a_migrating_broker_stops_when_a_log_directory_fails(tmp_path):
    """KAFKA-16431: it could not report that to a KRaft controller."""

    async def test() -> None:
        async with own_cluster(tmp_path) as cluster:
            folders = (str(tmp_path / "1"), str(tmp_path / "1b"))
            await cluster.join(1, log_dirs=",".join(folders))
            node = cluster.nodes[1]
            node.on_storage_fault(StorageFault(folders[1], "write", "broken"))
            assert isinstance(node.failure, StorageFault)

    run(test())


def allow_reading(user: str) -> Acl:
    return Acl(
        AclResourceType.TOPIC, "t", PatternType.LITERAL, f"User:{user}", "*",
        AclOperation.READ, AclPermissionType.ALLOW,
    )  # fmt: skip


def test_nodes_that_authenticate_each_other_are_migrated_with_their_entries(tmp_path):
    async def test() -> None:
        async with own_cluster(tmp_path, secured=True) as cluster:
            nodes, controllers = cluster.nodes, cluster.controllers
            await _add(cluster, allow_reading("before"))
            await cluster.produce()
            await controllers.start()
            for broker in (1, 2):
                await cluster.join(broker)
                await until(lambda: _is_whole(nodes, broker))  # noqa: B023
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await until(lambda: nodes[1].broker.controlled.has_kraft_controller)
            # The broker sends it to the controller in the client's name.
            await _add(cluster, allow_reading("during"))
            await until(lambda: "during" in str(cluster.znode("/kafka-acl/Topic/t")))
            await cluster.produce()
            for broker in (1, 2):
                await cluster.wait_until_whole()
                await cluster.restart_in_kraft_mode(broker)
                await cluster.produce()
            async with cluster.clients() as client:
                found = await AclAdmin(client).describe_acls(AclFilter())
            assert set(found) == {allow_reading("before"), allow_reading("during")}
            await cluster.check_records()

    run(test())


def test_entries_of_each_stage_are_in_force_after_a_secured_roll_back(tmp_path):
    """Three controllers, whose active one ends; then the steps of docs/ZOOKEEPER.md."""
    stages = ["before", "dual-write", "after-a-takeover", "kraft", "back"]

    async def test() -> None:
        async with own_cluster(tmp_path, secured=True) as cluster:
            nodes, controllers = cluster.nodes, cluster.controllers
            await _add(cluster, allow_reading("before"))
            await controllers.start()
            for broker in (1, 2):
                await cluster.join(broker)
                await until(lambda: _is_whole(nodes, broker))  # noqa: B023
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await until(lambda: nodes[1].broker.controlled.has_kraft_controller)
            await _add(cluster, allow_reading("dual-write"))
            await controllers.stop(controllers.active)
            await until(lambda: controllers.state is DriverState.DUAL_WRITE)
            await cluster.wait_until_whole()
            await _add(cluster, allow_reading("after-a-takeover"))
            await cluster.restart_in_kraft_mode(2)
            await _add(cluster, allow_reading("kraft"))
            await cluster.produce()
            await cluster.wait_until_whole()
            await cluster.join(2)
            await cluster.wait_until_whole()
            await controllers.stop()
            for path in ("/controller", "/migration"):
                await nodes.submit(Delete(path=path))
            await until(lambda: nodes.controller() > 0)
            await until(lambda: not nodes[1].broker.controlled.has_kraft_controller)
            for broker in (1, 2):
                await cluster.leave(broker)
                await cluster.start_in_zookeeper_mode(broker)
                await until(lambda: _is_whole(nodes, broker))  # noqa: B023
            await _add(cluster, allow_reading("back"))
            written = str(cluster.znode("/kafka-acl/Topic/t"))
            assert [stage for stage in stages if f"User:{stage}" not in written] == []
            for broker in (1, 2):
                await until(lambda: _readers(nodes, broker, [*stages, "no-one"]) == stages)  # noqa: B023
            await cluster.produce()
            await cluster.check_records()

    run(test())


def _readers(nodes: Nodes, broker: int, users: list[str]) -> list[str]:
    """The users that a broker lets read topic `t`."""
    authorizer, read, topic = nodes[broker].authorizer, AclOperation.READ, AclResourceType.TOPIC
    clients = {
        user: SimpleNamespace(principal=KafkaPrincipal("User", user), client_host="127.0.0.1")
        for user in users
    }
    return [
        user for user, client in clients.items() if authorizer.authorize(client, read, topic, "t")
    ]


async def _add(cluster: OwnCluster, acl: Acl) -> None:
    async with cluster.clients() as client:
        assert await AclAdmin(client).create_acls([acl]) == [None]
