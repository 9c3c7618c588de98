"""Share groups, which ours do not coordinate, stay with Kafka's brokers; transactions move."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import PartitionInfo
from sparkraft.client.connection import Connection
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.support.clusters import Cluster, Kind, Member
from tests.support.groups import init_transactions
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TRANSACTIONS, SHARES = "__transaction_state", "__share_group_state"
PARTITIONS = 6
OURS, KAFKAS = (11, 12), (13, 14)
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(PARTITIONS),
    "auto.leader.rebalance.enable": "false",
}
SHARE_KEY = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"


def partitions_of(cluster: Cluster, topic: str) -> dict[int, PartitionInfo]:
    async def work(admin: Admin) -> dict[int, PartitionInfo]:
        info = (await admin.describe_topics([topic]))[topic]
        return {} if isinstance(info, KafkaError) else dict(info.partitions)

    return cluster.ask(work)


def until_led_by_kafkas(cluster: Cluster, topic: str) -> None:
    """Every partition is there and led by one of Kafka's brokers, whose replicas come first."""
    until_led_by(cluster, topic, KAFKAS)


def until_led_by(cluster: Cluster, topic: str, brokers: tuple[int, ...]) -> None:
    """Every partition is there and led by one of `brokers`, whose replicas come first."""

    def led() -> bool:
        found = partitions_of(cluster, topic).values()
        return len(found) == PARTITIONS and all(
            p.leader in brokers and p.replicas[0] in brokers for p in found
        )

    wait_until(led, f"{topic} is led by {brokers}", 90)


def coordinator(cluster: Cluster, key_type: int, key: str, *, of: int) -> tuple[ErrorCode, int]:
    """FindCoordinator, asked of one broker."""

    async def ask() -> tuple[ErrorCode, int]:
        connection = await Connection.open("127.0.0.1", cluster.ports[of][0])
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        try:
            answer = await connection.send(request, timeout_ms=30_000)
        finally:
            await connection.close()
        found = answer.coordinators[0]
        return ErrorCode(found.error_code), found.node_id

    return asyncio.run(ask())


def all_name_one(cluster: Cluster, transactional_id: str) -> bool:
    """Whether every broker names the same coordinator."""
    told = {coordinator(cluster, 1, transactional_id, of=n) for n in OURS + KAFKAS}
    return len(told) == 1 and {code for code, _ in told} == {ErrorCode.NONE}


def put_on_ours(cluster: Cluster, topic: str) -> None:
    """Give every partition a leader of ours, against all reason."""

    async def work(admin: Admin) -> None:
        wanted: dict[tuple[str, int], list[int] | None] = {
            (topic, index): [OURS[index % 2], OURS[1 - index % 2], KAFKAS[index % 2]]
            for index in range(PARTITIONS)
        }
        outcome = await LeadershipAdmin(admin.cluster).reassign(wanted)
        assert set(outcome.values()) == {None}, outcome

    cluster.ask(work)


def elect_preferred(cluster: Cluster, topic: str) -> None:
    """Have the first replica of every partition lead."""

    async def work(admin: Admin) -> None:
        wanted = [(topic, index) for index in range(PARTITIONS)]
        await LeadershipAdmin(admin.cluster).elect_leaders(0, wanted)

    def elected() -> bool:
        cluster.ask(work)
        return all(p.leader == p.replicas[0] for p in partitions_of(cluster, topic).values())

    wait_until(elected, f"the preferred leaders of {topic} are elected", 90)


def commit_a_transaction(cluster: Cluster, name: str) -> None:
    """Of a client that knows our brokers only, to a partition that Kafka's lead."""
    servers = ",".join(f"127.0.0.1:{cluster.ports[n][0]}" for n in OURS)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    init_transactions(producer)
    producer.begin_transaction()
    producer.produce("on-kafkas", name, partition=0)
    producer.commit_transaction(60)


@pytest.mark.parametrize(
    ("controller", "replicas"),
    [
        ("sparkraft", 3),
        ("kafka", 1),
        pytest.param("sparkraft", 1, marks=pytest.mark.long),
        pytest.param("kafka", 3, marks=pytest.mark.long),
    ],
)
def test_coordinators_are_led_by_brokers_that_serve_them(
    tmp_path: Path, kafka_jars: Path, controller: Kind, replicas: int
) -> None:
    factor = {
        "transaction.state.log.replication.factor": str(replicas),
        "share.coordinator.state.topic.replication.factor": str(replicas),
    }
    members = [
        Member(1, controller, "controller"),
        *(Member(n, "sparkraft", "broker") for n in OURS),
        *(Member(n, "kafka", "broker") for n in KAFKAS),
    ]
    with Cluster(
        tmp_path, members, quorum="standalone", overrides=SETTINGS | factor, jars=kafka_jars
    ) as cluster:
        place_on(cluster, "on-kafkas", KAFKAS[0])
        commit_a_transaction(cluster, "first")
        wait_until(
            lambda: coordinator(cluster, 2, SHARE_KEY, of=OURS[0])[1] in KAFKAS, "it is told", 90
        )
        until_led_by_kafkas(cluster, SHARES)
        wait_until(lambda: all_name_one(cluster, "first"), "all name the same coordinator", 90)
        if replicas > 1:
            for topic in (TRANSACTIONS, SHARES):
                put_on_ours(cluster, topic)
            elect_preferred(cluster, TRANSACTIONS)
            until_led_by_kafkas(cluster, SHARES)
            cluster.kill(KAFKAS[1])
            cluster.start([KAFKAS[1]])
            until_led_by_kafkas(cluster, SHARES)
            until_led_by(cluster, TRANSACTIONS, OURS)
        commit_a_transaction(cluster, "first")
        commit_a_transaction(cluster, "second")
        assert committed_records(cluster, 3) == ["first", "first", "second"]


def committed_records(cluster: Cluster, count: int) -> list[str]:
    """The first records of committed transactions; their markers take offsets too."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    found: list[str] = []

    def enough() -> bool:
        told = consumer.consume(count, timeout=0.5)
        found.extend((m.value() or b"").decode() for m in told if m.error() is None)
        return len(found) >= count

    try:
        consumer.assign([TopicPartition("on-kafkas", 0, OFFSET_BEGINNING)])
        wait_until(enough, f"{count} records are read", 60)
    finally:
        consumer.close()
    return found


def place_on(cluster: Cluster, topic: str, broker: int) -> None:
    """A topic of one partition on that broker."""
    cluster.create_topic(topic)

    async def move(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(topic, 0): [broker]})
        assert set(outcome.values()) == {None}, outcome

    cluster.ask(move)
    wait_until(
        lambda: [p.replicas for p in partitions_of(cluster, topic).values()] == [(broker,)],
        f"{topic} lies on {broker}",
        90,
    )
