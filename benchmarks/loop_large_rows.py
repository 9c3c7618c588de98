"""Rows of `./bench loop` with much data: what a light client feels beside it.

fanout        8 producers and 8 consumers of 48 partitions at full speed, 1 KB records
slow-disk     2 consumers read 700 MB that are not in the page cache, from a disk limited to
              125 MB/s and 3,000 reads a second; needs root and the blkio controller of cgroups v1
coordinator   a restarted node loads 1 GB of one partition of `__consumer_offsets`
explain       DescribeHistory over a metadata log of 1,000,000 records; ours alone
snapshot      a controller writes snapshots of 100,000 partitions again and again; ours alone
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.bench_node import ask, batch, create_topic, produce_frames, request
from benchmarks.loop_api_rows import Asking
from benchmarks.loop_more_rows import cold_row, ours_alone
from benchmarks.loop_outcome import (
    ROUNDS,
    SECONDS,
    Load,
    NotMeasuredError,
    Outcome,
    once,
    watched,
)
from benchmarks.measure import BUILD, compiled, cpu_seconds
from benchmarks.probe import Probe
from benchmarks.registered_brokers import RegisteredBrokers
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.protocol.messages.metadata_records import ConfigRecord
from sparkraft.records.record import BatchBuilder
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.raft_log import RaftLog
from tests.support.nodes import NodeProcess, SparkraftNode

PRODUCERS, CONSUMERS, PARTITIONS = 8, 8, 48
BATCH_RECORDS = 16
FAN_WARM_UP_S = (5, 1)
"""Of the first round, and of the others."""

DISK_BYTES_PER_S, DISK_READS_PER_S = 125_000_000, 3_000
SLOW_MEGABYTES = 700
"""More than our nodes map at once."""

BLKIO = Path("/sys/fs/cgroup/blkio")

OFFSETS_MEGABYTES = 1_000
COMMIT_PARTITIONS, COMMIT_METADATA = 100, "m" * 4_000

LOG_RECORDS, LOG_BATCH = 1_000_000, 1_000
NO_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": str(1 << 30)}

SNAPSHOT_PARTITIONS, SNAPSHOT_BROKERS = 100_000, (101, 102, 103)
PARTITIONS_AT_ONCE = 5_000


# ---- fan-out


def fanout(node: NodeProcess, number: int) -> Outcome:
    topic = "fan"
    create_topic(
        node.port, topic, PARTITIONS, segment_bytes=str(16 << 20), retention_bytes=str(64 << 20)
    )
    warm_up_s = FAN_WARM_UP_S[min(number, 1)]
    alike = batch(1024, BATCH_RECORDS)
    frames = BUILD / f"fan-{node.port}.bin"
    BUILD.mkdir(parents=True, exist_ok=True)
    frames.write_bytes(produce_frames(topic, alike, PARTITIONS))
    assert node.process is not None
    pid = node.process.pid
    consumers = _started(
        "fan", node.port, topic, PARTITIONS, CONSUMERS, len(alike), BATCH_RECORDS,
        warm_up_s, SECONDS,
    )  # fmt: skip
    producers = _started("load", node.port, frames, PRODUCERS, 1, warm_up_s + SECONDS)
    time.sleep(warm_up_s)
    cpu = cpu_seconds(pid)
    latencies = Probe(node.port, "probe", SECONDS).latencies()
    used = (cpu_seconds(pid) - cpu) / SECONDS
    consumed, produced = (
        json.loads(one.communicate(timeout=60)[0]) for one in (consumers, producers)
    )
    into = produced["bytes_out"] / produced["seconds"] / 1e6
    out = consumed["bytes"] / consumed["seconds"] / 1e6
    return Outcome(
        latencies,
        {
            "MB/s in and out": into + out,
            "MB/s in": into,
            "MB/s out": out,
            "produce p99 ms": produced["p99_us"] / 1000,
            "KB per Fetch": consumed["bytes"] / 1000 / consumed["fetches"],
            "CPU ms/MB": used * 1000 / (into + out),
            "CPU of the consumers, cores": consumed["cpu_seconds"] / consumed["seconds"],
        },
    )


def _started(program: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [str(compiled(program)), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# ---- a slow disk


@contextmanager
def slow_disk(node: NodeProcess) -> Iterator[None]:
    """Limit the reads of a node's process from the device of its log directory.

    Raises:
        NotMeasuredError: this machine cannot limit a disk.
    """
    assert node.process is not None
    group = BLKIO / f"bench-{node.port}"
    try:
        _limit(group, os.stat(node.log_dir).st_dev)
        (group / "cgroup.procs").write_text(str(node.process.pid))
    except OSError as error:
        with suppress(FileNotFoundError):
            group.rmdir()
        reason = f"only root can limit a disk, by the cgroups in {BLKIO}: {error}"
        raise NotMeasuredError(reason) from error
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended
            (BLKIO / "cgroup.procs").write_text(str(node.process.pid))
        group.rmdir()


def _limit(group: Path, device: int) -> None:
    """Create a group of processes that read slowly from this device."""
    group.mkdir()
    name = f"{os.major(device)}:{os.minor(device)}"
    (group / "blkio.throttle.read_bps_device").write_text(f"{name} {DISK_BYTES_PER_S}")
    (group / "blkio.throttle.read_iops_device").write_text(f"{name} {DISK_READS_PER_S}")


_read_slowly = cold_row("slow", SLOW_MEGABYTES, slow_disk)


def slow_disk_row(node: NodeProcess, number: int) -> Outcome | list[Outcome]:
    with slow_disk(node):
        pass  # if it cannot be limited, nothing is written
    return _read_slowly(node, number)


# ---- a coordinator that loads


def commit_frame(first: int) -> bytes:
    """Commits of a group, with as much metadata as is allowed."""
    parts = [
        k08.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=first, committed_metadata=COMMIT_METADATA
        )
        for index in range(COMMIT_PARTITIONS)
    ]
    topic = k08.OffsetCommitRequestTopic(name="loaded", partitions=parts)
    message = k08.OffsetCommitRequest(group_id="loaded", topics=[topic])
    return request(ApiKey.OFFSET_COMMIT, 8, message)


def _fill_offsets(node: NodeProcess) -> None:
    create_topic(node.port, "loaded", COMMIT_PARTITIONS)
    _until_found(node)
    frame = commit_frame(1)
    count = OFFSETS_MEGABYTES * 1_000_000 // len(frame)
    with Asking(node.port, [frame], 4) as asking:
        while asking.answers < count:
            time.sleep(0.05)


_offsets_filled = once(_fill_offsets)


def coordinator(node: NodeProcess, _number: int) -> Outcome:
    _offsets_filled(node)
    node.stop()
    node.start()
    begun = time.monotonic()
    create_topic(node.port, "probe", 1)  # returns when the restarted broker leads it
    return watched(node, lambda: _while_it_loads(node, begun))


def _while_it_loads(node: NodeProcess, begun: float) -> Outcome:
    with ThreadPoolExecutor(1) as pool:
        loaded = pool.submit(_until_found, node)
        latencies = Probe(node.port, "probe", 2).latencies()
        while not loaded.done():
            latencies += Probe(node.port, "probe", 2).latencies()
        return Outcome(latencies, {"loaded s": loaded.result() - begun})


def _until_found(node: NodeProcess) -> float:
    """Wait until the group's offsets can be fetched; when that was."""
    group = k09.OffsetFetchRequestGroup(group_id="loaded", topics=None)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        key = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["loaded"])
        ask(node.port, ApiKey.FIND_COORDINATOR, 4, key)
        _, answer = ask(node.port, ApiKey.OFFSET_FETCH, 8, k09.OffsetFetchRequest(groups=[group]))
        if answer.groups[0].error_code == 0:
            return time.monotonic()
        time.sleep(0.1)
    raise AssertionError("the coordinator has not loaded its partition after 120 s")


# ---- a long metadata log


def explain(_node: NodeProcess, _number: int) -> list[Outcome]:
    """On a node of its own, whose log is made longer while it is stopped."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkraftNode(Path(folder), overrides=NO_SNAPSHOTS) as node,
    ):
        create_topic(node.port, "probe", 1)
        node.stop()
        _lengthen(node.log_dir)
        node.start()
        create_topic(node.port, "probe", 1)
        history = k10002.DescribeHistoryRequest(
            topics=[k10002.HistoryTopic(name="probe")], events_max=1_000, whole_log=True
        )
        frame = request(ApiKey.DESCRIBE_HISTORY, 0, history)
        return [watched(node, lambda: _beside_asking(node.port, frame)) for _ in range(ROUNDS)]


def _lengthen(log_dir: Path) -> None:
    """Append changes of one config to the metadata log of a stopped node."""
    disk = OsDisk()
    log = RaftLog.open(disk, str(log_dir), clock=SystemClock(), entropy=SystemEntropy())
    epoch, _ = log.epochs[-1]
    for _ in range(LOG_RECORDS // LOG_BATCH):
        builder = BatchBuilder(base_offset=log.end, leader_epoch=epoch)
        for number in range(LOG_BATCH):
            changed = ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name="probe", name="retention.ms",
                value=str(1_000_000_000 + number),
            )  # fmt: skip
            value = encode_metadata_record(changed, 0)
            builder.append(int(time.time() * 1000), None, value)
        log.append(builder.build())
    log.flush(log.end)
    disk.close()


def _beside_asking(port: int, frame: bytes) -> Outcome:
    with Asking(port, [frame], 1) as asking:
        latencies: list[float] = []
        begun = time.monotonic()
        while len(latencies) < 100 * SECONDS or not asking.answers:
            latencies += Probe(port, "probe", 2).latencies()
        answers = asking.answers / (time.monotonic() - begun)
    return Outcome(latencies, {"answers/s": answers})


def snapshot(_node: NodeProcess, _number: int) -> list[Outcome]:
    """On a node of its own, whose topics are on brokers without replicas."""
    overrides = {
        "metadata.log.max.snapshot.interval.ms": "500",
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkraftNode(Path(folder), overrides=overrides) as node,
    ):
        create_topic(node.port, "probe", 1)
        create_topic(node.port, "changed", 1)
        with RegisteredBrokers([node.controller_port], SNAPSHOT_BROKERS):
            for number in range(SNAPSHOT_PARTITIONS // PARTITIONS_AT_ONCE):
                _create_elsewhere(node.port, f"elsewhere-{number}", PARTITIONS_AT_ONCE)
            change = k44.IncrementalAlterConfigsRequest(
                resources=[
                    k44.AlterConfigsResource(
                        resource_type=2,
                        resource_name="changed",
                        configs=[
                            k44.AlterableConfig(
                                name="retention.ms", config_operation=0, value="1000000"
                            )
                        ],
                    )
                ]
            )
            frame = request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, change)
            folder_of = next(Path(folder).rglob("__cluster_metadata-0"))

            def measure() -> Outcome:
                before = _snapshots(folder_of)
                outcome = _beside_asking(node.port, frame)
                outcome.figures = {"snapshots": float(len(_snapshots(folder_of) - before))}
                return outcome

            return [watched(node, measure) for _ in range(ROUNDS)]


def _snapshots(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.checkpoint")}


def _create_elsewhere(port: int, name: str, count: int) -> None:
    assignments = [
        k19.CreatableReplicaAssignment(
            partition_index=index, broker_ids=[SNAPSHOT_BROKERS[index % len(SNAPSHOT_BROKERS)]]
        )
        for index in range(count)
    ]
    topic = k19.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    message = k19.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    _, answer = ask(port, ApiKey.CREATE_TOPICS, 7, message)
    assert answer.topics[0].error_code == 0, answer


LARGE_ROWS: dict[str, Load] = {
    "fanout": fanout,
    "slow-disk": slow_disk_row,
    "coordinator": coordinator,
    "explain": ours_alone(explain),
    "snapshot": ours_alone(snapshot),
}
