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
from tests.support.nodes import run_kafka_tool
from tests.support.ports import wait_until
from tests.support.replicas import partition_of

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

OURS, KAFKAS = 11, 13
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


@pytest.mark.parametrize("controller", ["kafka", "sparkraft"])
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
