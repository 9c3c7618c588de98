"""Transactional producers of other projects on one node: all or nothing, and offsets with them.

Each runs as a process of its own that must end by itself.
"""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.groups import init_transactions
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, javascript_clients
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

SECONDS = 60
TURNS = 4

SCRIPTS = {
    "confluent-kafka": """
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "c"})
producer.init_transactions(60)
for turn in range(TURNS):
    producer.begin_transaction()
    for topic in TOPICS:
        producer.produce(topic, str(turn))
    if turn % 2:
        producer.flush(60)
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)
""",
    "kafka-python": """
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="k")
producer.init_transactions()
for turn in range(TURNS):
    producer.begin_transaction()
    for future in [producer.send(topic, str(turn).encode()) for topic in TOPICS]:
        future.get(60)
    producer.abort_transaction() if turn % 2 else producer.commit_transaction()
producer.close()
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaProducer
async def main():
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="a")
    await producer.start()
    for turn in range(TURNS):
        await producer.begin_transaction()
        for topic in TOPICS:
            await producer.send_and_wait(topic, str(turn).encode())
        await (producer.abort_transaction() if turn % 2 else producer.commit_transaction())
    await producer.stop()
asyncio.run(main())
""",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("transactions")) as started:
        yield started


def create_topic(node: SparkraftNode, name: str) -> None:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    created = client.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
    created[name].result(SECONDS)


def committed(node: SparkraftNode, topic: str) -> list[str]:
    """What a read_committed consumer gets up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []

    def ended() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return True
        return False

    wait_until(ended, f"the end of {topic} is read", SECONDS)
    consumer.close()
    return found


def until_committed(node: SparkraftNode, topic: str, expected: list[str]) -> None:
    """Clients get the response to a commit before its markers are written."""
    wait_until(lambda: committed(node, topic) == expected, f"{expected} in {topic}", SECONDS)


@pytest.mark.parametrize("client", SCRIPTS)
def test_transactions_of_a_python_client(client: str, node: SparkraftNode) -> None:
    topics = [f"{client}-{number}" for number in range(2)]
    script = (
        f"BOOTSTRAP, TOPICS, TURNS = {node.bootstrap!r}, {topics!r}, {TURNS}\n{SCRIPTS[client]}"
    )
    for topic in topics:
        create_topic(node, topic)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for topic in topics:
        until_committed(node, topic, [str(turn) for turn in range(0, TURNS, 2)])


def test_offsets_are_committed_with_the_records(node: SparkraftNode) -> None:
    """Consume, transform, produce: an aborted attempt is read again, once for read_committed."""
    create_topic(node, "in")
    create_topic(node, "out")
    plain = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(20):
        plain.produce("in", str(number))
    assert plain.flush(SECONDS) == 0
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "transform"})
    init_transactions(producer)
    for abort in (True, False, True, False):
        transform(node, producer, abort=abort)
    until_committed(node, "out", [str(number) for number in range(20)])


FIRST_OFFSETS = {
    "confluent-kafka": """
from confluent_kafka import Consumer, Producer, TopicPartition
producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "c"})
producer.init_transactions(60)
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "first"})
producer.begin_transaction()
group = consumer.consumer_group_metadata()
producer.send_offsets_to_transaction([TopicPartition("in", 0, 7)], group, 60)
producer.commit_transaction(60)
""",
    "kafka-python": """
from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="k")
producer.init_transactions()
producer.begin_transaction()
offsets = {TopicPartition("in", 0): OffsetAndMetadata(7, "", -1)}
producer.send_offsets_to_transaction(offsets, "first")
producer.commit_transaction()
producer.close()
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
async def main():
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id="a")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({TopicPartition("in", 0): 7}, "first")
    await producer.commit_transaction()
    await producer.stop()
asyncio.run(main())
""",
}


@pytest.mark.parametrize(
    "client",
    [
        "confluent-kafka",
        pytest.param("kafka-python", marks=pytest.mark.long),
        pytest.param("aiokafka", marks=pytest.mark.long),
    ],
)
def test_offsets_are_the_first_of_the_cluster(tmp_path: Path, client: str) -> None:
    """AddOffsetsToTxn creates `__consumer_offsets`, and the client repeats it."""
    with SparkraftNode(tmp_path / "node") as fresh:
        create_topic(fresh, "in")
        script = f"BOOTSTRAP = {fresh.bootstrap!r}\n{FIRST_OFFSETS[client]}"
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        consumer = Consumer({"bootstrap.servers": fresh.bootstrap, "group.id": "first"})

        def is_stored() -> bool:
            (found,) = consumer.committed([TopicPartition("in", 0)], SECONDS)
            return int(found.offset) == 7

        wait_until(is_stored, "the offset is committed", SECONDS)
        consumer.close()


def transform(node: SparkraftNode, producer: Producer, *, abort: bool) -> None:
    """Copy the group's next ten records from `in` to `out`, in one transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "transformers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["in"])
    messages: list[Message] = []

    def has_ten() -> bool:
        messages.extend(consumer.consume(10 - len(messages), timeout=0.5))
        return len(messages) == 10

    wait_until(has_ten, "ten records", SECONDS)
    producer.begin_transaction()
    for message in messages:
        producer.produce("out", message.value())
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
    )
    if abort:
        assert producer.flush(SECONDS) == 0
        producer.abort_transaction(SECONDS)
    else:
        producer.commit_transaction(SECONDS)
    consumer.close()


@pytest.mark.java
def test_javas_producer_leaves_adding_partitions_to_the_leader(
    node: SparkraftNode, kafka_jars: Path
) -> None:
    create_topic(node, "java")
    done = run_kafka_tool(
        kafka_jars,
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", node.bootstrap, "--topic", "java", "--num-records", "500",
        "--record-size", "10", "--throughput", "500", "--transactional-id", "j",
        "--transaction-duration-ms", "20",
        seconds=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "500 records sent" in done.stdout, done.stdout
    wait_until(lambda: len(committed(node, "java")) == 500, "500 records", SECONDS)


@pytest.mark.parametrize("client", ["kafkajs", "platformatic"])
def test_a_javascript_client(client: str, node: SparkraftNode) -> None:
    folder = javascript_clients()
    if isinstance(folder, Missing):
        pytest.skip(f"{client}: {folder.reason}")
    create_topic(node, client)
    done = subprocess.run(
        ["node", "transactions.js", client, node.bootstrap, client],
        cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    until_committed(node, client, ["committed"])
