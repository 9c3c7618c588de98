"""A data directory moves either way: Kafka's node starts on ours, and ours on Kafka's.

Topics, records, configs and committed offsets written by the one are read back equal through the
other, after a clean stop and after kill -9; and what the second one adds, the first one reads.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import groups
from tests.support.nodes import KafkaFormattedNode, NodeProcess, SparkraftNode
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

KINDS: dict[str, type[NodeProcess]] = {"sparkraft": SparkraftNode, "kafka": KafkaFormattedNode}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "readers"


@dataclass(frozen=True)
class Contents:
    """All that a client can see of a directory: what must survive the move."""

    records: dict[str, list[tuple[Any, ...]]]
    configs: dict[str, str]
    committed: dict[tuple[str, int], int]
    partitions: dict[str, int]


def fill(bootstrap: str, mark: str) -> None:
    """Write a topic of several partitions, codecs and segments, a config, and a group's offsets."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    groups.until_served(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"moved-{mark}"
    settings = {"segment.bytes": "1048576", "retention.ms": "-1", "max.message.bytes": "2000000"}
    made = admin.create_topics([NewTopic(topic, 3, 1, config=settings)])
    made[topic].result(30)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
        )
        for number in range(300):
            producer.produce(
                topic,
                key=f"{codec}-{number}",
                value=f"{number}:" + "v" * (number * 7),
                headers=[("codec", codec.encode())],
                partition=number % 3,
                timestamp=1_700_000_000_000 + number,
            )
        assert producer.flush(90) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    offsets = [TopicPartition(topic, p, 100 + p) for p in range(3)]
    groups.commit(consumer, offsets)
    consumer.close()


def contents(bootstrap: str, topics: list[str]) -> Contents:
    """Read everything back."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    groups.until_served(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.list_topics(timeout=30).topics
    partitions = {topic: len(described[topic].partitions) for topic in topics}
    records: dict[str, list[tuple[Any, ...]]] = {}
    configs: dict[str, str] = {}
    committed: dict[tuple[str, int], int] = {}
    for topic in topics:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        )
        places = [TopicPartition(topic, p, 0) for p in range(partitions[topic])]
        ends = {p.partition: groups.end_of(consumer, p) for p in places}
        consumer.assign(places)
        seen: list[tuple[Any, ...]] = []

        def more(consumer: Any = consumer, seen: list[Any] = seen, ends: Any = ends) -> bool:
            for m in consumer.consume(500, timeout=0.5):
                assert m.error() is None, m.error()
                place = (m.partition(), m.offset())
                seen.append((*place, m.timestamp(), m.key(), m.value(), tuple(m.headers() or ())))
            return len(seen) >= sum(ends.values())

        wait_until(more, f"all records of {topic} are read")
        records[topic] = sorted(seen)
        for partition, offset in groups.committed(consumer, places).items():
            committed[topic, partition] = offset
        consumer.close()
        resource = ConfigResource(ResourceType.TOPIC, topic)
        for name, entry in admin.describe_configs([resource])[resource].result(30).items():
            if not entry.is_default:
                configs[f"{topic} {name}"] = entry.value
    return Contents(records, configs, committed, partitions)


@pytest.mark.parametrize("how", ["clean stop", "kill -9"])
@pytest.mark.parametrize(("first", "second"), [("kafka", "sparkraft"), ("sparkraft", "kafka")])
def test_a_directory_moves(
    first: str, second: str, how: str, kafka_jars: Path, tmp_path: Path
) -> None:
    node = KINDS[first](tmp_path, jars=kafka_jars)
    with node:
        fill(node.bootstrap, "one")
        before = contents(node.bootstrap, ["moved-one"])
        assert len(before.records["moved-one"]) == 300 * len(CODECS)
        assert before.committed == {("moved-one", p): 100 + p for p in range(3)}
        end(node, how)
    node = KINDS[second](tmp_path, jars=kafka_jars)
    with node:
        assert contents(node.bootstrap, ["moved-one"]) == before
        fill(node.bootstrap, "two")
        both = contents(node.bootstrap, ["moved-one", "moved-two"])
        end(node, how)
    node = KINDS[first](tmp_path, jars=kafka_jars)
    with node:
        assert contents(node.bootstrap, ["moved-one", "moved-two"]) == both
        node.stop()


def end(node: NodeProcess, how: str) -> None:
    """End `node` as the test asks."""
    if how == "clean stop":
        node.stop()
    else:
        node.kill()
