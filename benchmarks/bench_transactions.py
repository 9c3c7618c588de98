"""Transactions on one node of ours and one of Apache Kafka, with the same clients.

librdkafka's clients carry the load; they use the flow below transaction.version 2. One row uses our
own client in the flow of version 2. The two nodes are measured one after the other. The part
`three` measures three nodes of each kind. They share the cores with their clients, so its rows have
no goal.

    ./bench transactions --only commit     one part: commit, cost, latency, pipeline, three
    ./bench transactions --seconds 2       seconds for each figure (default 5)
"""

import asyncio
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench_beside_kafka import BenchKafka, make_topic
from benchmarks.measure import cpu_seconds, rss_mib
from benchmarks.quorums import progress
from benchmarks.replicated import make_topic as make_replicated_topic
from benchmarks.replicated import memory_of, pids_of, starved, three_nodes
from benchmarks.report import Row
from benchmarks.suite import parser_for, run
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import ProducerSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from tests.support.clusters import Kind
from tests.support.nodes import NodeProcess, SparkraftNode

RECORD = b"x" * 100
BIG_RECORD = b"x" * 1_000
RECORDS = (1, 10, 100)
PRODUCERS = (1, 10, 50)
OF_THREE = ((1, 1), (1, 100), (10, 10), (50, 1))
"""Producers and records of the cells that three nodes are measured with."""

THREE_COORDINATORS = {
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
WARM_UP_SECONDS = 3.0
PIPELINE_RECORDS = 20_000
PIPELINE_STEP = 200
MEMORY_GOAL = 1 / 8
KINDS: tuple[Kind, Kind] = ("sparkraft", "kafka")


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    seconds: float


@dataclass
class Commits:
    """Times of commits in ms, from all producers, and how long they took together."""

    times: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Commits a second."""
        return len(self.times) / self.seconds

    def quantile(self, share: float) -> float:
        """A quantile in ms."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def node_of(kind: str, folder: Path, jars: Path) -> Iterator[NodeProcess]:
    """A running node with a topic `load`."""
    overrides = {"transaction.state.log.num.partitions": "50"}
    node: NodeProcess = (
        BenchKafka(folder / kind, overrides=overrides, jars=jars)
        if kind == "kafka"
        else SparkraftNode(folder / kind, overrides=overrides)
    )
    with node:
        make_topic(node, "load")
        warmed_up(node.bootstrap)
        yield node


def transactional(bootstrap: str) -> Any:
    """A producer of librdkafka with an id of its own."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"bench-{uuid.uuid4()}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(60)
    return producer


def commits(bootstrap: str, *, producers: int, records: int, seconds: float) -> Commits:
    """Transactions of `records` records from each of `producers` at once, for `seconds`."""
    found = Commits()
    senders = [transactional(bootstrap) for _ in range(producers)]
    start = threading.Barrier(producers + 1)
    end = [0.0]

    def send(producer: Any) -> None:
        start.wait()
        while time.perf_counter() < end[0]:
            producer.begin_transaction()
            for _ in range(records):
                producer.produce("load", RECORD)
            begun = time.perf_counter()
            producer.commit_transaction(60)
            found.times.append((time.perf_counter() - begun) * 1000)

    threads = [threading.Thread(target=send, args=(each,)) for each in senders]
    for thread in threads:
        thread.start()
    begun = time.perf_counter()
    end[0] = begun + seconds
    start.wait()
    for thread in threads:
        thread.join()
    found.seconds = time.perf_counter() - begun
    return found


def warmed_up(bootstrap: str) -> None:
    """Let a JVM compile, and create the internal topics."""
    commits(bootstrap, producers=2, records=10, seconds=WARM_UP_SECONDS)


async def _new_flow(bootstrap: str, seconds: float) -> Commits:
    found = Commits()
    settings = ProducerSettings(transactional_id=f"bench-{uuid.uuid4()}", linger_ms=0)
    async with Cluster(bootstrap) as cluster, TransactionalProducer(cluster, settings) as producer:
        await producer.init_transactions()
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            producer.begin_transaction()
            await producer.send("load", RECORD)
            commit = time.perf_counter()
            await producer.commit_transaction()
            found.times.append((time.perf_counter() - commit) * 1000)
        found.seconds = time.perf_counter() - begun
    return found


def _name(producers: int, records: int) -> str:
    of = "producer" if producers == 1 else "producers"
    return f"{producers} {of} by {records} {'record' if records == 1 else 'records'}"


def commit(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Commits a second and their times; then memory."""
    cells = [(producers, records) for producers in PRODUCERS for records in RECORDS]
    found: dict[str, list[Commits]] = {}
    memory: dict[str, float] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars) as node:
            found[kind] = []
            for producers, records in cells:
                progress(f"{kind}: {producers} producers, {records} records")
                found[kind].append(
                    commits(
                        node.bootstrap,
                        producers=producers,
                        records=records,
                        seconds=options.seconds,
                    )
                )
            progress(f"{kind}: our client")
            found[kind].append(asyncio.run(_new_flow(node.bootstrap, options.seconds)))
            assert node.process is not None
            memory[kind] = rss_mib(node.process.pid)
    names = [_name(*cell) for cell in cells]
    names.append("1 producer by 1 record, our client, transaction.version 2")
    rows = []
    for name, ours, kafka in zip(names, found["sparkraft"], found["kafka"], strict=True):
        rows.append(
            Row(f"commits/s, {name}", f"{ours.rate:.0f}", f"{kafka.rate:.0f}",
                ours.rate / kafka.rate, at_least=1)
        )  # fmt: skip
        for share in (0.5, 0.99):
            one, other = ours.quantile(share), kafka.quantile(share)
            goal = 1 if share > 0.5 else None
            what = f"  commit p{share * 100:.0f}, {name}"
            rows.append(Row(what, f"{one:.2f} ms", f"{other:.2f} ms", one / other, at_most=goal))
    rows.append(
        Row("memory after that", f"{memory['sparkraft']:.0f} MiB", f"{memory['kafka']:.0f} MiB",
            memory["sparkraft"] / memory["kafka"], at_most=MEMORY_GOAL)
    )  # fmt: skip
    return rows


def idempotent(node: NodeProcess, *, records: int, seconds: float) -> float:
    """Records a second if `records` are flushed at a time, without transactions."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    sent, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(records):
            producer.produce("load", RECORD)
        producer.flush(60)
        sent += records
    return sent / (time.perf_counter() - begun)


def cost(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Records a second in transactions of 100, as a share of idempotent ones flushed by 100."""
    shares: dict[str, float] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars) as node:
            plain = idempotent(node, records=100, seconds=options.seconds)
            found = commits(node.bootstrap, producers=1, records=100, seconds=options.seconds)
            shares[kind] = found.rate * 100 / plain
    ours, kafka = shares["sparkraft"], shares["kafka"]
    what = "records/s in transactions of 100, share of idempotent records/s"
    return [Row(what, f"{ours:.0%}", f"{kafka:.0%}", ours / kafka)]


def end_to_end(node: NodeProcess, seconds: float) -> list[float]:
    """Times in ms from `produce` until a read_committed consumer has the record."""
    from confluent_kafka import Consumer, TopicPartition

    topic = f"latency-{uuid.uuid4()}"
    make_topic(node, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = transactional(node.bootstrap)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, RECORD, partition=0)
        producer.commit_transaction(60)
        while consumer.poll(10) is None:
            pass
        times.append((time.perf_counter() - begun) * 1000)
    consumer.close()
    return sorted(times)


def latency(folder: Path, jars: Path, options: Options) -> list[Row]:
    """read_committed end-to-end latency."""
    found: dict[str, list[float]] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars) as node:
            found[kind] = end_to_end(node, options.seconds)
    rows = []
    for share in (0.5, 0.99):
        ours, kafka = (times[int(len(times) * share)] for times in found.values())
        what = f"end to end with read_committed, p{share * 100:.0f}"
        rows.append(Row(what, f"{ours:.2f} ms", f"{kafka:.2f} ms", ours / kafka))
    return rows


def transformed(node: NodeProcess) -> float:
    """MB/s of consume, transform, produce with offsets in transactions."""
    from confluent_kafka import Consumer, Producer

    source, target = (f"{name}-{uuid.uuid4()}" for name in ("source", "target"))
    for topic in (source, target):
        make_topic(node, topic)
    filler = Producer({"bootstrap.servers": node.bootstrap})
    for _ in range(PIPELINE_RECORDS):
        filler.produce(source, BIG_RECORD)
    filler.flush(60)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": source,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = transactional(node.bootstrap)
    done, begun = 0, 0.0
    while done < PIPELINE_RECORDS:
        messages = consumer.consume(PIPELINE_STEP, timeout=1)
        begun = begun or time.perf_counter()
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        done += len(messages)
    consumer.close()
    return done * len(BIG_RECORD) / 1e6 / (time.perf_counter() - begun)


def pipeline(folder: Path, jars: Path, _: Options) -> list[Row]:
    """Consume, transform, produce, exactly once."""
    found: dict[str, float] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars) as node:
            found[kind] = statistics.median(transformed(node) for _ in range(3))
    ours, kafka = found["sparkraft"], found["kafka"]
    what = f"consume, transform, produce, {PIPELINE_STEP} records of 1 kB a transaction"
    return [Row(what, f"{ours:.1f} MB/s", f"{kafka:.1f} MB/s", ours / kafka)]


def three(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Commits on three nodes of a kind: their times, the CPU of all three, and memory."""
    found: dict[str, list[tuple[Commits, float]]] = {}
    memory: dict[str, float] = {}
    for kind in KINDS:
        with three_nodes(folder, kind, jars, overrides=THREE_COORDINATORS) as cluster:
            make_replicated_topic(cluster, "load", 4)
            warmed_up(cluster.bootstrap)
            found[kind] = []
            for producers, records in OF_THREE:
                progress(f"three of {kind}: {producers} producers, {records} records")
                before = sum(map(cpu_seconds, pids_of(cluster)))
                took = commits(
                    cluster.bootstrap,
                    producers=producers,
                    records=records,
                    seconds=options.seconds,
                )
                cpu = sum(map(cpu_seconds, pids_of(cluster))) - before
                found[kind].append((took, cpu * 1000 / len(took.times)))
            memory[kind] = memory_of(cluster)[0]
    label, rows = starved(), []
    for cell, ours, kafka in zip(OF_THREE, *found.values(), strict=True):
        (one, our_cpu), (other, their_cpu) = ours, kafka
        what = f"{_name(*cell)}, {label}"
        rows.append(
            Row(f"commits/s, {what}", f"{one.rate:.0f}", f"{other.rate:.0f}", one.rate / other.rate)
        )
        for share in (0.5, 0.99):
            a, b = one.quantile(share), other.quantile(share)
            name = f"  commit p{share * 100:.0f}, {what}"
            rows.append(Row(name, f"{a:.2f} ms", f"{b:.2f} ms", a / b))
        name = f"  CPU of three nodes a commit, {what}"
        rows.append(Row(name, f"{our_cpu:.2f} ms", f"{their_cpu:.2f} ms", our_cpu / their_cpu))
    a, b = memory.values()
    rows.append(Row(f"memory of the largest, {label}", f"{a:.0f} MiB", f"{b:.0f} MiB", a / b))
    return rows


PARTS = {
    "commit": commit,
    "cost": cost,
    "latency": latency,
    "pipeline": pipeline,
    "three": three,
}


def main() -> int:
    """Measure; 1 if a goal is missed."""
    parser = parser_for(__doc__, PARTS)
    parser.add_argument("--seconds", type=float, default=5, help="for each figure")
    chosen = parser.parse_args()
    title = "Transactions beside Apache Kafka 4.3.1, same clients"
    return run("transactions", title, PARTS, chosen, Options(seconds=chosen.seconds))


if __name__ == "__main__":
    sys.exit(main())
