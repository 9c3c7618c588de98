"""Our brokers with an old inter.broker.protocol.version, in one event loop on a simulated ensemble.

One of them is the controller.
"""

import json

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.producer import Producer
from sparkraft.server.zookeeper import znode_requests
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from tests.server.harness import run, until
from tests.zookeeper.broker.nodes import Nodes, nodes_in

pytestmark = [pytest.mark.real_time]

LONG_SESSION = {"zookeeper_session_timeout_ms": "60000"}
"""Several nodes load their modules in this process's loop."""

BOTH = {0: [1, 2], 1: [2, 1]}
IN_SYNC = {0: (1, [1, 2]), 1: (2, [1, 2])}


@pytest.fixture(autouse=True)
def prompt_notifications(monkeypatch):
    """Notify the controller of changed ISRs within 50 ms."""
    monkeypatch.setattr(znode_requests, "CHECK_MS", 50)
    monkeypatch.setattr(znode_requests, "LINGER_MS", 0)


def data(nodes: Nodes, path: str) -> dict:
    return json.loads(nodes.ensemble.znodes.get(path).data)


async def produce(nodes: Nodes, *values: bytes) -> None:
    async with nodes.admin() as admin, Producer(admin.cluster) as producer:
        for partition in BOTH:
            sent = [await producer.send("t", each, partition=partition) for each in values]
            await producer.flush()
            for each in sent:
                await each


async def values_of(nodes: Nodes) -> list[tuple[int, bytes]]:
    """Partition and value of each record that a consumer reads."""
    found: list[tuple[int, bytes]] = []
    ends = sum(nodes[leader].broker.log_manager.get("t", at).high_watermark
               for at, (leader, _) in nodes.states("t", 1).items())  # fmt: skip
    settings = ConsumerSettings(auto_offset_reset="earliest")
    async with nodes.admin() as admin, Consumer(admin.cluster, settings) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        while len(found) < ends:
            found += [(record.partition, record.value) for record in await consumer.poll()]
    return sorted(found)


def topic_ids(nodes: Nodes, broker: int) -> list[Uuid | None]:
    """Of the logs of `t`."""
    manager = nodes[broker].broker.log_manager
    return [manager.get("t", partition).topic_id for partition in BOTH]


@pytest.mark.parametrize("version", ["2.6", "2.7-IV1", "2.7", "2.8-IV0", "2.8", "3.2"])
def test_brokers_replicate_change_isrs_and_allocate_producer_ids(tmp_path, version):
    protocol = parse_protocol_version(version)

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2, inter_broker_protocol_version=version, **LONG_SESSION)
            registered = data(nodes, "/brokers/ids/1")
            assert registered["version"] == (5 if protocol >= (2, 7, 0) else 4)
            assert data(nodes, "/feature") == {
                "features": {}, "version": 1, "status": int(protocol >= (2, 7, 0))
            }  # fmt: skip
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", BOTH)
                shown = (await admin.cluster.topic("t")).id
            assert ("topic_id" in data(nodes, "/brokers/topics/t")) == (protocol >= (2, 8, 0))
            has_ids = protocol >= (2, 8, 1)  # before, brokers do not learn them
            assert (shown != Uuid.ZERO) == has_ids
            for broker in (1, 2):
                assert (None not in topic_ids(nodes, broker)) == has_ids
            await produce(nodes, b"a", b"b")
            assert await nodes[2].broker.producer_ids.take_from_next_block() >= 0
            assert data(nodes, "/latest_producer_id_block")["broker"] == 2
            # A follower returns: the leader adds it to the ISR.
            await nodes.stop(2)
            await until(lambda: nodes.states("t", 1) == {0: (1, [1]), 1: (1, [1])})
            await produce(nodes, b"c")
            await nodes.start(2, inter_broker_protocol_version=version, **LONG_SESSION)
            both = {0: (1, [1, 2]), 1: (1, [1, 2])}
            await until(lambda: nodes.states("t", 2) == nodes.states("t", 1) == both)
            state = data(nodes, "/brokers/topics/t/partitions/0/state")
            assert (sorted(state["isr"]), state["controller_epoch"]) == ([1, 2], 1)
            assert not nodes.children("/isr_change_notification")
            # Broker 2 was the leader of partition 1: it truncates to what broker 1 has.
            await produce(nodes, b"d")
            records = [(at, value) for at in BOTH for value in (b"a", b"b", b"c", b"d")]
            assert await values_of(nodes) == records
            await nodes.stop(1)
            await until(lambda: nodes.controller() == 2)
            await until(lambda: nodes.states("t", 2) == {0: (2, [2]), 1: (2, [2])})
            await produce(nodes, b"e")

    run(test())


def test_a_reassignment_completes_when_the_leader_has_written_its_isr(tmp_path):
    """The controller watches the state: `PartitionReassignmentIsrChange`, before KIP-497."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2, inter_broker_protocol_version="2.6", **LONG_SESSION)
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", {0: [1]})
                leadership = LeadershipAdmin(admin.cluster)
                assert await leadership.reassign({("t", 0): [2]}) == {("t", 0): None}
            await until(lambda: nodes.states("t", 1) == {0: (2, [2])})
            assert data(nodes, "/brokers/topics/t")["partitions"] == {"0": [2]}

    run(test())


def test_brokers_are_raised_one_by_one_and_topics_get_their_ids(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2, inter_broker_protocol_version="2.6", **LONG_SESSION)
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", BOTH)
            await produce(nodes, b"a")
            for version in ("2.7", "2.8", "3.9"):
                for broker in (2, 1):
                    await nodes.stop(broker)
                    await nodes.start(broker, inter_broker_protocol_version=version, **LONG_SESSION)
                    await until(
                        lambda: all(
                            isr == [1, 2]
                            for each in BOTH.values()
                            for seen_by in each
                            for _, isr in nodes.states("t", seen_by).values()
                        )
                    )
                    await produce(nodes, version.encode())
            (topic_id,) = {*topic_ids(nodes, 1), *topic_ids(nodes, 2)}
            assert str(topic_id) == data(nodes, "/brokers/topics/t")["topic_id"]
            for broker in (1, 2):
                assert nodes[broker].broker.image.topic("t").id == topic_id
                folder = tmp_path / str(broker) / "t-0"
                assert str(topic_id) in (folder / "partition.metadata").read_text()
            written = [b"a", *(each for each in (b"2.7", b"2.8", b"3.9") for _ in range(2))]
            assert await values_of(nodes) == sorted((at, each) for at in BOTH for each in written)
            assert data(nodes, "/feature") == {"features": {}, "version": 2, "status": 1}

    run(test())
