"""Copies records from topic to topic without Spark, as a program of its own.

    python topic_copy.py confluent|quixstreams BOOTSTRAP SOURCE TARGET COUNT

The last line that it prints is JSON: `records`, `seconds` from the first record until all are
stored, and the process's largest memory in `mib`. It imports nothing of this project, because
quixstreams runs in an environment of its own.
"""

import json
import os
import resource
import sys
import time

CONSUME_AT_ONCE = 10_000


def by_confluent(bootstrap: str, source: str, target: str, count: int) -> float:
    """A loop as confluent-kafka's documentation shows it; the seconds."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    given = {"bootstrap.servers": bootstrap}
    consumer = Consumer({**given, "group.id": f"loop-{os.getpid()}"})
    known = consumer.list_topics(source, timeout=30).topics[source].partitions
    consumer.assign([TopicPartition(source, number, 0) for number in known])
    producer = Producer(
        {**given, "linger.ms": 20, "batch.size": 262_144, "queue.buffering.max.messages": 500_000}
    )
    copied, begun = 0, 0.0
    while copied < count:
        records = consumer.consume(min(CONSUME_AT_ONCE, count - copied), timeout=10)
        begun = begun or time.perf_counter()
        for record in records:
            assert record.error() is None, record.error()
            while True:
                try:
                    producer.produce(target, record.value(), record.key())
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        copied += len(records)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def by_quixstreams(bootstrap: str, source: str, target: str, count: int) -> float:
    """An application as quixstreams' documentation shows it; the seconds."""
    from quixstreams import Application  # type: ignore[import-not-found]

    seen: list[float] = []

    def on_record(*_: object) -> None:
        if not seen:
            seen.append(time.perf_counter())

    app = Application(
        broker_address=bootstrap,
        consumer_group=f"quix-{os.getpid()}",
        auto_offset_reset="earliest",
        producer_extra_config={"linger.ms": 20, "batch.size": 262_144},
        on_message_processed=on_record,
        auto_create_topics=False,
        loglevel="WARNING",
    )
    kind = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
    made = {"key_serializer": "bytes", "value_serializer": "bytes"}
    app.dataframe(app.topic(source, **kind)).to_topic(app.topic(target, **made))
    # It returns when all are stored. With a timeout it would also end if records were missing.
    app.run(count=count, timeout=60, collect=False)
    return time.perf_counter() - seen[0]


KINDS = {"confluent": by_confluent, "quixstreams": by_quixstreams}


def main() -> None:
    """Copy, and print the figures."""
    kind, bootstrap, source, target, count = sys.argv[1:]
    seconds = KINDS[kind](bootstrap, source, target, int(count))
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"records": int(count), "seconds": seconds, "mib": mib}))


if __name__ == "__main__":
    main()
