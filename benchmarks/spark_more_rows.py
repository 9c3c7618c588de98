"""More rows of `./bench spark_pipelines`: what `--check` takes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.bench_spark_source import fill
from benchmarks.report import Row
from tests.support.mistakes import MISTAKES, file_with, needs_spark

if TYPE_CHECKING:
    from pathlib import Path

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
