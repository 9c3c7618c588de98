"""All benchmarks, one after the other; `./bench` starts it.

Each runs in a process of its own, so that none inherits another's memory, and prints its table.
"""

import subprocess
import sys
from collections.abc import Sequence

SUITES = (
    "benchmarks.bench_protocol",
    "benchmarks.bench_node",
    "benchmarks.bench_beside_kafka",
    "benchmarks.bench_controller",
    "benchmarks.bench_replication",
    "benchmarks.bench_loop",
    "benchmarks.bench_transactions",
    "benchmarks.bench_groups",
    "benchmarks.bench_security",
    "benchmarks.bench_console",
    "benchmarks.bench_zookeeper",
    "benchmarks.bench_ids",
    "benchmarks.bench_spark_source",
    "benchmarks.bench_spark_pipelines",
)

ONLY_NAMED = ("benchmarks.bench_revision", "benchmarks.cores")
"""Compares with an earlier commit; computes, without measuring. They run only if they are named."""

LOOP = "benchmarks.bench_loop"


class UnknownWordError(Exception):
    """A word names neither a suite nor a row of the suite `loop`."""


def short(suite: str) -> str:
    """The name of a suite on the command line."""
    return suite.rpartition(".")[2].removeprefix("bench_")


def chosen(words: Sequence[str]) -> dict[str, list[str]]:
    """The suites that `words` choose, in the order they run, each with the rows to measure.

    A word is a part of a suite's name, or the name of a row of the suite `loop`. All words after
    `loop` are its rows. No rows are listed if all are measured.

    Raises:
        UnknownWordError: a word names nothing.
    """
    if not words:
        return {suite: [] for suite in SUITES}
    end = words.index("loop") if "loop" in words else len(words)
    rows = list(words[end + 1 :])
    suites = {LOOP} if end < len(words) else set()
    for word in words[:end]:
        if named := [suite for suite in (*SUITES, *ONLY_NAMED) if word in short(suite)]:
            suites.update(named)
        elif word in rows_of_loop():
            suites.add(LOOP)
            rows.append(word)
        else:
            raise UnknownWordError(word)
    return {
        suite: rows if suite == LOOP else [] for suite in (*SUITES, *ONLY_NAMED) if suite in suites
    }


def rows_of_loop() -> tuple[str, ...]:
    """Names of the rows of the suite `loop`."""
    from benchmarks.bench_loop import ROWS

    return ("bounds", *ROWS)


def main() -> int:
    """Run the chosen suites, or all; each gets the options, which begin at the first `-`."""
    arguments = sys.argv[1:]
    first = next((at for at, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    words, options = arguments[:first], arguments[first:]
    try:
        suites = chosen(words)
    except UnknownWordError as error:
        print(
            f"bench: no suite and no row of `loop` is called {error}\n"
            f"suites: {', '.join(map(short, (*SUITES, *ONLY_NAMED)))}\n"
            f"rows of `loop`: {', '.join(rows_of_loop())}",
            file=sys.stderr,
        )
        return 2
    failed = []
    for suite, rows in suites.items():
        print(f"\n== {suite}", flush=True)
        command = [sys.executable, "-m", suite, *rows, *options]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(suite)
    if failed:
        print(f"\nA promise was missed, or a benchmark failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
