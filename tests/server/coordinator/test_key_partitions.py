"""Added partitions of an internal topic do not move its keys while the broker runs, as in Kafka."""

from types import SimpleNamespace
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.base.java_hash import partition_of
from sparkraft.base.placeholder_ids import placeholder_id
from sparkraft.server.coordinator.key_partitions import (
    HASHES_MAX,
    KEY_LENGTH_MAX,
    KeyPartitions,
)

TOPIC = "__consumer_offsets"
ID, OTHER_ID = Uuid(b"a" * 16), Uuid(b"b" * 16)


class Metadata:
    """An image with the topic, or without it."""

    def __init__(self) -> None:
        self.found: Any = None
        self.image: Any = SimpleNamespace(topic=lambda _: self.found)

    def set(self, count: int, topic_id: Uuid = ID) -> None:
        self.found = SimpleNamespace(id=topic_id, partitions=dict.fromkeys(range(count)))


def test_the_partitions_at_the_start_count(caplog):
    metadata = Metadata()
    partitions = KeyPartitions(TOPIC, metadata, 50)
    metadata.set(4)
    assert partitions.count == 4
    metadata.set(7)
    for _ in range(3):
        assert partitions.count == 4
        assert partitions.of("a-group") == partition_of("a-group", 4)
    assert caplog.text.count("keys stay in the first 4 until this broker restarts") == 1
    metadata.set(9)
    assert partitions.count == 4
    assert caplog.text.count("keys stay in the first 4") == 2
    assert KeyPartitions(TOPIC, metadata, 50).count == 9, "after a restart"


def test_a_topic_that_is_created_later_or_again_is_counted_then():
    metadata = Metadata()
    partitions = KeyPartitions(TOPIC, metadata, 50)
    assert partitions.count == 50
    metadata.set(4)
    assert partitions.count == 4
    metadata.found = None
    assert partitions.count == 50
    metadata.set(6, OTHER_ID)
    assert partitions.count == 6


def test_a_topic_that_gets_its_id_is_the_same_topic():
    """`inter.broker.protocol.version` 2.8 gives ids to topics (KIP-516)."""
    metadata = Metadata()
    partitions = KeyPartitions(TOPIC, metadata, 50)
    metadata.set(4, placeholder_id(TOPIC))
    assert partitions.count == 4
    metadata.set(5, ID)
    assert partitions.count == 4
    metadata.set(5, OTHER_ID)
    assert partitions.count == 5, "it was created again"


def test_a_few_keys_are_remembered_and_stay_in_their_partitions():
    metadata = Metadata()
    metadata.set(50)
    partitions = KeyPartitions(TOPIC, metadata, 50)
    keys = [f"id-{number}" for number in range(HASHES_MAX + 10)] + ["x" * (KEY_LENGTH_MAX + 1)]
    for _ in range(2):
        assert [partitions.of(key) for key in keys] == [partition_of(key, 50) for key in keys]
        assert len(partitions._hashes) <= HASHES_MAX
        assert keys[-1] not in partitions._hashes
    metadata.set(9, OTHER_ID)
    assert partitions.of(keys[-2]) == partition_of(keys[-2], 9), "the topic was created again"
