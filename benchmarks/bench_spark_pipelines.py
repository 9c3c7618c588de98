"""Spark pipelines on one node of ours: beside the official connector, and what each sink costs.

    ./bench spark_pipelines --only sink      one part: source, sink, floor, exactly_once, stall,
                                             tables, partitions, avro, protobuf,
                                             check, copies
    ./bench spark_pipelines --scale 0.2      fewer records

The official connector has the settings with which it was fastest here; its jars are the newest that
Maven serves. Both run in the same Spark session (two cores), on the same topics, in turn.
"""

import argparse
import io
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks import spark_more_rows
from benchmarks.bench_spark_source import PARTITIONS, fill
from benchmarks.report import Row, Table
from sparkraft.pipeline import sinks, spec
from sparkraft.pipeline.session import session
from tests.support.kafka_jars import spark_kafka_jars_or_reason
from tests.support.nodes import SparkraftNode
from tests.support.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkraft.pipeline.sinks import BatchSink

OURS, OFFICIAL = "sparkraft", "kafka"
TUNED_SOURCE = {
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.wait.ms": "20",
}
TUNED_SINK = {"kafka.batch.size": str(256 << 10), "kafka.linger.ms": "10"}
BYTES = 200_000_000
ROUNDS = 3
SIZES = {100: "100 B", 1024: "1 KB"}
CODECS = {"none": "uncompressed", "lz4": "lz4", "zstd": "zstd"}
EXACTLY_ONCE_ROWS = 400_000
EXACTLY_ONCE_BATCHES = 6
STALL_ROWS = 50_000
STALL_BATCHES = 10
TABLE_ROWS = 1_000_000
FLIGHT_ROWS = 2_000_000
FLOOR_TRIGGERS = 25
FLOOR_SECONDS_MAX = 60
MANY_PARTITIONS = 500


@dataclass
class Bench:
    """A session, a node, and the table of figures."""

    spark: "SparkSession"
    node: SparkraftNode
    folder: Path
    table: Table
    has_official: bool
    scale: float

    def servers(self) -> dict[str, str]:
        """The option that names the node."""
        return {"kafka.bootstrap.servers": self.node.bootstrap}

    def rows(self, size: int) -> int:
        """Records of a topic with values of so many bytes."""
        return int(BYTES * self.scale) // size

    def kinds(self) -> list[str]:
        """The connectors to compare."""
        return [OURS, OFFICIAL] if self.has_official else [OURS]


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_turn(works: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each, after a first run of all that is not counted."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(timed(work))
    return {name: statistics.median(each) for name, each in times.items()}


def rates(rows: int, size: int, seconds: float) -> str:
    """Rows and megabytes of values a second."""
    return f"{rows / seconds:,.0f} rows/s, {rows * size / seconds / 1e6:,.0f} MB/s"


def beside_official(
    bench: Bench, what: str, size: int, rows: int, found: dict[str, float], least: float | None
) -> None:
    """A row of both connectors."""
    theirs = found.get(OFFICIAL)
    bench.table.add(
        Row(
            what,
            rates(rows, size, found[OURS]),
            "" if theirs is None else rates(rows, size, theirs),
            None if theirs is None else theirs / found[OURS],
            at_least=None if theirs is None else least,
        )
    )


def source(bench: Bench) -> None:
    """Batch reads of whole topics to Spark's `noop`."""

    def read(kind: str, topic: str) -> None:
        given = bench.servers() | {"subscribe": topic}
        given |= TUNED_SOURCE if kind == OFFICIAL else {"maxPartitions": "2"}
        frame = bench.spark.read.format(kind).options(**given).load()
        frame.write.format("noop").mode("overwrite").save()

    for size, name in SIZES.items():
        for codec in ("none", "lz4"):
            topic, rows = f"read-{size}-{codec}", bench.rows(size)
            fill(bench.node.bootstrap, topic, size, codec, rows)
            found = in_turn({kind: partial(read, kind, topic) for kind in bench.kinds()})
            beside_official(bench, f"source, {name}, {CODECS[codec]}", size, rows, found, 1.0)


def cached(bench: Bench, size: int, rows: int) -> "DataFrame":
    """Keyed records, half of each value random, in Spark's memory in two parts."""
    half = f"unhex(sha2(cast(id AS STRING), 256)) || repeat('-', {size - 32})"
    frame = bench.spark.range(0, rows, numPartitions=2).selectExpr(
        "lpad(cast(id AS STRING), 10, '0') AS key", f"cast({half} AS BINARY) AS value"
    )
    frame = frame.cache()
    frame.count()
    return frame


def sink(bench: Bench) -> None:
    """Batch writes of keyed records to topics of eight partitions."""

    def write(frame: "DataFrame", kind: str, topic: str, codec: str) -> None:
        given = bench.servers() | {"topic": topic, "kafka.compression.type": codec}
        given |= TUNED_SINK if kind == OFFICIAL else {}
        frame.write.format(kind).options(**given).mode("append").save()

    for size, name in SIZES.items():
        rows = bench.rows(size) // 2
        frame = cached(bench, size, rows)
        for codec, label in CODECS.items():
            topic = f"write-{size}-{codec}"
            fill(bench.node.bootstrap, topic, size, codec, 1)
            found = in_turn(
                {kind: partial(write, frame, kind, topic, codec) for kind in bench.kinds()}
            )
            beside_official(bench, f"sink, {name}, {label}", size, rows, found, 1.0)
        frame.unpersist()


def floor(bench: Bench) -> None:
    """Micro-batches of a few records: median time of a trigger."""
    topic = "floor"
    fill(bench.node.bootstrap, topic, 100, "none", 8)
    found: dict[str, float] = {}
    for kind in bench.kinds():
        given = bench.servers() | {"subscribe": topic}
        given |= TUNED_SOURCE if kind == OFFICIAL else {}
        stream = bench.spark.readStream.format(kind).options(**given).load()
        writer = stream.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(bench.folder / f"floor-{kind}")).start()
        try:
            times = _triggers(bench, topic, query)
        finally:
            query.stop()
        if times:
            found[kind] = statistics.median(times)
    ours, theirs = found.get(OURS), found.get(OFFICIAL)
    bench.table.add(
        Row(
            "micro-batch of 8 records, median",
            "too slow" if ours is None else f"{ours:.0f} ms",
            "" if theirs is None else f"{theirs:.0f} ms",
            None if theirs is None or ours is None else ours / theirs,
        )
    )


def _triggers(bench: Bench, topic: str, query: Any) -> list[float]:
    """Milliseconds of triggers with records; of the first ones, which start workers, none."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bench.node.bootstrap})
    times: dict[int, float] = {}
    deadline = time.monotonic() + FLOOR_SECONDS_MAX
    while len(times) < FLOOR_TRIGGERS and time.monotonic() < deadline:
        assert query.isActive, query.exception()
        for number in range(8):
            producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
        producer.flush()
        time.sleep(0.5)
        for each in query.recentProgress:
            if each.numInputRows:
                times[each.batchId] = each.durationMs["triggerExecution"]
    return list(times.values())[5:]


def exactly_once(bench: Bench) -> None:
    """Batches of a stream from topic to topic, at-least-once and exactly-once."""
    rows = int(EXACTLY_ONCE_ROWS * bench.scale)
    total = rows * EXACTLY_ONCE_BATCHES
    fill(bench.node.bootstrap, "moved", 100, "lz4", total)
    found: dict[str, list[float]] = {"at_least_once": [], "exactly_once": []}
    for turn in range(2):
        for delivery, times in found.items():
            target = f"moved-{delivery}-{turn}"
            fill(bench.node.bootstrap, target, 100, "none", 1)
            given = bench.servers() | {"topic": target}
            if delivery == "exactly_once":
                given["transactionalIdPrefix"] = f"bench-{turn}"
            limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
            read = bench.spark.readStream.format(OURS).options(
                **bench.servers(), subscribe="moved", **limits
            )
            writer = read.load().select("key", "value").writeStream.format(OURS)
            query = (
                writer.options(**given)
                .option("checkpointLocation", str(bench.folder / target))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(300)
            assert query.exception() is None
            done = [each for each in query.recentProgress if each.numInputRows]
            # The first one starts Python workers.
            times += [each.durationMs["triggerExecution"] / 1000 for each in done[1:]]
    once, twice = (statistics.median(found[name]) for name in ("exactly_once", "at_least_once"))
    bench.table.add(
        Row(
            f"topic to topic, batch of {rows:,} records of 100 B, exactly-once",
            f"{once:.2f} s",
            f"at-least-once {twice:.2f} s",
            once / twice,
            at_most=1.15,
        )
    )


def stall(bench: Bench) -> None:
    """How long a reader of committed records waits for others' records beside open batches."""
    rows = int(STALL_ROWS * bench.scale)
    fill(bench.node.bootstrap, "stalling", 100, "lz4", rows * STALL_BATCHES)
    fill(bench.node.bootstrap, "stalled", 100, "none", 1)

    def copied(name: str) -> list[float]:
        """Seconds of the batches; the first one also starts Python processes of the query."""
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
        read = bench.spark.readStream.format(OURS).options(
            **bench.servers(), subscribe="stalling", **limits
        )
        writer = read.load().select("key", "value").writeStream.format(OURS)
        given = bench.servers() | {"topic": "stalled", "transactionalIdPrefix": name}
        query = (
            writer.options(**given)
            .option("checkpointLocation", str(bench.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        assert query.exception() is None
        done = [each for each in query.recentProgress if each.numInputRows]
        return [each.durationMs["triggerExecution"] / 1000 for each in done[1:]]

    copied("warm")
    with OtherProducer(bench.node.bootstrap, "stalled") as other:
        longest = max(copied("stall"))
    waits = other.waits
    bench.table.add(
        Row(
            f"{len(waits):,} records of another producer beside exactly-once batches of {rows:,}, "
            "until readers of committed records have them: median, longest",
            f"{statistics.median(waits):.2f} s, {max(waits):.2f} s",
            f"longest batch {longest:.2f} s",
            max(waits) / longest,
            at_most=1.0,
        )
    )


class OtherProducer:
    """Sends a record to each partition in turn, and a reader of committed records awaits them."""

    PAUSE_S = 0.02

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Prepare."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._ended = threading.Event()
        self._is_read = threading.Event()
        self._sent: dict[bytes, float] = {}
        self._threads = [threading.Thread(target=each) for each in (self._send, self._read)]
        self.waits: list[float] = []

    def __enter__(self) -> Self:
        """Start when the reader has its partitions."""
        self._threads[1].start()
        assert self._is_read.wait(60)
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send no more; return when all are read."""
        self._ended.set()
        for each in self._threads:
            each.join(60)
        assert len(self.waits) == len(self._sent)

    def _send(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        number = 0
        while not self._ended.wait(self.PAUSE_S):
            key = b"other-%d" % number
            self._sent[key] = time.perf_counter()
            producer.produce(self._topic, key=key, value=b"", partition=number % PARTITIONS)
            producer.poll(0)
            number += 1
        assert producer.flush(30) == 0

    def _read(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "stall",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        parts = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        for each in parts:
            each.offset = reader.get_watermark_offsets(each, timeout=30)[1]
        reader.assign(parts)
        self._is_read.set()
        deadline = None
        while deadline is None or (time.monotonic() < deadline and self._waiting()):
            for record in reader.consume(10_000, timeout=0.05):
                sent = self._sent.get(record.key() or b"")
                if sent is not None:
                    self.waits.append(time.perf_counter() - sent)
            if deadline is None and self._ended.is_set():
                deadline = time.monotonic() + 30
        reader.close()

    def _waiting(self) -> bool:
        return self._threads[0].is_alive() or len(self.waits) < len(self._sent)


FILE = """
name = "n"
checkpoint = "c"
[source]
subscribe = "t"
[[sink]]
"""


def tables(bench: Bench) -> None:
    """A batch of 1 KiB rows into tables, beside Spark's own Parquet files."""
    rows = int(TABLE_ROWS * bench.scale) // 2
    frame = bench.spark.range(0, rows, numPartitions=4).selectExpr(
        "id", *(f"hex(randstr(32)) AS t{n}" for n in range(16))
    )
    frame = frame.cache()
    frame.count()
    kinds = {
        "delta": 'kind = "delta"\npath = "delta"',
        "iceberg": 'kind = "iceberg"\npath = "wh"\ntable = "ns.t"',
        "iceberg by bucket": 'kind = "iceberg"\npath = "wh"\ntable = "ns.b"\n'
        'partition_by = ["bucket(4, id)"]',
    }
    number = iter(range(1_000_000))
    works: dict[str, Callable[[], object]] = {}
    for kind, text in kinds.items():
        pipeline = spec.parse(FILE + text, folder=bench.folder, values={})
        works[kind] = partial(_written, sinks.build(pipeline, bench.spark), frame, number)
    works["parquet"] = lambda: frame.write.parquet(str(bench.folder / f"files-{next(number)}"))
    found = in_turn(works)
    frame.unpersist()
    for kind in kinds:
        bench.table.add(
            Row(
                f"table, {kind}, rows of 1 KiB",
                rates(rows, 1024, found[kind]),
                f"Parquet by Spark {rates(rows, 1024, found['parquet'])}",
                found["parquet"] / found[kind],
                at_least=0.8 if "bucket" not in kind else None,
            )
        )


def _written(write: "BatchSink", frame: "DataFrame", numbers: Iterator[int]) -> None:
    write(frame, next(numbers))


FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": "int"},
        {"name": "origin", "type": "string"},
        {"name": "delay", "type": "double"},
        {"name": "reason", "type": ["null", "string"]},
        {"name": "cancelled", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "gate", "type": ["null", "long"]},
        {"name": "distance", "type": "float"},
        {"name": "tail", "type": "string"},
    ],
}
DISTINCT_FLIGHTS = 20_000


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Flight {
  int64 id = 1; int32 day = 2; string origin = 3; double delay = 4; optional string reason = 5;
  bool cancelled = 6; google.protobuf.Timestamp at = 7; optional int64 gate = 8;
  float distance = 9; string tail = 10;
}
"""


def avro(bench: Bench) -> None:
    """Avro values of ten fields, read as columns; beside fastavro in one process."""
    import fastavro

    values, schema = _avro_flights(), fastavro.parse_schema(FLIGHT)
    theirs = timed(
        lambda: [fastavro.schemaless_reader(io.BytesIO(raw), schema, None) for raw in values]
    )
    registered = {"schema": json.dumps(FLIGHT)}
    rate = _columns_rate(bench, "avro", registered, b"", values)
    bench.table.add(
        Row(
            "Avro values of ten fields, read as columns by Spark",
            f"{rate:,.0f} rows/s",
            f"500,000 rows/s; fastavro makes {len(values) / theirs:,.0f} dicts/s",
            rate / 500_000,
            at_least=1.0,
        )
    )


def protobuf(bench: Bench) -> None:
    """Protobuf messages of ten fields, read as columns; beside google.protobuf in one process."""
    kind = _flight_class()
    values = [kind(**each).SerializeToString() for each in _flights()]

    def parse() -> None:
        for raw in values:
            found = kind.FromString(raw)
            tuple(getattr(found, each.name) for each in kind.DESCRIPTOR.fields)

    theirs = len(values) / timed(parse)
    registered = {"schema": PROTO, "schemaType": "PROTOBUF"}
    rate = _columns_rate(bench, "protobuf", registered, b"\0", values)
    bench.table.add(
        Row(
            "Protobuf messages of ten fields, read as columns by Spark",
            f"{rate:,.0f} rows/s",
            f"{theirs:,.0f} messages/s of google.protobuf, with their fields, in one process",
            rate / theirs,
            at_least=1.0,
        )
    )


def _columns_rate(
    bench: Bench, kind: str, registered: dict[str, str], place: bytes, values: list[bytes]
) -> float:
    """Write values with the framing of a registry, and read them as columns: rows per second."""
    from confluent_kafka import Producer

    from sparkraft.pipeline.registered_values import decoded_column, reader_of
    from sparkraft.pipeline.value_formats import ValueFormat

    rows = int(FLIGHT_ROWS * bench.scale) // len(values) * len(values)
    topic = f"flights-{kind}"
    fill(bench.node.bootstrap, topic, 100, "none", 0)
    producer = Producer(
        {"bootstrap.servers": bench.node.bootstrap, "linger.ms": 20, "batch.size": 1_000_000}
    )
    with SchemaRegistry() as registry:
        number = registry.register(f"{topic}-value", registered)
        head = b"\0" + number.to_bytes(4, "big") + place
        for at in range(rows):
            while True:
                try:
                    producer.produce(topic, head + values[at % len(values)])
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
        form = ValueFormat(kind=kind, registry=registry.url, subject=f"{topic}-value", schema="")
        reader = reader_of(form, "reason")

        def read() -> None:
            given = bench.servers() | {"subscribe": topic, "maxPartitions": "2"}
            given["columns"] = "value"
            frame = bench.spark.read.format(OURS).options(**given).load()
            columns = frame.select(decoded_column(frame["value"], reader).alias("value"))
            columns.select("value.v.*").write.format("noop").mode("overwrite").save()

        return rows / in_turn({OURS: read})[OURS]


def _flight_class() -> Any:
    """The message of `PROTO` for Google's runtime, described without its compiler."""
    from google.protobuf import descriptor_pb2

    from tests.support.protobuf_cases import SCALARS, TIMESTAMP, message_class

    numbers = {name: number for number, name in SCALARS.items()}
    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Flight")
    for number, (name, kind) in enumerate(_PROTO_FIELDS.items(), 1):
        field = message.field.add(name=name, number=number, label=1)
        if kind == TIMESTAMP:
            field.type, field.type_name = 11, f".{TIMESTAMP}"
        else:
            field.type = numbers[kind]
        if name in ("reason", "gate"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    return message_class(file, "Flight")


_PROTO_FIELDS = {
    "id": "int64", "day": "int32", "origin": "string", "delay": "double", "reason": "string",
    "cancelled": "bool", "at": "google.protobuf.Timestamp", "gate": "int64", "distance": "float",
    "tail": "string",
}  # fmt: skip


def _avro_flights() -> list[bytes]:
    import fastavro

    schema, found = fastavro.parse_schema(FLIGHT), []
    for flight in _flights():
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, flight)
        found.append(written.getvalue())
    return found


def _flights() -> list[dict[str, Any]]:
    return [
        {
            "id": n * 1_000_003,
            "day": n % 365,
            "origin": ("EWR", "JFK", "LGA")[n % 3],
            "delay": n % 90 / 4,
            "reason": None if n % 3 else "late aircraft",
            "cancelled": n % 50 == 0,
            "at": datetime.fromtimestamp(1_700_000_000 + n / 1000, UTC),
            "gate": n % 40 if n % 2 else None,
            "distance": float(n % 3000),
            "tail": f"N{n % 5000}AA",
        }
        for n in range(DISTINCT_FLIGHTS)
    ]


def partitions(bench: Bench) -> None:
    """A batch read of a topic with many partitions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic, records = "many", 50_000
    admin = AdminClient({"bootstrap.servers": bench.node.bootstrap})
    admin.create_topics([NewTopic(topic, MANY_PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bench.node.bootstrap, "linger.ms": 50})
    for number in range(records):
        producer.produce(topic, b"x" * 100, partition=number % MANY_PARTITIONS)
        producer.poll(0)
    assert producer.flush(120) == 0

    def read() -> None:
        given = bench.servers() | {"subscribe": topic}
        frame = bench.spark.read.format(OURS).options(**given).load()
        frame.write.format("noop").mode("overwrite").save()

    seconds = in_turn({OURS: read}, rounds=5)[OURS]
    bench.table.add(
        Row(
            f"{records:,} records in {MANY_PARTITIONS} partitions, batch read",
            f"{seconds:.2f} s",
            "0.5 s",
            seconds / 0.5,
            at_most=1.0,
        )
    )


PARTS: dict[str, Callable[[Bench], None]] = {
    "source": source,
    "sink": sink,
    "floor": floor,
    "exactly_once": exactly_once,
    "stall": stall,
    "tables": tables,
    "partitions": partitions,
    "avro": avro,
    "protobuf": protobuf,
    "check": spark_more_rows.check,
    "copies": spark_more_rows.copies,
}


def main() -> int:
    """Measure all parts or one; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    chosen = parser.parse_args()
    table = Table("Spark pipelines, beside Spark's official Kafka connector")
    jars = spark_kafka_jars_or_reason()
    settings = {"spark.driver.memory": "2g"}
    if isinstance(jars, list):
        settings["spark.jars"] = ",".join(map(str, jars))
    else:
        print(f"Beside the official connector: not measured, {jars.reason}")
    with tempfile.TemporaryDirectory() as folder, SparkraftNode(Path(folder) / "node") as node:
        spark = session(
            "bench",
            master="local[2]",
            work=Path(folder) / "work",
            log=Path(folder) / "spark.log",
            settings=settings,
        )
        bench = Bench(spark, node, Path(folder), table, isinstance(jars, list), chosen.scale)
        try:
            for name in [chosen.only] if chosen.only else PARTS:
                PARTS[name](bench)
        finally:
            spark.stop()
    table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
