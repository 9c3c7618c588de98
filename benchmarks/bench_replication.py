"""Three replicas of each partition beside Apache Kafka's: throughput, latency, failover, cost.

Three combined nodes of each kind, one kind after the other (but for reading), with their defaults
but for when the bytes of deleted topics go (`replicated.three_nodes`); topics of three replicas
with min.insync.replicas of 2. The clients are librdkafka's; what must be timed to the millisecond
is probed with our own connection, in the same way for both. Each part can be run by itself and
keeps its rows in `.cache/bench`; `--table` prints all that is kept.

    produce   records of 100 B, 1 KB, 16 KB at acks 1 and all; 1 KB in batches of 16 KB; the nodes'
              memory after it all
    consume   the same records, read from either kind by turns
    requests  one record a request
    latency   1,000 records of 1 KB a second, from `produce` to the consumer's hands; then 100
    failover  kill -9 of a leader, and of leader and controller in one: until every partition
              accepts acks=all again, and what a producer and a consumer of librdkafka saw meanwhile
    catchup   a replica that starts from nothing, by reassignment
    idle      2,000 partitions: CPU of nodes without clients, and their memory
"""

import asyncio
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import suite
from benchmarks.background import Background, Clients
from benchmarks.clients import UNBATCHED, Load, consume, produce
from benchmarks.measure import cpu_seconds
from benchmarks.quorums import BenchCluster, bury, progress, settled, strike
from benchmarks.replicated import (
    REPLICAS,
    Writers,
    drop_topic,
    elect_preferred,
    fully_replicated,
    make_topic,
    memory_of,
    pids_of,
    reassigned,
    three_nodes,
)
from benchmarks.report import Row
from tests.support.clusters import Kind
from tests.support.ports import wait_until

KINDS: tuple[Kind, ...] = ("sparkraft", "kafka")
PARTITIONS = 6
ROUNDS = 3
READINGS = 30
"""Of a topic by turns with the other kind's. One takes from a fifth of a second to one, and they
differ by half."""

THAW_SECONDS = 0.3
"""Nodes that were stopped make up for what they missed: heartbeats, fetches, timers."""

SIZES = (("100 B", 100, 1_000_000), ("1 KB", 1024, 4_000_000), ("16 KB", 16_384, 4_000_000))
"""Name, bytes of a value, bytes written for each megabyte asked for: small records take longer.

A round must last much longer than followers may lag: in a tenth of a second acks=1 tells only how
much a broker leaves for later.
"""

BATCHES: dict[str, Any] = {"batch.size": 16_384, "linger.ms": 100}
"""Of 15 records of 1 KB: they are full long before the linger is over."""

BATCHED_SHARE = 2_000_000
"""Bytes for each megabyte asked for; each batch is a request, so a round lasts long enough."""

UNBATCHED_RECORDS = 10_000

WARM_UP_BYTES = 30_000_000

LATENCY_RATES = (1_000, 100)
"""Records a second, one rate after the other: on two cores the first is about all that three young
JVMs can take, so it tells of a queue; the second of what a record takes where there is none."""

LATENCY_WARM_UP_SECONDS = 5
WARM_UP_RECORDS = 20_000

IDLE_SECONDS = 20
BACKGROUND_RATE = 200
"""Records a second of the producer and the consumer whose errors are counted while nodes die."""


@dataclass
class Options:
    """What the command line says."""

    megabytes: int
    seconds: int
    kills: int
    partitions: int


# ---- produce and consume


def throughput(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Writing every size at either acks."""
    plan = [
        (f"{label}, acks={acks}", size, count, {**settings, "acks": acks})
        for label, size, count, settings in _topics(options)
        for acks in ("1", "all")
    ]
    (ours, memory), (kafka, their_memory) = (_loads(folder, kind, jars, plan) for kind in KINDS)
    rows = []
    for what, load in ours.items():
        rows += _rows(f"produce {what}", load, kafka[what], at_least=1.0)
    return rows + _memory_rows("nodes after producing and consuming", memory, their_memory)


def _topics(options: Options) -> list[tuple[str, int, int, dict[str, Any]]]:
    """What is written and read: name, bytes of a value, records, settings of the producer."""
    plain: list[tuple[str, int, int, dict[str, Any]]] = [
        (label, size, options.megabytes * share // size, {}) for label, size, share in SIZES
    ]
    batched = options.megabytes * BATCHED_SHARE // 1024
    return [*plain, ("1 KB in batches of 16 KB", 1024, batched, BATCHES)]


def consuming(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Reading every size, from one kind and the other by turns.

    What a reading takes tells of the client and of the host's pace in that second before it tells
    of the nodes: with all of one kind's after all of the other's, either was ahead, by luck. So
    both kinds are there, each pair of readings has the same weather, and the ratio is the median
    of the pairs'.
    """
    rows = []
    with ExitStack() as stack:
        clusters = [stack.enter_context(three_nodes(folder, kind, jars)) for kind in KINDS]
        for cluster in clusters:
            settled(cluster)
        for label, size, count, settings in _topics(options):
            progress(f"{label}: writing what is to be read")
            acks = {**settings, "acks": "all"}
            for cluster in clusters:
                make_topic(cluster, "read", PARTITIONS)
                produce(cluster.bootstrap, "read", size, count, settings=acks)
            os.sync()
            pairs = _readings(clusters, label, size, count)
            ours, kafka = (_median(list(loads)) for loads in zip(*pairs, strict=True))
            ratio = statistics.median(a.megabytes_a_second / b.megabytes_a_second for a, b in pairs)
            rows += _rows(f"consume {label}", ours, kafka, ratio=ratio, at_least=1.0)
            for cluster in clusters:
                drop_topic(cluster, "read")
    return rows


def _readings(
    clusters: Sequence[BenchCluster], label: str, size: int, count: int
) -> list[tuple[Load, Load]]:
    """Pairs, one of each kind; who is first changes from pair to pair. One more warms up."""
    pairs = []
    for number in range(READINGS + 1):
        pair = {}
        for cluster in clusters if number % 2 else reversed(clusters):
            with _alone(cluster, clusters):
                pids = pids_of(cluster)
                pair[cluster] = consume(cluster.bootstrap, "read", size, count, pids=pids)
        ours, kafka = (pair[cluster] for cluster in clusters)
        said = f"{ours.megabytes_a_second:,.1f}, {kafka.megabytes_a_second:,.1f}"
        progress(f"{label}: reading, {number} of {READINGS}: {said} MB/s")
        pairs.append((ours, kafka))
    return pairs[1:]


@contextmanager
def _alone(cluster: BenchCluster, clusters: Sequence[BenchCluster]) -> Iterator[None]:
    """Stop the nodes of the others (SIGSTOP) as long as the block lasts, a second or two.

    What three JVMs do while nobody asks them anything cost our readings up to 15 %.
    """
    others = [node for other in clusters if other is not cluster for node in other.nodes.values()]
    for node in others:
        node.pause()
    try:
        time.sleep(THAW_SECONDS)
        yield
    finally:
        for node in others:
            node.resume()


def _median(loads: list[Load]) -> Load:
    return sorted(loads, key=lambda load: load.megabytes_a_second)[len(loads) // 2]


def requests(folder: Path, jars: Path, options: Options) -> list[Row]:
    """One record a request: what a client that doesn't batch would do."""
    del options
    plan = [
        (f"acks={acks}", 100, UNBATCHED_RECORDS, {**UNBATCHED, "acks": acks})
        for acks in ("1", "all")
    ]
    ours, kafka = (_loads(folder, kind, jars, plan)[0] for kind in KINDS)
    rows = []
    for what, load in ours.items():
        a, b = load.records_a_second, kafka[what].records_a_second
        label = f"requests of one record of 100 B, {what}"
        rows.append(Row(label, f"{a:,.0f} /s", f"{b:,.0f} /s", a / b, at_least=0.5))
    return rows


def _rows(
    what: str,
    ours: Load,
    theirs: Load,
    *,
    ratio: float | None = None,
    at_least: float | None = None,
) -> list[Row]:
    """Throughput, with the ratio of these two where no better one is known; and CPU."""
    a, b = ours.megabytes_a_second, theirs.megabytes_a_second
    cpu, their_cpu = ours.cpu_ms_a_megabyte, theirs.cpu_ms_a_megabyte
    return [
        Row(
            what,
            f"{a:,.1f} MB/s, {ours.records_a_second:,.0f} /s",
            f"{b:,.1f} MB/s, {theirs.records_a_second:,.0f} /s",
            a / b if ratio is None else ratio,
            at_least=at_least,
        ),
        Row(
            f"  CPU of all three nodes, {what}",
            f"{cpu:.2f} ms/MB",
            f"{their_cpu:.2f} ms/MB",
            cpu / their_cpu,
        ),
    ]


def _loads(
    folder: Path, kind: Kind, jars: Path, plan: Sequence[tuple[str, int, int, dict[str, Any]]]
) -> tuple[dict[str, Load], list[float]]:
    """For each (name, size, count, settings) the median of writing; and the nodes' MiB."""
    progress(f"{kind}: starting")
    with three_nodes(folder, kind, jars) as cluster:
        settled(cluster)
        for size in (100, 1024):
            _round(cluster, size, WARM_UP_BYTES // size, {"acks": "all"})
        loads = {
            what: _rounds(cluster, what, size, count, settings)
            for what, size, count, settings in plan
        }
        return loads, memory_of(cluster)


def _rounds(
    cluster: BenchCluster, what: str, size: int, count: int, settings: dict[str, Any]
) -> Load:
    """The median; the first of the rounds is a warm-up."""
    rounds = []
    for number in range(ROUNDS + 1):
        rounds.append(_round(cluster, size, count, settings))
        said = f"{rounds[-1].megabytes_a_second:,.1f}"
        progress(f"{cluster.directory.name}: {what}, {number} of {ROUNDS}: {said} MB/s")
    return _median(rounds[1:])


def _round(cluster: BenchCluster, size: int, count: int, settings: dict[str, Any]) -> Load:
    """Write a topic, read it, delete it: the next bytes go to the same memory.

    Reading shows that every record is there, and makes the nodes' memory that of nodes that are
    read from. The kernel has written all three copies back by then: it would do so in the next
    round.
    """
    make_topic(cluster, "loaded", PARTITIONS)
    pids = pids_of(cluster)
    written = produce(cluster.bootstrap, "loaded", size, count, pids=pids, settings=settings)
    os.sync()
    consume(cluster.bootstrap, "loaded", size, count)
    drop_topic(cluster, "loaded")
    return written


def _memory_rows(what: str, ours: Sequence[float], theirs: Sequence[float]) -> list[Row]:
    """Of all three nodes, the largest first."""
    labels = (f"{what}: memory of the largest", "  of the second", "  of the smallest")
    return [
        Row(label, f"{a:,.0f} MiB", f"{b:,.0f} MiB", a / b, at_most=limit)
        for label, a, b, limit in zip(labels, ours, theirs, (1 / 8, None, None), strict=True)
    ]


# ---- latency


def latency(folder: Path, jars: Path, options: Options) -> list[Row]:
    """From `produce` to the consumer's hands, at each rate."""
    ours, kafka = (_latencies(folder, kind, jars, options) for kind in KINDS)
    rows = []
    for rate in LATENCY_RATES:
        for label, share, limit in (("p50", 0.5, None), ("p99", 0.99, 1.5), ("p99.9", 0.999, None)):
            a, b = (times[rate][int(len(times[rate]) * share)] for times in (ours, kafka))
            what = f"end to end at {rate:,} records of 1 KB a second, acks=all: {label}"
            rows.append(Row(what, f"{a:.2f} ms", f"{b:.2f} ms", a / b, at_most=limit))
    return rows


def _latencies(folder: Path, kind: Kind, jars: Path, options: Options) -> dict[int, list[float]]:
    """By rate: sorted, in ms."""
    progress(f"{kind}: starting")
    with three_nodes(folder, kind, jars) as cluster:
        settled(cluster)
        make_topic(cluster, "warm", PARTITIONS)
        # One by one, as the records to come: a JVM compiles what it runs.
        settings = {**UNBATCHED, "acks": "all"}
        produce(cluster.bootstrap, "warm", 1024, WARM_UP_RECORDS, settings=settings)
        return {rate: _at_rate(cluster, kind, rate, options.seconds) for rate in LATENCY_RATES}


def _at_rate(cluster: BenchCluster, kind: Kind, rate: int, seconds: int) -> list[float]:
    """Of records sent so many a second, after the warm-up: sorted, in ms."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = f"timed-{rate}"
    make_topic(cluster, topic, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    total = rate * (LATENCY_WARM_UP_SECONDS + seconds)
    times: list[float] = []

    def read() -> None:
        while len(times) < total:
            message = consumer.poll(10)
            assert message is not None, f"{len(times)} of {total} records came"
            sent = int.from_bytes((message.value() or b"")[:8], "big")
            times.append((time.monotonic_ns() - sent) / 1e6)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    begun = time.monotonic()
    for number in range(total):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        stamp = time.monotonic_ns().to_bytes(8, "big")
        producer.produce(topic, stamp + bytes(1016), partition=number % PARTITIONS)
        producer.poll(0)
        if number % rate == 0:
            progress(f"{kind}: {number // rate} s at {rate:,} a second")
    assert producer.flush(30) == 0
    reader.join(30)
    consumer.close()
    assert len(times) == total, f"{len(times)} of {total} records came"
    return sorted(times[rate * LATENCY_WARM_UP_SECONDS :])


# ---- failover


@dataclass
class Kills:
    """What came of killing nodes of one sort."""

    times: list[float] = field(default_factory=list)
    """In ms."""
    clients: Clients = field(default_factory=Clients)


SORTS = (("leader", "a leader", 1 / 5), ("both", "leader and controller", 1 / 3))
"""Key, name, and the ratio that is promised."""


def failover(folder: Path, jars: Path, options: Options) -> list[Row]:
    """kill -9 of a leader, and of leader and controller in one."""
    ours, kafka = (_kills(folder, kind, jars, options) for kind in KINDS)
    rows = []
    for sort, what, limit in SORTS:
        mine, theirs = ours[sort], kafka[sort]
        label = f"kill -9 of {what} until every partition accepts acks=all"
        for name, pick, most in ((label, statistics.median, limit), ("  the longest", max, None)):
            a, b = pick(mine.times), pick(theirs.times)
            rows.append(Row(name, f"{a:,.0f} ms", f"{b:,.0f} ms", a / b, at_most=most))
        rows += _client_rows(what, mine.clients, theirs.clients)
    return rows


def _client_rows(what: str, ours: Clients, theirs: Clients) -> list[Row]:
    """Told in full: they stand below different kills."""
    texts = [
        (f"{one.given_up:,} of {one.sent:,}", f"{one.errors:,}, {one.read:,} records read")
        for one in (ours, theirs)
    ]
    labels = ("records a producer had to give up", "errors a consumer saw")
    return [
        Row(f"  {label}, {what} killed", mine, against, None)
        for label, mine, against in zip(labels, *texts, strict=True)
    ]


def _kills(folder: Path, kind: Kind, jars: Path, options: Options) -> dict[str, Kills]:
    progress(f"{kind}: starting")
    seen = {sort: Kills() for sort, _, _ in SORTS}
    with three_nodes(folder, kind, jars) as cluster:
        settled(cluster)
        make_topic(cluster, "killed", PARTITIONS)
        with Background(cluster.bootstrap, "killed", BACKGROUND_RATE) as background:
            for number in range(1, options.kills + 1):
                for sort, kills in seen.items():
                    active = cluster.describe_quorum().leader_id
                    others = [n for n in cluster.brokers if n != active]
                    victim = active if sort == "both" else others[number % len(others)]
                    background.count_for(kills.clients)
                    kills.times.append(_kill_once(cluster, victim))
                    took = f"{kills.times[-1]:,.0f} ms"
                    progress(f"{kind}: {sort} {number} of {options.kills}, {took}")
    return seen


def _kill_once(cluster: BenchCluster, victim: int) -> float:
    """Milliseconds until every partition accepts a write again; all is well again afterwards."""
    survivors = [cluster.ports[n][0] for n in cluster.brokers if n != victim]
    writers = Writers(survivors, "killed", PARTITIONS)

    def kill() -> float:
        return strike(cluster, victim, signal.SIGKILL)

    took = asyncio.run(writers.seconds_until_all_accepted(kill))
    bury(cluster, victim)
    cluster.start([victim])
    settled(cluster)
    wait_until(lambda: fully_replicated(cluster, "killed"), "every replica is in sync", 120)
    elect_preferred(cluster, "killed", PARTITIONS)
    return took * 1000


# ---- catching up


def catchup(folder: Path, jars: Path, options: Options) -> list[Row]:
    """A second replica of a partition that has one."""
    megabytes = 4 * options.megabytes
    ours, kafka = (_catch_up(folder, kind, jars, megabytes) for kind in KINDS)
    what = f"a fresh replica catches up {megabytes:,} MB"
    return [Row(what, f"{ours:,.0f} MB/s", f"{kafka:,.0f} MB/s", ours / kafka, at_least=1.0)]


def _catch_up(folder: Path, kind: Kind, jars: Path, megabytes: int) -> float:
    progress(f"{kind}: starting")
    with three_nodes(folder, kind, jars) as cluster:
        settled(cluster)
        speeds = []
        for number in range(ROUNDS):
            topic = f"grown-{number}"
            make_topic(cluster, topic, assignment={0: [1]})
            produce(cluster.bootstrap, topic, 1024, megabytes * 1_000_000 // 1024)
            took = reassigned(cluster, topic, [1, 2])
            speeds.append(megabytes / took)
            drop_topic(cluster, topic)
            progress(f"{kind}: round {number + 1} of {ROUNDS}, {speeds[-1]:,.0f} MB/s")
        return statistics.median(speeds)


# ---- idle


def idle(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Many partitions and nobody who writes or reads."""
    (cpu, memory), (their_cpu, their_memory) = (
        _idle(folder, kind, jars, options) for kind in KINDS
    )
    what = f"{options.partitions:,} idle partitions of {REPLICAS} replicas"
    a, b = statistics.mean(cpu), statistics.mean(their_cpu)
    return [
        Row(f"{what}: CPU of a node", f"{a:.1%}", f"{b:.1%}", a / b),
        *_memory_rows(what, memory, their_memory),
    ]


def _idle(
    folder: Path, kind: Kind, jars: Path, options: Options
) -> tuple[Sequence[float], Sequence[float]]:
    """Shares of a core and MiB, of each node."""
    progress(f"{kind}: starting")
    with three_nodes(folder, kind, jars) as cluster:
        settled(cluster)
        for number in range(options.partitions // 500):
            make_topic(cluster, f"idle-{number}", 500)
        pids = pids_of(cluster)
        time.sleep(IDLE_SECONDS / 4)
        before = [cpu_seconds(pid) for pid in pids]
        progress(f"{kind}: {IDLE_SECONDS} s of idling")
        time.sleep(IDLE_SECONDS)
        used = [cpu_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
        return [share / IDLE_SECONDS for share in used], memory_of(cluster)


# ---- the suite

PARTS: dict[str, Callable[[Path, Path, Options], list[Row]]] = {
    "produce": throughput,
    "consume": consuming,
    "requests": requests,
    "latency": latency,
    "failover": failover,
    "catchup": catchup,
    "idle": idle,
}


def main() -> int:
    """Measure what is asked for; print it, or all that is kept."""
    parser = suite.parser_for(__doc__, PARTS)
    parser.add_argument("--megabytes", type=int, default=100, help="written in a round")
    parser.add_argument("--seconds", type=int, default=30, help="of the latency part")
    parser.add_argument("--kills", type=int, default=5, help="of each sort")
    parser.add_argument("--partitions", type=int, default=2_000, help="of the idle part")
    chosen = parser.parse_args()
    options = Options(chosen.megabytes, chosen.seconds, chosen.kills, chosen.partitions)
    title = "Three replicas beside Apache Kafka 4.3.1, three nodes each"
    return suite.run("replication", title, PARTS, chosen, options)


if __name__ == "__main__":
    sys.exit(main())
