"""More rows of `./bench spark_pipelines`: `--check`, and copies beside other Python programs."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks import topic_copy
from benchmarks.bench_spark_source import fill
from benchmarks.measure import BUILD
from benchmarks.report import Row
from tests.support.mistakes import MISTAKES, file_with, needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.bench_spark_pipelines import Bench

CHECK_SECONDS = {False: 2.0, True: 10.0}
"""What `--check` may take until it has found a mistake, without Spark and with it."""

CHECKED_WITH_SPARK = 3
"""Of the mistakes that need Spark, which starts for each of them."""


def check(bench: Bench) -> None:
    """`pipeline run FILE --check` as a process for each mistake of tests/pipeline/mistakes.toml."""
    fill(bench.node.bootstrap, "checked", 100, "none", 0)
    for with_spark, limit in CHECK_SECONDS.items():
        chosen = [each for each in MISTAKES if needs_spark(each) is with_spark]
        if with_spark:
            chosen = chosen[:CHECKED_WITH_SPARK]
        found = {each["what"]: _seconds(bench, each) for each in chosen}
        slowest = max(found, key=lambda what: found[what])
        bench.table.add(
            Row(
                f"`--check` of {len(found)} mistakes found {'with' if with_spark else 'without'} "
                f"Spark, the slowest process ({slowest})",
                f"{found[slowest]:.2f} s",
                f"{limit:.0f} s",
                found[slowest] / limit,
                at_most=1.0,
            )
        )


def _seconds(bench: Bench, mistake: dict[str, Any]) -> float:
    folder: Path = bench.folder / "check" / re.sub(r"\W+", "-", mistake["what"])
    folder.mkdir(parents=True)
    file = folder / "n.toml"
    file.write_text(file_with(mistake, folder))
    command = [sys.executable, "-m", "sparkraft.cli.main", "pipeline", "run", str(file), "--check"]
    command += ["--set", f"bootstrap={bench.node.bootstrap}"]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    seconds = time.perf_counter() - begun
    # The command puts the name of the file before the message.
    message = mistake["message"].removeprefix("^")
    assert re.search(message, done.stderr, re.MULTILINE), (mistake["what"], done.stderr)
    return seconds


COPY_ROWS = 400_000
COPY_BATCHES = 5
QUIX_RECORDS_MAX = 200_000
"""Its rate does not depend on the number, and it takes longer for each."""

QUIX_PYTHON = BUILD / "quixstreams" / "bin" / "python"
"""An environment of its own: quixstreams needs another version of confluent-kafka."""

QUIX_MISSING = (
    "not installed: `python -m venv .cache/bench/quixstreams`, then "
    "`.cache/bench/quixstreams/bin/pip install -r requirements/bench.txt`"
)


def copies(bench: Bench) -> None:
    """A topic copied to another one: rates and memory of Spark and of programs without it."""
    rows = int(COPY_ROWS * bench.scale)
    total = rows * COPY_BATCHES
    fill(bench.node.bootstrap, "copied", 100, "lz4", total)
    with Memory(bench.spark) as memory:
        batches = _copied_by_spark(bench, rows)
    ours = rows / statistics.median(batches)
    plain = _copied_by(Path(sys.executable), bench, "confluent", total)
    quix = None
    if QUIX_PYTHON.exists():
        quix = _copied_by(QUIX_PYTHON, bench, "quixstreams", min(total, QUIX_RECORDS_MAX))
    what = f"topic to topic, records of 100 B, lz4, at-least-once, batches of {rows:,}"
    for name, found in (("a confluent-kafka loop", plain), ("quixstreams", quix)):
        rate = None if found is None else found["records"] / found["seconds"]
        bench.table.add(
            Row(
                f"{what}; beside {name} in one process",
                f"{ours:,.0f} records/s on two cores",
                f"{name} {QUIX_MISSING if rate is None else f'{rate:,.0f} records/s'}",
                None if rate is None else ours / rate,
            )
        )
    others = [f"confluent-kafka loop {plain['mib']:,.0f} MiB"]
    if quix is not None:
        others.append(f"quixstreams {quix['mib']:,.0f} MiB")
    bench.table.add(
        Row(
            "memory of the same copy: Spark's JVM and all Python processes, most at a time (PSS)",
            f"{memory.peak_mib:,.0f} MiB, of which the JVM {memory.jvm_mib:,.0f} MiB",
            ", ".join(others),
            None,
        )
    )


def _copied_by_spark(bench: Bench, rows: int) -> list[float]:
    """Seconds of the batches but the first, which starts Python processes."""
    fill(bench.node.bootstrap, "copy-spark", 100, "none", 0)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    read = bench.spark.readStream.format("sparkraft").options(
        **bench.servers(), subscribe="copied", **limits
    )
    query = (
        read.load()
        .select("key", "value")
        .writeStream.format("sparkraft")
        .options(**bench.servers(), topic="copy-spark")
        .option("checkpointLocation", str(bench.folder / "copy-spark"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert query.exception() is None
    done = [each for each in query.recentProgress if each.numInputRows]
    return [each.durationMs["triggerExecution"] / 1000 for each in done[1:]]


def _copied_by(python: Path, bench: Bench, kind: str, count: int) -> dict[str, float]:
    """What `topic_copy` prints, as a process of a Python."""
    target = f"copy-{kind}"
    fill(bench.node.bootstrap, target, 100, "none", 0)
    command = [str(python), topic_copy.__file__, kind, bench.node.bootstrap, "copied", target]
    done = subprocess.run(
        [*command, str(count)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert found["records"] == count
    return found


class Memory:
    """The largest memory of Spark on this machine during a block, shared pages counted once."""

    PAUSE_S = 0.5

    def __init__(self, spark: SparkSession) -> None:
        """Find Spark's JVM."""
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._jvm = int(gateway.proc.pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_mib = 0.0
        self.jvm_mib = 0.0

    def __enter__(self) -> Self:
        """Start to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self.PAUSE_S):
            found = {pid: _pss_mib(pid) for pid in (os.getpid(), *_descendants(self._jvm))}
            if sum(found.values()) > self.peak_mib:
                self.peak_mib, self.jvm_mib = sum(found.values()), found.get(self._jvm, 0.0)


def _pss_mib(pid: int) -> float:
    """Memory of a process with its share of shared pages; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _descendants(root: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = [root]
    for each in found:
        found += children.get(each, [])
    return found
