"""`./bench cores`: what more cores would change, computed from the published CPU time per MB.

One node of ours serves its clients on one thread, whatever the machine has; Kafka's node uses every
core. The server's CPU time per MB therefore bounds both: ours at 1 s of CPU time a second, Kafka's
at one per core. Nothing here is measured on such a machine. Locks, disks, the network and clients
are left out, so real figures are lower, and all CPU time of our process counts as the loop's.

The times are read from the table "Compared with Apache Kafka" in docs/PERFORMANCE.md, which a test
compares with what this command prints.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import ROOT

CORES = (4, 8, 16)
PAGE = ROOT / "docs" / "PERFORMANCE.md"
HEAD = "| load | | " + " | ".join(f"{cores} cores" for cores in CORES) + " |"
RULE = "|---" * (2 + len(CORES)) + "|"

_ROW = re.compile(
    r"\|\s+server CPU, (?P<load>[^|]+?) \| (?P<ours>[\d.]+) ms/MB \| (?P<kafka>[\d.]+)"
)


class Cost(NamedTuple):
    """CPU time of the server under a load, in ms per MB."""

    load: str
    ours: float
    kafka: float


def published(page: Path = PAGE) -> list[Cost]:
    """The costs on the page, in its order."""
    return [
        Cost(found["load"], float(found["ours"]), float(found["kafka"]))
        for found in _ROW.finditer(page.read_text())
    ]


def computed(value: str, formula: str) -> str:
    """A cell."""
    return f"{value} (computed: {formula})"


def rows_of(cost: Cost) -> Iterator[list[str]]:
    """Lines of the table about one load."""
    ours, kafka = cost.ours, cost.kafka
    alone = computed(f"{1000 / ours:,.0f} MB/s", f"1,000 / {ours}")
    yield [cost.load, "one node of ours", *[alone] * len(CORES)]
    yield [
        "",
        "one node of Kafka",
        *(computed(f"{n * 1000 / kafka:,.0f} MB/s", f"{n} x 1,000 / {kafka}") for n in CORES),
    ]
    yield [
        "",
        "ratio",
        *(computed(f"{kafka / ours / n:.2f}", f"{kafka} / ({n} x {ours})") for n in CORES),
    ]
    yield [
        "",
        "our nodes that equal it",
        *(computed(f"{n * ours / kafka:.1f}", f"{n} x {ours} / {kafka}") for n in CORES),
    ]


def table(costs: list[Cost]) -> list[str]:
    """The table's lines."""
    lines = [HEAD, RULE]
    for cost in costs:
        lines += ["| " + " | ".join(cells) + " |" for cells in rows_of(cost)]
    return lines


def main() -> int:
    """Print the table."""
    costs = published()
    assert costs, f"{PAGE} has no CPU times per MB"
    print("\n".join(table(costs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
