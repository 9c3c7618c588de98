"""`./bench cores`: what more cores would change, computed from the published CPU time per MB.

One node of ours serves its clients on one thread, whatever the machine has; Kafka's node uses every
core. The server's CPU time per MB therefore bounds both: ours at 1 s of CPU time a second, Kafka's
at one per core. Topics whose records are compressed keep further threads of ours busy. Nothing here
is measured on such a machine. Locks, disks, the network and clients are left out, so real figures
are lower, and all CPU time of our process counts as that of its busy threads.

The times are read from the table "Compared with Apache Kafka" in docs/PERFORMANCE.md and from the
results in decisions 0019 and 0020. A test compares the page with what this command prints.
"""

import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import ROOT
from sparkraft.server.env import record_thread_count

CORES = (4, 8, 16)
NODES = {4: 3, 8: 5, 16: 5}
"""Cores → nodes of `up --nodes`, which starts 1, 3 or 5; at most one per core."""

DOCS = ROOT / "docs"
HEAD = "| load | | " + " | ".join(f"{cores} cores" for cores in CORES) + " |"
RULE = "|---" * (2 + len(CORES)) + "|"

NEXT_STEP = (
    "The next step is serving processes that share the port of one node "
    "([decision 0019](decisions/0019-fan-out.md)). They are not built."
)

_ROW = re.compile(
    r"\|\s+server CPU, (?P<load>[^|]+?) \| (?P<ours>[\d.]+) ms/MB \| (?P<kafka>[\d.]+)"
)
_DECIDED = re.compile(
    r"\| (?:(?P<load>[^|:]+): )?CPU ms/MB \| (?P<ours>[\d., ]+) \| (?P<kafka>[\d., ]+) \|"
)
FAN_OUT = "8 producers and 8 consumers"
COMPRESSED = ("zstd", "gzip", "lz4")


class Cost(NamedTuple):
    """CPU time of the server under a load, in ms per MB."""

    load: str
    ours: float
    kafka: float

    def threads(self, cores: int) -> int:
        """Busy threads of one node of ours: the event loop, and those that compress."""
        compressing = record_thread_count(cores) if self.load in COMPRESSED else 0
        return min(1 + compressing, cores)

    @property
    def reads(self) -> bool:
        """Whether most of its bytes are sent to consumers."""
        return self.load.startswith("consume") or self.load == FAN_OUT


def published(docs: Path = DOCS) -> list[Cost]:
    """The costs in the documents, in their order; the mean of those of several runs."""
    return [
        *_found(_ROW, docs / "PERFORMANCE.md"),
        *_found(_DECIDED, docs / "decisions" / "0019-fan-out.md"),
        *_found(_DECIDED, docs / "decisions" / "0020-records-that-need-work.md"),
    ]


def _found(rows: re.Pattern[str], page: Path) -> Iterator[Cost]:
    for found in rows.finditer(page.read_text()):
        ours, kafka = (
            round(statistics.mean(map(float, found[who].split(", "))), 3)
            for who in ("ours", "kafka")
        )
        yield Cost(found["load"] or FAN_OUT, ours, kafka)


def computed(value: str, formula: str) -> str:
    """A cell."""
    return f"{value} (computed: {formula})"


def speed(threads: int, cost: float) -> str:
    """Throughput of so many threads."""
    times = f"{threads} x " if threads > 1 else ""
    return computed(f"{threads * 1000 / cost:,.0f} MB/s", f"{times}1,000 / {cost:g}")


def rows_of(cost: Cost) -> Iterator[list[str]]:
    """Lines of the table about one load."""

    def line(first: str, what: str, cell: Callable[[int], str]) -> list[str]:
        return [first, what, *map(cell, CORES)]

    def of_nodes(cores: int) -> str:
        return speed(min(NODES[cores] * cost.threads(cores), cores), cost.ours)

    def with_workers(cores: int) -> str:
        return speed(cores - 1 if cost.reads else cost.threads(cores), cost.ours)

    def ratio(cores: int) -> str:
        threads = cost.threads(cores)
        own = f"{threads} x {cost.kafka:g}" if threads > 1 else f"{cost.kafka:g}"
        value = threads * cost.kafka / cost.ours / cores
        return computed(f"{value:.2f}", f"{own} / ({cores} x {cost.ours:g})")

    def equal(cores: int) -> str:
        threads = cost.threads(cores)
        own = f"({threads} x {cost.kafka:g})" if threads > 1 else f"{cost.kafka:g}"
        value = cores * cost.ours / cost.kafka / threads
        return computed(f"{value:.1f}", f"{cores} x {cost.ours:g} / {own}")

    yield line(cost.load, "one node of ours", lambda n: speed(cost.threads(n), cost.ours))
    yield line("", f"`up --nodes N`, N = {', '.join(map(str, NODES.values()))}", of_nodes)
    yield line("", "one node with fetch workers (not built)", with_workers)
    yield line("", "one node of Kafka", lambda n: speed(n, cost.kafka))
    yield line("", "ratio of one node to Kafka's", ratio)
    yield line("", "our nodes that equal it", equal)


def table(costs: list[Cost]) -> list[str]:
    """The table's lines."""
    lines = [HEAD, RULE]
    for cost in costs:
        lines += ["| " + " | ".join(cells) + " |" for cells in rows_of(cost)]
    return lines


def main() -> int:
    """Print the table."""
    costs = published()
    assert costs, f"{DOCS} has no CPU times per MB"
    print("\n".join([*table(costs), "", NEXT_STEP]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
