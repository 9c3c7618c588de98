"""Reads the records of a topic while a test runs, with librdkafka."""

from collections.abc import Callable
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from tests.support.ports import wait_until


class RecordReader:
    """A consumer of all partitions of a topic; `records` has (key, value) so far."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed"
    ) -> None:
        """Start at the beginning; use it in a `with` block."""
        self.topic = topic
        self.records: list[tuple[str, str]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reads-{topic}",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])

    def poll(self, seconds: float = 0.2) -> int:
        """Read what is there; how many records were read in all."""
        for message in self._consumer.consume(1_000, timeout=seconds):
            if message.error() is None:
                key, value = message.key(), message.value()
                self.records.append(((key or b"").decode(), (value or b"").decode()))
        return len(self.records)

    def until_read(
        self, count: int, *, seconds: float, check: Callable[[], object] = lambda: None
    ) -> None:
        """Return once there are so many records; call `check` in the meantime."""

        def enough() -> bool:
            check()
            return self.poll() >= count

        wait_until(enough, f"{count} records of {self.topic} are read", seconds)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self._consumer.close()
