"""A controller of ours takes over the znodes of a simulated ensemble; one broker is a stand-in.

The stand-in registers and sends heartbeats as a broker of Kafka 3.9 does, and keeps the requests
of the controller. A real one is in `test_migration.py`.
"""

import asyncio
import json
import random
import struct
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.metadata.features import level_of
from sparkraft.metadata.image import MigrationState
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages import k04_leader_and_isr as k04
from sparkraft.protocol.messages import k05_stop_replica as k05
from sparkraft.protocol.messages import k06_update_metadata as k06
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.server.node import Node
from sparkraft.server.node_format import FormatOptions, format_node
from sparkraft.simulation.world.zookeeper import Ensemble
from sparkraft.storage.disk import OsDisk
from sparkraft.zookeeper.migration.state import DriverState
from sparkraft.zookeeper.requests import Create, Delete, SetData
from tests.server.harness import make_env, run, until
from tests.support.ports import lasting_ports

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
RELEASE = "3.9-IV0"
"""metadata.version of the quorum, and inter.broker.protocol.version of the brokers."""
TOPIC_ID = "tCd6H9mrR6y44P05yz6EbQ"
ROOTS = (
    "/admin/delete_topics", "/brokers/ids", "/brokers/topics", "/cluster", "/config/changes",
    "/config/topics", "/config/brokers", "/config/users", "/config/clients", "/config/ips",
)  # fmt: skip

LOST = 0.2
"""Share of the replies that are lost."""

FIRST = [("UpdateMetadataRequest", 0), ("LeaderAndIsrRequest", 2), ("UpdateMetadataRequest", 2)]
"""Kind and scope of the first requests to a broker."""

REQUESTS: dict[int, Any] = {
    ApiKey.LEADER_AND_ISR: (k04.LeaderAndIsrRequest, k04.LeaderAndIsrResponse),
    ApiKey.STOP_REPLICA: (k05.StopReplicaRequest, k05.StopReplicaResponse),
    ApiKey.UPDATE_METADATA: (k06.UpdateMetadataRequest, k06.UpdateMetadataResponse),
}


class StandIn:
    """A broker in ZooKeeper mode without records: see the module docstring."""

    def __init__(self, broker_id: int, cluster: "Migrated") -> None:
        self.id = broker_id
        self._cluster = cluster
        self.requests: list[Any] = []
        self.epoch = -1
        (self.port,) = lasting_ports(1)
        self._server: asyncio.Server | None = None
        self._beating: asyncio.Task[None] | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._open = 0

    async def start(self, *, is_migrating: bool = True) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        level = level_of(self._cluster.release)
        feature = k62.Feature(
            name="metadata.version", min_supported_version=level, max_supported_version=level
        )
        listener = k62.Listener(name="PLAINTEXT", host="127.0.0.1", port=self.port)
        request = k62.BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER,
            incarnation_id=Uuid(random.randbytes(16)),
            listeners=[listener],
            features=[feature],
            log_dirs=[Uuid(random.randbytes(16))],
            is_migrating_zk_broker=is_migrating,
        )
        while self.epoch < 0:
            await until(lambda: self._cluster.active)
            response = await self._cluster.ask(request)
            assert response.error_code in (0, ErrorCode.NOT_CONTROLLER), response
            self.epoch = response.broker_epoch
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        """To the active controller, while there is one."""
        while True:
            with suppress(KafkaError, OSError):
                active = self._cluster.active
                connection = await Connection.open(
                    "127.0.0.1",
                    self._cluster.ports.get(active, 1),
                    client_id="broker",
                    timeout_ms=30_000,
                )
                while not connection.is_closed and self._cluster.active == active:
                    request = k63.BrokerHeartbeatRequest(
                        broker_id=self.id, broker_epoch=self.epoch, current_metadata_offset=1 << 40
                    )
                    await connection.send(request, timeout_ms=30_000)
                    await asyncio.sleep(0.05)
                await connection.close()
            await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._open += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation, client = struct.unpack(">hhih", frame[:10])
                request, response = REQUESTS[key]
                # The header ends with the client id and no tagged fields.
                self.requests.append(decode(request, version, frame[10 + client + 1 :]))
                body = struct.pack(">i", correlation) + b"\0" + encode(response(), version)
                writer.write(struct.pack(">i", len(body)) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self._open -= 1

    def take(self) -> list[Any]:
        taken, self.requests = self.requests, []
        return taken

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        await until(lambda: not self._open)


class Migrated:
    """A simulated ensemble with the znodes of one broker and one topic, and our controller."""

    def __init__(
        self,
        folder: Path,
        ensemble: Ensemble,
        ensemble_port: int,
        controllers: int,
        release: str = RELEASE,
    ) -> None:
        self.ensemble, self.release = ensemble, release
        ids = range(3000, 3000 + controllers)
        self.ports = dict(zip(ids, lasting_ports(controllers), strict=True))
        self.folder = folder
        self.properties = {
            "process.roles": "controller",
            "controller.quorum.voters": ",".join(
                f"{each}@127.0.0.1:{port}" for each, port in self.ports.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "zookeeper.connect": f"127.0.0.1:{ensemble_port}",
            "zookeeper.session.timeout.ms": "6000",
            "zookeeper.connection.timeout.ms": "300",
            "zookeeper.metadata.migration.enable": "true",
        }
        self.nodes: dict[int, Node] = {}

    def _config(self, node_id: int) -> dict[str, str]:
        return self.properties | {
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{self.ports[node_id]}",
            "log.dirs": str(self.folder / str(node_id)),
        }

    def put(self, path: str, value: object = None, *, ephemeral: bool = False) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        names = path.strip("/").split("/")
        for depth in range(1, len(names)):
            parent = "/" + "/".join(names[:depth])
            if not self.has(parent):
                self.ensemble.znodes.apply(Create(path=parent), 0, 0)
        write = SetData(path=path, data=data) if self.has(path) else Create(path=path, data=data)
        assert not ephemeral
        self.ensemble.znodes.apply(write, 0, 0)

    def has(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        try:
            return name in self.ensemble.znodes.get(parent or "/").children
        except Exception:
            return False

    def read(self, path: str) -> Any:
        return json.loads(self.ensemble.znodes.get(path).data)

    def fill(self) -> None:
        for path in ROOTS:
            self.put(path)
        self.put("/cluster/id", {"version": "1", "id": CLUSTER})
        self.put("/controller_epoch", 4)
        self.put("/controller", {"version": 2, "brokerid": 1, "timestamp": "1"})
        registration = {
            "version": 5, "endpoints": ["PLAINTEXT://127.0.0.1:9092"], "jmx_port": -1,
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "features": {},
        }  # fmt: skip
        self.put("/brokers/ids/1", registration)
        topic = {"version": 3, "partitions": {"0": [1]}, "topic_id": TOPIC_ID}
        state = {"controller_epoch": 4, "leader": 1, "version": 1, "leader_epoch": 7, "isr": [1]}
        for name in ("t", "unwanted"):
            self.put(f"/brokers/topics/{name}", topic)
            self.put(f"/brokers/topics/{name}/partitions/0/state", state)
        self.put("/brokers/topics/unwanted", {**topic, "topic_id": "NbInA3kcQ42C_M5gngViiA"})
        self.put("/admin/delete_topics/unwanted")
        self.put("/config/topics/t", {"version": 1, "config": {"retention.ms": "5"}})

    def format(self) -> None:
        options = FormatOptions(
            cluster_id=CLUSTER, release_version=self.release, ignore_formatted=True
        )
        for node_id in self.ports:
            config = NodeConfig(self._config(node_id))
            disk = OsDisk()
            format_node(config, options, disk=disk, clock=SystemClock(), entropy=SystemEntropy())
            disk.close()

    async def start(self, *node_ids: int, migrates: bool = True) -> None:
        """Start controllers, all by default."""
        for node_id in node_ids or self.ports:
            properties = self._config(node_id)
            if not migrates:
                kept = {key: text for key, text in properties.items() if "zookeeper" not in key}
                properties = kept
            self.nodes[node_id] = node = Node(NodeConfig(properties), make_env())
            await node.start()

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or list(self.nodes):
            await self.nodes.pop(node_id).stop()

    @property
    def active(self) -> int:
        """The only active controller; 0 unless there is exactly one."""
        services = {each: node.controller_services for each, node in self.nodes.items()}
        found = [each for each, s in services.items() if s is not None and s.controller.is_active]
        return found[0] if len(found) == 1 else 0

    @property
    def migration(self) -> Any:
        """Of the active controller."""
        return self.nodes[self.active].migration if self.active else None

    @property
    def state(self) -> DriverState | None:
        return None if self.migration is None else self.migration.state

    @property
    def waits_for(self) -> str:
        return "" if self.migration is None else self.migration.waits_for

    @property
    def image(self) -> Any:
        services = self.nodes[self.active or next(iter(self.nodes))].controller_services
        assert services is not None
        return services.image

    async def ask(self, request: Any) -> Any:
        async with asyncio.timeout(60):
            connection = await Connection.open(
                "127.0.0.1", self.ports[self.active], client_id="admin", timeout_ms=30_000
            )
            try:
                return await connection.send(request, timeout_ms=30_000)
            finally:
                await connection.close()


@asynccontextmanager
async def migrated(folder: Path, controllers: int = 1, release: str = RELEASE):
    (port,) = lasting_ports(1)
    ensemble = Ensemble(SystemClock(), random.Random(1))
    server = await ensemble.listen(SystemNetwork(), "127.0.0.1", port)
    expiring = asyncio.create_task(ensemble.run())
    cluster = Migrated(folder, ensemble, port, controllers, release)
    cluster.fill()
    cluster.format()
    broker = StandIn(1, cluster)
    try:
        yield cluster, broker
    finally:
        await cluster.stop()
        await broker.stop()
        expiring.cancel()
        server.close()


def create(name: str) -> k19.CreateTopicsRequest:
    topic = k19.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return k19.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def kinds(requests: list[Any]) -> list[tuple[str, int]]:
    return [(type(each).__name__, getattr(each, "type", -1)) for each in requests]


@pytest.mark.parametrize("release", ["3.6-IV1", "3.6-IV2", RELEASE])
def test_a_controller_takes_over_and_writes_to_both(tmp_path, release):
    async def test() -> None:
        async with migrated(tmp_path, release=release) as (cluster, broker):
            await cluster.start()
            await until(lambda: cluster.state is DriverState.WAIT_FOR_BROKERS)
            assert cluster.image.migration == MigrationState.PRE_MIGRATION
            assert cluster.read("/controller")["brokerid"] == 1
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            controller = cluster.read("/controller")
            assert (controller["brokerid"], cluster.read("/controller_epoch")) == (3000, 5)
            topic = cluster.image.topic("t")
            assert topic.partitions[0].leader_epoch == 7
            assert dict(cluster.image.config(2, "t")) == {"retention.ms": "5"}
            # A topic whose deletion was pending is not copied, and its znodes are deleted.
            assert cluster.image.topic("unwanted") is None
            assert not cluster.has("/brokers/topics/unwanted")
            assert not cluster.has("/admin/delete_topics/unwanted")
            await until(lambda: len(broker.requests) >= len(FIRST))
            first = broker.take()[: len(FIRST)]
            assert kinds(first) == FIRST
            assert all(each.is_kraft_controller for each in first)
            assert {each.controller_epoch for each in first} == {5}
            assert {each.broker_epoch for each in first} == {broker.epoch}
            await _check_dual_write(cluster, broker)
            assert cluster.read("/migration")["kraft_metadata_offset"] > 0

    run(test())


async def _check_dual_write(cluster: Migrated, broker: StandIn) -> None:
    broker.take()
    response = await cluster.ask(create("new"))
    assert response.topics[0].error_code == 0, response
    await until(lambda: cluster.has("/brokers/topics/new/partitions/1/state"))
    await until(lambda: ("LeaderAndIsrRequest", 1) in kinds(broker.requests))
    sent = [each for each in broker.take() if isinstance(each, k04.LeaderAndIsrRequest)]
    assert [(each.type, each.topic_states[0].topic_name) for each in sent] == [(1, "new")]
    request = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="t")], timeout_ms=30_000)
    response = await cluster.ask(request)
    assert response.responses[0].error_code == 0, response
    await until(lambda: not cluster.has("/brokers/topics/t"))
    await until(lambda: "StopReplicaRequest" in [kind for kind, _ in kinds(broker.requests)])
    stopped = next(e for e in broker.requests if isinstance(e, k05.StopReplicaRequest))
    partition = stopped.topic_states[0].partition_states[0]
    assert (partition.leader_epoch, partition.delete_partition) == (-2, True)


def test_a_restarted_controller_continues_and_a_finalized_one_stops(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            await cluster.stop()
            # What ZooKeeper lost meanwhile is written again.
            cluster.ensemble.znodes.apply(Delete(path="/config/topics/t"), 0, 0)
            await cluster.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            assert cluster.read("/config/topics/t")["config"] == {"retention.ms": "5"}
            assert cluster.read("/controller_epoch") == 6
            await cluster.stop()
            await cluster.start(migrates=False)
            await until(lambda: cluster.image.migration == MigrationState.POST_MIGRATION)
            await cluster.stop()
            # Finalized: another attempt has nothing to do.
            await cluster.start()
            await until(lambda: "POST_MIGRATION" in cluster.waits_for)
            assert cluster.state is DriverState.INACTIVE
            assert cluster.read("/controller_epoch") == 6

    run(test())


def test_another_controller_takes_over_from_one_that_stops(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path, controllers=3) as (cluster, broker):
            await cluster.start(3000, 3001)
            # The third one has not registered as ready.
            await until(lambda: "controllers 3002 have not registered" in cluster.waits_for)
            await cluster.start(3002)
            await until(lambda: cluster.state is DriverState.WAIT_FOR_BROKERS)
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            first = cluster.active
            await cluster.stop(first)
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            assert cluster.active != first
            controller = cluster.read("/controller")
            assert (controller["brokerid"], cluster.read("/controller_epoch")) == (
                cluster.active,
                6,
            )
            broker.take()
            response = await cluster.ask(create("new"))
            assert response.topics[0].error_code == 0, response
            await until(lambda: cluster.has("/brokers/topics/new/partitions/1/state"))
            await until(lambda: broker.requests)
            assert {each.controller_epoch for each in broker.requests} == {6}

    run(test())


def test_a_broker_that_took_the_controllership_loses_it_again(tmp_path):
    """As an operator who deletes /controller while the KRaft controller runs."""

    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            cluster.ensemble.znodes.apply(Delete(path="/controller"), 0, 0)
            cluster.put("/controller", {"version": 2, "brokerid": 1, "timestamp": "1"})
            cluster.put("/controller_epoch", 6)
            response = await cluster.ask(create("new"))
            assert response.topics[0].error_code == 0, response
            await until(lambda: cluster.has("/brokers/topics/new/partitions/1/state"))
            assert cluster.read("/controller")["brokerid"] == 3000
            assert cluster.read("/controller_epoch") == 7

    run(test())


def test_changes_are_committed_without_zookeeper_and_written_when_it_returns(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            await until(lambda: len(broker.requests) >= len(FIRST))
            broker.take()
            cluster.ensemble.lose_leader()
            response = await cluster.ask(create("new"))
            assert response.topics[0].error_code == 0, response
            assert not broker.requests, "a broker is never sent what ZooKeeper does not have"
            cluster.ensemble.elect_leader()
            await until(lambda: cluster.has("/brokers/topics/new/partitions/1/state"))
            await until(lambda: ("LeaderAndIsrRequest", 1) in kinds(broker.requests))
            # The session has expired, and another one goes on.
            (session,) = cluster.ensemble.sessions
            cluster.ensemble.expire(session)
            response = await cluster.ask(create("newer"))
            assert response.topics[0].error_code == 0, response
            await until(lambda: cluster.has("/brokers/topics/newer/partitions/1/state"))
            assert cluster.read("/controller_epoch") == 5

    run(test())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lost_replies_change_nothing(tmp_path, seed):
    """Each write may be applied although its reply is lost, from the takeover on."""

    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            dice = random.Random(seed)
            cluster.ensemble.lose_reply = lambda: dice.random() < LOST
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            for name in ("new", "newer"):
                response = await cluster.ask(create(name))
                assert response.topics[0].error_code == 0, response
            request = k20.DeleteTopicsRequest(
                topics=[k20.DeleteTopicState(name="new")], timeout_ms=30_000
            )
            await cluster.ask(request)
            await until(lambda: cluster.has("/brokers/topics/newer/partitions/1/state"))
            await until(lambda: not cluster.has("/brokers/topics/new"))
            assert cluster.read("/controller_epoch") == 5
            assert cluster.read("/controller")["brokerid"] == 3000

    run(test())


def test_a_copy_whose_offset_was_not_written_is_not_repeated(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            await cluster.stop()
            nothing = {"version": 0, "kraft_metadata_offset": -1, "kraft_controller_id": -1,
                       "kraft_metadata_epoch": -1, "kraft_controller_epoch": -1}  # fmt: skip
            cluster.put("/migration", nothing)
            await cluster.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            assert cluster.read("/migration")["kraft_metadata_offset"] > 0

    run(test())


def test_a_controller_that_ended_before_the_copy_is_replaced(tmp_path):
    """Its /controller stays, as long as the metadata log is that of before the migration."""

    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            earlier = {"version": 2, "brokerid": 3001, "timestamp": "1", "kraftControllerEpoch": 0}
            cluster.put("/controller", earlier)
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            assert cluster.read("/controller")["brokerid"] == 3000

    run(test())


def test_a_partition_without_a_state_gets_one_in_zookeeper(tmp_path):
    """Its topic was created, and the controller in ZooKeeper was replaced before it saw it."""

    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            topic = {"version": 3, "partitions": {"0": [1]}, "topic_id": "SNa8nB0mTbSVyzDERrVtEA"}
            cluster.put("/brokers/topics/late", topic)
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            state = cluster.read("/brokers/topics/late/partitions/0/state")
            assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 0, [1])

    run(test())


def test_a_partition_without_a_leader_gets_one_after_the_copy(tmp_path):
    """Its broker was unfenced before, so that it does not return afterwards."""

    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            path = "/brokers/topics/t/partitions/0/state"
            cluster.put(path, {**cluster.read(path), "leader": -1})
            obstacle = {"version": 1, "config": {"ssl.key.password": "x"}}
            cluster.put("/config/brokers/1", obstacle)
            await cluster.start()
            await broker.start()
            await until(lambda: 1 in cluster.image.brokers and not cluster.image.brokers[1].fenced)
            cluster.put("/config/brokers/1", {"version": 1, "config": {}})
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            await until(lambda: cluster.read(path)["leader"] == 1)
            assert cluster.image.topic("t").partitions[0].leader_epoch == 8

    run(test())


def test_a_migration_that_was_rolled_back_is_left_alone(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            await cluster.start()
            await broker.start()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)
            await cluster.stop()
            for path in ("/controller", "/migration"):
                cluster.ensemble.znodes.apply(Delete(path=path), 0, 0)
            cluster.put("/controller", {"version": 2, "brokerid": 1, "timestamp": "1"})
            await cluster.start()
            await until(lambda: "it was rolled back" in cluster.waits_for)
            assert cluster.read("/controller")["brokerid"] == 1

    run(test())


def test_an_obstacle_keeps_the_controller_waiting(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            acl = {"version": 1, "acls": []}
            cluster.put("/kafka-acl/Topic/t", acl)
            await cluster.start()
            await broker.start()
            await until(lambda: "access control entries" in cluster.waits_for)
            response = await cluster.ask(create("new"))
            assert response.topics[0].error_code != 0
            assert cluster.read("/controller")["brokerid"] == 1
            cluster.ensemble.znodes.apply(Delete(path="/kafka-acl/Topic/t"), 0, 0)
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)

    run(test())


def test_a_controller_starts_without_zookeeper_and_waits_for_it(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, broker):
            cluster.ensemble.lose_leader()
            await cluster.start()
            await broker.start()
            assert cluster.state is DriverState.INACTIVE
            cluster.ensemble.elect_leader()
            await until(lambda: cluster.state is DriverState.DUAL_WRITE)

    run(test())


def test_a_malformed_controller_is_waited_for(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, _):
            controller = cluster.read("/controller")
            cluster.put("/controller", {"version": 2})
            await cluster.start()
            await until(lambda: "/controller" in cluster.waits_for)
            cluster.put("/controller", controller)
            await until(lambda: cluster.state is DriverState.WAIT_FOR_BROKERS)

    run(test())


def test_another_cluster_stops_the_node(tmp_path):
    async def test() -> None:
        async with migrated(tmp_path) as (cluster, _):
            cluster.put("/cluster/id", {"version": "1", "id": "4L6g3nShT-eMCtK--X86sw"})
            await cluster.start()
            node = cluster.nodes[3000]
            await until(lambda: node.failure is not None)
            assert "zookeeper.connect leads to cluster 4L6g3nShT" in str(node.failure)

    run(test())
