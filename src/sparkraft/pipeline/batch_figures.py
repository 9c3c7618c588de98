"""Figures of a batch that Spark's report does not have: of its sinks and its tasks.

The function of `foreachBatch` notes them while the batch runs, and the thread that follows the
query takes them when Spark reports the batch. A batch that failed within this process is noted
again when it is repeated, so it is counted once.

Spark measures the Python processes of a source's tasks in its own plan, where only the driver's
process finds it, and only until the next batch. Failed tasks are in Spark's status store, which
jobs enter a moment after they began: such a job may be counted with the next batch.

Not here: Spark's own figures (`progress`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


class SetAside(NamedTuple):
    """What a sink left out of a batch.

    Args:
        misfits: rows that do not fit the sink.
        ignored: values of columns that the table does not have.
        dead_letters: records and rows written to `[dead_letter]`.
    """

    misfits: int = 0
    ignored: int = 0
    dead_letters: int = 0

    def plus(self, other: SetAside) -> SetAside:
        """The sum of both."""
        return SetAside(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING: Final = SetAside()


class Work(NamedTuple):
    """What the tasks of a batch did; None for what Spark does not measure.

    Args:
        bytes: of the Arrow data that sources handed to Spark.
        read_ms: time of the sources' Python processes, summed over tasks: for fetching, decoding,
            and waiting until Spark took the rows.
        retries: tasks that failed, which Spark has repeated.
    """

    bytes: int | None = None
    read_ms: int | None = None
    retries: int | None = None


UNMEASURED: Final = Work()


class BatchFigures:
    """The figures of the batches of a query."""

    def __init__(self) -> None:
        self._set_aside: dict[int, dict[int, SetAside]] = {}
        self._work: dict[int, tuple[Work, list[int]]] = {}
        self._known_jobs: set[int] = set()

    def note_set_aside(self, batch: int, part: int, found: SetAside) -> None:
        """Replace what a part of a batch has set aside.

        Args:
            batch: its number.
            part: the position of the sink, or of another writer after the sinks.
            found: all that it set aside.
        """
        self._set_aside.setdefault(batch, {})[part] = found

    def take_set_aside(self, batch: int) -> SetAside:
        """What all sinks set aside of a finished batch; earlier batches are forgotten."""
        found = self._set_aside.get(batch, {}).values()
        _forget(self._set_aside, batch)
        total = NOTHING
        for each in found:
            total = total.plus(each)
        return total

    def note_work(self, batch: int, spark: SparkSession, query_id: str) -> None:
        """Read what Spark has measured of a batch whose sinks are written."""
        context = spark.sparkContext
        group = context.getLocalProperty(_JOB_GROUP)
        jobs = set(context.statusTracker().getJobIdsForGroup(group)) - self._known_jobs
        self._known_jobs |= jobs
        query: Any = spark.streams.get(query_id)
        try:
            plan = query._jsq.streamingQuery().lastExecution().executedPlan()  # noqa: SLF001
            measured = [_measured(plan, name) for name in (_RECEIVED, _RUNNING)]
        except Py4JError as error:
            # Another version of Spark may have other plans. The batch is written all the same.
            log.debug("Batch %d is not measured: %s", batch, error)
            return
        self._work[batch] = Work(*measured), sorted(jobs)

    def take_work(self, batch: int, spark: SparkSession) -> Work:
        """What the tasks of a finished batch did; earlier batches are forgotten."""
        work, jobs = self._work.get(batch, (UNMEASURED, []))
        _forget(self._work, batch)
        if work is UNMEASURED:
            return work
        return work._replace(retries=_failed_tasks(spark, jobs))


_JOB_GROUP: Final = "spark.jobGroup.id"
_RECEIVED: Final = "pythonDataReceived"
_RUNNING: Final = "pythonTotalTime"
"""Names of Spark's metrics of Python data sources (`PythonSQLMetrics`)."""


def _forget(known: dict[int, Any], batch: int) -> None:
    for number in [each for each in known if each <= batch]:
        del known[number]


def _measured(plan: Any, name: str) -> int | None:
    """The sum of a metric over the sources in a plan of Java's."""
    found = [metric.get().value() for metric in _metrics(plan, name) if metric.isDefined()]
    # A metric without a value yet is negative.
    return sum(max(0, each) for each in found) if found else None


def _metrics(plan: Any, name: str) -> Iterator[Any]:
    leaves = plan.collectLeaves()
    for number in range(leaves.size()):
        yield leaves.apply(number).metrics().get(name)


def _failed_tasks(spark: SparkSession, jobs: list[int]) -> int:
    tracker = spark.sparkContext.statusTracker()
    known = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
    stages = {stage for info in known for stage in info.stageIds}
    failed = [tracker.getStageInfo(stage) for stage in sorted(stages)]
    return sum(each.numFailedTasks for each in failed if each is not None)
