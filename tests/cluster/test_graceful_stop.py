"""A node that is told to stop moves its leaderships first: nobody's request fails.

Producers and consumers of librdkafka notice nothing, and requests that nobody repeats are answered
by the leader or by a hint to it (`tests.support.single_requests`).
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from sparkraft.base.ids import Uuid
from sparkraft.client.admin import Admin
from sparkraft.client.values import NewTopic
from sparkraft.server.broker.lifecycle import SHUTDOWN_HEARTBEAT_MS
from tests.faults.stalls import Stalls
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.single_requests import SingleRequests

pytestmark = pytest.mark.real_clients

PARTITIONS = 6
TOPIC = "steady"
SINGLE = "single"
"""Of the requests that nobody repeats."""

GOES_AFTER_SECONDS = SHUTDOWN_HEARTBEAT_MS / 1000
"""So long at least a node answers after its leaderships have moved: whom the machine lets stand
still meanwhile may send a request too late."""

STALL_SECONDS_MAX = 1.0
"""Before it was sent at most: what the request was sent to had been told of before."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, [Member(n) for n in (1, 2, 3)]) as cluster:
        yield cluster


def create(cluster: Cluster, name: str) -> Uuid:
    """A topic of three replicas; its id."""

    async def work(admin: Admin) -> None:
        await admin.create_topics(
            [
                NewTopic(
                    name=name,
                    partitions=PARTITIONS,
                    replication_factor=3,
                    configs={"min.insync.replicas": "2"},
                )
            ]
        )

    cluster.ask(work)
    cluster.until_known(name)

    async def id_of(admin: Admin) -> Uuid:
        info = (await admin.describe_topics([name]))[name]
        assert not isinstance(info, Exception), info
        return info.id

    return cluster.ask(id_of)


def leaders(cluster: Cluster) -> dict[tuple[str, int], tuple[int, int]]:
    """Partition → leader, and how many are in sync."""

    async def work(admin: Admin) -> dict[tuple[str, int], tuple[int, int]]:
        found = {}
        for name, info in (await admin.describe_topics([TOPIC, SINGLE])).items():
            assert not isinstance(info, Exception), info
            found |= {(name, i): (p.leader, len(p.isr)) for i, p in info.partitions.items()}
        return found

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


class Reading:
    """Reads every partition from its beginning on, alone or as a group of one, until `end`."""

    def __init__(self, bootstrap: str, group: str, *, subscribes: bool) -> None:
        self.errors: list[str] = []
        self.found: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": subscribes,
                "auto.commit.interval.ms": 200,
                "auto.offset.reset": "earliest" if subscribes else "error",
            }
        )
        if subscribes:
            self._consumer.subscribe([TOPIC])
        else:
            self._consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, timeout=0.2):
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                else:
                    self.found[message.partition()].append((message.value() or b"").decode())

    @property
    def count(self) -> int:
        return sum(map(len, self.found))

    def end(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        self._consumer.close()


def check_single(requests: SingleRequests, stalls: Stalls) -> None:
    """What was acknowledged was read where the answers said, and no offset is missing."""
    for lost in requests.lost:
        late = stalls.excuse(2 * GOES_AFTER_SECONDS, lost.wanted - STALL_SECONDS_MAX, lost.clear)
        assert late, (lost, str(stalls))
    assert not requests.failures, "\n".join(requests.failures)
    for acknowledged, read in zip(requests.acknowledged, requests.read, strict=True):
        assert [offset for offset, _ in read] == list(range(len(read)))
        assert len(read) > 100
        assert len(dict(acknowledged)) == len(acknowledged) > 100
        known = dict(read)
        for offset, value in acknowledged:
            assert offset >= len(read) or known[offset] == value


def test_every_node_stops_and_starts_under_load_and_no_request_fails(
    cluster: Cluster, tmp_path: Path
) -> None:
    create(cluster, TOPIC)
    ports = {node: cluster.ports[node][0] for node in cluster.brokers}
    single = SingleRequests(ports, SINGLE, create(cluster, SINGLE), PARTITIONS)
    load = Load(cluster.bootstrap)
    readings = [
        Reading(cluster.bootstrap, group, subscribes=group == "member")
        for group in ("alone", "member")
    ]
    try:
        with Stalls(tmp_path) as stalls, single:
            last = cluster.leader()
            for node in (*[n for n in (1, 2, 3) if n != last], last):
                stop_and_start(cluster, node, load, readings, single)
    finally:
        sent = load.end()
        wait_until(lambda: all(r.count >= load.acknowledged for r in readings), "all is read", 90)
        for reading in readings:
            reading.end()
    assert load.failed == []
    for reading in readings:
        assert reading.errors == []
        assert reading.found == sent
    check_single(single, stalls)


def stop_and_start(
    cluster: Cluster, node: int, load: Load, readings: list[Reading], single: SingleRequests
) -> None:
    """Everybody goes on before, without it, and until it is in sync again."""

    def counts() -> list[int]:
        return [load.acknowledged, *(reading.count for reading in readings)]

    def goes_on(what: str) -> None:
        wanted = [count + 200 for count in counts()]
        wait_until(lambda: all(a > b for a, b in zip(counts(), wanted, strict=True)), what)

    goes_on("records are acknowledged and read")
    moved = single.moved
    cluster.stop(node)
    now = leaders(cluster)
    assert node not in {leader for leader, _ in now.values()}
    assert all(leader >= 0 for leader, _ in now.values())
    assert single.moved > moved, "nobody was told of the next leaders"
    goes_on("and go on without the node")
    cluster.start([node])
    wait_until(
        lambda: all(in_sync == 3 for _, in_sync in leaders(cluster).values()),
        "all are in sync again",
    )
