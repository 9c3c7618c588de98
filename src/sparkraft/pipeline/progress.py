"""Progress of a running query: Spark's reports of its batches, and the lag.

Not here: the files that keep it (`status`, `batch_log`), metrics (`metrics`).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline import json_values
from sparkraft.pipeline import offsets as plan
from sparkraft.pipeline.batch_figures import NOTHING, SetAside
from sparkraft.pipeline.options import Isolation, source_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql.streaming.query import StreamingQuery

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.options import SourceOptions
    from sparkraft.pipeline.spec import Pipeline
    from sparkraft.pipeline.wire import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A finished batch."""

    batch_id: int
    records: int
    seconds: float
    lag: int | None
    """Lag in offsets; None if the end of the topics is unknown."""
    dropped: int
    """Rows dropped by the watermark."""
    damaged: int
    """Records left out because their value does not fit the schema."""
    set_aside: SetAside | None = NOTHING
    """Rows and columns that the sinks left out; None if they run in another process."""
    bytes: int | None = None
    """Of keys and values, in sources whose values or keys have a format; None without any."""
    retries: int | None = None
    """Tasks that failed, which Spark has repeated."""
    lag_seconds: float | None = None
    """Age of the oldest record that is not processed; 0 without any, None if it is unknown."""
    is_batch: bool
    """Whether something was written; a trigger without data bears the next batch's number."""
    end: dict[TopicPartition, int]
    report: Mapping[str, Any] = field(repr=False)
    """Spark's own report."""

    @property
    def records_per_second(self) -> float:
        """How fast it went."""
        return self.records / self.seconds if self.seconds else 0.0

    def figures(self) -> dict[str, Any]:
        """Its fields in the status file."""
        return {
            "batch": self.batch_id,
            "records": self.records,
            "seconds": self.seconds,
            "lag": self.lag,
            "lag_seconds": self.lag_seconds,
            "late": self.dropped,
            "damaged": self.damaged,
            **(self.set_aside._asdict() if self.set_aside else dict.fromkeys(SetAside._fields)),
            "bytes": self.bytes,
            "retries": self.retries,
        }

    def __str__(self) -> str:
        """One line for a person."""
        dropped = f"  {self.dropped} too late" if self.dropped else ""
        damaged = f"  {self.damaged} damaged" if self.damaged else ""
        aside = self.set_aside or NOTHING
        misfits = f"  {aside.misfits} rows do not fit" if aside.misfits else ""
        ignored = f"  {aside.ignored} values ignored" if aside.ignored else ""
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        rate = f"{self.records_per_second:>9,.0f}/s"
        return (
            f"batch {self.batch_id:>4}  {self.records:>9,} records  {rate}  "
            f"lag {lag:>9}  {self.seconds:5.1f} s{dropped}{damaged}{misfits}{ignored}"
        )


def newest(query: StreamingQuery) -> str | None:
    """The time of the newest progress.

    Progress with dead letters is large. So Java is asked for its time alone. A query in a Spark
    Connect server has no Java object, and its progress no dead letters.
    """
    in_java = getattr(query, "_jsq", None)
    if in_java is None:
        last = query.lastProgress
        return None if last is None else str(last["timestamp"])
    progress = in_java.lastProgress()
    return None if progress is None else str(progress.timestamp())


def reports(query: StreamingQuery) -> list[Progress]:
    """Return Spark's progress of recent triggers, oldest first."""
    found = []
    for each in query.recentProgress:
        report = json.loads(each.json) if hasattr(each, "json") else each
        if report.get("sources"):
            found.append(progress_of(report))
    return found


def progress_of(report: dict[str, Any]) -> Progress:
    ends, latest = _all_offsets(report, "endOffset"), _all_offsets(report, "latestOffset")
    states = report.get("stateOperators", ())
    records = report.get("numInputRows")
    if records is None:  # over Spark Connect, progress has it only for each source
        records = sum(source["numInputRows"] for source in report["sources"])
    return Progress(
        batch_id=report["batchId"],
        records=records,
        seconds=report["durationMs"].get("triggerExecution", 0) / 1000,
        lag=_lag(ends, latest),
        dropped=sum(each.get("numRowsDroppedByWatermark", 0) for each in states),
        damaged=json_values.damaged_in(report.get("observedMetrics") or {}),
        bytes=json_values.bytes_in(report.get("observedMetrics") or {}),
        is_batch=bool(records or "commitOffsets" in report["durationMs"]),
        end=ends,
        report=report,
    )


def _all_offsets(report: Mapping[str, Any], name: str) -> dict[TopicPartition, int]:
    return plan.lowest(source.get(name) for source in report["sources"])


def _lag(end: dict[TopicPartition, int], latest: dict[TopicPartition, int]) -> int | None:
    if not end.keys() <= latest.keys():
        return None
    return sum(max(0, latest[each] - offset) for each, offset in end.items())


def with_lag(pipeline: Pipeline, progress: Progress) -> Progress:
    """Add the lag in seconds, and in offsets if Spark has not looked up the end of the topics.

    It does not for a batch that it repeats.
    """
    if pipeline.connector != "sparkraft":
        return progress
    from sparkraft.pipeline.source import Lookup

    if len({source.options["kafka.bootstrap.servers"] for source in pipeline.sources}) > 1:
        return progress
    options = source_options(pipeline.sources[0].options, streaming=True)
    lookup = Lookup(options)
    latest = _all_offsets(progress.report, "latestOffset")
    try:
        if progress.lag is None:
            latest = lookup.latest(sorted(progress.end))
            progress = replace(progress, lag=_lag(progress.end, latest))
        seconds = _lag_seconds(lookup.cluster, options, progress.end, latest)
    except (KafkaError, TimeoutError):
        return progress
    return replace(progress, lag_seconds=seconds)


_AGED_MAX: Final = 100
"""Partitions whose next record is looked at: those with the most offsets to process."""

_SAMPLE_OFFSETS: Final = 100
"""After the end of a batch. The first of them may be a marker of a transaction."""

_SAMPLE_BYTES: Final = 64 << 10
"""Of each partition."""

_PATIENCE_MS: Final = 5_000
"""For the records of all these partitions; they delay only reports, not batches."""


def _lag_seconds(
    cluster: Cluster,
    options: SourceOptions,
    end: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> float | None:
    """The age of the oldest record from `end` on; None if none of them has a record."""
    from sparkraft.pipeline.fetch import RangeReader

    waiting = [each for each in end if latest[each] > end[each]]
    if not waiting:
        return 0.0
    waiting.sort(key=lambda each: end[each] - latest[each])
    client = replace(
        options.client,
        isolation=Isolation.READ_UNCOMMITTED,
        partition_fetch_bytes_max=_SAMPLE_BYTES,
    )
    sample = replace(
        options,
        client=client,
        columns=("topic", "partition", "timestamp"),
        fail_on_data_loss=False,
        no_data_timeout_ms=_PATIENCE_MS,
    )
    few = [
        plan.Range(*each, end[each], min(latest[each], end[each] + _SAMPLE_OFFSETS))
        for each in waiting[:_AGED_MAX]
    ]
    first: dict[TopicPartition, datetime] = {}
    for piece in RangeReader(cluster, few, sample).read():
        place = piece.column("topic")[0].as_py(), piece.column("partition")[0].as_py()
        first.setdefault(place, piece.column("timestamp")[0].as_py())
    if not first:
        return None
    return max(0.0, time.time() - min(first.values()).timestamp())
