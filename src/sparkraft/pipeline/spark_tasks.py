"""Work of our own in Spark's tasks, and questions to Spark, that also work over Spark Connect.

A Spark Connect session has plans, and neither a SparkContext nor Java objects.
"""

from __future__ import annotations

import pickle
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    Item = TypeVar("Item")
    Result = TypeVar("Result")

_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")
"""Characters of Hadoop's patterns for paths."""

_MADE: Final = "made"

_PAUSE_SECONDS: Final = 1.0
"""Executors of a cluster usually start within a second of each other."""

_PAUSES_MAX: Final = 30
"""Spark itself waits no longer for executors before its first job."""

_SPLITS: Final = re.compile(r"\bRange \(.*\bsplits=(\d+)\)")


def in_tasks(
    spark: SparkSession, work: Callable[[Item], Iterable[Result]], items: Sequence[Item]
) -> list[Result]:
    """Do `work` for each item in a task of its own; return all results, in the items' order."""
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                made = [pickle.dumps(each) for each in work(items[number])]
                yield pa.RecordBatch.from_arrays([pa.array(made, pa.binary())], names=[_MADE])

    # As many partitions as numbers: each task has one.
    rows = spark.range(0, len(items), 1, len(items)).mapInArrow(run, f"{_MADE} BINARY").collect()
    return [pickle.loads(row[_MADE]) for row in rows]


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's context; None over Spark Connect."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs at once, on the executors that it knows by now."""
    context = context_of(spark)
    if context is not None:
        return context.defaultParallelism
    # Spark divides a range into as many partitions as it runs tasks at once. The plan has their
    # number; a job would wait for a core, and the tasks of a killed client may have all of them.
    plan = spark.sql("EXPLAIN SELECT * FROM range(1)").collect()[0][0]
    found = _SPLITS.search(plan)
    assert found is not None, plan
    return int(found[1])


def tasks_of_source(spark: SparkSession) -> int:
    """How many tasks a batch of a source may have by default.

    As many as run at once on the executors that the cluster starts with. If Spark starts more of
    them while tasks wait (dynamic allocation), the number is unlimited: each topic-partition has a
    task of its own.
    """
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return sys.maxsize
    context = context_of(spark)
    if context is not None and not (context.master or "").startswith("local"):
        # Executors start with the application; the first job waits for one of them.
        spark.range(1).count()
        return settled(lambda: parallelism(spark))
    return parallelism(spark)


def settled(count: Callable[[], int], pause: Callable[[float], None] = time.sleep) -> int:
    """A number that has not changed for a second; the last one if it changes for half a minute."""
    last = count()
    for _ in range(_PAUSES_MAX):
        pause(_PAUSE_SECONDS)
        before, last = last, count()
        if last == before:
            break
    return last


def file_exists(spark: SparkSession, path: str) -> bool:
    """Whether Spark's own file system has a file or folder; `path` may be a URI."""
    from pyspark.errors import AnalysisException

    try:
        found: DataFrame = spark.read.format("binaryFile").load(_PATTERN.sub(r"\\\g<0>", path))
        # Over Spark Connect, a plan is not analyzed before its schema is asked for.
        return bool(found.schema)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
