"""A broker of ours is the controller: takeovers, topics, ISRs; on a simulated ensemble."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.producer import Producer
from sparkraft.client.values import NewTopic
from sparkraft.server.families import whole
from sparkraft.server.health import health_of
from sparkraft.server.metrics import parts
from sparkraft.zookeeper.requests import Delete
from tests.server.harness import run, until
from tests.support.ports import lasting_ports
from tests.zookeeper.broker.nodes import Nodes, nodes_in

pytestmark = [pytest.mark.real_time]


async def create(nodes: Nodes, name: str, partitions: int, replicas: int, **configs: str) -> None:
    async with nodes.admin() as admin:
        values = {key.replace("_", "."): value for key, value in configs.items()}
        made = await admin.create_topics(
            [
                NewTopic(
                    name=name, partitions=partitions, replication_factor=replicas, configs=values
                )
            ]
        )
    assert not isinstance(made[name], KafkaError), made


def retention_ms(nodes: Nodes, topic: str) -> int | None:
    """Of the log of broker 2; None before it exists."""
    log = nodes[2].broker.log_manager.get(topic, 0)
    return None if log is None else log.config.retention_ms


async def produce(nodes: Nodes, topic: str, partitions: int) -> None:
    async with nodes.admin() as admin, Producer(admin.cluster) as producer:
        sent = [await producer.send(topic, b"v", partition=at) for at in range(partitions)]
        await producer.flush()
        for each in sent:
            await each


def test_the_controller_uses_its_own_listener(tmp_path):
    """KIP-291: control.plane.listener.name, in both directions."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            for broker in (1, 2):
                clients, control = lasting_ports(2)
                await nodes.start(
                    broker,
                    listeners=f"PLAINTEXT://127.0.0.1:{clients},CONTROL://127.0.0.1:{control}",
                    listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
                    control_plane_listener_name="CONTROL",
                )
                nodes.set_port(broker, clients)
            await until(lambda: sorted(nodes[2].broker.image.brokers) == [1, 2])
            # Broker 2 asks the controller for producer ids.
            assert await nodes[2].broker.producer_ids.take_from_next_block() >= 0
            for broker in (1, 2):
                opened = {each.name: each.connections_total for each in nodes[broker].listeners}
                assert opened["CONTROL"] > 0
                assert opened["PLAINTEXT"] == 0

    run(test())


def test_topics_are_created_written_and_deleted_under_our_controller(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            assert nodes.controller() == 1
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1, 2])
            # Through either broker: the other one sends it on.
            await create(nodes, "t", 2, 2, retention_ms="3600000")
            await until(lambda: {leader for leader, _ in nodes.states("t", 2).values()} == {1, 2})
            # The configs of a new topic have no notification: they are read with the topic.
            await until(lambda: retention_ms(nodes, "t") == 3_600_000)
            await produce(nodes, "t", 2)
            async with nodes.admin() as admin:
                again = await admin.create_topics(
                    [NewTopic(name="t", partitions=1, replication_factor=1)]
                )
                assert again["t"].code == ErrorCode.TOPIC_ALREADY_EXISTS
                assert await admin.create_partitions({"t": 3}) == {"t": None}
                await until(lambda: sorted(nodes.states("t", 2)) == [0, 1, 2])
                assert await admin.delete_topics(["t"]) == {"t": None}
            await until(lambda: nodes[2].broker.log_manager.get("t", 0) is None)
            await until(lambda: "t" not in nodes.ensemble.znodes.get("/brokers/topics").children)
            # A topic of the same name has its own configs.
            await create(nodes, "t", 1, 2, retention_ms="7200000")
            await until(lambda: retention_ms(nodes, "t") == 7_200_000)

    run(test())


def test_another_broker_takes_over_when_the_controller_stops(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1, 2])
            await create(nodes, "t", 2, 2)
            await nodes.stop(1)
            await until(lambda: nodes.controller() == 2)
            await until(lambda: nodes.states("t", 2) == {0: (2, [2]), 1: (2, [2])})
            await produce(nodes, "t", 2)
            await nodes.start(1)
            both = {0: (2, [1, 2]), 1: (2, [1, 2])}
            await until(lambda: nodes.states("t", 1) == both)
            assert nodes.ensemble.znodes.get("/controller_epoch").data == b"2"

    run(test())


def test_an_operator_deletes_the_controller_and_an_expired_one_resigns(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            await create(nodes, "t", 2, 1)
            await nodes.submit(Delete(path="/controller"))
            await until(lambda: nodes.ensemble.znodes.get("/controller_epoch").data == b"2")
            await until(lambda: nodes.controller() > 0)
            old = nodes.controller()
            nodes.ensemble.expire(nodes[old].session_id)
            await until(lambda: nodes.ensemble.znodes.get("/controller_epoch").data == b"3")
            await until(lambda: nodes.controller() > 0)
            # The expired broker has registered again, and takes part again.
            await until(lambda: all(leader > 0 for leader, _ in nodes.states("t", old).values()))
            await produce(nodes, "t", 2)

    run(test())


def test_health_and_metrics_show_the_controller_and_the_session(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            await create(nodes, "t", 2, 1)
            health = health_of(nodes[1])
            assert (health["healthy"], health["isController"]) == (True, True)
            assert (health["zookeeperConnected"], health["controller"]) == (True, 1)
            assert health_of(nodes[2])["isController"] is False
            shown = values_of_metrics(nodes[1])
            prefix = "kafka_controller_kafkacontroller_"
            assert shown[f"{prefix}activecontrollercount"] == 1
            assert shown[f"{prefix}activebrokercount"] == 2
            assert shown[f"{prefix}globaltopiccount"] == 1
            assert shown[f"{prefix}globalpartitioncount"] == 2
            assert shown[f"{prefix}offlinepartitionscount"] == 0
            prefix = "kafka_controller_controllerstats_"
            assert shown[f"{prefix}topicchangerateandtimems_total"] >= 1
            prefix = "kafka_controller_controllerchannelmanager_"
            await until(lambda: values_of_metrics(nodes[1])[f"{prefix}totalqueuesize"] == 0)
            assert shown[f"{prefix}requestrateandqueuetimems_total"] >= 1
            other = values_of_metrics(nodes[2])
            assert other["kafka_controller_kafkacontroller_activecontrollercount"] == 0
            # Without a connection the session is valid for its timeout.
            nodes.ensemble.lose_leader()
            await until(lambda: not health_of(nodes[1])["zookeeperConnected"])
            assert health_of(nodes[1])["healthy"]
            nodes.ensemble.elect_leader()
            await until(lambda: health_of(nodes[1])["zookeeperConnected"])

    run(test())


def values_of_metrics(node) -> dict[str, float]:
    """The last value of each sample."""
    return {each.name: each.value for family in whole(parts(node)) for each in family.samples}
