"""Transactions of Kafka's coordinators with partitions on our brokers: all or nothing, both ways.

librdkafka adds partitions to its transactions by itself; Java's client leaves that to the leader of
the partition (transactions, version 2), which is ours here.
"""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from sparkraft.client.admin import Admin
from sparkraft.client.leadership import LeadershipAdmin
from tests.support.clusters import Cluster, Kind, Member
from tests.support.groups import init_transactions
from tests.support.kafka_tools import run_kafka_tool
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, partition_of, until_equal, until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

OURS, OURS_TOO, KAFKAS = 11, 12, 13
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "auto.leader.rebalance.enable": "false",
}


def create_on(cluster: Cluster, topic: str, broker: int) -> None:
    """A topic of one partition, moved to that broker."""
    cluster.create_topic(topic)

    async def move(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(topic, 0): [broker]})
        assert set(outcome.values()) == {None}, outcome

    cluster.ask(move)
    wait_until(
        lambda: (
            (partition_of(cluster, topic).leader, partition_of(cluster, topic).replicas)
            == (broker, (broker,))
        ),
        f"{topic} lies on {broker}",
        90,
    )


def committed(cluster: Cluster, topic: str) -> list[str]:
    """What a read_committed consumer gets up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            # Its group's coordinator may be on a broker that a test has killed.
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    ended: list[bool] = []

    def more() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            error = message.error()
            if error is None:
                value = message.value()
                assert value is not None
                found.append(value.decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.append(True)
        return bool(ended)

    wait_until(more, f"the end of {topic} is read", 60)
    consumer.close()
    return found


def until_committed(cluster: Cluster, topic: str, count: int) -> list[str]:
    """Return what is committed once there are `count` records.

    A transaction is decided before its markers are in its partitions, and so is its client told.
    """
    found: list[str] = []

    def enough() -> bool:
        found[:] = committed(cluster, topic)
        return len(found) >= count

    wait_until(enough, f"{count} records of {topic} are committed", 90)
    return found


@pytest.mark.parametrize("controller", ["sparkraft", "kafka"])
def test_transactions_reach_partitions_of_ours_whole_or_not_at_all(
    tmp_path: Path, kafka_jars: Path, controller: Kind
) -> None:
    members = [
        Member(1, controller, "controller"),
        Member(OURS, "sparkraft", "broker"),
        Member(KAFKAS, "kafka", "broker"),
    ]
    with Cluster(
        tmp_path, members, quorum="standalone", overrides=SETTINGS, jars=kafka_jars
    ) as cluster:
        create_on(cluster, "on-ours", OURS)
        create_on(cluster, "on-kafkas", KAFKAS)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "librdkafka"}
        )
        init_transactions(producer)
        expected = []
        for turn in range(6):
            producer.begin_transaction()
            values = [f"{turn}-{number}" for number in range(5)]
            for value in values:
                for topic in ("on-ours", "on-kafkas"):
                    producer.produce(topic, value, partition=0)
            if turn % 2:
                assert producer.flush(60) == 0
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
                expected += values
        assert until_committed(cluster, "on-ours", len(expected)) == expected
        assert until_committed(cluster, "on-kafkas", len(expected)) == expected
        done = run_kafka_tool(
            kafka_jars,
            "org.apache.kafka.tools.ProducerPerformance",
            "--bootstrap-server", cluster.bootstrap, "--topic", "on-ours", "--num-records", "500",
            "--record-size", "10", "--throughput", "250", "--transactional-id", "java",
            "--transaction-duration-ms", "10",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "500 records sent" in done.stdout, done.stdout
        found = until_committed(cluster, "on-ours", len(expected) + 500)
        assert (len(found), found[: len(expected)]) == (len(expected) + 500, expected)
        cluster.kill(OURS)
        cluster.start([OURS])
        assert until_committed(cluster, "on-ours", len(found)) == found
        producer.begin_transaction()
        producer.produce("on-ours", "after the crash", partition=0)
        producer.commit_transaction(60)
        found.append("after the crash")
        assert until_committed(cluster, "on-ours", len(found)) == found


def transactional(cluster: Cluster, name: str) -> Producer:
    """A producer that may begin its first transaction."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    init_transactions(producer)
    return producer


def send(producer: Producer, topic: str, values: list[str]) -> None:
    """Begin a transaction whose records all in-sync replicas have when this returns."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def test_transactions_outlive_the_leader_of_their_partition(
    tmp_path: Path, kafka_jars: Path
) -> None:
    """Its follower knows of each, whether it was committed, aborted, or is open yet."""
    members = [
        Member(1, "sparkraft", "controller"),
        Member(OURS, "sparkraft", "broker"),
        Member(OURS_TOO, "sparkraft", "broker"),
        Member(KAFKAS, "kafka", "broker"),
    ]
    # Who is killed is fenced at once by our controller, and nobody else shall be. The killed
    # broker may coordinate the transactions: another one of either kind has to go on.
    settings = {
        **SETTINGS,
        "broker.session.timeout.ms": "20000",
        "transaction.state.log.replication.factor": "3",
    }
    with Cluster(
        tmp_path, members, quorum="standalone", overrides=settings, jars=kafka_jars
    ) as cluster:
        create_assigned(cluster, "led-by-two", [[OURS, OURS_TOO]])
        until_in_sync(cluster, "led-by-two", 1, 2)
        ended, open_yet = (transactional(cluster, name) for name in ("ended", "open"))
        early, late = ([f"{word} {n}" for n in range(5)] for word in ("early", "late"))
        lost, awaited = ([f"{word} {n}" for n in range(5)] for word in ("lost", "awaited"))
        send(ended, "led-by-two", early)
        ended.commit_transaction(60)
        send(ended, "led-by-two", lost)
        ended.abort_transaction(60)
        send(ended, "led-by-two", late)
        ended.commit_transaction(60)
        assert until_committed(cluster, "led-by-two", 10) == early + late
        send(open_yet, "led-by-two", awaited)
        send(ended, "led-by-two", ["behind"])
        ended.commit_transaction(60)
        assert committed(cluster, "led-by-two") == early + late, "the open one hides what follows"
        until_in_sync(cluster, "led-by-two", 1, 2)
        cluster.kill(OURS)
        wait_until(
            lambda: partition_of(cluster, "led-by-two").leader == OURS_TOO, "its follower leads", 90
        )
        assert until_committed(cluster, "led-by-two", 10) == early + late
        open_yet.commit_transaction(60)
        everything = [*early, *late, *awaited, "behind"]
        assert until_committed(cluster, "led-by-two", 16) == everything
        cluster.start([OURS])
        until_equal(cluster, "led-by-two", 0, [OURS, OURS_TOO])
        until_in_sync(cluster, "led-by-two", 1, 2)
        cluster.kill(OURS_TOO)
        wait_until(lambda: partition_of(cluster, "led-by-two").leader == OURS, "and back", 90)
        assert until_committed(cluster, "led-by-two", 16) == everything
