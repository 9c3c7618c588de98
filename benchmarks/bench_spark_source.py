"""The Spark source against confluent-kafka → Arrow as the Spark reader it would else be.

Both are Python Data Sources in the same Spark, read the same topic from the same node of ours in
the same tasks (two, with four partitions each), and hand Spark Arrow batches with the same
columns; rows go to Spark's `noop` sink. Rounds of the two alternate and medians are compared.
confluent-kafka is used as its documentation shows it: `consume` many, lists to arrays.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.report import Row, Table
from sparkraft.pipeline.options import COLUMNS, source_options
from sparkraft.pipeline.session import session
from sparkraft.pipeline.source import BatchReader, source_schema
from tests.support.nodes import SparkraftNode

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message
    from pyspark.sql import SparkSession

ROUNDS = 5
PARTITIONS = 8
BYTES = 400_000_000
PROMISED = {100: 2.0, 1024: 1.3}
CONSUME_AT_ONCE = 10_000


class ConfluentSource(DataSource):
    """The same columns through librdkafka."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> StructType:
        return source_schema(COLUMNS)

    def reader(self, schema: StructType) -> "ConfluentReader":
        return ConfluentReader(dict(self.options))


class ConfluentReader(DataSourceReader):
    """Reads the ranges that our planner deals out, with confluent-kafka."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return BatchReader(source_options(self.options, streaming=False)).partitions()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from confluent_kafka import Consumer, TopicPartition

        from sparkraft.pipeline.source import _freeze_once

        _freeze_once()
        consumer = Consumer(
            {
                "bootstrap.servers": self.options["kafka.bootstrap.servers"],
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 4 << 20,
                "fetch.max.bytes": 16 << 20,
                "queued.max.messages.kbytes": 65536,
            }
        )
        consumer.assign(
            [TopicPartition(each.topic, each.partition, each.start) for each in partition.value]
        )
        left = sum(each.size for each in partition.value)
        while left:
            # It waits until it has as many as it was asked for, so never for more than there are.
            messages = consumer.consume(min(left, CONSUME_AT_ONCE), timeout=30)
            if not messages:
                raise TimeoutError("confluent-kafka gave nothing for 30 s")
            left -= len(messages)
            yield arrow(messages)
        consumer.close()


def arrow(messages: "list[Message]") -> "pa.RecordBatch":
    import pyarrow as pa

    from sparkraft.pipeline.decode import arrow_schema

    times = [message.timestamp() for message in messages]
    schema = arrow_schema(COLUMNS)
    columns: list[list[Any] | pa.Array[Any]] = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        pa.array([time[1] * 1000 for time in times]).view(schema.field("timestamp").type),
        [time[0] - 1 for time in times],
    ]
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fill(bootstrap: str, topic: str, size: int, codec: str, count: int) -> None:
    """Values half random, half not, so that a codec has something to do; keys of 10 bytes."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 131_072,
        }
    )
    values = [os.urandom(size // 2) + b"-" * (size - size // 2) for _ in range(997)]
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % 997], b"%010d" % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def seconds(spark: "SparkSession", kind: str, bootstrap: str, topic: str, rows: int) -> float:
    """Wall time of reading all of a topic."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "maxPartitions": "2"}
    frame = spark.read.format(kind).options(**options).load()
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    taken = time.perf_counter() - begun
    if topic not in _CHECKED:
        _CHECKED.add(topic)
        assert frame.count() == rows, "the source does not give every record"
    return taken


_CHECKED: set[str] = set()


def measure(
    table: Table, spark: "SparkSession", bootstrap: str, size: int, codec: str, total: int
) -> None:
    topic, rows = f"size-{size}-{codec}", total // size
    fill(bootstrap, topic, size, codec, rows)
    for kind in ("sparkraft", "confluent"):
        seconds(spark, kind, bootstrap, topic, rows)
    times: dict[str, list[float]] = {"sparkraft": [], "confluent": []}
    for _ in range(ROUNDS):
        for kind, taken in times.items():
            taken.append(seconds(spark, kind, bootstrap, topic, rows))
    ours, theirs = (statistics.median(times[kind]) for kind in ("sparkraft", "confluent"))
    label = "100 B" if size == 100 else "1 KB"
    table.add(
        Row(
            f"{label}, {'uncompressed' if codec == 'none' else codec}",
            f"{rows / ours:,.0f} rows/s, {rows * size / ours / 1e6:,.0f} MB/s",
            f"{rows / theirs:,.0f} rows/s, {rows * size / theirs / 1e6:,.0f} MB/s",
            theirs / ours,
            at_least=PROMISED[size],
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=BYTES, help="bytes of values in a topic")
    total = parser.parse_args().bytes
    table = Table("Spark source, beside confluent-kafka → Arrow in the same Spark")
    with tempfile.TemporaryDirectory() as folder, SparkraftNode(Path(folder) / "node") as node:
        # Workers import this module to run the other source.
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        os.environ["PYTHONPATH"] = sys.path[0]
        spark = session(
            "bench",
            master="local[2]",
            work=Path(folder) / "work",
            log=Path(folder) / "spark.log",
            settings={"spark.driver.memory": "1g"},
        )
        try:
            from benchmarks.bench_spark_source import ConfluentSource as Importable

            spark.dataSource.register(Importable)
            for size in (100, 1024):
                for codec in ("none", "lz4"):
                    measure(table, spark, node.bootstrap, size, codec, total)
        finally:
            spark.stop()
    table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
