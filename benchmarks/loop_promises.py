"""What the rows of `./bench loop` promise of their figures, beside the probe's p99.

Times and CPU are held against a limit, or against Kafka's in the same run; throughput against
a share of Kafka's.
"""

from benchmarks.report import Row

LIMITS = {
    "sessions: cores": 0.2,
    "sessions: probe p50 ms": 1.0,
    "cold: probe p50 ms": 5.0,
    "slow-disk: probe p50 ms": 5.0,
}
"""Figure → the most that is allowed, whatever Kafka's is."""

SHARE = 0.8
"""Of Kafka's throughput, at least; the goal is all of it."""

AT_LEAST = dict.fromkeys(
    (
        "zstd: MB/s",
        "gzip: MB/s",
        "lz4: MB/s",
        "validation: MB/s",
        "cleaner: MB/s",
        "cold: read MB/s",
        "fanout: MB/s in and out",
    ),
    SHARE,
)
"""Figure → the least ratio to Kafka's."""

AT_MOST = {
    "topics: create s": 1.0,
    "topics: delete s": 1.0,
    "commits: OffsetFetch p50 ms": 1.0,
    "fanout: CPU ms/MB": 1 / SHARE,
}
"""Figure → the highest ratio to Kafka's."""


def figure_row(what: str, ours: float, kafka: float | None) -> Row:
    """A figure of ours beside Kafka's, which is None if it was not measured."""
    beside = "" if kafka is None else f"{kafka:.2f}"
    if (limit := LIMITS.get(what)) is not None:
        against = f"limit {limit:g}" + (f"; {beside}" if beside else "")
        return Row(what, f"{ours:.2f}", against, ours / limit, at_most=1)
    least, most = AT_LEAST.get(what), AT_MOST.get(what)
    if least is not None:
        what += " (goal: 1)"
    ratio = ours / kafka if kafka else None
    return Row(what, f"{ours:.2f}", beside, ratio, at_least=least, at_most=most)
