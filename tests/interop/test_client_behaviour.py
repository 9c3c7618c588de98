"""Six clients seek by time, resume behind a restart, and administer topics and groups.

With SPARKRAFT_MATRIX_PEER=kafka the same runs against Apache Kafka, which tells a fault of ours
from one of a client or of these tests. Kafka's broker follows its controller only after the answer,
so a client that asks at once what it just changed (aiokafka's configs, kafkajs's new partitions)
sees there the old state now and then; ours answers once it follows.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.behaviours import EXPECTED, NAMES, Behaviour, all_behaviours, fill
from tests.support.groups import committed
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

FIRST_MS = 1_700_000_000_000
GAP_MS = 1000
RECORDS = 100
READ_BEFORE, READ_AFTER = 25, 40


def kind() -> type[NodeProcess]:
    """Whose node the tests run against."""
    return KafkaNode if os.environ.get("SPARKRAFT_MATRIX_PEER") == "kafka" else SparkraftNode


@pytest.fixture(scope="module")
def clients(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Behaviour]:
    return all_behaviours(kafka_jars, tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def node(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with kind()(tmp_path_factory.mktemp("behaviour"), jars=kafka_jars) as started:
        timestamps = [FIRST_MS + number * GAP_MS for number in range(RECORDS)]
        create_topic(started.bootstrap, "timed")
        fill(started.bootstrap, "timed", [f"v{n}" for n in range(RECORDS)], timestamps)
        wait_for_coordinators(started.bootstrap)
        yield started


def wait_for_coordinators(bootstrap: str) -> None:
    """The first who asks for one has the topic of offsets made; kafka-python asks just once."""
    from confluent_kafka import Consumer, TopicPartition

    # One for each of the five partitions of that topic: Java's hash of a digit is its code.
    for group in "01234":
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        committed(consumer, [TopicPartition("timed", 0)])
        consumer.close()


def create_topic(bootstrap: str, topic: str) -> None:
    """One partition that keeps records of any age, through librdkafka's admin client."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 1, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(30)


@pytest.mark.parametrize("name", NAMES)
def test_seek_by_time(name: str, node: NodeProcess, clients: dict[str, Behaviour]) -> None:
    client = clients[name]
    client.prepare()
    exact = FIRST_MS + 42 * GAP_MS
    wanted = {exact: "v42", exact + 1: "v43", FIRST_MS + RECORDS * GAP_MS: None}
    found = {when: client.value_at(node.bootstrap, "timed", when) for when in wanted}
    assert found == wanted


@pytest.mark.parametrize("name", [name for name in NAMES if name != "kcat"])
def test_admin_round_trip(name: str, node: NodeProcess, clients: dict[str, Behaviour]) -> None:
    client = clients[name]
    client.prepare()
    expected = {key: value for key, value in EXPECTED.items() if key not in client.lacks}
    assert client.administer(node.bootstrap, f"life-{name}") == expected


@pytest.mark.parametrize("how", ["clean stop", "kill -9"])
def test_groups_resume_where_they_committed_after_a_restart(
    how: str, clients: dict[str, Behaviour], kafka_jars: Path, tmp_path: Path
) -> None:
    total = READ_BEFORE + READ_AFTER
    values = [f"v{number}" for number in range(total)]
    before, after = {}, {}
    for client in clients.values():
        client.prepare()
    with kind()(tmp_path, jars=kafka_jars) as node:
        create_topic(node.bootstrap, "resumed")
        fill(node.bootstrap, "resumed", values[:-10])
        for name, client in clients.items():
            before[name] = client.read_and_commit(node.bootstrap, "resumed", name, READ_BEFORE)
        if how == "clean stop":
            assert node.stop() in {0, 143}
        else:
            node.kill()
        node.start()
        fill(node.bootstrap, "resumed", values[-10:])
        for name, client in clients.items():
            after[name] = client.read_and_commit(node.bootstrap, "resumed", name, READ_AFTER)
    assert before == dict.fromkeys(clients, values[:READ_BEFORE])
    assert after == dict.fromkeys(clients, values[READ_BEFORE:])
