"""Disks that fail under a real node: full ones, and ones that can't sync.

The log dir goes offline, the node says so in a sentence and ends with a code above 0 when it was
its last; started again on a sound disk it has everything that was acknowledged.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.failing_disk import FailingDisk
from tests.support.nodes import SparkraftNode, with_limits
from tests.support.outside_tools import Missing
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

ROUNDS_MAX = 10_000
"""Batches sent before a disk that was to fail counts as sound."""


@pytest.fixture
def faults(tmp_path: Path) -> FailingDisk:
    found = FailingDisk.in_folder(tmp_path)
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


def create_topic(
    node: SparkraftNode, topic: str, partitions: int = 1, *, seconds: float = 60, **config: str
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, partitions, 1, config=settings)
    admin.create_topics([new])[topic].result(seconds)


def has_ended(node: SparkraftNode) -> bool:
    return node.process is not None and node.process.poll() is not None


class Sender:
    """An idempotent producer that remembers what was acknowledged and what failed."""

    def __init__(self, node: SparkraftNode, topic: str, *, seconds: float = 60) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(seconds * 1000),
                "log_level": 0,
            }
        )
        self.acknowledged: dict[int, list[bytes]] = {}
        self.failed = 0

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.setdefault(message.partition(), []).append(message.value())
        else:
            self.failed += 1

    def send(
        self, values: list[bytes], partition: int = 0, *, until: Callable[[], bool] | None = None
    ) -> None:
        """Send, and wait for every answer or the producer's own timeout.

        What has no answer by the time that `until` holds counts as failed.
        """
        for value in values:
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._on_delivery
            )
        given_up = until or (lambda: False)
        what = "every record has an answer"
        wait_until(lambda: self._producer.flush(0.1) == 0 or given_up(), what, 120, pause=0)
        if len(self._producer):
            self._producer.purge()
            assert self._producer.flush(60) == 0


def values_in(node: SparkraftNode, topic: str, partition: int = 0) -> list[bytes]:
    """Every value of a partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "check", "enable.auto.commit": False}
    )
    place = TopicPartition(topic, partition, 0)
    end = consumer.get_watermark_offsets(place, timeout=30)[1]
    consumer.assign([place])
    seen: list[bytes] = []

    def more() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            seen.append(message.value())
        return len(seen) >= end

    wait_until(more, f"all {end} records are read")
    consumer.close()
    return seen


def assert_ended_with_a_sentence(node: SparkraftNode, *sentences: str) -> None:
    assert node.wait() == 1
    said = node.output_path.read_text()
    assert "Traceback" not in said, said
    for sentence in sentences:
        assert said.count(sentence) == 1, said


def assert_nothing_is_lost(node: SparkraftNode, sender: Sender, topic: str) -> None:
    """What was acknowledged is there, once and in order; more may be."""
    for partition, acknowledged in sender.acknowledged.items():
        there = values_in(node, topic, partition)
        assert len(set(there)) == len(there)
        known = set(acknowledged)
        assert [value for value in there if value in known] == acknowledged


def test_a_full_disk_ends_the_node_and_loses_nothing(tmp_path: Path) -> None:
    """Full as a limit of file sizes sees it: the last write fits in part only."""
    with SparkraftNode(tmp_path) as node:
        node.stop()
        node.prefix = with_limits("ulimit -f 2000")
        node.start()
        create_topic(node, "t")
        sender = Sender(node, "t")
        for number in range(ROUNDS_MAX):
            values = [b"%d-%d:" % (number, part) + bytes(3001) for part in range(20)]
            sender.send(values, until=lambda: has_ended(node))
            if sender.failed:
                break
        assert sender.acknowledged[0]
        assert_ended_with_a_sentence(node, "goes offline", "This node stops")
        node.prefix = []
        node.start()
        assert_nothing_is_lost(node, sender, "t")
        create_topic(node, "next")
        assert node.stop() == 0


@pytest.mark.parametrize(
    ("operation", "number"), [("write", errno.ENOSPC), ("sync", errno.EIO)], ids=["full", "fsync"]
)
@pytest.mark.parametrize("where", ["/t-0/", "/__cluster_metadata-0/"], ids=["topic", "metadata"])
def test_a_failing_only_disk_ends_the_node_and_loses_nothing(
    where: str, operation: str, number: int, faults: FailingDisk, tmp_path: Path
) -> None:
    from confluent_kafka import KafkaException

    node = SparkraftNode(tmp_path)
    node.environment = faults.environment
    with node:
        create_topic(node, "t", flush_messages="1")
        sender = Sender(node, "t")
        sender.send([b"before-%d" % n for n in range(100)])
        assert not sender.failed
        faults.fail(operation, number, where)
        if where == "/t-0/":
            late = Sender(node, "t")
            late.send([b"after-%d" % n for n in range(5)], until=lambda: has_ended(node))
            assert not late.acknowledged, "nothing is acknowledged from then on"
        else:
            # It is refused, or nobody is left to answer: an idle log has a record twice a second.
            with pytest.raises((KafkaException, TimeoutError)):
                create_topic(node, "never", seconds=10)
        assert_ended_with_a_sentence(node, "This node stops")
        faults.heal()
        node.start()
        assert_nothing_is_lost(node, sender, "t")
        sender = Sender(node, "t")
        sender.send([b"again"])
        assert sender.acknowledged == {0: [b"again"]}
        assert node.stop() == 0


@pytest.mark.parametrize(
    ("operation", "number"), [("write", errno.ENOSPC), ("sync", errno.EIO)], ids=["full", "fsync"]
)
def test_one_of_two_log_dirs_fails_and_the_other_goes_on(
    operation: str, number: int, faults: FailingDisk, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    node = SparkraftNode(tmp_path, overrides={"log.dirs": f"{good},{bad}"})
    node.environment = faults.environment
    with node:
        create_topic(node, "t", partitions=4, flush_messages="1")
        wait_until(lambda: len([*good.glob("t-*"), *bad.glob("t-*")]) == 4, "each has a folder")
        on_bad = {int(path.name.removeprefix("t-")) for path in bad.glob("t-*")}
        assert len(on_bad) == 2
        sender = Sender(node, "t")
        for partition in range(4):
            sender.send([b"before"], partition)
        faults.fail(operation, number, f"{bad}/")
        for partition in sorted(set(range(4)) - on_bad):
            sender.send([b"after"], partition)
        both, one = [b"before", b"after"], [b"before"]
        assert sender.acknowledged == {n: one if n in on_bad else both for n in range(4)}
        first = Sender(node, "t")
        first.send(
            [b"after"],
            min(on_bad),
            until=lambda: "goes offline" in node.output_path.read_text(),
        )
        late = Sender(node, "t", seconds=2)
        for partition in sorted(on_bad):
            late.send([b"after"], partition)
        assert (late.acknowledged, late.failed) == ({}, 2)
        assert not first.acknowledged
        create_topic(node, "on-the-good-one")
        wait_until((good / "on-the-good-one-0").exists, "it has a folder where the disk is sound")
        said = node.output_path.read_text()
        assert said.count("goes offline") == 1, said
        assert "Traceback" not in said
        assert node.stop() == 0
        faults.heal()
        node.start()
        assert_nothing_is_lost(node, sender, "t")
        assert node.stop() == 0
