"""Streams of requests from clients, and what was acknowledged."""

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

SECONDS = 60


class Load:
    """Produces numbers to `t` until it ends; keeps the acknowledged ones."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.acknowledged: set[int] = set()
        self._partitions = partitions
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.005):
            self._producer.produce(
                "t",
                str(number),
                partition=number % self._partitions,
                on_delivery=lambda error, message: (
                    error or self.acknowledged.add(int(message.value()))
                ),
            )
            self._producer.poll(0)
            number += 1
        self._producer.flush(60)

    def end(self) -> set[int]:
        self._ended.set()
        self._thread.join(90)
        return self.acknowledged


def read_all(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
    consumer.close()
    return found


class TransactionLoad:
    """Writes the same number to both partitions of `x` in one transaction, until it ends.

    Attributes:
        committed: numbers whose commit was acknowledged.
        aborted: numbers whose abort was acknowledged.
    """

    def __init__(self, bootstrap: str) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer, number = None, 0
        while not self._ended.wait(0.05):
            number += 1
            try:
                if producer is None:
                    producer = self._new_producer()
                self._write(producer, number)
            except KafkaException:
                producer = None  # the outcome is open; the next one fences it

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "x",
                "transaction.timeout.ms": 20_000,
            }
        )
        producer.init_transactions(SECONDS)
        return producer

    def _write(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("x", str(number), partition=partition)
        if number % 3:
            producer.commit_transaction(SECONDS)
            self.committed.add(number)
        else:
            producer.abort_transaction(SECONDS)
            self.aborted.add(number)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(3 * SECONDS)

    def check(self) -> None:
        """Every committed number is in both partitions, once; no aborted one is in any."""
        found = [_committed_in(self._bootstrap, partition) for partition in (0, 1)]
        assert found[0] == found[1]
        assert len(found[0]) == len(set(found[0]))
        assert self.committed <= set(found[0])
        assert not self.aborted & set(found[0])


def _committed_in(bootstrap: str, partition: int) -> list[int]:
    """All committed numbers of a partition of `x`, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("x", partition, 0)])
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(int(message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found


class GroupLoad:
    """A member of a group that reads `t` and commits, until it ends.

    Attributes:
        found: the numbers that it has read.
    """

    def __init__(self, bootstrap: str) -> None:
        self.found: set[int] = set()
        self._expected: set[int] | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "through",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
            }
        )
        self._consumer.subscribe(["t"])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        deadline = None
        while deadline is None or time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.found.add(int(message.value()))
            if self._expected is not None:
                deadline = deadline or time.monotonic() + SECONDS
                if self._expected <= self.found:
                    break
        self._consumer.close()

    def end(self, expected: set[int]) -> None:
        """Read on until all expected numbers were read; they must be."""
        self._expected = expected
        self._thread.join(2 * SECONDS)
        assert expected <= self.found, sorted(expected - self.found)[:10]


class AdminLoad:
    """Creates topics with a config each, and deletes some, until it ends.

    Attributes:
        topics: acknowledged ones → the acknowledged value of `retention.ms`.
        deleted: whose deletion was acknowledged.
        failures: what was refused, or timed out; the client may try again.
    """

    def __init__(self, bootstrap: str, replication_factor: int) -> None:
        self.topics: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.failures: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._replication_factor = replication_factor
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.1):
            number += 1
            name = f"made-{number}"
            try:
                self._create(name, str(100_000 + number))
                if number % 4 == 0:
                    self._admin.delete_topics([name], operation_timeout=10)[name].result(SECONDS)
                    self.deleted.add(name)
            except KafkaException as error:
                self.failures.append(f"{name}: {error}")

    def _create(self, name: str, retention_ms: str) -> None:
        topic = NewTopic(name, 2, self._replication_factor)
        self._admin.create_topics([topic], operation_timeout=10)[name].result(SECONDS)
        self.topics[name] = ""
        entry = ConfigEntry(
            "retention.ms", retention_ms, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        self.topics[name] = retention_ms

    def end(self) -> None:
        self._ended.set()
        self._thread.join(3 * SECONDS)


def retention_of(admin: AdminClient, topics: list[str]) -> dict[str, str]:
    """Topic → the value of `retention.ms`, as a broker describes it."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    described = admin.describe_configs(resources)
    return {
        resource.name: described[resource].result(SECONDS)["retention.ms"].value
        for resource in resources
    }
