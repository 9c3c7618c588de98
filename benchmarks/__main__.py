"""All benchmarks, one after the other; `./bench` starts it.

Each runs in a process of its own, so that none inherits another's memory, and prints its table.
"""

import subprocess
import sys

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


def main() -> int:
    """Run the suites whose names hold one of the words, or all of them; each gets the options."""
    arguments = sys.argv[1:]
    first = next((at for at, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    words, options = arguments[:first], arguments[first:]
    if words[:1] == ["loop"]:  # what follows names its rows
        words, options = ["loop"], [*words[1:], *options]
    asked = [name for name in (*SUITES, *ONLY_NAMED) if any(word in name for word in words)]
    wanted = asked if words else list(SUITES)
    failed = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", name, *options], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"\nA promise was missed, or a benchmark failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
