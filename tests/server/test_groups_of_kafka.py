"""Groups that Apache Kafka left in `__consumer_offsets`: of the new protocol and of the old one."""

from pathlib import Path
from typing import Any

import pytest

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
