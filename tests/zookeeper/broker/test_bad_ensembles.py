"""Ensembles and znodes that a broker cannot use, on a simulated ensemble."""

import asyncio
import json

import pytest

from sparkraft.client.producer import Producer
from sparkraft.server.broker.lifecycle import BrokerState
from sparkraft.server.config import NodeConfig
from sparkraft.server.identity import StartRefused
from sparkraft.server.zookeeper_node import ZooKeeperNode
from sparkraft.zookeeper.requests import Create, Delete, SetData
from tests.server.harness import make_env, run, until
from tests.support.ports import lasting_ports
from tests.zookeeper.broker.nodes import nodes_in

pytestmark = pytest.mark.real_time

OTHER_SESSION = 99


def node_of(folder, connect, **overrides):
    (port,) = lasting_ports(1)
    properties = {
        "broker.id": "1",
        "zookeeper.connect": connect,
        "zookeeper.connection.timeout.ms": "500",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(folder / "1"),
        **overrides,
    }
    return ZooKeeperNode(NodeConfig(properties), make_env())


async def read_only_server():
    """A server that closes connections after the first bytes; and its address.

    In read-only mode, ZooKeeper does so with clients that want to write.
    """

    async def close(reader, writer):
        await reader.read(4)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def refusal(node):
    with pytest.raises(StartRefused) as refused:
        await node.start()
    await node.stop()
    return str(refused.value)


def test_without_an_ensemble_a_broker_does_not_start(tmp_path):
    async def test():
        (port,) = lasting_ports(1)
        text = await refusal(node_of(tmp_path, f"127.0.0.1:{port}/kafka"))
        assert f"no ZooKeeper server of 127.0.0.1:{port}" in text
        assert "within 500 ms" in text

    run(test())


def test_a_read_only_server_is_left_for_the_next(tmp_path):
    async def test():
        server, first = await read_only_server()
        assert "is read-only (readonlymode.enabled)" in await refusal(node_of(tmp_path, first))
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, zookeeper_connect=f"{first},{nodes.connect}")
            assert nodes.children("/brokers/ids") == ["1"]
        server.close()

    run(test())


def test_a_missing_chroot_is_created(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, zookeeper_connect=f"{nodes.connect}/old/chroot")
            assert nodes.children("/old/chroot/brokers/ids") == ["1"]
            assert "brokers" not in nodes.children("/")

    run(test())


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b'{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}', "belongs to cluster"),
        (b'{"version":"1"}', "/cluster/id: no field 'id'"),
        (b"{", "/cluster/id: expected JSON"),
    ],
)
def test_the_id_of_another_cluster_is_refused(tmp_path, stored, reason):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            await nodes.stop(1)
            await nodes.submit(SetData(path="/cluster/id", data=stored))
            assert reason in await refusal(node_of(tmp_path, nodes.connect))
            assert nodes.children("/brokers/ids") == []

    run(test())


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        (
            b'{"version":2,"brokerid":99,"timestamp":"1"}',
            "/controller names broker 99, which is not registered",
        ),
        (b'{"version":2}', "/controller: no field 'brokerid'"),
        (b"a stranger", "/controller: expected JSON, got b'a stranger'"),
    ],
)
def test_a_stranger_at_controller_is_named_and_waited_for(tmp_path, caplog, stored, named):
    """A broker of an unknown id, or data that is not Kafka's; until an operator deletes it."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.submit(Create(path="/controller", data=stored))
            node = node_of(tmp_path, nodes.connect, **{"sparkraft.controllership.enable": "true"})
            await node.start()
            try:
                await until(lambda: nodes.children("/brokers/ids") == ["1"])
                await until(lambda: named in caplog.text)
                assert not node.is_controller
                assert nodes.ensemble.znodes.get("/controller").data == stored
                await nodes.submit(Delete(path="/controller"))
                await until(lambda: node.is_controller)
                assert nodes.ensemble.znodes.get("/controller_epoch").data == b"1"
            finally:
                await node.stop()

    run(test())


def test_a_strangers_malformed_registration_does_not_stop_a_running_broker(tmp_path, caplog):
    """It registers again after an expiry, and when its advertised listeners change."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            await until(lambda: sorted(nodes[2].broker.image.brokers) == [1, 2])
            first = nodes.ensemble.znodes.get("/brokers/ids/2").czxid
            await nodes.submit(Create(path="/brokers/ids/99", data=b"a stranger"))
            nodes.ensemble.expire(nodes[2].session_id)
            await until(lambda: nodes[2].broker.lifecycle.broker_epoch > first)
            again = nodes.ensemble.znodes.get("/brokers/ids/2")
            assert again.czxid == nodes[2].broker.lifecycle.broker_epoch
            named = "The endpoints of a malformed registration are not checked: /brokers/ids/99"
            assert named in caplog.text
            caplog.clear()
            configs = {"advertised.listeners": "PLAINTEXT://localhost:1"}
            data = json.dumps({"version": 1, "config": configs}).encode()
            await nodes.submit(Create(path="/config/brokers/2", data=data))
            changed = json.dumps({"version": 2, "entity_path": "brokers/2"}).encode()
            path = "/config/changes/config_change_"
            await nodes.submit(Create(path=path, data=changed, sequential=True))
            await until(lambda: b"localhost:1" in nodes.ensemble.znodes.get("/brokers/ids/2").data)
            assert named in caplog.text
            assert nodes[2].broker.lifecycle.state is BrokerState.RUNNING

    run(test())


def test_a_broker_whose_id_was_taken_does_not_stand_for_the_controller(tmp_path, caplog):
    """Kafka 3.9: `processRegisterBrokerAndReelect` ends when the registration fails."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            znodes = nodes.ensemble.znodes
            data = znodes.get("/brokers/ids/1").data
            nodes.ensemble.expire(nodes[1].session_id)
            znodes.apply(Create(path="/brokers/ids/1", data=data, ephemeral=True), OTHER_SESSION, 0)
            await until(lambda: "does not stand for the controller" in caplog.text)
            await nodes.submit(Create(path="/controller", data=b"{}"))
            await nodes.submit(Delete(path="/controller"))
            # The next session registers it. No election was held before.
            znodes.end_session(OTHER_SESSION)
            nodes.ensemble.expire(nodes[1].session_id)
            await until(lambda: nodes.controller() == 1)
            assert znodes.get("/controller_epoch").data == b"2"

    run(test())


async def write(producer):
    sent = await producer.send("t", b"v", partition=0)
    await producer.flush()
    await sent


def test_the_data_plane_continues_without_an_ensemble(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", {0: [2, 1]})
                async with Producer(admin.cluster) as producer:
                    await write(producer)  # a new producer needs an id from the controller
                    nodes.ensemble.lose_leader()
                    await until(lambda: not nodes[2].zookeeper.session.is_connected)
                    await write(producer)
                nodes.ensemble.elect_leader()
                await until(lambda: nodes[2].zookeeper.session.is_connected)
                assert nodes.controller() == 1
                await nodes.create(admin, "u", {0: [1, 2]})
            assert nodes.ensemble.znodes.get("/controller_epoch").data == b"1"

    run(test())


def test_a_default_that_changed_without_a_session_is_followed_by_the_next_controller(tmp_path):
    """The change has no notification in the next session, which reads all configs."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            config = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
            data = json.dumps(config).encode()
            await nodes.submit(Create(path="/config/brokers/<default>", data=data))
            active = nodes[1].zookeeper.controller._active
            assert not active.settings.unclean_leader_election
            nodes.ensemble.expire(nodes[1].session_id)
            await until(lambda: nodes.ensemble.znodes.get("/controller_epoch").data == b"2")
            await until(lambda: nodes.controller() == 1)
            assert active.settings.unclean_leader_election

    run(test())
