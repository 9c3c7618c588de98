"""All benchmarks, one after the other; `./bench` starts it.

Each runs in a process of its own, so that none inherits another's memory, and prints its table.
"""

import subprocess
import sys

SUITES = (
    "benchmarks.bench_protocol",
    "benchmarks.bench_node",
    "benchmarks.bench_beside_kafka",
    "benchmarks.bench_spark_source",
)


def main() -> int:
    """Run the suites whose names hold one of the arguments, or all of them."""
    wanted = [name for name in SUITES if not sys.argv[1:] or any(a in name for a in sys.argv[1:])]
    failed = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", name], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"\nA promise was missed, or a benchmark failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
