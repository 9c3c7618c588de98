"""Topic `delays` and the Delta table against pandas on the package's data.

Counts must be equal, mean and 95th percentile (exact, linear) equal to 1e-9, and null exactly if
every flight was cancelled.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline import offsets as plan
from sparkraft.pipeline.demo import flights
from sparkraft.pipeline.fetch import RangeReader
from sparkraft.pipeline.options import source_options
from sparkraft.pipeline.places import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.pipeline.wire import Cluster

RESULT_TOPIC: Final = "delays"
TOLERANCE: Final = 1e-9

Key = tuple[str, int]
"""Origin, and the hour in milliseconds since 1970."""

Row = tuple[int, int, float | None, float | None]
"""Flights, cancelled, mean delay, 95th percentile."""

_SHOWN: Final = 5


def expected() -> dict[Key, Row]:
    """Compute the expected result with pandas."""
    table = flights.read()
    table["hour"] = table["scheduled"].dt.floor("h")
    grouped = table.groupby(["origin", "hour"])
    counted = grouped.size()
    cancelled = grouped["dep_time"].apply(lambda each: int(each.isna().sum()))
    mean = grouped["dep_delay"].mean()
    high = grouped["dep_delay"].quantile(0.95)
    rows: dict[Key, Row] = {}
    for key in counted.index:
        origin, hour = key
        delays = (_number(mean[key]), _number(high[key]))
        rows[origin, int(hour.timestamp() * 1000)] = (
            int(counted[key]),
            int(cancelled[key]),
            *delays,
        )
    return rows


def table_rows(path: str) -> dict[Key, Row]:
    """Read the Delta table.

    Not with `to_pyarrow_table`: a thread of pyarrow that reads a file through Python may still run
    when the interpreter ends, and then aborts the process.
    """
    import pyarrow
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("delays", DeltaTable(path)).execute("SELECT * FROM delays")
    rows: dict[Key, Row] = {}
    for each in pyarrow.table(query.read_all()).to_pylist():
        rows[each["origin"], int(each["hour"].timestamp() * 1000)] = _row(each)
    return rows


def topic_rows(cluster: Cluster) -> tuple[dict[Key, Row], int]:
    """The last record of each key in topic `delays`, and the number of repeated records.

    Each record of an hour has more flights than the one before it, unless it is repeated.
    """
    from datetime import datetime

    servers = ",".join(f"{host}:{port}" for host, port in cluster.options.bootstrap_servers)
    options = source_options(
        {
            "kafka.bootstrap.servers": servers,
            "subscribe": RESULT_TOPIC,
            "kafka.isolation.level": "read_committed",
        },
        streaming=False,
    )
    partitions = [(RESULT_TOPIC, p) for p in cluster.topics([RESULT_TOPIC])[RESULT_TOPIC].leaders]
    start = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = cluster.list_offsets(dict.fromkeys(partitions, LATEST), committed_only=True)
    rows: dict[Key, Row] = {}
    repeated = 0
    for piece in RangeReader(cluster, plan.ranges_of(start, end), options).read():
        for text in piece.column("value").to_pylist():
            each = json.loads(text or b"null")
            hour = datetime.fromisoformat(each["hour"])
            key = each["origin"], int(hour.timestamp() * 1000)
            repeated += key in rows and rows[key][0] >= each["flights"]
            rows[key] = _row(each)
    return rows, repeated


def _row(each: Mapping[str, Any]) -> Row:
    return each["flights"], each["cancelled"], each["mean_delay"], each["p95_delay"]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def differences(name: str, found: Mapping[Key, Row], wanted: Mapping[Key, Row]) -> list[str]:
    """Sentences on what differs, the first few of each kind; none if all agree."""
    said = []
    for title, keys in (
        ("lacks", wanted.keys() - found.keys()),
        ("has too much", found.keys() - wanted.keys()),
    ):
        if keys:
            said.append(f"{name} {title} {len(keys)} hours, such as {min(keys)}")
    wrong = [
        key for key in sorted(wanted.keys() & found.keys()) if not _same(found[key], wanted[key])
    ]
    said += [f"{name} at {key}: {found[key]}, pandas: {wanted[key]}" for key in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        said.append(f"{name}: {len(wrong) - _SHOWN} more hours differ")
    return said


def _same(found: Row, wanted: Row) -> bool:
    return found[:2] == wanted[:2] and all(
        (a is None) == (b is None) and (a is None or b is None or abs(a - b) <= TOLERANCE)
        for a, b in zip(found[2:], wanted[2:], strict=True)
    )
