"""Transactions over three nodes in one event loop: markers and verification between brokers."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.base.java_hash import partition_of
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.errors import AbortableTransactionError
from sparkraft.client.producer import ProducerSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.client.values import NewTopic
from sparkraft.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from sparkraft.server.config import NodeConfig
from sparkraft.server.node import Node
from tests.server.harness import connect, format_dir, make_env, run, until
from tests.server.test_transaction_coordinator import committed
from tests.support.ports import lasting_ports

IDS = (1, 2, 3)
TOPICS = ("a", "b", "c")


def properties(path: Path) -> dict[int, dict[str, str]]:
    ports = lasting_ports(6)
    voters = ",".join(f"{n}@127.0.0.1:{ports[n + 2]}" for n in IDS)
    return {
        n: {
            "process.roles": "broker,controller",
            "node.id": str(n),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[n - 1]},"
            f"CONTROLLER://127.0.0.1:{ports[n + 2]}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(path / str(n)),
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "min.insync.replicas": "2",
            "auto.leader.rebalance.enable": "false",
        }
        for n in IDS
    }


class Nodes:
    """Three nodes, each led topic on one of them."""

    def __init__(self, path: Path) -> None:
        self.configs = properties(path)
        self.running: dict[int, Node] = {}
        for n in IDS:
            (path / str(n)).mkdir()
            format_dir(path / str(n), node_id=n)

    async def start(self, *ids: int) -> None:
        for n in ids:
            self.running[n] = Node(NodeConfig(self.configs[n]), make_env())
        await asyncio.gather(*(self.running[n].start() for n in ids))

    async def stop(self, *ids: int) -> None:
        await asyncio.gather(*(self.running.pop(n).stop() for n in ids))

    @property
    def bootstrap(self) -> list[str]:
        return [f"127.0.0.1:{node.ports['PLAINTEXT']}" for node in self.running.values()]

    def leader_of(self, topic: str, index: int = 0) -> int:
        image = next(iter(self.running.values())).broker.image
        found = image.topic(topic)
        return -1 if found is None else found.partitions[index].leader

    def coordinator_of(self, transactional_id: str) -> int:
        return self.leader_of("__transaction_state", partition_of(transactional_id, 3))

    async def committed(self, topic: str) -> list[bytes]:
        connection = await connect(self.running[self.leader_of(topic)])
        try:
            topic_id = self.running[self.leader_of(topic)].broker.topic_id(topic)
            return await committed(connection, topic_id)
        finally:
            await connection.close()


@asynccontextmanager
async def three_nodes(path: Path):
    nodes = Nodes(path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(lambda: nodes.stop(*nodes.running))
        await nodes.start(*IDS)
        client = await stack.enter_async_context(Cluster(nodes.bootstrap))
        admin = Admin(client)
        new = [
            NewTopic(name=topic, assignment={0: [n, n % 3 + 1, (n + 1) % 3 + 1]})
            for n, topic in zip(IDS, TOPICS, strict=True)
        ]
        for outcome in (await admin.create_topics(new)).values():
            assert not isinstance(outcome, KafkaError), outcome
        yield nodes, client


async def transact(producer: TransactionalProducer, value: str, *, commit: bool) -> bool:
    """Whether it was committed; a producer must abort some that met a failure."""
    producer.begin_transaction()
    try:
        for topic in TOPICS:
            await producer.send(topic, value.encode(), partition=0)
        if commit:
            await producer.commit_transaction()
            return True
    except AbortableTransactionError:
        pass
    await producer.abort_transaction()
    return False


async def describe_the_same_producers(nodes: Nodes, topic: str) -> bool:
    """Whether leader and followers know the same producers of a partition, as in Kafka."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    known = []
    for node in nodes.running.values():
        connection = await connect(node)
        response = await connection.send(request)
        await connection.close()
        (partition,) = response.topics[0].partitions
        assert partition.error_code == 0, partition
        known.append({(one.producer_id, one.producer_epoch) for one in partition.active_producers})
    return len(known) == len(IDS) and bool(known[0]) and all(one == known[0] for one in known)


@pytest.mark.parametrize("move", [False, True])
def test_partitions_and_coordinators_on_several_brokers(tmp_path, move):
    """A coordinator that stops leaves its transactions to its successor."""

    async def test():
        async with three_nodes(tmp_path) as (nodes, client):
            producers = [
                TransactionalProducer(client, ProducerSettings(transactional_id=f"tx{n}"))
                for n in range(3)
            ]
            expected = set()
            for producer in producers:
                await producer.init_transactions()
            for turn in range(6):
                values = [f"{turn}-{number}" for number in range(3)]
                stopped = nodes.coordinator_of(f"tx{turn % 3}")
                ending = asyncio.gather(
                    *(
                        transact(producer, value, commit=turn % 3 != 1)
                        for producer, value in zip(producers, values, strict=True)
                    )
                )
                if move and turn in {2, 3}:
                    await nodes.stop(stopped)
                done = await ending
                expected |= {v.encode() for v, ok in zip(values, done, strict=True) if ok}
                if stopped not in nodes.running:
                    await nodes.start(stopped)
            for topic in TOPICS:

                async def is_complete(topic: str = topic) -> bool:
                    found = await nodes.committed(topic)
                    assert len(found) == len(set(found))
                    return set(found) == expected

                await until(is_complete)
            assert len(expected) >= 9
            await until(lambda: describe_the_same_producers(nodes, TOPICS[0]))
            for producer in producers:
                await producer.close()

    run(test())
