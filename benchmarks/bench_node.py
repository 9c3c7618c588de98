"""One node against the C server on the same loopback, in the same run.

The C server frames requests and answers each with fixed bytes of the same size: nothing that
does a broker's work can be faster. Rounds of the two alternate, and medians of the pairs' ratios
are compared, so that a neighbour's load falls on both.

Large loads run unmeasured first, until they stop getting faster: a virtual machine whose page cache
grows onto memory it never touched measures its host, not the node (docs/PERFORMANCE.md).
"""

import argparse
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import BUILD, cpu_seconds, framed, load, null_server, rss_mib
from benchmarks.report import Row, Table
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.headers import (
    RequestHeader,
    request_header_version,
    response_header_version,
)
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparkraft.records.record import BatchBuilder
from tests.support.nodes import NodeProcess, SparkraftNode

ROUNDS = 5
STARTS = 9
WARM_UP_ROUNDS_MAX = 12
# Small segments that go at once: the page cache stays where it is (docs/PERFORMANCE.md says why).
RECYCLED = {
    "log.segment.bytes": "33554432",
    "log.retention.bytes": "33554432",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "num.partitions": "4",
}


def request(key: ApiKey, version: int, message: Any) -> bytes:
    """A whole frame."""
    header = RequestHeader(
        request_api_key=int(key), request_api_version=version, correlation_id=1, client_id="bench"
    )
    return framed(encode(header, request_header_version(key, version)) + encode(message, version))


def ask(port: int, key: ApiKey, version: int, message: Any) -> tuple[bytes, Any]:
    """Send one request; the answer's frame and what it says."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request(key, version, message))
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            data += connection.recv(1 << 20)
    start = 8 + response_header_version(key, version)
    return data, decode(API_INFO[key].response_class(), version, data[start:])


def create_topic(port: int, name: str, partitions: int, **configs: str) -> Uuid:
    """Create a topic; its id. In names of `configs`, an underscore stands for a dot."""
    values = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=values
    )
    _, answer = ask(
        port, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    )
    assert answer.topics[0].error_code in {0, 36}, answer
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        _, answer = ask(port, ApiKey.METADATA, 12, wanted)
        found = answer.topics[0]
        if found.error_code == 0 and all(p.leader_id >= 0 for p in found.partitions):
            return Uuid(found.topic_id)
        time.sleep(0.02)
    raise AssertionError(f"{name} has no leaders after 60 s")


def batch(record_bytes: int, records: int) -> bytes:
    """An uncompressed batch of `records` records of `record_bytes` each."""
    builder = BatchBuilder()
    value = os.urandom(record_bytes)
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, value, [])
    return builder.build()


def produce_frames(topic: str, records: bytes, partitions: int = 4) -> bytes:
    """A Produce v9 for each partition in turn."""
    return b"".join(
        request(
            ApiKey.PRODUCE, 9,
            ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=records)])]),
        )
        for partition in range(partitions)
    )  # fmt: skip


def warm_up(node: SparkraftNode, frames: bytes, shape: tuple[int, int]) -> None:
    """Load until it gets no faster: the page cache then lies on memory that was used before."""
    assert node.process is not None
    best, since_best = 0.0, 0
    for _ in range(WARM_UP_ROUNDS_MAX):
        done = load(
            node.port, node.process.pid, frames,
            connections=shape[0], in_flight=shape[1], seconds=1,
        )  # fmt: skip
        since_best = 0 if done["mb_out"] > best * 1.05 else since_best + 1
        best = max(best, done["mb_out"])
        if since_best == 3:  # no faster for three seconds
            return


def pair(
    node: SparkraftNode,
    frames: bytes,
    server: AbstractContextManager[tuple[int, int]],
    *,
    connections: int,
    in_flight: int,
    seconds: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Alternating rounds of the same load on the node and on the C server."""
    assert node.process is not None
    ours, limit = [], []
    shape = {"connections": connections, "in_flight": in_flight, "seconds": seconds}
    with server as (port, pid):
        for _ in range(ROUNDS):
            limit.append(load(port, pid, frames, **shape))  # type: ignore[arg-type]
            ours.append(load(node.port, node.process.pid, frames, **shape))  # type: ignore[arg-type]
    return ours, limit


def ratio(
    ours: list[dict[str, Any]], limit: list[dict[str, Any]], what: str
) -> tuple[float, float, float]:
    """Medians of `what`: ours, the limit's, and the median of the pairs' ratios."""
    ratios = [a[what] / b[what] if b[what] else 0.0 for a, b in zip(ours, limit, strict=True)]
    return (
        statistics.median(r[what] for r in ours),
        statistics.median(r[what] for r in limit),
        statistics.median(ratios),
    )


def produce_and_fetch(seconds: float, table: Table) -> None:
    """The loads of the hot path."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkraftNode(Path(folder), overrides=RECYCLED) as node,
    ):
        assert node.process is not None
        fresh = rss_mib(node.process.pid)
        table.add(Row("memory, fresh", f"{fresh:.0f} MiB", "60 MiB", fresh / 60, at_most=1.0))
        create_topic(node.port, "load", 4)
        small = produce_frames("load", batch(100, 1))
        one = produce_frames("load", batch(100, 1), 1)
        answer, _ = ask_raw(node.port, one)

        ours, limit = pair(
            node, small, null_server(answer), connections=4, in_flight=64, seconds=seconds
        )
        a, b, r = ratio(ours, limit, "cpu_us")
        table.add(
            Row(
                "Produce 100 B, 4x64 in flight: CPU a request",
                f"{a:.2f} µs",
                f"C {b:.3f} µs",
                r,
                at_most=100,
            )
        )
        a, b, _ = ratio(ours, limit, "per_second")
        table.add(Row("  requests a second", f"{a:,.0f}", f"C {b:,.0f}", a / b))

        ours, limit = pair(
            node, one, null_server(answer), connections=1, in_flight=1, seconds=seconds
        )
        a, b, r = ratio(ours, limit, "p50_us")
        table.add(
            Row("Produce 100 B, one in flight: p50", f"{a:.1f} µs", f"C {b:.1f} µs", r, at_most=2.5)
        )
        a, b, r = ratio(ours, limit, "p99_us")
        table.add(Row("  p99", f"{a:.1f} µs", f"C {b:.1f} µs", r))

        for label, size, count, shape, least in (
            ("16 KB", 1024, 16, (4, 8), 0.1),
            ("1 MB", 1024, 1000, (4, 2), 0.2),
        ):
            frames = produce_frames("load", batch(size, count))
            warm_up(node, frames, shape)
            ours, limit = pair(
                node,
                frames,
                null_server(answer),
                connections=shape[0],
                in_flight=shape[1],
                seconds=seconds,
            )
            a, b, r = ratio(ours, limit, "mb_out")
            table.add(
                Row(
                    f"Produce {label}, {shape[0]}x{shape[1]}",
                    f"{a:,.0f} MB/s",
                    f"C {b:,.0f} MB/s",
                    r,
                    at_least=least,
                )
            )
            table.add(cpu_row(ours, limit))
            if label == "1 MB":
                cached = statistics.median(cache_limit(Path(folder), seconds) for _ in ours)
                against = f"page cache {cached:,.0f} MB/s"
                table.add(Row("  beside plain writes", f"{a:,.0f} MB/s", against, a / cached))

        fetch_rows(node, seconds, table)
        time.sleep(30)
        later = rss_mib(node.process.pid)
        table.add(
            Row(
                "memory, 30 s after the 1 MB loads",
                f"{later:.0f} MiB",
                "150 MiB",
                later / 150,
                at_most=1.0,
            )
        )
        assert node.stop() == 0


def cpu_row(ours: list[dict[str, Any]], limit: list[dict[str, Any]]) -> Row:
    """Server CPU a request: the steadiest figure where others use the machine, too."""
    a, b, r = ratio(ours, limit, "cpu_us")
    return Row("  server CPU a request", f"{a:,.1f} µs", f"C {b:,.1f} µs", r)


def ask_raw(port: int, frame: bytes) -> tuple[bytes, None]:
    """Send a frame as it is; the answer's frame."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(frame)
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            data += connection.recv(1 << 20)
    return data, None


def fetch_rows(node: SparkraftNode, seconds: float, table: Table) -> None:
    """1 MB Fetch from 128 different offsets of a topic that stays in the page cache."""
    create_topic(node.port, "read", 1, retention_bytes="-1")
    megabyte = produce_frames("read", batch(1024, 1000), 1)
    for _ in range(128):
        ask_raw(node.port, megabyte)

    def fetch(offset: int) -> bytes:
        place = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        message = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
            topics=[FetchTopic(topic="read", partitions=[place])],
        )  # fmt: skip
        return request(ApiKey.FETCH, 12, message)

    frames = b"".join(fetch(number * 1000) for number in range(128))
    answer, _ = ask_raw(node.port, fetch(0))
    assert len(answer) > 1_000_000, "a whole batch"
    ours, limit = pair(
        node, frames, null_server(answer), connections=2, in_flight=2, seconds=seconds
    )
    a, b, r = ratio(ours, limit, "mb_in")
    table.add(Row("Fetch 1 MB, 2x2", f"{a:,.0f} MB/s", f"C {b:,.0f} MB/s", r, at_least=0.6))
    table.add(cpu_row(ours, limit))
    with tempfile.NamedTemporaryFile() as data:
        for log in sorted(node.log_dir.glob("read-0/*.log")):
            data.write(log.read_bytes())
        data.flush()
        reading = null_server(answer, Path(data.name))
        ours, limit = pair(node, frames, reading, connections=2, in_flight=2, seconds=seconds)
    a, b, r = ratio(ours, limit, "mb_in")
    what = "  beside C that reads what it sends"
    table.add(Row(what, f"{a:,.0f} MB/s", f"C {b:,.0f} MB/s", r))
    table.add(cpu_row(ours, limit))


def cache_limit(folder: Path, seconds: float) -> float:
    """MB/s of plain 1 MB writes into files of 32 MB that are removed when full, nothing synced."""
    data, written, start = os.urandom(1 << 20), 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        file = os.open(folder / "limit", os.O_CREAT | os.O_WRONLY)
        for _ in range(32):
            written += os.write(file, data)
        os.close(file)
        (folder / "limit").unlink()
    return written / (time.perf_counter() - start) / 1e6


def disk_limit(folder: Path, seconds: float) -> float:
    """MB/s of plain 1 MB writes, each followed by fdatasync, on the folder's disk."""
    data, written, start = os.urandom(1 << 20), 0, time.perf_counter()
    file = os.open(folder / "limit", os.O_CREAT | os.O_WRONLY)
    while time.perf_counter() - start < seconds:
        os.write(file, data)
        os.fdatasync(file)
        written += len(data)
    os.close(file)
    return written / (time.perf_counter() - start) / 1e6


def durable(seconds: float, table: Table) -> None:
    """flush.messages=1: every answer waits for an fsync, like a plain write with fdatasync."""
    overrides = {**RECYCLED, "log.flush.interval.messages": "1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkraftNode(Path(folder), overrides=overrides) as node,
    ):
        assert node.process is not None
        create_topic(node.port, "load", 4)
        frames = produce_frames("load", batch(1024, 1000))
        warm_up(node, frames, (4, 2))
        ratios, speeds, limits = [], [], []
        for _ in range(3):
            limits.append(disk_limit(Path(folder), seconds))
            done = load(
                node.port, node.process.pid, frames, connections=4, in_flight=2, seconds=seconds
            )
            speeds.append(done["mb_out"])
            ratios.append(speeds[-1] / limits[-1])
        median = statistics.median
        table.add(Row("Produce 1 MB, fsync before each answer", f"{median(speeds):,.0f} MB/s",
                      f"disk {median(limits):,.0f} MB/s", median(ratios)))  # fmt: skip
        node.stop()


def validation(seconds: float, table: Table) -> None:
    """What walking every record costs: server CPU of one node that does and one that doesn't."""
    header = {**RECYCLED, "sparkraft.record.validation": "header"}
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkraftNode(Path(folder) / "header", overrides=header) as plain,
        SparkraftNode(Path(folder) / "full", overrides=RECYCLED) as walking,
    ):
        for node in (plain, walking):
            create_topic(node.port, "load", 4)
        for label, size, count, shape in (
            ("1 record of 100 B", 100, 1, (4, 64)),
            ("160 records of 100 B", 100, 160, (4, 8)),
            ("16 records of 1 KB", 1024, 16, (4, 8)),
            ("1000 records of 1 KB", 1024, 1000, (4, 2)),
        ):
            frames = produce_frames("load", batch(size, count))
            done: dict[SparkraftNode, list[dict[str, Any]]] = {plain: [], walking: []}
            for _ in range(3):
                for node, results in done.items():
                    assert node.process is not None
                    results.append(
                        load(
                            node.port, node.process.pid, frames,
                            connections=shape[0], in_flight=shape[1], seconds=seconds,
                        )
                    )  # fmt: skip
            a, b, r = ratio(done[walking], done[plain], "cpu_us")
            what = f"Produce {label}, every record checked: CPU"
            table.add(Row(what, f"{a:,.1f} µs", f"header only {b:,.1f} µs", r))
        for node in (plain, walking):
            node.stop()


def start_up(table: Table) -> None:
    """From the start of the process to a Metadata that names a leader, and to the first Produce."""
    frames = produce_frames("first", batch(100, 1), 1)
    to_leader, to_produce, used = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        node = SparkraftNode(Path(folder))
        with node:
            create_topic(node.port, "first", 1)
            node.stop()
        for _ in range(STARTS + 1):
            begun = begin(node)
            assert node.process is not None
            to_leader.append(until(lambda: leader_named(node.port), begun))
            used.append(cpu_seconds(node.process.pid))
            to_produce.append(until(lambda: accepted(node.port, frames), begun))
            node.stop()
    # The first start wrote the bytecode, as an installation does. What others of the machine add
    # to a start is never negative, so the best one says most of ours.
    for what, times, most in (
        ("Metadata naming a leader", to_leader[1:], 0.3),
        ("the first acknowledged Produce", to_produce[1:], 0.5),
    ):
        ours = f"{min(times) * 1000:.0f} ms (median {statistics.median(times) * 1000:.0f})"
        row = Row(f"start to {what}", ours, f"{most * 1000:.0f} ms", min(times) / most, at_most=1)
        table.add(row)
    table.add(Row("  CPU until then", f"{statistics.median(used[1:]) * 1000:.0f} ms", "", None))


def begin(node: NodeProcess) -> float:
    """Start the process with compiled bytecode at hand, as an installed package has it; when."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(BUILD / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.perf_counter()
    with node.output_path.open("ab") as output:
        node.process = subprocess.Popen(
            node.start_command(), stdout=output, stderr=output, env=environment
        )
    return begun


def until(condition: Callable[[], bool], begun: float) -> float:
    """Seconds from `begun` until `condition` holds; a refused connection means it doesn't."""
    while time.perf_counter() - begun < 30:
        try:
            if condition():
                return time.perf_counter() - begun
        except OSError:
            pass
        time.sleep(0.002)
    raise AssertionError("not within 30 s")


def leader_named(port: int, name: str = "first") -> bool:
    """Whether Metadata names a leader of a topic."""
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    _, answer = ask(port, ApiKey.METADATA, 12, wanted)
    topic = answer.topics[0]
    return topic.error_code == 0 and bool(topic.partitions) and topic.partitions[0].leader_id >= 0


def accepted(port: int, frames: bytes) -> bool:
    """Whether a Produce is acknowledged."""
    data, _ = ask_raw(port, frames)
    answer: Any = decode(API_INFO[ApiKey.PRODUCE].response_class(), 9, data[9:])
    return bool(answer.responses[0].partition_responses[0].error_code == 0)


def many_partitions(table: Table, count: int = 10_000) -> None:
    """Creation, memory and restart of a node with `count` partitions."""
    with tempfile.TemporaryDirectory() as folder:
        node = SparkraftNode(Path(folder))
        with node:
            assert node.process is not None
            begun, cpu = time.perf_counter(), cpu_seconds(node.process.pid)
            for number in range(count // 1000):
                create_topic(node.port, f"many-{number}", 1000)
            took, cpu = time.perf_counter() - begun, cpu_seconds(node.process.pid) - cpu
            table.add(
                Row(f"{count:,} partitions: created", f"{took:.1f} s", f"{cpu:.1f} s CPU", None)
            )
            table.add(Row("  memory then", f"{rss_mib(node.process.pid):.0f} MiB", "", None))
            for label, end in (
                ("clean stop", lambda: node.stop(seconds=120)),
                ("kill -9", node.kill),
            ):
                end()
                took = until(partial(leader_named, node.port, "many-0"), begin(node))
                memory = rss_mib(node.process.pid)
                table.add(Row(f"  {label}, then start to leaders", f"{took:.1f} s", "", None))
                table.add(Row("  memory then", f"{memory:.0f} MiB", "", None))
            node.stop(seconds=120)


PARTS = ("start", "load", "durable", "validation", "partitions")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each round")
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    table = Table("One node against the C server")
    if options.only in {None, "start"}:
        start_up(table)
    if options.only in {None, "load"}:
        produce_and_fetch(options.seconds, table)
    if options.only in {None, "durable"}:
        durable(options.seconds, table)
    if options.only in {None, "validation"}:
        validation(options.seconds, table)
    if options.only in {None, "partitions"}:
        many_partitions(table)
    print(f"\nLoad of the machine over the last 15 minutes: {os.getloadavg()[2]:.1f}")
    table.print()
    sys.exit(0 if table.met else 1)


if __name__ == "__main__":
    main()
