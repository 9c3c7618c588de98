"""A node that is told to stop moves its leaderships first: nobody's request fails."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from sparkraft.client.admin import Admin
from sparkraft.client.values import NewTopic
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

PARTITIONS = 6
TOPIC = "steady"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, [Member(n) for n in (1, 2, 3)]) as cluster:
        yield cluster


def create(cluster: Cluster) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topics(
            [
                NewTopic(
                    name=TOPIC,
                    partitions=PARTITIONS,
                    replication_factor=3,
                    configs={"min.insync.replicas": "2"},
                )
            ]
        )

    cluster.ask(work)
    cluster.until_known(TOPIC)


def leaders(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """Partition → leader, and how many are in sync."""

    async def work(admin: Admin) -> dict[int, tuple[int, int]]:
        info = (await admin.describe_topics([TOPIC]))[TOPIC]
        assert not isinstance(info, Exception), info
        return {i: (p.leader, len(p.isr)) for i, p in info.partitions.items()}

    return cluster.ask(work)


class Load:
    """Idempotent producing without a pause to every partition until `end`."""

    def __init__(self, bootstrap: str) -> None:
        self.failed: list[KafkaError] = []
        self.sent: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            for partition in range(PARTITIONS):
                self._producer.produce(
                    TOPIC,
                    value=f"{partition}/{count}",
                    partition=partition,
                    on_delivery=self._on_delivery,
                )
            # Some hundred records a second, and room for the nodes on the same machine.
            self._producer.poll(0.01)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.sent[message.partition()].append((message.value() or b"").decode())

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.sent))

    def end(self) -> list[list[str]]:
        self._stop.set()
        self._thread.join(90)
        assert self._producer.flush(90) == 0
        return self.sent


def read_all(bootstrap: str, wanted: int) -> list[list[str]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    try:
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])

        def enough() -> bool:
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.value() or b"").decode())
            return sum(map(len, found)) >= wanted

        wait_until(enough, f"{wanted} records are read", 90)
    finally:
        consumer.close()
    return found


def test_every_node_stops_and_starts_under_load_and_no_request_fails(cluster: Cluster) -> None:
    create(cluster)
    load = Load(cluster.bootstrap)
    try:
        last = cluster.leader()
        for node in (*[n for n in (1, 2, 3) if n != last], last):
            before = load.acknowledged
            wait_until(lambda n=before: load.acknowledged > n + 200, "records are acknowledged")
            cluster.stop(node)
            now = leaders(cluster)
            assert node not in {leader for leader, _ in now.values()}
            assert all(leader >= 0 for leader, _ in now.values())
            before = load.acknowledged
            wait_until(lambda n=before: load.acknowledged > n + 200, "and go on without the node")
            cluster.start([node])
            wait_until(
                lambda: all(in_sync == 3 for _, in_sync in leaders(cluster).values()),
                "all are in sync again",
            )
    finally:
        sent = load.end()
    assert load.failed == []
    assert read_all(cluster.bootstrap, load.acknowledged) == sent
