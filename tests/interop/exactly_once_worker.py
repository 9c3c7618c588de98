"""Consume, transform, produce with another client, until killed: one process of a test.

    python -m tests.interop.exactly_once_worker CLIENT BOOTSTRAP SOURCE TARGET

The consumer is assigned the two partitions of SOURCE, so that a successor need not wait for a
session to time out; offsets belong to the group `mover`. Any error ends the process: the test
starts another one, as a supervisor would.
"""

import asyncio
import sys
from typing import Any

PARTITIONS = (0, 1)
GROUP = "mover"
TRANSACTIONAL_ID = "mover-0"
STEP = 20


def moved(value: bytes) -> bytes:
    return b"moved-" + value


def confluent(bootstrap: str, source: str, target: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID})
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
    else:
        confluent(*where)


if __name__ == "__main__":
    main(*sys.argv[1:])
