"""confluent-kafka with `group.protocol=consumer` against a real node (KIP-848)."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.test_groups_real_clients import (
    PARTITIONS,
    RECORDS,
    WAIT_SECONDS,
    Confluent,
    admin,
    make_topic,
    produce,
    until,
)
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("consumer-groups"), overrides=QUICK) as running:
        yield running


def member(node: SparkraftNode, group: str, topic: str, **config: Any) -> Confluent:
    """A KIP-848 member, which takes its timeouts from the broker."""
    from confluent_kafka import Consumer

    made = Confluent.__new__(Confluent)
    made.consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )
    made.read, made.rebalances, made.assigned = [], 0, set()
    made.consumer.subscribe([topic])
    return made


def described(node: SparkraftNode, group: str) -> Any:
    client = admin(node)
    return client.describe_consumer_groups([group])[group].result(WAIT_SECONDS)


def poll_all(*members: Confluent) -> None:
    for one in members:
        one.poll()


def test_members_share_partitions_commit_and_leave(node: SparkraftNode) -> None:
    make_topic(node, "shared")
    produce(node, "shared")
    first = member(node, "shared", "shared")
    until(lambda: len(first.read) == RECORDS, first.poll)
    first.commit()
    second = member(node, "shared", "shared")
    until(
        lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2,
        lambda: poll_all(first, second),
    )
    assert first.assigned.isdisjoint(second.assigned)
    group = described(node, "shared")
    assert (group.type.name, group.state.name) == ("CONSUMER", "STABLE")
    assert group.partition_assignor == "uniform"
    owned = [
        sorted(one.partition for one in each.assignment.topic_partitions) for each in group.members
    ]
    assert sorted(owned) == sorted([sorted(first.assigned), sorted(second.assigned)])
    first.close()
    until(lambda: len(second.assigned) == PARTITIONS, second.poll)
    produce(node, "shared", RECORDS)
    until(lambda: len(second.read) == RECORDS, second.poll)
    assert sorted(second.read) == list(range(RECORDS, 2 * RECORDS))
    second.commit()
    second.close()
    assert described(node, "shared").state.name == "EMPTY"


def test_a_regular_expression_finds_a_topic_created_later(node: SparkraftNode) -> None:
    make_topic(node, "found-1")
    produce(node, "found-1")
    consumer = member(node, "found", "^found-.*")
    until(lambda: len(consumer.read) == RECORDS, consumer.poll)
    make_topic(node, "found-2")
    produce(node, "found-2", RECORDS)
    until(lambda: len(consumer.read) == 2 * RECORDS, consumer.poll)
    consumer.close()


def test_a_static_member_gets_its_partitions_back(node: SparkraftNode) -> None:
    make_topic(node, "static")
    config = {"group.instance.id": "one"}
    first = member(node, "static", "static", **config)
    other = member(node, "static", "static", **{"group.instance.id": "two"})
    until(
        lambda: len(first.assigned) == len(other.assigned) == PARTITIONS // 2,
        lambda: poll_all(first, other),
    )
    before = first.assigned
    first.close()
    again = member(node, "static", "static", **config)
    until(lambda: again.assigned == before, lambda: poll_all(again, other))
    again.close()
    other.close()


def test_a_group_survives_a_restart_of_its_coordinator(node: SparkraftNode) -> None:
    make_topic(node, "restart")
    produce(node, "restart")
    consumer = member(node, "restart", "restart")
    until(lambda: len(consumer.read) == RECORDS, consumer.poll)
    consumer.commit()
    node.kill()
    node.start()
    produce(node, "restart", RECORDS)
    until(lambda: len(consumer.read) == 2 * RECORDS, consumer.poll)
    assert sorted(consumer.read) == list(range(2 * RECORDS)), "no record twice"
    consumer.close()


def test_a_group_changes_its_protocol_while_it_reads(node: SparkraftNode) -> None:
    """Classic, mixed, consumer, mixed, classic: nobody stops, and nothing is read twice."""
    make_topic(node, "change")
    produce(node, "change")
    classic = Confluent(node, "change", "change")
    until(lambda: len(classic.read) == RECORDS, classic.poll)
    classic.commit()
    modern = member(node, "change", "change")
    until(
        lambda: len(classic.assigned) == len(modern.assigned) == PARTITIONS // 2,
        lambda: poll_all(classic, modern),
    )
    group = described(node, "change")
    assert (group.type.name, len(group.members)) == ("CONSUMER", 2)
    classic.close()
    until(lambda: len(modern.assigned) == PARTITIONS, modern.poll)
    produce(node, "change", RECORDS)
    until(lambda: len(modern.read) == RECORDS, modern.poll)
    modern.commit()
    again = Confluent(node, "change", "change")
    until(
        lambda: len(again.assigned) == len(modern.assigned) == PARTITIONS // 2,
        lambda: poll_all(again, modern),
    )
    modern.close()
    until(lambda: len(again.assigned) == PARTITIONS, again.poll)
    assert described(node, "change").type.name == "CLASSIC"
    produce(node, "change", 2 * RECORDS)
    until(lambda: len(again.read) == RECORDS, again.poll)
    assert sorted(again.read) == list(range(2 * RECORDS, 3 * RECORDS))
    again.close()


def test_explain_group_tells_the_story_after_a_restart(node: SparkraftNode) -> None:
    make_topic(node, "story")
    first = member(node, "story", "story")
    until(lambda: len(first.assigned) == PARTITIONS, first.poll)
    second = member(node, "story", "story")
    until(
        lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2,
        lambda: poll_all(first, second),
    )
    first.close()
    second.close()
    node.kill()
    node.start()
    found = run_command(node, "explain", "group", "story", "--output", "json")
    decisions = json.loads(found)["decisions"]
    kinds = [one["kind"] for one in decisions]
    assert (kinds.count("joined"), kinds.count("left")) == (2, 2)
    moved = [
        move
        for one in decisions
        if one["kind"] == "moved"
        for move in one["moves"]
        if move["from"] is not None and move["from"] != move["to"]
    ]
    assert len(moved) >= PARTITIONS // 2
    assert all(move["tookMs"] >= 0 for move in moved)
    assert "took over" in run_command(node, "explain", "group", "story")


def run_command(node: SparkraftNode, *words: str) -> str:
    command = [sys.executable, "-m", "sparkraft.cli.main", *words]
    command += ["--bootstrap-server", node.bootstrap]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout
