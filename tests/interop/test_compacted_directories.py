"""Compaction moves along with a directory: Kafka reads what we compacted and goes on, and so do we.

Each kind cleans, the other reads the same records at the same offsets, adds to them and cleans
again; after a clean stop and after kill -9. Kafka's transactions are part of what it leaves us.
"""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.groups import init_transactions
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

KINDS: dict[str, type[NodeProcess]] = {"sparkraft": SparkraftNode, "kafka": KafkaNode}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = "compacted"
EAGER = {"log.cleaner.backoff.ms": "100", "offsets.topic.num.partitions": "1"}
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "10000",
    "delete.retention.ms": "0",
}

log = logging.getLogger(__name__)
"""What the client does; pytest shows it for a failed test."""

Model = dict[bytes, bytes | None]


def create(node: NodeProcess) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)


def fill(node: NodeProcess, model: Model, start: int, *, transactions: bool) -> int:
    """Write rounds of the same keys, a second apart by their times; the time that comes next.

    From `start` on, but not before the present: transaction markers have the brokers' own time,
    and a segment that begins with one does not roll by time until records are later than it.
    Every codec, some tombstones; with `transactions` also one that commits and one that aborts.
    """
    from confluent_kafka import Producer

    now = max(start, int(time.time() * 1000))
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "compression.type": codec,
             "enable.idempotence": True, "linger.ms": 20}
        )  # fmt: skip
        for number in range(40):
            key = b"k%d" % (number % 13)
            value = None if number % 17 == 16 else b"%s %d at %d" % (codec.encode(), number, now)
            put(producer, model, key, value, now)
            now += 1000
            if number % 5 == 4:  # a batch each, so that segments roll
                assert producer.flush(60) == 0
    for commit in (True, False) if transactions else ():
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": f"{commit}"})
        init_transactions(producer)
        producer.begin_transaction()
        for number in range(5):
            value = b"transaction %d at %d" % (number, now)
            put(producer, model if commit else {}, b"k%d" % number, value, now)
            now += 1000
        assert producer.flush(60) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(120)
    return now


def put(producer: Any, model: Model, key: bytes, value: bytes | None, timestamp: int) -> None:
    producer.produce(TOPIC, key=key, value=value, partition=0, timestamp=timestamp)
    model[key] = value


def records(node: NodeProcess) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of every record that a read_committed consumer gets."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True,
         "debug": "broker,topic,metadata", "logger": log}
    )  # fmt: skip
    place = TopicPartition(TOPIC, 0, 0)

    def is_led() -> bool:
        try:
            return consumer.get_watermark_offsets(place, timeout=5)[1] > 0
        except KafkaException as error:
            log.warning("%s", error)
            consumer.poll(0)  # for what the client did meanwhile
            return False

    wait_until(is_led, "the topic is led")
    consumer.assign([place])
    found: list[tuple[int, bytes, bytes | None]] = []
    ended: list[Any] = []

    def more() -> bool:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is None:
                found.append((message.offset(), message.key(), message.value()))
            else:
                ended.append(message)
        return bool(ended)

    wait_until(more, "the end of the partition is read")
    consumer.close()
    return found


def cleaned_to(node: NodeProcess) -> int:
    """What the node's checkpoint says of the topic."""
    path = node.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return max(
        [int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")], default=0
    )


def until_cleaned(node: NodeProcess, offset: int) -> None:
    what = f"{type(node).__name__} has cleaned up to {offset}"
    wait_until(lambda: cleaned_to(node) >= offset, what, 120)


def latest(found: list[tuple[int, bytes, bytes | None]]) -> Model:
    """The last value of each key; a tombstone counts as none."""
    model: Model = {}
    for _, key, value in found:
        model[key] = value
    return {key: value for key, value in model.items() if value is not None}


def check(node: NodeProcess, model: Model) -> list[tuple[int, bytes, bytes | None]]:
    found = records(node)
    assert latest(found) == {key: value for key, value in model.items() if value is not None}
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    return found


@pytest.mark.parametrize("how", ["clean stop", "kill -9"])
@pytest.mark.parametrize(("first", "second"), [("kafka", "sparkraft"), ("sparkraft", "kafka")])
def test_a_compacted_directory_moves(
    first: str, second: str, how: str, kafka_jars: Path, tmp_path: Path
) -> None:
    model: Model = {}
    node = KINDS[first](tmp_path, jars=kafka_jars, overrides=EAGER)
    with node:
        create(node)
        now = fill(node, model, 0, transactions=first == "kafka")
        written = 200 + (12 if first == "kafka" else 0)
        until_cleaned(node, written - 20)
        before = check(node, model)
        assert len(before) < 60
        end(node, how)
    node = KINDS[second](tmp_path, jars=kafka_jars, overrides=EAGER)
    with node:
        assert set(check(node, model)) <= set(before), "the same, or cleaned once more"
        now = fill(node, model, now, transactions=second == "kafka")
        until_cleaned(node, written + 180)
        between = check(node, model)
        assert len(between) < 60
        end(node, how)
    node = KINDS[first](tmp_path, jars=kafka_jars, overrides=EAGER)
    with node:
        assert set(check(node, model)) <= set(between)
        fill(node, model, now, transactions=False)
        until_cleaned(node, written + 380)
        assert len(check(node, model)) < 60
        node.stop()


def end(node: NodeProcess, how: str) -> None:
    if how == "clean stop":
        node.stop()
    else:
        node.kill()
