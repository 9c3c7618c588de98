"""What a light client feels beside heavy loads: ours and Apache Kafka, in the same run.

    ./bench loop                 every row
    ./bench loop bounds          the cost of one piece of work at each bound of LOOP_WORK_MAX
    ./bench loop ROW...          these rows: segments, topics, zstd, gzip, lz4, validation,
                                 append-time, cleaner; of `loop_api_rows`: sessions, metadata,
                                 configs, offsets, commits, groups, unknown, lists; of
                                 `loop_group_rows`: members, wide, pattern, many-groups; of
                                 `loop_more_rows`: regex, bombs, cold, producers, own, scrapes;
                                 of `loop_large_rows`: fanout, slow-disk, coordinator, explain,
                                 snapshot

A row runs its load on one node after the other, in rounds, with 100 probes a second beside it
(`probe`). Promised is a p99 of at most 10 ms, or Kafka's in the same run if that is higher, and
that heartbeats and votes continue: no election of the quorum, no fencing of the broker. Maxima are
printed beside Kafka's. Some rows promise more (`loop_promises`).

Figures are medians of three rounds, with at least 2,000 probes together. A row has fewer if it
would take longer than a minute, and says how many. Kafka's JVM is warmed for a few seconds only.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench_beside_kafka import BenchKafka
from benchmarks.bench_node import ask, create_topic, produce_frames
from benchmarks.loop_api_rows import API_ROWS
from benchmarks.loop_bounds import bounds
from benchmarks.loop_group_rows import GROUP_ROWS
from benchmarks.loop_large_rows import LARGE_ROWS
from benchmarks.loop_more_rows import HTTP_LISTENER, MORE_ROWS
from benchmarks.loop_outcome import (
    ROUNDS,
    SECONDS,
    Interruptions,
    Load,
    NotMeasuredError,
    Outcome,
)
from benchmarks.loop_promises import figure_row
from benchmarks.measure import BUILD, compiled, cpu_seconds
from benchmarks.probe import Probe
from benchmarks.report import Row, Table
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparkraft.records.record import BatchBuilder
from tests.support.kafka_jars import kafka_jars_or_reason
from tests.support.nodes import NodeProcess, SparkraftNode
from tests.support.ports import lasting_ports

ROW_SECONDS_MAX = 60
"""Another round begins only if it will probably end within this time of a row."""

PROBES_PER_ROUND = 100 * SECONDS
CLEANED_AFTER_S = 2
"""A log whose size does not change for this time is cleaned."""

CLEANING_S_MAX = 60
P99_MS_MAX = 10.0
ERROR_LENGTH_MAX = 300
TOPICS, PARTITIONS = 3_000, 4
DELETED_AT_ONCE = {"log.segment.delete.delay.ms": "100", "log.retention.check.interval.ms": "500"}


def text_batch(records: int = 64, record_bytes: int = 1024) -> bytes:
    """An uncompressed batch of words, which compress to about 40 %."""
    dice = random.Random(1)
    words = [dice.randbytes(4).hex()[: dice.randint(3, 8)].encode() for _ in range(2_000)]
    builder = BatchBuilder()
    for _ in range(records):
        value = b" ".join(dice.choices(words, k=record_bytes // 5))[:record_bytes]
        builder.append(int(time.time() * 1000), None, value)
    return builder.build()


class Produced:
    """Produce requests in a closed loop, sent by the C program, while the block lasts."""

    def __init__(self, node: NodeProcess, frames: bytes, seconds: float) -> None:
        path = BUILD / f"loop-{node.port}.bin"
        BUILD.mkdir(parents=True, exist_ok=True)
        path.write_bytes(frames)
        command = [str(compiled("load")), str(node.port), str(path), "4", "2", str(seconds)]
        assert node.process is not None
        self._pid = node.process.pid
        self._cpu = cpu_seconds(self._pid)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def figures(self) -> dict[str, float]:
        """MB/s sent and CPU per MB, at the end."""
        import json

        output, _ = self._process.communicate(timeout=120)
        done = json.loads(output)
        megabytes = done["bytes_out"] / 1e6
        return {
            "MB/s": megabytes / done["seconds"],
            "CPU ms/MB": (cpu_seconds(self._pid) - self._cpu) * 1000 / megabytes,
        }


def produce_row(**configs: str) -> Load:
    """Full speed into a topic with these configs."""
    kind = "-".join(configs.values()) or "plain"

    def load(node: NodeProcess, number: int) -> Outcome:
        topic = f"load-{kind}-{number}"
        recycled = {"segment_bytes": str(32 << 20), "retention_bytes": str(64 << 20)}
        create_topic(node.port, topic, 4, **{**recycled, **configs})
        frames = produce_frames(topic, text_batch())
        produced = Produced(node, frames, SECONDS + 1)
        time.sleep(0.5)
        probe = Probe(node.port, "probe", SECONDS)
        outcome = Outcome(probe.latencies())
        outcome.figures = produced.figures()
        return outcome

    return load


def segments_row(node: NodeProcess, number: int) -> Outcome:
    """A full segment of 1 GiB is deleted."""
    topic = f"large-{number}"
    create_topic(node.port, topic, 1, segment_bytes=str(1 << 30), retention_ms="3600000")
    size = 0
    frames = produce_frames(topic, text_batch(), 1)
    while size < (1 << 30) + (8 << 20):
        Produced(node, frames, 1.0).figures()
        size = sum(path.stat().st_size for path in node.log_dir.glob(f"{topic}-0/*.log"))
    probe = Probe(node.port, "probe", SECONDS)
    time.sleep(0.5)
    alter(node, topic, {"retention.bytes": "1048576"})
    return Outcome(probe.latencies())


def alter(node: NodeProcess, topic: str, configs: dict[str, str]) -> None:
    """Set topic configs."""
    changes = [
        AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    _, answer = ask(node.port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert answer.responses[0].error_code == 0, answer


def topics_row(node: NodeProcess, number: int) -> Outcome:
    """3,000 topics of 4 partitions are created, then deleted; times until answered."""
    latencies: list[float] = []
    times: list[dict[str, float]] = []
    with ThreadPoolExecutor(1) as pool:
        while len(latencies) < PROBES_PER_ROUND:
            changes = pool.submit(create_and_delete, node, f"many-{number}-{len(times)}")
            while not changes.done():
                latencies += Probe(node.port, "probe", 2).latencies()
            times.append(changes.result())
    return Outcome(
        latencies, {what: statistics.median(t[what] for t in times) for what in times[0]}
    )


def create_and_delete(node: NodeProcess, prefix: str) -> dict[str, float]:
    """Create topics, and delete them; the seconds of each."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    names = [f"{prefix}-{index}" for index in range(TOPICS)]
    admin: Any = AdminClient({"bootstrap.servers": node.bootstrap})

    def create(some: list[str]) -> Any:
        return admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in some])

    time.sleep(0.3)
    delete = partial(admin.delete_topics, operation_timeout=60)
    works: Any = {"create s": create, "delete s": delete}
    times: dict[str, float] = {}
    for what, work in works.items():
        begun = time.monotonic()
        for at in range(0, TOPICS, 100):
            for done in work(names[at : at + 100]).values():
                done.result(60)
        times[what] = time.monotonic() - begun
    return times


def cleaner_row(node: NodeProcess, number: int) -> Outcome:
    """100 MB of 200 B records with 32,000 keys are compacted."""
    topic = f"keys-{number}"
    create_topic(
        node.port, topic, 1,
        cleanup_policy="compact", segment_bytes=str(16 << 20), min_compaction_lag_ms="3600000",
        min_cleanable_dirty_ratio="0.01",
    )  # fmt: skip
    frames = b"".join(
        produce_frames(topic, keyed_batch(first), 1) for first in range(0, 32_000, 80)
    )
    written = 0.0
    while written < 100e6:
        Produced(node, frames, 0.5).figures()
        written = size_of(node, topic)
    probe = Probe(node.port, "probe", SECONDS)
    begun = time.monotonic()
    alter(node, topic, {"min.compaction.lag.ms": "0"})
    changed, known = begun, size_of(node, topic)
    while changed == begun or time.monotonic() - changed < CLEANED_AFTER_S:
        assert time.monotonic() - begun < CLEANING_S_MAX, "the log was not compacted"
        time.sleep(0.1)
        if (now := size_of(node, topic)) != known:
            changed, known = time.monotonic(), now
    speed = written / 1e6 / (changed - begun)
    return Outcome(probe.latencies(), {"MB/s": speed})


def keyed_batch(first: int) -> bytes:
    """80 records of 200 B with keys from `first` on."""
    builder = BatchBuilder()
    for key in range(first, first + 80):
        builder.append(int(time.time() * 1000), b"%08d" % key, os.urandom(190))
    return builder.build()


def size_of(node: NodeProcess, topic: str) -> int:
    """Bytes of a topic's segments, those to be deleted left out."""
    total = 0
    for path in node.log_dir.glob(f"{topic}-0/*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


ROWS: dict[str, Load] = {
    "segments": segments_row,
    "topics": topics_row,
    "zstd": produce_row(compression_type="zstd"),
    "gzip": produce_row(compression_type="gzip"),
    "lz4": produce_row(compression_type="lz4"),
    "validation": produce_row(),
    "append-time": produce_row(message_timestamp_type="LogAppendTime"),
    "cleaner": cleaner_row,
    **API_ROWS,
    **GROUP_ROWS,
    **MORE_ROWS,
    **LARGE_ROWS,
}


def recover(node: NodeProcess) -> None:
    """Start a node again if it ended, and wait until it serves."""
    if node.process is not None and node.process.poll() is not None:
        node.wait()
    if node.process is None:
        node.start()


def add_row(table: Table, name: str, nodes: dict[str, NodeProcess]) -> None:
    """Measure one row on all nodes and add its figures, or why it has none."""
    try:
        rows = measured(name, nodes)
    except NotMeasuredError as error:
        rows = [Row(f"{name}: not measured", "", cell(error), None)]
    except Exception as error:  # the other rows are measured
        traceback.print_exc()
        rows = [Row(f"{name}: failed", cell(error), "", None, failed=True)]
    for each in rows:
        table.add(each)
    for node in nodes.values():
        recover(node)


def cell(error: Exception) -> str:
    """The beginning of an error's text, in one line."""
    words = " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())
    return words if len(words) <= ERROR_LENGTH_MAX else f"{words[:ERROR_LENGTH_MAX]}..."


def measured(name: str, nodes: dict[str, NodeProcess]) -> list[Row]:
    """The figures of one row."""
    interruptions = Interruptions(nodes["ours"])
    begun = time.monotonic()
    outcomes, kafkas_error = rounds_of(ROWS[name], nodes)
    taken = time.monotonic() - begun
    rows = []
    if kafkas_error is not None:
        rows.append(Row(f"{name}: not compared in all rounds", "", cell(kafkas_error), None))
    p99 = {who: statistics.median(one.p99 for one in found) for who, found in outcomes.items()}
    highest = {who: max(max(one.latencies) for one in found) for who, found in outcomes.items()}
    ours, kafka = p99["ours"], p99.get("kafka", 0.0)
    bound = max(P99_MS_MAX, kafka)
    rows.append(
        Row(f"{name}: probe p99", f"{ours:.1f} ms", f"{kafka:.1f} ms", ours / bound, at_most=1)
    )
    ours, kafka = highest["ours"], highest.get("kafka", 0.0)
    rows.append(Row(f"{name}: probe max", f"{ours:.0f} ms", f"{kafka:.0f} ms", None))
    counted = [one.interruptions for one in outcomes["ours"] if one.interruptions is not None]
    lost = sum(counted) if counted else interruptions.count()
    rows.append(Row(f"{name}: elections, fencings", str(lost), "none", lost, at_most=0))
    for what in outcomes["ours"][0].figures:
        value = median_of(outcomes["ours"], what)
        assert value is not None
        theirs = median_of(outcomes.get("kafka", []), what)
        rows.append(figure_row(f"{name}: {what}", value, theirs))
    probes, beside = (probes_of(outcomes.get(who, [])) for who in ("ours", "kafka"))
    rows.append(Row(f"{name}: measured in {taken:.0f} s", probes, beside, None))
    return rows


def rounds_of(
    load: Load, nodes: dict[str, NodeProcess]
) -> tuple[dict[str, list[Outcome]], Exception | None]:
    """The rounds of each node, as many as fit into the time of a row.

    Rounds that fail on Kafka's node are left out: the second result says why.
    """
    begun = last = time.monotonic()
    outcomes: dict[str, list[Outcome]] = {who: [] for who in nodes}
    kafkas_error: Exception | None = None
    for number in range(ROUNDS):
        for who in sorted(nodes, reverse=number % 2 == 1):
            try:
                found = load(nodes[who], number)
            except Exception as error:
                if who == "ours" or isinstance(error, NotMeasuredError):
                    raise
                kafkas_error = error
                recover(nodes[who])
            else:
                outcomes[who] += [found] if isinstance(found, Outcome) else found
        now = time.monotonic()
        # The first round has prepared the nodes, so it says nothing of the second.
        expected = now - last if number else len(nodes) * (SECONDS + 1)
        last = now
        if len(outcomes["ours"]) >= ROUNDS or now - begun + expected > ROW_SECONDS_MAX:
            break
    return {who: found for who, found in outcomes.items() if found}, kafkas_error


def probes_of(outcomes: Sequence[Outcome]) -> str:
    """How many rounds and probes the figures of a node rest on."""
    count = sum(len(one.latencies) for one in outcomes)
    return f"{count:,} probes, rounds: {len(outcomes)}" if outcomes else ""


def median_of(outcomes: Sequence[Outcome], what: str) -> float | None:
    """A figure over all rounds; None if it was not measured."""
    found = [one.figures[what] for one in outcomes if what in one.figures]
    return statistics.median(found) if found else None


def warm(node: NodeProcess) -> None:
    """A few seconds of what most rows do."""
    create_topic(node.port, "warm", 4, retention_bytes=str(64 << 20), segment_bytes=str(32 << 20))
    Produced(node, produce_frames("warm", text_batch()), 6).figures()


def main() -> int:
    """Measure the rows that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="bounds, or names of rows")
    parser.add_argument("--without-kafka", action="store_true", help="measure ours alone")
    options: Any = parser.parse_args()
    if options.rows == ["bounds"]:
        return bounds()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}")
    table = Table("A probe of 100 records a second beside each load, one node")
    jars = kafka_jars_or_reason()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        (http_port,) = lasting_ports(1)
        overrides = {**DELETED_AT_ONCE, HTTP_LISTENER: f"127.0.0.1:{http_port}"}
        ours = SparkraftNode(Path(folder) / "ours", overrides=overrides)
        nodes: dict[str, NodeProcess] = {"ours": stack.enter_context(ours)}
        if isinstance(jars, Path) and not options.without_kafka:
            kafka = BenchKafka(Path(folder) / "kafka", overrides=DELETED_AT_ONCE, jars=jars)
            nodes["kafka"] = stack.enter_context(kafka)
        for node in nodes.values():
            create_topic(node.port, "probe", 1)
            warm(node)
        try:
            for name in options.rows or ROWS:
                add_row(table, name, nodes)
        finally:
            table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
