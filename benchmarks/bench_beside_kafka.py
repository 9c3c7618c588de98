"""One node of ours and one of Apache Kafka, with their defaults, under one librdkafka client.

The two run one after the other in each round, never at the same time: there are two cores. Kafka
has its default heap of 1 GiB and a warm-up of its own before it is measured, since its JVM compiles
while it runs.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.bench_node import begin, leader_named, until
from benchmarks.clients import consume, produce
from benchmarks.measure import has_files, rss_mib
from benchmarks.report import Row, Table
from tests.support.kafka_jars import kafka_jars_or_reason
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import wait_until

ROUNDS = 3
WARM_UP_BYTES = 100_000_000
FIGURES = ("produce", "  server CPU, produce", "consume", "  server CPU, consume")


class BenchKafka(KafkaNode):
    """Kafka as its own script starts it: G1 and 1 GiB of heap."""

    def start_command(self) -> list[str]:
        """The JVM flags of kafka-server-start.sh."""
        return [
            "java", "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
            "-cp", f"{self.jars}/*", "kafka.Kafka", str(self.properties_path),
        ]  # fmt: skip


def latency(node: NodeProcess, topic: str, count: int = 3_000) -> tuple[float, float]:
    """One record at a time, waiting for each; p50 and p99 in ms."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "1", "linger.ms": 0})
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        producer.flush(10)
        times.append((time.perf_counter() - begun) * 1000)
    times.sort()
    return times[count // 2], times[count * 99 // 100]


def make_topic(node: NodeProcess, topic: str) -> None:
    """A topic of four partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(60)


def delete_topic(node: NodeProcess, topic: str) -> None:
    """Delete it and wait until its bytes are gone from the disk."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: not has_files(node.log_dir, topic), f"{topic} is removed", 120)


def one_round(node: NodeProcess, topic: str, size: int, total: int) -> tuple[float, ...]:
    """Write a topic, read it, delete it: MB/s and CPU ms a MB of writing, then of reading."""
    assert node.process is not None
    make_topic(node, topic)
    count, pids = total // size, [node.process.pid]
    loads = (
        produce(node.bootstrap, topic, size, count, pids=pids),
        consume(node.bootstrap, topic, size, count, pids=pids),
    )
    delete_topic(node, topic)
    return tuple(
        figure for load in loads for figure in (load.megabytes_a_second, load.cpu_ms_a_megabyte)
    )


def started(node: NodeProcess) -> float:
    """Seconds from the start of the process until Metadata names a leader of `first`."""
    return until(lambda: leader_named(node.port), begin(node))


def main() -> None:
    """Measure both, round by round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=200, help="written and read a round and size"
    )
    options = parser.parse_args()
    found = kafka_jars_or_reason()
    if not isinstance(found, Path):
        print(f"Beside Kafka: not measured, {found.reason}")
        return
    total = options.megabytes * 1_000_000
    table = Table("Beside Apache Kafka 4.3.1, one node each, same librdkafka client")
    # Deleted at once: the next round writes to the same memory (docs/PERFORMANCE.md says why).
    overrides = {
        "log.segment.delete.delay.ms": "100",
        "log.retention.check.interval.ms": "500",
    }
    with tempfile.TemporaryDirectory() as folder:
        ours = SparkraftNode(Path(folder) / "ours", overrides=overrides)
        kafka = BenchKafka(Path(folder) / "kafka", overrides=overrides, jars=found)
        with ours, kafka:
            for node in (ours, kafka):
                make_topic(node, "first")
                node.stop()
            starts: dict[NodeProcess, list[float]] = {
                node: [started(node) for _ in range(3) if stopped(node)] for node in (ours, kafka)
            }
            rows(table, ours, kafka, starts, total)
    print(f"\nLoad of the machine over the last 15 minutes: {os.getloadavg()[2]:.1f}")
    table.print()


def stopped(node: NodeProcess) -> bool:
    """Stop `node` if it runs; always True."""
    if node.process is not None:
        node.stop()
    return True


def rows(
    table: Table,
    ours: NodeProcess,
    kafka: NodeProcess,
    starts: dict[NodeProcess, list[float]],
    total: int,
) -> None:
    """Everything that is measured while both run; the idle one costs next to nothing."""
    median = statistics.median
    a, b = (median(starts[node]) * 1000 for node in (ours, kafka))
    table.add(Row("start to Metadata naming a leader", f"{a:,.0f} ms", f"{b:,.0f} ms", a / b))
    pids = [node.process.pid for node in (ours, kafka) if node.process]
    a, b = (rss_mib(pid) for pid in pids)
    table.add(Row("memory, fresh", f"{a:,.0f} MiB", f"{b:,.0f} MiB", a / b))
    for size in (100, 1024):
        one_round(kafka, f"warm-{size}", size, WARM_UP_BYTES)
    for label, size in (("100 B", 100), ("1 KB", 1024), ("16 KB", 16_384)):
        share = total // 4 if size == 100 else total
        figures: dict[NodeProcess, list[tuple[float, ...]]] = {ours: [], kafka: []}
        for number in range(ROUNDS + 1):
            for node in (ours, kafka) if number % 2 else (kafka, ours):
                done = one_round(node, f"size-{size}-{number}", size, share)
                if number:  # the first round is a warm-up for both
                    figures[node].append(done)
        for index, what in enumerate(FIGURES):
            unit = "ms/MB" if "CPU" in what else "MB/s"
            a, b = (median(f[index] for f in figures[node]) for node in (ours, kafka))
            row = Row(f"{what} {label}", f"{a:,.2f} {unit}", f"{b:,.2f} {unit}", a / b)
            table.add(row)
    times = {node: [latency(node, "first") for _ in range(ROUNDS)] for node in (kafka, ours)}
    for index, what in ((0, "p50"), (1, "p99")):
        a, b = (median(t[index] for t in times[node]) for node in (ours, kafka))
        table.add(Row(f"one record at a time, {what}", f"{a:.3f} ms", f"{b:.3f} ms", a / b))
    a, b = (rss_mib(pid) for pid in pids)
    table.add(Row("memory after it all", f"{a:,.0f} MiB", f"{b:,.0f} MiB", a / b))


if __name__ == "__main__":
    main()
