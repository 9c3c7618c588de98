"""This source against an earlier commit of it: server CPU of the same loads, in alternating rounds.

    ./bench revision                     against the commit before the last change of main
    ./bench revision --against 26b93b9   against another one

Two nodes, and two clusters of three, run side by side, one of each from the commit's own source;
only one of them is loaded at a time. CPU is the figure because it is the steadiest where others use
the machine. The clusters count the CPU of all their nodes.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_node import (
    RECYCLED,
    ask_raw,
    batch,
    create_topic,
    produce_frames,
    request,
    warm_up,
)
from benchmarks.measure import ROOT, cpu_seconds, load
from benchmarks.quorums import BenchCluster
from benchmarks.replicated import make_topic, pids_of, three_nodes
from benchmarks.report import Row, Table
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.nodes import SparkraftNode
from tests.support.revisions import MissingRevisionError, source_of

ROUNDS = 5
RATIO_MIN = 0.9
"""Promised: CPU of the earlier commit over ours."""

READ_BATCHES = 128
Shape = tuple[int, int]
"""Connections, and requests in flight on each."""

LOADS: tuple[tuple[str, int, int, Shape], ...] = (
    ("Produce 100 B", 100, 1, (4, 64)),
    ("Produce 16 KB", 1024, 16, (4, 8)),
    ("Produce 1 MB", 1024, 1000, (4, 2)),
)
"""Name, bytes of a record, records of a batch, shape."""


def compare(table: Table, what: str, now: Callable[[], float], before: Callable[[], float]) -> None:
    """Add a row: the median of the ratios of alternating rounds, `before` over `now`."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(before())
        ours.append(now())
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    table.add(
        Row(
            f"{what}: CPU a request",
            f"{statistics.median(ours):,.2f} µs",
            f"{statistics.median(theirs):,.2f} µs",
            ratio,
            at_least=RATIO_MIN,
        )
    )


def one_node(earlier: Path, seconds: float, table: Table) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.ExitStack() as running,
    ):
        nodes = []
        for name, source in (("now", ROOT / "src"), ("before", earlier)):
            node = SparkraftNode(Path(folder) / name, overrides=RECYCLED)
            node.environment["PYTHONPATH"] = str(source)
            nodes.append(running.enter_context(node))
            create_topic(node.port, "load", 4)
        for what, size, count, shape in LOADS:
            frames = produce_frames("load", batch(size, count))
            for node in nodes:
                warm_up(node, frames, shape)
            now, before = (_loaded(node, frames, shape, seconds) for node in nodes)
            compare(table, what, now, before)
        frames = _read_frames()
        megabyte = produce_frames("read", batch(1024, 1000), 1)
        for node in nodes:
            create_topic(node.port, "read", 1, retention_bytes="-1")
            for _ in range(READ_BATCHES):
                ask_raw(node.port, megabyte)
        now, before = (_loaded(node, frames, (2, 2), seconds) for node in nodes)
        compare(table, "Fetch 1 MB", now, before)


def _loaded(
    node: SparkraftNode, frames: bytes, shape: Shape, seconds: float
) -> Callable[[], float]:
    def measure() -> float:
        assert node.process is not None
        done = load(
            node.port, node.process.pid, frames,
            connections=shape[0], in_flight=shape[1], seconds=seconds,
        )  # fmt: skip
        return float(done["cpu_us"])

    return measure


def _read_frames() -> bytes:
    def fetch(offset: int) -> bytes:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        message = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
            topics=[FetchTopic(topic="read", partitions=[partition])],
        )  # fmt: skip
        return request(ApiKey.FETCH, 12, message)

    return b"".join(fetch(number * 1000) for number in range(READ_BATCHES))


def three_replicas(earlier: Path, seconds: float, table: Table) -> None:
    """Produce with acks=all to a leader with two followers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.ExitStack() as running,
    ):
        clusters = []
        for name, source in (("now", ROOT / "src"), ("before", earlier)):
            cluster = three_nodes(Path(folder) / name, "sparkraft", None)
            for node in cluster.nodes.values():
                node.environment["PYTHONPATH"] = str(source)
            clusters.append(running.enter_context(cluster))
            make_topic(cluster, "load", assignment={0: [1, 2, 3]})
        for what, size, count, shape in LOADS[:2]:
            frames = _acknowledged_by_all(batch(size, count))
            now, before = (_replicated(each, frames, shape, seconds) for each in clusters)
            compare(table, f"{what}, three replicas, acks=all", now, before)


def _acknowledged_by_all(records: bytes) -> bytes:
    data = [PartitionProduceData(index=0, records=records)]
    message = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="load", partition_data=data)],
    )
    return request(ApiKey.PRODUCE, 9, message)


def _replicated(
    cluster: BenchCluster, frames: bytes, shape: Shape, seconds: float
) -> Callable[[], float]:
    def measure() -> float:
        pids = pids_of(cluster)
        used = sum(map(cpu_seconds, pids))
        done = load(
            cluster.ports[1][0], pids[0], frames,
            connections=shape[0], in_flight=shape[1], seconds=seconds,
        )  # fmt: skip
        return float((sum(map(cpu_seconds, pids)) - used) / done["requests"] * 1e6)

    return measure


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", default="HEAD^", metavar="COMMIT")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round")
    chosen = parser.parse_args()
    try:
        earlier = source_of(chosen.against)
    except MissingRevisionError as error:
        sys.exit(str(error))
    table = Table(f"This source against {chosen.against}")
    one_node(earlier, chosen.seconds, table)
    three_replicas(earlier, chosen.seconds, table)
    table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
