"""advertised.listeners of a running broker; on a simulated ensemble, under our controller."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.producer import Producer
from sparkraft.client.values import ConfigOperation
from sparkraft.metadata.image import EMPTY_IMAGE, ResourceType
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.zookeeper.advertised import AdvertisedListeners
from sparkraft.server.zookeeper.lifecycle import ZooKeeperLifecycle
from sparkraft.zookeeper.errors import Code, SessionExpiredError
from sparkraft.zookeeper.requests import GetChildren, Multi, SetData
from tests.server.harness import make_env, run, until
from tests.support.relay import Relay
from tests.zookeeper.broker.nodes import nodes_in

KEY = "advertised.listeners"
real_time = pytest.mark.real_time


async def alter(admin, broker, value, **options):
    """Set the config of a broker, or delete it; returns the error."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    resource = (ResourceType.BROKER, broker)
    done = await admin.alter_configs({resource: [(KEY, operation, value)]}, **options)
    return done[resource]


def advertised(nodes, broker, seen_by):
    """The endpoint of a broker in another's image."""
    found = nodes[seen_by].broker.image.brokers.get(broker)
    return None if found is None else [f"{each.host}:{each.port}" for each in found.endpoints]


def registration(nodes, broker):
    node = nodes.ensemble.znodes.get(f"/brokers/ids/{broker}")
    return json.loads(node.data)["endpoints"], node.version, node.czxid


@real_time
def test_other_brokers_and_clients_learn_it_while_the_broker_runs(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            port = int(nodes.address(2).rpartition(":")[2])
            with Relay(port) as relay:
                async with nodes.admin() as admin:
                    await nodes.create(admin, "t", {0: [2, 1]})
                    _, version, epoch = registration(nodes, 2)
                    assert await alter(admin, "2", f"PLAINTEXT://{relay.address}") is None
                    for seen_by in (1, 2):
                        await until(lambda at=seen_by: advertised(nodes, 2, at) == [relay.address])
                    # Kafka's updateBrokerInfo: the same znode and broker epoch, other data.
                    assert registration(nodes, 2) == (
                        [f"PLAINTEXT://{relay.address}"], version + 1, epoch
                    )  # fmt: skip
                    (entry,) = (
                        await admin.describe_configs([(ResourceType.BROKER, "2")], names=[KEY])
                    )[ResourceType.BROKER, "2"]
                    assert (entry.value, entry.is_read_only) == (
                        f"PLAINTEXT://{relay.address}", False
                    )  # fmt: skip
                # A client that starts at broker 1 reaches broker 2 by the new address.
                before = relay.connections
                async with nodes.admin() as admin, Producer(admin.cluster) as producer:
                    await (await producer.send("t", b"v", partition=0))
                assert relay.connections > before
                # A new session registers it again, and so does a new start of the broker.
                nodes.ensemble.expire(nodes[2].session_id)
                await until(
                    lambda: (
                        "2" in nodes.children("/brokers/ids") and registration(nodes, 2)[2] > epoch
                    )
                )
                assert registration(nodes, 2)[0] == [f"PLAINTEXT://{relay.address}"]
                await nodes.stop(2)
                await nodes.start(2)
                assert registration(nodes, 2)[0] == [f"PLAINTEXT://{relay.address}"]
                async with nodes.admin() as admin:
                    assert await alter(admin, "2", None) is None
                    await until(lambda: advertised(nodes, 2, 1) == [nodes.address(2)])

    run(test())


@real_time
def test_what_kafka_refuses_is_refused_and_changes_nothing(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            await until(lambda: sorted(nodes[2].broker.image.brokers) == [1, 2])
            before = registration(nodes, 2)
            async with nodes.admin() as admin:
                for value, reason in (
                    ("", "the list must not be empty"),
                    ("PLAINTEXT://0.0.0.0:9092", "0.0.0.0"),
                    ("PLAINTEXT://h", "NAME://host:port"),
                    ("PLAINTEXT://h:1,PLAINTEXT://h:2", "different name"),
                    ("SSL://h:1", "not in listeners"),
                    ("PLAINTEXT://h:1,SSL://h:2", "not in listeners"),
                    (f"PLAINTEXT://{nodes.address(1)}", "already registered by broker 1"),
                ):
                    refused = await alter(admin, "2", value)
                    assert isinstance(refused, KafkaError), value
                    assert refused.code == ErrorCode.INVALID_REQUEST, value
                    assert reason in refused.detail, (value, refused.detail)
                refused = await alter(admin, "", "PLAINTEXT://h:1")
                assert "at default cluster level" in refused.detail
                checked = await alter(admin, "2", "PLAINTEXT://h:1", validate_only=True)
                assert checked is None
            assert registration(nodes, 2) == before
            assert nodes.children("/config/brokers") == []
            # One that another tool has stored: the broker keeps what it has.
            stored = b'{"version":1,"config":{"advertised.listeners":"SSL://h:1"}}'
            async with nodes.admin() as admin:
                assert await alter(admin, "2", "PLAINTEXT://127.0.0.1:1") is None
                await until(lambda: advertised(nodes, 2, 1) == ["127.0.0.1:1"])
            await nodes.submit(SetData(path="/config/brokers/2", data=stored))
            await nodes.stop(2)
            await nodes.start(2)
            assert registration(nodes, 2)[0] == before[0]

    run(test())


def config_of(**overrides):
    properties = {
        "broker.id": "2",
        "zookeeper.connect": "h:2181",
        "log.dirs": "/d",
        "listeners": "PLAINTEXT://own:1,CONTROL://own:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT,C:PLAINTEXT",
        **{key.replace("_", "."): value for key, value in overrides.items()},
    }
    return NodeConfig(properties)


def listeners(**overrides):
    config = config_of(**overrides)
    return AdvertisedListeners(
        config, lambda config: config.advertised_listeners, lambda: EMPTY_IMAGE
    )


def test_the_listener_of_the_control_plane_stays_advertised():
    found = listeners(control_plane_listener_name="CONTROL")
    found.check({KEY: "PLAINTEXT://a:1,CONTROL://b:2"})
    with pytest.raises(ConfigError, match=r"control\.plane\.listener\.name CONTROL"):
        found.check({KEY: "PLAINTEXT://a:1"})


def test_a_broker_that_is_migrated_keeps_its_listeners():
    """The quorum gets them once, at the registration."""
    found = listeners(
        zookeeper_metadata_migration_enable="true",
        controller_quorum_voters="3000@h:9093",
        controller_listener_names="C",
    )
    with pytest.raises(ConfigError, match=r"cannot change while zookeeper\.metadata\.migration"):
        found.check({KEY: "PLAINTEXT://a:1"})
    # Those that were stored before are in force at its start, and no reason to refuse others.
    found.apply({KEY: "PLAINTEXT://a:1"})
    assert [each.host for each in found.addresses] == ["a"]
    found.check({KEY: "PLAINTEXT://a:1", "log.cleaner.threads": "2"})


def test_an_invalid_stored_value_does_not_prevent_other_changes():
    found = listeners()
    called = []
    found.add_listener(lambda: called.append(None))
    found.apply({KEY: "SSL://h:1"})
    assert [each.host for each in found.addresses] == ["own", "own"]
    found.check({KEY: "SSL://h:1", "log.cleaner.threads": "2"})
    assert called == []
    found.apply({KEY: "PLAINTEXT://h:1"})
    found.apply({KEY: "PLAINTEXT://h:1"})
    assert [each.host for each in found.addresses] == ["h"]
    assert called == [None]


class Session:
    """One client, or the next, as `EnsembleSession` has them; nothing is sent."""

    previous_session_id = 0

    def __init__(self):
        self.client = Client()
        self.listeners = []

    def add_session_listener(self, listener):
        self.listeners.append(listener)

    async def expire(self):
        self.client = Client()
        for listener in self.listeners:
            await listener()


class Client:
    session_id = 1

    def __init__(self):
        self.has_expired = False
        self.registered = []

    async def submit_until_connected(self, request):
        if self.has_expired:
            raise SessionExpiredError(Code.SESSION_EXPIRED)
        if isinstance(request, GetChildren):
            return [], None
        if isinstance(request, Multi):
            request = request.operations[1]
        assert isinstance(request, SetData)
        self.registered.append(json.loads(request.data)["endpoints"])
        return [None, SimpleNamespace(czxid=7)]


def test_listeners_that_change_when_the_session_ends_are_registered_in_the_next_one():
    """The next session registered the former ones, for good."""

    async def test():
        session, found, tasks = Session(), listeners(), []
        lifecycle = ZooKeeperLifecycle(
            config_of(),
            make_env(),
            session,
            advertised=found,
            broker_epoch=BrokerEpoch(),
            channel=None,
            spawn=lambda work, _: tasks.append(asyncio.create_task(work)),
            registration_version=5,
        )
        running = asyncio.create_task(lifecycle.run())
        await lifecycle.running.wait()
        session.client.has_expired = True
        found.apply({KEY: "PLAINTEXT://new:1"})
        await asyncio.gather(*tasks)
        await session.expire()
        assert session.client.registered[-1] == ["PLAINTEXT://new:1"]
        await session.expire()
        assert session.client.registered == [["PLAINTEXT://new:1"]]
        lifecycle.stop(has_left=True)
        await running

    run(test())
