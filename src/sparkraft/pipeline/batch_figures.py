"""Figures of a batch that Spark's report does not have: of its sinks and its tasks.

The function of `foreachBatch` notes them while the batch runs, and the thread that follows the
query takes them when Spark reports the batch. A batch that failed within this process is noted
again when it is repeated, so it is counted once.

Failed tasks are in Spark's status store, which jobs enter a moment after they began: such a job may
be counted with the next batch. Spark's metrics of a Python data source are not used: a task adds to
those of earlier tasks in its process, and reports the sum of all batches.

Not here: Spark's own figures (`progress`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SetAside(NamedTuple):
    """Rows and columns that a sink left out of a batch.

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


class BatchFigures:
    """The figures of the batches of a query."""

    def __init__(self) -> None:
        self._set_aside: dict[int, dict[int, SetAside]] = {}
        self._jobs: dict[int, list[int]] = {}
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
        """The sum over all sinks of a finished batch; earlier batches are forgotten."""
        found = self._set_aside.get(batch, {}).values()
        _forget(self._set_aside, batch)
        total = NOTHING
        for each in found:
            total = total.plus(each)
        return total

    def note_jobs(self, batch: int, spark: SparkSession) -> None:
        """Remember the jobs of a batch whose sinks are written, in the thread that wrote them."""
        context = spark.sparkContext
        group = context.getLocalProperty(_JOB_GROUP)
        jobs = set(context.statusTracker().getJobIdsForGroup(group)) - self._known_jobs
        self._known_jobs |= jobs
        self._jobs[batch] = sorted(jobs)

    def take_retries(self, batch: int, spark: SparkSession) -> int | None:
        """Tasks of a finished batch that failed, or None; earlier batches are forgotten."""
        jobs = self._jobs.get(batch)
        _forget(self._jobs, batch)
        return None if jobs is None else _failed_tasks(spark, jobs)


_JOB_GROUP: Final = "spark.jobGroup.id"


def _forget(known: dict[int, Any], batch: int) -> None:
    for number in [each for each in known if each <= batch]:
        del known[number]


def _failed_tasks(spark: SparkSession, jobs: list[int]) -> int:
    tracker = spark.sparkContext.statusTracker()
    known = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
    stages = {stage for info in known for stage in info.stageIds}
    failed = [tracker.getStageInfo(stage) for stage in sorted(stages)]
    return sum(each.numFailedTasks for each in failed if each is not None)
