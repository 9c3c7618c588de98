"""Consume, transform, produce with another client, until killed: one process of a test.

    python -m tests.interop.exactly_once_worker CLIENT BOOTSTRAP SOURCE TARGET

The consumer is assigned the two partitions of SOURCE, so that a successor need not wait for a
session to time out; offsets belong to the group `mover`. Any error ends the process: the test
starts another one, as a supervisor would.

The clients `classic-N` and `consumer-N` are member N of the group with that protocol
(confluent-kafka): the group assigns the partitions.
"""

import asyncio
import sys
from collections import defaultdict
from typing import Any

PARTITIONS = (0, 1)
GROUP = "mover"
TRANSACTIONAL_ID = "mover-0"
STEP = 20
SESSION_MS = 6_000

CONNECTING: dict[str, Any] = {"reconnect.backoff.max.ms": 1_000}
"""For librdkafka, whose default of 10 s is long for a node that takes seconds to start again."""


def moved(value: bytes) -> bytes:
    return b"moved-" + value


def confluent(bootstrap: str, source: str, target: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        CONNECTING
        | {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    identity = {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID}
    producer = Producer(CONNECTING | identity)
    producer.init_transactions(60)
    partitions = [TopicPartition(source, index) for index in PARTITIONS]
    committed = consumer.committed(partitions, timeout=60)
    for entry in committed:
        assert entry.error is None, entry
        entry.offset = max(entry.offset, 0)
    consumer.assign(committed)
    while True:
        messages = consumer.consume(STEP, timeout=1)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            producer.produce(target, moved(value), partition=message.partition())
        positions = consumer.position(partitions)
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)


class GroupMember:
    """A member of the group, which moves records of the partitions that it owns.

    Records that were read and not yet moved are dropped if their partition is revoked: the next
    owner reads them again.
    """

    def __init__(self, bootstrap: str, source: str, target: str, *, name: str) -> None:
        from confluent_kafka import Consumer, Producer

        self._source = source
        self._target = target
        self._batch: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        settings = CONNECTING | {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": name.partition("-")[0],
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if name.startswith("classic"):
            settings["session.timeout.ms"] = SESSION_MS
        self._consumer = Consumer(settings)
        identity = {"bootstrap.servers": bootstrap, "transactional.id": name}
        self._producer = Producer(CONNECTING | identity)

    def run(self) -> None:
        """Move records until an error; leave the group then."""
        self._producer.init_transactions(60)
        self._consumer.subscribe([self._source], on_revoke=self._drop, on_lost=self._drop)
        try:
            while True:
                self._read()
                if self._batch:
                    self._move()
        finally:
            self._consumer.close()

    def _drop(self, _: Any, partitions: list[Any]) -> None:
        for one in partitions:
            self._batch.pop(one.partition, None)

    def _read(self) -> None:
        for _ in range(STEP):
            message = self._consumer.poll(0.2)
            if message is None:
                return
            assert message.error() is None, message.error()
            self._batch[message.partition()].append((message.offset(), message.value()))

    def _move(self) -> None:
        from confluent_kafka import TopicPartition

        self._producer.begin_transaction()
        for index, records in self._batch.items():
            for _, value in records:
                self._producer.produce(self._target, moved(value), partition=index)
        offsets = [
            TopicPartition(self._source, index, records[-1][0] + 1)
            for index, records in self._batch.items()
        ]
        member = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, member, 60)
        self._producer.commit_transaction(60)
        sys.stdout.write(f"moved {sorted(self._batch)}\n")
        sys.stdout.flush()
        self._batch.clear()


def kafka_python(bootstrap: str, source: str, target: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata, TopicPartition

    consumer: Any = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=GROUP,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=STEP,
    )
    producer: Any = KafkaProducer(
        bootstrap_servers=bootstrap.split(","), transactional_id=TRANSACTIONAL_ID
    )
    producer.init_transactions()
    partitions = [TopicPartition(source, index) for index in PARTITIONS]
    consumer.assign(partitions)
    while True:
        polled = consumer.poll(timeout_ms=1000)
        if not polled:
            continue
        producer.begin_transaction()
        for records in polled.values():
            for record in records:
                producer.send(target, moved(record.value), partition=record.partition)
        offsets = {
            tp: OffsetAndMetadata(records[-1].offset + 1, "", -1) for tp, records in polled.items()
        }
        producer.send_offsets_to_transaction(offsets, GROUP)
        producer.commit_transaction()


async def aiokafka(bootstrap: str, source: str, target: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=STEP,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID)
    await producer.start()
    consumer.assign([TopicPartition(source, index) for index in PARTITIONS])
    await consumer.start()
    while True:
        polled = await consumer.getmany(timeout_ms=1000)
        if not polled:
            continue
        async with producer.transaction():
            for records in polled.values():
                for record in records:
                    await producer.send(target, moved(record.value), partition=record.partition)
            offsets = {tp: records[-1].offset + 1 for tp, records in polled.items()}
            await producer.send_offsets_to_transaction(offsets, GROUP)


def main(client: str, *where: str) -> None:
    if client == "aiokafka":
        asyncio.run(aiokafka(*where))
    elif client == "kafka-python":
        kafka_python(*where)
    elif client.startswith(("classic-", "consumer-")):
        GroupMember(*where, name=client).run()
    else:
        confluent(*where)


if __name__ == "__main__":
    main(*sys.argv[1:])
