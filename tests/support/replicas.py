"""What tests of replication share: a producer that never stops, and what lies in replicas' logs."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import PartitionInfo
from sparkraft.client.values import NewTopic
from tests.support.clusters import Cluster
from tests.support.nodes import NodeProcess
from tests.support.ports import wait_until

IN_FLIGHT_MAX = 2_000
"""Records a stream has under way at a time: enough for load, few enough to end quickly."""


class RecordStream:
    """Produces numbered records to the partitions of a topic, in turn, until told to stop.

    `acknowledged` has, for each partition, the values whose delivery was confirmed, in the order in
    which they were sent; idempotence keeps that order also where a send is repeated.
    With `rate`, no more records a second than that on average; after a pause it catches up.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        acks: str = "all",
        rate: int | None = None,
    ) -> None:
        self.acknowledged: dict[int, list[str]] = {n: [] for n in range(partitions)}
        self.failures: list[str] = []
        self._topic = topic
        self._rate = rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def count(self) -> int:
        """How many records were confirmed so far."""
        return sum(map(len, self.acknowledged.values()))

    def start(self) -> None:
        """Produce in a thread of its own."""
        self._thread.start()

    def _run(self) -> None:
        number, began = 0, time.monotonic()
        partitions = len(self.acknowledged)
        while not self._stop.is_set():
            self._producer.poll(0 if len(self._producer) < IN_FLIGHT_MAX else 0.05)
            if len(self._producer) >= IN_FLIGHT_MAX:
                continue
            if self._rate is not None and number > (time.monotonic() - began) * self._rate:
                self._producer.poll(0.01)
                continue
            partition = number % partitions
            value = f"{number:08d}" + "." * 92
            number += 1
            self._producer.produce(
                self._topic,
                value,
                partition=partition,
                on_delivery=self._delivered,
            )

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition()].append(message.value().decode())  # type: ignore[attr-defined]

    def stop(self) -> dict[int, list[str]]:
        """Stop, wait for what is under way; what was confirmed."""
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert self._producer.flush(150) == 0
        return self.acknowledged

    def abandon(self) -> None:
        """Forget what is under way: nobody is left to confirm it."""
        self._stop.set()
        self._thread.join(90)
        self._producer.purge()

    def goes_on(self, more: int = 500) -> None:
        """Return once `more` records were confirmed from now on."""
        wanted = self.count + more
        wait_until(lambda: self.count >= wanted, f"{more} more records are confirmed", 90)


@contextmanager
def records_produced_throughout(
    cluster: Cluster, topic: str, partitions: int, **more: Any
) -> Iterator[RecordStream]:
    """A stream as long as the block lasts."""
    stream = RecordStream(cluster.bootstrap, topic, partitions, **more)
    stream.start()
    try:
        yield stream
    finally:
        stream.stop()


def read_partition(bootstrap: str, topic: str, partition: int) -> list[str]:
    """Every record of a partition, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reads-{topic}-{partition}",
            "enable.auto.commit": False,
        }
    )
    try:
        where = TopicPartition(topic, partition, OFFSET_BEGINNING)
        end = _end_of(consumer, where)
        consumer.assign([where])
        found: list[str] = []
        at = -1

        def done() -> bool:
            nonlocal at
            for message in consumer.consume(5_000, timeout=0.5):
                if message.error() is None:
                    found.append((message.value() or b"").decode())
                    at = message.offset()
            return at + 1 >= end

        if end > 0:
            wait_until(done, f"{topic}-{partition} is read up to {end}", 60)
        return found
    finally:
        consumer.close()


def _end_of(consumer: Consumer, where: TopicPartition) -> int:
    end = -1

    def known() -> bool:
        nonlocal end
        try:
            start, end = consumer.get_watermark_offsets(where, timeout=5)
        except KafkaException:
            return False
        if start == end:
            end = 0
        return True

    wait_until(known, f"the end of {where.topic}-{where.partition} is known", 90)
    return end


def until_read(cluster: Cluster, topic: str, partition: int, wanted: list[str]) -> None:
    """Return once a consumer reads just these records.

    A leader that was just elected learns only from its followers how much of its log is committed.
    """
    found: list[str] = []

    def enough() -> bool:
        found[:] = read_partition(cluster.bootstrap, topic, partition)
        return len(found) >= len(wanted)

    wait_until(enough, f"{len(wanted)} records of {topic}-{partition} are read", 90)
    assert found == wanted, f"{topic}-{partition}"


def is_subsequence(wanted: list[str], found: list[str]) -> bool:
    """Whether `found` has all of `wanted`, in that order."""
    rest = iter(found)
    return all(value in rest for value in wanted)


def create_assigned(
    cluster: Cluster, topic: str, replicas: Sequence[Sequence[int]], **configs: str
) -> None:
    """A topic whose partitions have these replicas; returns once every broker knows it."""
    assignment = {index: list(brokers) for index, brokers in enumerate(replicas)}

    async def work(admin: Admin) -> None:
        new = NewTopic(name=topic, assignment=assignment, configs=configs)
        made = (await admin.create_topics([new]))[topic]
        assert not isinstance(made, KafkaError), made

    cluster.ask(work)
    cluster.until_known(topic)


def partition_of(
    cluster: Cluster, topic: str, partition: int = 0, *, of: int | None = None
) -> PartitionInfo:
    """Leader, replicas and ISR as a broker tells them."""

    async def work(admin: Admin) -> PartitionInfo:
        info = (await admin.describe_topics([topic]))[topic]
        if isinstance(info, KafkaError):
            raise info
        return info.partitions[partition]

    return cluster.ask(work, of=of)


def until_in_sync(cluster: Cluster, topic: str, partitions: int, replicas: int) -> None:
    """Return once every partition has a leader and that many replicas in sync."""

    def in_sync() -> bool:
        try:
            found = [partition_of(cluster, topic, index) for index in range(partitions)]
        except KafkaError:
            return False
        return all(len(each.isr) == replicas and each.leader >= 0 for each in found)

    wait_until(in_sync, f"{replicas} replicas of {topic} are in sync", 90)


def log_folders(node: NodeProcess, topic: str, partition: int) -> list[Path]:
    """Folders of a replica in all log directories of a node, copies included."""
    name = f"{topic}-{partition}"
    return sorted(
        path
        for path in node.directory.glob("data*/**/")
        if path.name == name or (path.name.startswith(f"{name}.") and "-future" in path.name)
    )


def log_bytes(node: NodeProcess, topic: str, partition: int) -> bytes:
    """The batches of a replica, of all its segments."""
    (folder,) = (f for f in log_folders(node, topic, partition) if "-future" not in f.name)
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def until_equal(cluster: Cluster, topic: str, partition: int, nodes: list[int]) -> bytes:
    """Return the bytes of a partition once all its replicas have the same."""
    found: list[bytes] = []

    def equal() -> bool:
        try:
            found[:] = [log_bytes(cluster.nodes[n], topic, partition) for n in nodes]
        except (FileNotFoundError, ValueError):
            return False  # A replica is about to be made, or to begin anew.
        return len(set(found)) == 1

    wait_until(equal, f"the replicas of {topic}-{partition} are equal", 90)
    return found[0]
