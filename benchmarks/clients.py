"""librdkafka's producer and consumer as loads: the same client for our nodes and for Kafka's.

Freed memory stays with the client. Else glibc gives each fetch of some MB back to the kernel, and
more than half of a consumer's time goes into page faults of its own: by luck of malloc's threshold
the same run came to 0.6 or to 1.7 GB/s, whoever served it.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import cpu_seconds
from sparkraft.server.limits import keep_freed_buffers

BATCH_BYTES = 1_000_000

KEPT_BYTES = 512 << 20
"""More than a consumer's queue holds."""

UNBATCHED = {"linger.ms": 0, "batch.num.messages": 1, "queue.buffering.max.messages": 20_000}
"""Every record is a request of its own."""


@dataclass(frozen=True)
class Load:
    """What a load came to; CPU is that of all server processes together."""

    megabytes_a_second: float
    records_a_second: float
    cpu_ms_a_megabyte: float


def produce(
    bootstrap: str,
    topic: str,
    size: int,
    count: int,
    *,
    pids: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
) -> Load:
    """Write `count` records of `size` bytes of noise and wait until all are acknowledged.

    Args:
        bootstrap: of the cluster.
        topic: records go round its partitions.
        size: of a value, in bytes.
        count: of records.
        pids: of the servers, for their CPU.
        settings: of librdkafka, beyond or instead of acks of 1 and large batches.
    """
    from confluent_kafka import Producer

    keep_freed_buffers(KEPT_BYTES)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            **(settings or {}),
        }
    )
    value = os.urandom(size)
    cpu, begun = sum(map(cpu_seconds, pids)), time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return _load(size, count, time.perf_counter() - begun, sum(map(cpu_seconds, pids)) - cpu)


def consume(bootstrap: str, topic: str, size: int, count: int, *, pids: Sequence[int] = ()) -> Load:
    """Read `count` records of `size` bytes from the topic's start; arguments as of `produce`."""
    from confluent_kafka import Consumer, TopicPartition

    keep_freed_buffers(KEPT_BYTES)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
            "queued.max.messages.kbytes": 262_144,
            # Once its queue is full it would pause for a second, and only quick servers fill it.
            "fetch.queue.backoff.ms": 10,
        }
    )
    partitions = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen, deadline = 0, time.perf_counter() + 120
    cpu, begun = sum(map(cpu_seconds, pids)), time.perf_counter()
    while seen < count and time.perf_counter() < deadline:
        seen += len(consumer.consume(min(10_000, count - seen), timeout=1.0))
    took = time.perf_counter() - begun
    used = sum(map(cpu_seconds, pids)) - cpu
    consumer.close()
    assert seen >= count, f"read {seen} of {count} records"
    return _load(size, count, took, used)


def _load(size: int, count: int, took: float, cpu: float) -> Load:
    megabytes = count * size / 1e6
    return Load(megabytes / took, count / took, cpu * 1000 / megabytes)
