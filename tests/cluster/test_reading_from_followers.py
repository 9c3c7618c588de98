"""Consumers that tell their rack read from a follower there, by bytes (KIP-392)."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sparkraft.client.cluster import Cluster as ClusterClient
from sparkraft.client.consumer import Consumer as OurConsumer
from sparkraft.client.consumer import ConsumerSettings
from sparkraft.server.config import RACK_AWARE_SELECTOR
from tests.cluster.conftest import STEADY
from tests.cluster.test_replication import partitions_of, until_in_sync
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)
RECORDS = 4_000
RECORD_BYTES = 1_000


class ClusterOfRacks(Cluster):
    """Node 1 is in rack-1, and so on."""

    def _properties(self, member: Member) -> dict[str, str]:
        return {**super()._properties(member), "broker.rack": f"rack-{member.id}"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    overrides = {**STEADY, "replica.selector.class": RACK_AWARE_SELECTOR}
    directory = tmp_path_factory.mktemp("racks")
    members = [Member(n) for n in IDS]
    with ClusterOfRacks(directory, members, overrides=overrides) as cluster:
        yield cluster


def filled(cluster: Cluster, topic: str) -> int:
    """A topic of one partition with three replicas and `RECORDS` records; its leader."""
    cluster.create_topic(topic, replicas=3)
    until_in_sync(cluster, topic, set(IDS))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).zfill(RECORD_BYTES).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(90) == 0
    return partitions_of(cluster, topic)[0].leader


def test_librdkafka_reads_from_the_follower_in_its_rack(cluster: Cluster) -> None:
    leader = filled(cluster, "by-librdkafka")
    near = next(n for n in IDS if n != leader)
    received: dict[int, int] = {}

    def on_statistics(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            received[broker["nodeid"]] = max(received.get(broker["nodeid"], 0), broker["rxbytes"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reads-near",
            "client.rack": f"rack-{near}",
            "statistics.interval.ms": 100,
            "stats_cb": on_statistics,
        }
    )
    found: list[int] = []

    def all_read() -> bool:
        found.extend(int(m.value() or b"") for m in consumer.consume(1000, 0.2) if not m.error())
        return len(found) >= RECORDS and sum(received.values()) > RECORDS * RECORD_BYTES

    try:
        consumer.assign([TopicPartition("by-librdkafka", 0, OFFSET_BEGINNING)])
        wait_until(all_read, "all records", 90)
    finally:
        consumer.close()
    assert found == list(range(RECORDS))
    assert received[near] >= 0.9 * sum(received.values()), received


class CountingConsumer(OurConsumer):
    """Counts the bytes of records by the broker they came from."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received: dict[int, int] = dict.fromkeys(IDS, 0)
        self._from: dict[Any, int] = {}

    async def _fetch(self, leader: int, partitions: list[tuple[str, int]]) -> None:
        self._from[asyncio.current_task()] = leader
        await super()._fetch(leader, partitions)

    def _on_answer(self, answer: Any, asked: Any, *, by_id: bool) -> None:
        broker = self._from[asyncio.current_task()]
        for topic in answer.responses:
            for entry in topic.partitions:
                self.received[broker] += len(entry.records or b"")
        super()._on_answer(answer, asked, by_id=by_id)


def test_our_consumer_does_too_and_goes_on_with_the_leader_when_the_follower_dies(
    cluster: Cluster,
) -> None:
    leader = filled(cluster, "by-ours")
    near = next(n for n in IDS if n != leader)
    settings = ConsumerSettings(client_rack=f"rack-{near}", max_poll_records=RECORDS)

    async def read_all(consumer: CountingConsumer) -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(90):
            while len(found) < RECORDS:
                found += [int(r.value or b"") for r in await consumer.poll()]
        return found

    async def test() -> None:
        async with ClusterClient(cluster.bootstrap) as client:
            consumer = CountingConsumer(client, settings)
            consumer.assign([("by-ours", 0)])
            consumer.seek(("by-ours", 0), 0)
            assert await read_all(consumer) == list(range(RECORDS))
            assert consumer.received[near] >= 0.9 * sum(consumer.received.values())
            await asyncio.to_thread(cluster.kill, near)
            before = consumer.received[near]
            consumer.seek(("by-ours", 0), 0)
            assert await read_all(consumer) == list(range(RECORDS))
            assert consumer.received[near] == before
            await consumer.close()

    asyncio.run(test())
    cluster.start([near])
