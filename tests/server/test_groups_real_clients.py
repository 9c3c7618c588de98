"""Other people's clients in groups of a real node: meeting, leaving, committing, resuming, admin.

Every wait is a poll of the client itself, ended by what is waited for and bounded by WAIT_SECONDS.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

WAIT_SECONDS = 60
PARTITIONS = 4
RECORDS = 40


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("groups")) as running:
        yield running


@pytest.fixture
def topic(node: SparkraftNode, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")[-100:]
    make_topic(node, name)
    produce(node, name)
    return name


def admin(node: SparkraftNode) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": node.bootstrap})


def make_topic(node: SparkraftNode, name: str) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(node)  # It must live until the answer is there.
    made = client.create_topics([NewTopic(name, PARTITIONS, 1)])
    made[name].result(WAIT_SECONDS)


def produce(node: SparkraftNode, topic: str, first: int = 0) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0


def until(done: Callable[[], bool], step: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        step()


def until_together(done: Callable[[], bool], *members: Any) -> None:
    """Poll each in a thread of its own, as applications do.

    In turns, a join of one ends in the turn of the other, and kafka-python throws away a join that
    ends between two of its polls and begins another: with turns of one length, for ever.
    """
    over = threading.Event()

    def go(member: Any) -> None:
        until(lambda: over.is_set() or done(), member.poll)
        over.set()

    with ThreadPoolExecutor(len(members)) as threads:
        for ended in [threads.submit(go, member) for member in members]:
            ended.result()


def confluent_consumer(node: SparkraftNode, group: str, **config: Any) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 200,
            **config,
        }
    )


class Confluent:
    """A confluent-kafka member that remembers what it read."""

    def __init__(self, node: SparkraftNode, group: str, topic: str, **config: Any) -> None:
        self.consumer = confluent_consumer(node, group, **config)
        self.rebalances = 0
        self.read: list[int] = []
        self.assigned: set[int] = set()
        self.consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, *_: Any) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        message = self.consumer.poll(0.1)
        if message is not None and message.error() is None:
            self.read.append(int(message.value()))
        self.assigned = {one.partition for one in self.consumer.assignment()}

    def partitions(self) -> set[int]:
        """Those it had after its last poll, for any thread.

        confluent-kafka lets one thread at a time call a consumer, and who calls it again at once
        keeps it: an `assignment()` beside a thread that polls may wait for ever.
        """
        return self.assigned

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    """The same with kafka-python."""

    def __init__(self, node: SparkraftNode, group: str, topic: str) -> None:
        from kafka import KafkaConsumer

        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=node.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
        )
        # It may lead its group before it has heard of the topic, then assigns nothing and looks
        # again only minutes later; a first rebalance without delay makes that likely.
        assert self.consumer.partitions_for_topic(topic)
        self.read: list[int] = []
        self.assigned: set[int] = set()

    def poll(self) -> None:
        # Longer than a join takes, which would be thrown away if it ended between two polls.
        for records in self.consumer.poll(timeout_ms=1_000).values():
            self.read += [int(one.value) for one in records]
        self.assigned = {one.partition for one in self.consumer.assignment()}

    def partitions(self) -> set[int]:
        """Those it had after its last poll, for any thread."""
        return self.assigned

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close(autocommit=False)


def share_and_take_over(first: Any, join: Callable[[], Any]) -> None:
    """One member has all, two share, one that remains has all again."""
    everything = set(range(PARTITIONS))
    until(lambda: first.partitions() == everything and len(first.read) == RECORDS, first.poll)
    first.commit()
    second = join()

    def shared() -> bool:
        one, other = first.partitions(), second.partitions()
        return bool(one) and bool(other) and not one & other and one | other == everything

    until_together(shared, first, second)
    first.close()
    until(lambda: second.partitions() == everything, second.poll)
    assert sorted(first.read) == list(range(RECORDS))
    assert second.read == []
    second.close()


def test_confluent_members_share_and_take_over(node: SparkraftNode, topic: str) -> None:
    first = Confluent(node, topic, topic)
    share_and_take_over(first, lambda: Confluent(node, topic, topic))


def test_confluent_members_rebalance_cooperatively(node: SparkraftNode, topic: str) -> None:
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    first = Confluent(node, topic, topic, **strategy)
    share_and_take_over(first, lambda: Confluent(node, topic, topic, **strategy))


def test_kafka_python_members_share_and_take_over(node: SparkraftNode, topic: str) -> None:
    first = KafkaPython(node, topic, topic)
    share_and_take_over(first, lambda: KafkaPython(node, topic, topic))


def test_members_of_two_clients_share_and_take_over(node: SparkraftNode, topic: str) -> None:
    first = KafkaPython(node, topic, topic)
    strategy = {"partition.assignment.strategy": "range,roundrobin"}
    share_and_take_over(first, lambda: Confluent(node, topic, topic, **strategy))


def test_aiokafka_members_share_and_take_over(node: SparkraftNode, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer

    def consumer() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=node.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            rebalance_timeout_ms=10_000,
            session_timeout_ms=10_000,
        )

    async def test() -> None:
        first, second = consumer(), consumer()
        read: list[int] = []
        await first.start()
        while len(read) < RECORDS:
            found = await first.getmany(timeout_ms=100)
            read += [int(one.value) for records in found.values() for one in records]
        assert sorted(read) == list(range(RECORDS))
        await first.commit()
        await second.start()
        while len(first.assignment()) != 2 or len(second.assignment()) != 2:
            await asyncio.gather(first.getmany(timeout_ms=50), second.getmany(timeout_ms=50))
        await first.stop()
        while len(second.assignment()) != PARTITIONS:
            assert await second.getmany(timeout_ms=50) == {}
        await second.stop()

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await test()

    asyncio.run(bounded())


def test_a_static_member_comes_back_without_a_rebalance(node: SparkraftNode, topic: str) -> None:
    stays = Confluent(node, topic, topic, **{"group.instance.id": "stays"})
    until(lambda: len(stays.partitions()) == PARTITIONS, stays.poll)
    goes = Confluent(node, topic, topic, **{"group.instance.id": "goes"})
    until(lambda: len(goes.partitions()) == PARTITIONS // 2, lambda: (stays.poll(), goes.poll()))
    until(lambda: len(stays.partitions()) == PARTITIONS // 2, lambda: (stays.poll(), goes.poll()))
    rebalances, had = stays.rebalances, goes.partitions()
    goes.close()  # A static member does not leave.
    back = Confluent(node, topic, topic, **{"group.instance.id": "goes"})
    until(lambda: back.partitions() == had, lambda: (stays.poll(), back.poll()))
    assert stays.rebalances == rebalances
    stays.close()
    back.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_group_resumes_after_the_node_restarts(tmp_path: Path, end: str) -> None:
    with SparkraftNode(tmp_path / "node") as node:
        make_topic(node, "t")
        produce(node, "t")
        # Its session outlasts the restart: one that is over reads again what was not committed.
        first = Confluent(node, "g", "t", **{"session.timeout.ms": 60_000})
        until(lambda: len(first.read) == RECORDS, first.poll)
        first.commit()
        getattr(node, end)()
        node.start()
        produce(node, "t", RECORDS)
        until(lambda: len(first.read) == 2 * RECORDS, first.poll)
        assert sorted(first.read) == list(range(2 * RECORDS))
        first.close()
        second = Confluent(node, "g", "t")
        until(lambda: len(second.partitions()) == PARTITIONS, second.poll)
        until(lambda: len(second.read) >= RECORDS, second.poll)
        assert sorted(second.read) == list(range(RECORDS, 2 * RECORDS))
        second.close()


def test_admin_lists_describes_alters_and_deletes_groups(node: SparkraftNode, topic: str) -> None:
    from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

    member = Confluent(node, topic, topic, **{"client.id": "reader"})
    until(lambda: len(member.read) == RECORDS, member.poll)
    member.commit()
    client = admin(node)
    found = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_SECONDS)
    assert topic in {one.group_id for one in found.valid}
    found = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WAIT_SECONDS)
    assert topic not in {one.group_id for one in found.valid}
    described = client.describe_consumer_groups([topic])[topic].result(WAIT_SECONDS)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (only,) = described.members
    assert only.client_id == "reader"
    assert {one.partition for one in only.assignment.topic_partitions} == set(range(PARTITIONS))
    deletion = client.delete_consumer_groups([topic])[topic]
    assert "NON_EMPTY_GROUP" in str(deletion.exception(WAIT_SECONDS))
    member.close()

    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])
    client.alter_consumer_group_offsets([wanted])[topic].result(WAIT_SECONDS)
    asked = [ConsumerGroupTopicPartitions(topic)]
    offsets = client.list_consumer_group_offsets(asked)[topic].result(WAIT_SECONDS)
    assert {one.partition: one.offset for one in offsets.topic_partitions} == {
        0: 3, 1: 10, 2: 10, 3: 10,
    }  # fmt: skip
    client.delete_consumer_groups([topic])[topic].result(WAIT_SECONDS)
    found = client.list_consumer_groups().result(WAIT_SECONDS)
    assert topic not in {one.group_id for one in found.valid}


def test_kafka_python_admin_sees_the_same(node: SparkraftNode, topic: str) -> None:
    from kafka import KafkaAdminClient

    member = KafkaPython(node, topic, topic)
    until(lambda: len(member.read) == RECORDS, member.poll)
    member.commit()
    client = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    assert topic in str(client.list_groups())
    offsets = client.list_group_offsets(topic)
    assert "offset=10" in str(offsets)
    assert "Stable" in str(client.describe_groups([topic]))
    member.close()
    client.delete_groups([topic])
    assert topic not in str(client.list_groups())
    client.close()


def test_a_second_producer_with_a_transactional_id_fences_the_first(node: SparkraftNode) -> None:
    from confluent_kafka import KafkaException, Producer

    config = {"bootstrap.servers": node.bootstrap, "transactional.id": "x"}
    first, second = Producer(config), Producer(config)
    first.init_transactions(WAIT_SECONDS)
    first.begin_transaction()
    second.init_transactions(WAIT_SECONDS)
    first.produce("fenced", b"v")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_SECONDS)
    assert refused.value.args[0].fatal()
