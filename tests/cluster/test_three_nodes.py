"""Three nodes as real processes: elections, failover, and clients that follow."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from tests.cluster.conftest import STEADY, topics_created_throughout
from tests.support import groups
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of this file; each leaves three nodes running."""
    directory = tmp_path_factory.mktemp("three")
    with Cluster(directory, [Member(n) for n in IDS], overrides=STEADY) as cluster:
        yield cluster


def leaders_of(cluster: Cluster, topic: str, *, of: int | None = None) -> dict[int, int]:
    async def work(admin: Admin) -> dict[int, int]:
        found = await admin.describe_topics([topic])
        info = found[topic]
        assert not isinstance(info, KafkaError), info
        return {index: partition.leader for index, partition in info.partitions.items()}

    return cluster.ask(work, of=of)


def produce(bootstrap: str, topic: str, partitions: int, each: int, *, tag: str = "") -> None:
    """`each` records to every partition, all acknowledged."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in range(partitions):
        for count in range(each):
            producer.produce(
                topic,
                value=f"{tag}{partition}/{count}",
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
    assert producer.flush(90) == 0
    assert not failed, failed


def read_all(bootstrap: str, topic: str, partitions: int, wanted: int) -> set[str]:
    """`wanted` records from the beginning on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"read-{topic}"})
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        return consume(consumer, wanted)
    finally:
        consumer.close()


def consume(consumer: Consumer, wanted: int) -> set[str]:
    found: set[str] = set()

    def enough() -> bool:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is None:
                found.add((message.value() or b"").decode())
        return len(found) >= wanted

    wait_until(enough, f"{wanted} records", 90)
    return found


def test_a_topic_spreads_over_all_nodes_and_every_node_tells_the_same(cluster: Cluster) -> None:
    cluster.create_topic("spread", partitions=9, of=2)
    told = [leaders_of(cluster, "spread", of=node) for node in IDS]
    assert told[0] == told[1] == told[2]
    assert sorted(told[0].values()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_clients_that_know_one_node_produce_to_and_consume_from_all(cluster: Cluster) -> None:
    cluster.create_topic("everywhere", partitions=6)
    produce(f"127.0.0.1:{cluster.ports[1][0]}", "everywhere", 6, 50)
    found = read_all(f"127.0.0.1:{cluster.ports[3][0]}", "everywhere", 6, 300)
    assert found == {f"{p}/{n}" for p in range(6) for n in range(50)}


def test_coordinators_of_groups_are_on_all_nodes_and_keep_offsets(cluster: Cluster) -> None:
    cluster.create_topic("grouped", partitions=3)
    produce(cluster.bootstrap, "grouped", 3, 10)
    names = [f"group-{n}" for n in range(8)]
    for group in names:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe(["grouped"])
            assert len(consume(consumer, 30)) == 30
            groups.commit(consumer)
            kept = groups.committed(consumer, [TopicPartition("grouped", p) for p in range(3)])
            assert kept == dict.fromkeys(range(3), 10)
        finally:
            consumer.close()

    async def coordinators(admin: Admin) -> set[int]:
        ask = admin.cluster.coordinator
        return {await admin.cluster.retrying(partial(ask, group)) for group in names}

    assert cluster.ask(coordinators) == set(IDS)
    assert set(leaders_of(cluster, "__consumer_offsets").values()) == set(IDS)


def test_more_replicas_than_brokers_are_refused_with_the_reason(cluster: Cluster) -> None:
    from sparkraft.client.values import NewTopic

    async def work(admin: Admin) -> object:
        new = NewTopic(name="too-many", partitions=1, replication_factor=4)
        return (await admin.create_topics([new]))["too-many"]

    refused = cluster.ask(work)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "replicat" in refused.detail


def test_the_leader_is_killed_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    cluster.create_topic("kept", partitions=3)
    produce(cluster.bootstrap, "kept", 3, 20)
    with topics_created_throughout(cluster, "while-killed") as stream:
        for round_ in (1, 2):
            dead = cluster.leader()
            cluster.kill(dead)
            cluster.leader(other_than=dead)
            cluster.create_topic(f"after-kill-{round_}")
            cluster.start([dead])
    for node in IDS:
        wanted = {*stream.acknowledged, "after-kill-1", "after-kill-2"}
        wait_until(lambda n=node, w=wanted: w <= cluster.topics(of=n), f"node {node} knows all")
    assert len(read_all(cluster.bootstrap, "kept", 3, 60)) == 60


def test_a_leader_that_stands_still_is_replaced_and_follows_when_it_wakes(
    cluster: Cluster,
) -> None:
    still = cluster.leader()
    cluster.nodes[still].pause()
    try:
        others = [n for n in IDS if n != still]
        epoch_before = 0

        def replaced() -> bool:
            nonlocal epoch_before
            try:
                quorum = cluster.ask(
                    lambda admin: admin.describe_quorum(),
                    controllers=True,
                    of=others[0],
                    timeout_ms=3_000,
                )
            except KafkaError:
                return False
            epoch_before = quorum.leader_epoch
            return quorum.leader_id in others

        wait_until(replaced, "another leader", 90)
        cluster.create_topic("while-still", of=others[1])
    finally:
        cluster.nodes[still].resume()
    wait_until(lambda: "while-still" in cluster.topics(of=still), "it has caught up", 90)
    quorum = cluster.describe_quorum()
    assert quorum.leader_epoch >= epoch_before
    wait_until(
        lambda: set(leaders_of(cluster, "spread").values()) == set(IDS), "it is unfenced again", 90
    )


def test_all_are_killed_and_come_back_with_everything(cluster: Cluster) -> None:
    topics = cluster.topics()
    before = cluster.describe_quorum()
    cluster.kill(*IDS)
    cluster.start()
    assert cluster.topics() >= topics
    after = cluster.describe_quorum()
    assert after.leader_epoch > before.leader_epoch
    wait_until(
        lambda: cluster.describe_quorum().high_watermark >= before.high_watermark,
        "the new leader knows how far the log is committed",
    )
    assert len(read_all(cluster.bootstrap, "everywhere", 6, 300)) == 300


@pytest.mark.parametrize("quorum", ["initial", "static"])
def test_separate_controllers_and_brokers(tmp_path: Path, quorum: str) -> None:
    members = [Member(n, roles="controller") for n in (1, 2, 3)]
    members += [Member(n, roles="broker") for n in (11, 12)]
    with Cluster(tmp_path, members, quorum=quorum, overrides=STEADY) as cluster:  # type: ignore[arg-type]
        found = cluster.describe_quorum()
        assert {v.id for v in found.voters} == {1, 2, 3}
        wait_until(
            lambda: {o.id for o in cluster.describe_quorum().observers} >= {11, 12},
            "the brokers are observers",
        )
        cluster.create_topic("apart", partitions=4)
        assert sorted(leaders_of(cluster, "apart").values()) == [11, 11, 12, 12]
        produce(cluster.bootstrap, "apart", 4, 25)
        dead = cluster.leader()
        cluster.kill(dead)
        cluster.leader(other_than=dead)
        cluster.create_topic("apart-2", partitions=2)
        assert len(read_all(cluster.bootstrap, "apart", 4, 100)) == 100
