"""Topics are deleted while a replica is away or on its way, and nothing of them comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.values import NewTopic
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import partition_of

pytestmark = pytest.mark.real_clients

OVERRIDES = {**STEADY, "log.segment.delete.delay.ms": "1000"}
NAME = "again"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    members = [Member(100, roles="controller"), *(Member(n, roles="broker") for n in (1, 2, 3))]
    with Cluster(tmp_path, members, overrides=OVERRIDES) as cluster:
        yield cluster


def create(cluster: Cluster, replicas: list[int]) -> None:
    async def work(admin: Admin) -> None:
        made = (await admin.create_topics([NewTopic(name=NAME, assignment={0: replicas})]))[NAME]
        assert not isinstance(made, KafkaError), made

    cluster.ask(work)
    cluster.until_known(NAME)


def delete(cluster: Cluster) -> None:
    async def work(admin: Admin) -> None:
        assert await admin.delete_topics([NAME]) == {NAME: None}

    cluster.ask(work)


def produce(bootstrap: str, *values: str) -> None:
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(
            NAME,
            value=value,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(90) == 0
    assert failed == []


def read(bootstrap: str, wanted: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(NAME, 0, 0)])

        def enough() -> bool:
            messages = consumer.consume(100, timeout=0.5)
            found.extend((m.value() or b"").decode() for m in messages if m.error() is None)
            return len(found) >= wanted

        wait_until(enough, f"{wanted} records are read", 90)
    finally:
        consumer.close()
    return found


def folders(cluster: Cluster, node: int) -> list[str]:
    data = cluster.nodes[node].directory / "data"
    return sorted(path.name for path in data.iterdir() if path.name.startswith(NAME))


def test_a_copy_of_a_deleted_topic_is_set_aside_when_its_broker_returns(cluster: Cluster) -> None:
    create(cluster, [1, 2])
    produce(cluster.bootstrap, "old-1", "old-2", "old-3")
    wait_until(lambda: sorted(partition_of(cluster, NAME).isr) == [1, 2], "both have them")
    cluster.kill(2)
    delete(cluster)
    bootstrap = f"127.0.0.1:{cluster.ports[1][0]}"
    for broker in (1, 3):
        wait_until(lambda n=broker: NAME not in cluster.topics(of=n), f"{broker} has heard of it")
    create(cluster, [1, 2])  # the name is free while the old copy lies on broker 2
    produce(bootstrap, "new")
    assert folders(cluster, 2) == [f"{NAME}-0"]
    cluster.start([2])
    wait_until(lambda: sorted(partition_of(cluster, NAME).isr) == [1, 2], "2 has the new one")
    own, stray = folders(cluster, 2)
    assert own == f"{NAME}-0"
    assert stray.startswith(f"{NAME}-0.")
    assert stray.endswith("-stray")
    cluster.stop(1)  # so that the copy of 2 is read
    assert read(f"127.0.0.1:{cluster.ports[2][0]}", 1) == ["new"]


def test_a_topic_that_moves_is_deleted_everywhere(cluster: Cluster) -> None:
    create(cluster, [1])
    produce(cluster.bootstrap, *map(str, range(100)))

    async def move(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(NAME, 0): [2, 3]})
        assert outcome == {(NAME, 0): None}

    # While the newcomer stands still the move can't end.
    cluster.nodes[3].pause()
    try:
        cluster.ask(move, of=1)
        wait_until(lambda: f"{NAME}-0" in folders(cluster, 2), "2 has begun a copy")
        assert 3 not in partition_of(cluster, NAME, of=1).isr
        cluster.ask(delete_work, of=1)
        for node in (1, 2):
            wait_until(lambda n=node: folders(cluster, n) == [], f"{node} has deleted its copy")
    finally:
        cluster.nodes[3].resume()
    wait_until(lambda: NAME not in cluster.topics(of=3), "3 has heard of it")
    wait_until(
        lambda: not [f for f in folders(cluster, 3) if not f.endswith("-stray")],
        "and keeps no copy",
    )


async def delete_work(admin: Admin) -> None:
    assert await admin.delete_topics([NAME]) == {NAME: None}
