"""Groups that Apache Kafka left in `__consumer_offsets`: of the new protocol and of the old one."""

from pathlib import Path
from typing import Any

import pytest

from sparkraft.coordinator.group.records import decode_record
from sparkraft.protocol.messages.consumer_group_records import ConsumerGroupMetadataKey
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import decode_records
from tests.server.test_groups_real_clients import (
    RECORDS,
    WAIT_SECONDS,
    Confluent,
    admin,
    make_topic,
    produce,
    until,
)
from tests.support.nodes import KafkaNode, SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java]


def modern(node: Any, group: str) -> Confluent:
    """A member of a KIP-848 group, which takes its timeouts from the broker."""
    member = Confluent.__new__(Confluent)
    from confluent_kafka import Consumer

    member.consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.read, member.rebalances = [], 0
    member.consumer.subscribe(["t"])
    return member


def groups(node: Any) -> dict[str, tuple[str, str]]:
    client = admin(node)  # It must live until the answer is there.
    found = client.list_consumer_groups().result(WAIT_SECONDS)
    return {one.group_id: (one.type.name, one.state.name) for one in found.valid}


def committed(node: Any, group: str) -> int:
    from confluent_kafka import ConsumerGroupTopicPartitions

    client = admin(node)
    asked = [ConsumerGroupTopicPartitions(group)]
    found = client.list_consumer_group_offsets(asked)[group].result(WAIT_SECONDS)
    return sum(one.offset for one in found.topic_partitions)


def test_groups_of_both_protocols_are_taken_over_and_handed_back(
    kafka_jars: Path, tmp_path: Path
) -> None:
    with KafkaNode(tmp_path, jars=kafka_jars) as node:
        make_topic(node, "t")
        produce(node, "t")
        members = [modern(node, "left"), modern(node, "alive"), Confluent(node, "classic", "t")]
        for member in members:
            until(lambda one=member: len(one.read) == RECORDS, member.poll)
            member.commit()
        members[0].close()
        node.kill()
        for member in members[1:]:
            del member.consumer

    with SparkraftNode(tmp_path) as node:
        until(lambda: len(groups(node)) == 3, lambda: None)  # A node serves before it leads.
        assert groups(node) == {
            "left": ("CONSUMER", "EMPTY"),
            "alive": ("CONSUMER", "STABLE"),
            "classic": ("CLASSIC", "STABLE"),
        }
        assert {group: committed(node, group) for group in groups(node)} == {
            "left": RECORDS,
            "alive": RECORDS,
            "classic": RECORDS,
        }
        produce(node, "t", RECORDS)
        for group in ("left", "classic"):
            member = Confluent(node, group, "t")
            until(lambda one=member: len(one.read) == RECORDS, member.poll)
            assert sorted(member.read) == list(range(RECORDS, 2 * RECORDS))
            member.commit()
            member.close()
        assert groups(node)["left"] == ("CLASSIC", "EMPTY")
        node.stop()

    with KafkaNode(tmp_path, jars=kafka_jars) as node:
        # Each is told of once its partition is loaded.
        until(lambda: {"left", "alive", "classic"} <= groups(node).keys(), lambda: None)
        assert groups(node)["left"] == ("CLASSIC", "EMPTY")
        assert {group: committed(node, group) for group in ("left", "alive", "classic")} == {
            "left": 2 * RECORDS,
            "alive": RECORDS,
            "classic": 2 * RECORDS,
        }
        node.stop()


QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "0",
}


def group_epochs(node: Any, group: str) -> list[tuple[int, int]]:
    """Epoch and hash of every record of type 3, in the order of the log."""
    found = []
    for segment in sorted(node.log_dir.glob("__consumer_offsets-*/*.log")):
        for _, batch in iter_batches(segment.read_bytes()):
            for record in decode_records(batch):
                decoded = decode_record(record.key, record.value) if record.key else None
                if (
                    decoded is not None
                    and isinstance(decoded.key, ConsumerGroupMetadataKey)
                    and decoded.key.group_id == group
                    and decoded.value is not None
                ):
                    found.append((decoded.value.epoch, decoded.value.metadata_hash))
    return found


def test_a_consumer_group_is_continued_by_either_kind(kafka_jars: Path, tmp_path: Path) -> None:
    """Kafka, ours, Kafka: epochs rise, offsets stay, and both hash the topics alike."""
    with KafkaNode(tmp_path, jars=kafka_jars, overrides=QUICK) as node:
        make_topic(node, "t")
        produce(node, "t")
        member = modern(node, "g")
        until(lambda: len(member.read) == RECORDS, member.poll)
        member.commit()
        node.kill()
        del member.consumer
    by_kafka = group_epochs(node, "g")

    with SparkraftNode(tmp_path, overrides=QUICK) as node:
        until(lambda: groups(node).get("g") == ("CONSUMER", "STABLE"), lambda: None)
        produce(node, "t", RECORDS)
        member = modern(node, "g")
        until(lambda: len(member.read) == RECORDS, member.poll)
        assert sorted(member.read) == list(range(RECORDS, 2 * RECORDS))
        member.commit()
        node.kill()
        del member.consumer
    by_both = group_epochs(node, "g")
    assert by_both[: len(by_kafka)] == by_kafka
    assert len(by_both) > len(by_kafka)
    assert [epoch for epoch, _ in by_both] == sorted({epoch for epoch, _ in by_both})
    assert len({metadata_hash for _, metadata_hash in by_both}) == 1

    with KafkaNode(tmp_path, jars=kafka_jars, overrides=QUICK) as node:
        until(lambda: groups(node).get("g", ("", ""))[0] == "CONSUMER", lambda: None)
        produce(node, "t", 2 * RECORDS)
        member = modern(node, "g")
        until(lambda: len(member.read) == RECORDS, member.poll)
        assert sorted(member.read) == list(range(2 * RECORDS, 3 * RECORDS))
        member.close()
        node.stop()
