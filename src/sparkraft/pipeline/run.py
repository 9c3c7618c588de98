"""A running pipeline: the query of a pipeline file, its progress, its end.

Invariants:
    * One process at a time works on a checkpoint; a second one is refused.

Not here: the file (`spec`), progress (`progress`), the group (`lag_group`), the session
(`session`), the sinks (`sinks`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import InputError
from sparkraft.pipeline import (
    backfill,
    batch_log,
    cases,
    connect,
    connect_batches,
    json_values,
    sinks,
    status,
)
from sparkraft.pipeline import check as checks
from sparkraft.pipeline.batch_figures import BatchFigures
from sparkraft.pipeline.exactly_once import Committer
from sparkraft.pipeline.lag_group import LagGroup, is_one_cluster
from sparkraft.pipeline.metrics import PipelineMetrics
from sparkraft.pipeline.options import sink_options, source_options
from sparkraft.pipeline.places import OptionError
from sparkraft.pipeline.progress import Progress, newest, reports, with_lag
from sparkraft.pipeline.query import result as result_of
from sparkraft.pipeline.session import NoJava, check_java, session
from sparkraft.pipeline.worker_python import ship_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sparkraft.pipeline.options import SourceOptions
    from sparkraft.pipeline.spec import Pipeline

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25

_KEPT_PROGRESS: Final = "spark.sql.streaming.numRecentProgressUpdates"


class PipelineError(RuntimeError):
    """A pipeline failed; the message gives the reason in a sentence or two."""


def run(
    pipeline: Pipeline,
    *,
    on_progress: Callable[[Progress], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run until the query ends or `should_stop`; `PipelineError` if it fails.

    Args:
        pipeline: the pipeline to run.
        on_progress: called after each batch that Spark has committed, in this thread.
        should_stop: polled several times a second.
    """
    check(pipeline)
    checkpoint = pipeline.checkpoint

    metrics = PipelineMetrics(pipeline.name)
    topic_log = _topic_log(pipeline)
    # A server of Spark Connect runs the sinks in a process of its own.
    figures = None if connect.is_connect(pipeline.master) else BatchFigures()

    def report(progress: Progress) -> None:
        progress = _with_figures(progress, figures, spark)
        status.write(checkpoint, **progress.figures())
        if progress.is_batch:
            document = batch_log.document(pipeline.name, progress)
            batch_log.append(checkpoint, document)
            if topic_log is not None:
                topic_log.append(document)
        metrics.observe(progress)
        on_progress(progress)

    with alone(checkpoint) as work, _state_kept(pipeline), _served(metrics, pipeline):
        spark = start_spark(pipeline, work)
        try:
            _check_shared(pipeline, spark)
            group = _lag_group(pipeline, spark)
            while _waited_for_resume(checkpoint, should_stop):
                status.write(checkpoint, state="running")
                query = _started(pipeline, spark, group, figures)
                _follow(
                    query,
                    pipeline,
                    report,
                    lambda: should_stop() or status.is_paused(checkpoint),
                    group,
                )
                if not status.is_paused(checkpoint):
                    break
        finally:
            spark.stop()


def _with_figures(
    progress: Progress, figures: BatchFigures | None, spark: SparkSession
) -> Progress:
    """Add what this process knows of a batch; it knows nothing over Spark Connect."""
    if figures is None:
        return replace(progress, set_aside=None)
    if not progress.is_batch:
        return progress
    number = progress.batch_id
    return replace(
        progress,
        set_aside=figures.take_set_aside(number),
        retries=figures.take_retries(number, spark),
    )


def _check_shared(pipeline: Pipeline, spark: SparkSession) -> None:
    if not connect.is_connect(pipeline.master):
        return
    tables = [sink.path for sink in (*pipeline.sinks, pipeline.dead_letter) if sink and sink.path]
    for path in (pipeline.checkpoint, *tables):
        connect.check_shared(spark, path)


def _topic_log(pipeline: Pipeline) -> batch_log.TopicLog | None:
    if not pipeline.batches_topic:
        return None
    client = source_options(pipeline.sources[0].options, streaming=True).client
    return batch_log.TopicLog(client, pipeline.batches_topic)


@contextmanager
def _served(metrics: PipelineMetrics, pipeline: Pipeline) -> Iterator[None]:
    """Serve the metrics if the file names an address."""
    if not pipeline.metrics:
        yield
        return
    with metrics.served(pipeline.metrics) as port:
        status.write(pipeline.checkpoint, metrics_port=port)
        yield


@contextmanager
def _state_kept(pipeline: Pipeline) -> Iterator[None]:
    """Keep the state of this process in the status file."""
    checkpoint = pipeline.checkpoint
    status.write(
        checkpoint, name=pipeline.name, state="starting", pid=os.getpid(),
        master=connect.shown(pipeline.master), error=None,
    )  # fmt: skip
    try:
        yield
    except BaseException as error:
        status.write(checkpoint, state="failed", error=str(error))
        raise
    status.write(checkpoint, state="stopped")


def _waited_for_resume(checkpoint: str, should_stop: Callable[[], bool]) -> bool:
    """Wait while the pipeline is paused; whether it is to run then."""
    if status.is_paused(checkpoint):
        status.write(checkpoint, state="paused")
    while status.is_paused(checkpoint) and not should_stop():
        time.sleep(_LOOK_SECONDS)
    return not should_stop()


def start_spark(pipeline: Pipeline, work: Path) -> SparkSession:
    if connect.is_connect(pipeline.master):
        return _connected(pipeline)
    log = work.with_suffix(".log")
    said_before = log.stat().st_size if log.exists() else 0
    # Progress contains the dead letters of its batch.
    kept = {_KEPT_PROGRESS: "10"} if pipeline.dead_letter else {}
    settings = kept | dict(pipeline.spark)
    try:
        return session(pipeline.name, master=pipeline.master, work=work, log=log, settings=settings)
    except NoJava:
        raise
    except Exception as error:
        # If Java itself exited, pyspark knows nothing else; the log has its output.
        why = _last_words(log, said_before) or cause_of(error)
        told = f"Spark did not start on {pipeline.master}: {why} (more in {log})"
        raise PipelineError(told) from error


def _connected(pipeline: Pipeline) -> SparkSession:
    try:
        return connect.session(master=pipeline.master, settings=pipeline.spark)
    except InputError:
        raise
    except Exception as error:
        master = connect.shown(pipeline.master)
        raise PipelineError(f"Spark Connect server {master}: {cause_of(error)}") from error


_JAVA_ERROR: Final = re.compile(
    r"^(?:Exception in thread \S+ |Caused by: |Error: )(.+)$", re.MULTILINE
)


def _last_words(log: Path, since: int) -> str | None:
    """The first error that Java printed after byte `since`."""
    printed = log.read_bytes()[since:] if log.exists() else b""
    found = _JAVA_ERROR.search(printed.decode(errors="replace"))
    return found[1].strip() if found else None


def check(pipeline: Pipeline) -> None:
    """Find what is wrong before Spark is started: options, topics, paths, functions, Java."""
    if connect.is_connect(pipeline.master):
        connect.check(pipeline)
    else:
        check_java()
    checks.before_spark(pipeline)


def check_with_spark(pipeline: Pipeline) -> list[str]:
    """Find what else is wrong, without reading records: the schema, SQL, key columns.

    Return notes about what may be wrong.

    Spark runs on this machine for it, unless the pipeline's master is a Spark Connect server.
    """
    check(pipeline)
    master = pipeline.master if connect.is_connect(pipeline.master) else "local[1]"
    with _scratch_spark(pipeline, master) as spark:
        chosen = replace(pipeline, master=master)
        _check_shared(chosen, spark)
        return checks.notes(chosen, _planned(chosen, spark).schema)


def test(pipeline: Pipeline) -> Iterator[tuple[str, str | None]]:
    """Run the tests of a pipeline file on this machine: each one's name and what differs."""
    check_java()
    with _scratch_spark(pipeline, "local[1]") as spark:
        for case in pipeline.cases:
            yield case.name, cases.failure(pipeline, case, spark, cause_of)


def run_backfill(pipeline: Pipeline, *, start_ms: int, end_ms: int) -> int:
    """Process the records of a past time; return their number. See `backfill`."""
    backfill.check(pipeline)
    check(pipeline)
    with _scratch_spark(pipeline, pipeline.master) as spark:
        try:
            return backfill.run(pipeline, spark, start_ms=start_ms, end_ms=end_ms)
        except (OptionError, InputError):
            raise
        except Exception as error:
            raise PipelineError(cause_of(error)) from error


@contextmanager
def _scratch_spark(pipeline: Pipeline, master: str) -> Iterator[SparkSession]:
    """A session without files that remain, which does not lock the checkpoint."""
    with tempfile.TemporaryDirectory(prefix="sparkraft-") as folder:
        spark = start_spark(replace(pipeline, master=master), Path(folder) / "work")
        try:
            yield spark
        finally:
            spark.stop()


def _planned(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """The result that the sinks receive; Spark has analyzed it."""
    try:
        result = result_of(pipeline, spark)
        checks.check_keys(pipeline, result.columns)
    except (OptionError, InputError):
        raise
    except Exception as error:
        raise PipelineError(cause_of(error)) from error
    return result


def _started(
    pipeline: Pipeline,
    spark: SparkSession,
    group: LagGroup | None = None,
    figures: BatchFigures | None = None,
) -> StreamingQuery:
    result = _planned(pipeline, spark)
    for sink in pipeline.sinks:
        ship_functions(sink.function, pipeline.folder, spark)
    try:
        for note in checks.collected(pipeline, result.columns):
            log.warning("%s", note)
        writer = result.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
        writer = writer.option("checkpointLocation", pipeline.checkpoint)
        writer = _triggered(writer, pipeline.trigger)
        query: StreamingQuery = (
            connect_batches.started(writer.foreachBatch(connect_batches.on_server(pipeline, spark)))
            if connect.is_connect(pipeline.master)
            else writer.foreachBatch(sinks.build(pipeline, spark, group, figures)).start()
        )
    except (OptionError, InputError):
        raise
    except Exception as error:
        raise PipelineError(cause_of(error)) from error
    return query


def _triggered(writer: Any, trigger: str) -> Any:
    if checks.is_available_now(trigger):
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger)


def _follow(
    query: StreamingQuery,
    pipeline: Pipeline,
    on_progress: Callable[[Progress], None],
    should_stop: Callable[[], bool],
    group: LagGroup | None,
) -> None:
    """Report each batch until the query ends."""
    seen = -1
    told = False
    last = None
    while True:
        asked = should_stop()
        active = query.isActive and not asked
        latest = newest(query)
        found = [] if latest == last else reports(query)
        last = latest
        for progress in found:
            if progress.is_batch and progress.batch_id > seen:
                seen = progress.batch_id
            elif told:
                continue
            # The first report is passed on also without data: it shows where a restart stands.
            told = True
            if group is not None:
                group.after_batch(progress.end)
            on_progress(with_lag(pipeline, progress))
        if not active:
            break
        time.sleep(_LOOK_SECONDS)
    failure = query.exception()
    _stop(query)
    # A terminal's Ctrl-C also reaches Spark's processes; their messages about it are not a failure.
    if failure is not None and not asked:
        raise PipelineError(cause_of(failure))


_CALM_SECONDS: Final = 5.0
"""How long a stop waits for the running batch; one that is cut off is done again next time."""


def _stop(query: StreamingQuery) -> None:
    """Stop between two batches if there is such a moment soon."""
    deadline = time.monotonic() + _CALM_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS / 10)
    query.stop()


def _lag_group(pipeline: Pipeline, spark: SparkSession) -> LagGroup | None:
    """The group that shows the offsets, if the file names one."""
    if not pipeline.group:
        return None
    sources = [source_options(each.options, streaming=True) for each in pipeline.sources]
    last = pipeline.sinks[-1]
    with_decisions = False
    # A process of a Spark Connect server cannot ask Spark for the offsets of its batch.
    if last.delivery == "exactly_once" and not connect.is_connect(pipeline.master):
        committer = Committer.of(sink_options(sinks.topic_options(last, pipeline)))
        with_decisions = all(_shares_cluster(committer, each) for each in sources)
    return LagGroup(pipeline.group, sources[0].client, spark, with_decisions=with_decisions)


def _shares_cluster(committer: Committer, source: SourceOptions) -> bool:
    from sparkraft.pipeline.source import Lookup

    lookup = Lookup(source)
    topics = sorted({topic for topic, _ in lookup.partitions()})
    return is_one_cluster(committer.cluster, lookup.cluster, topics)


@contextmanager
def alone(checkpoint: str) -> Iterator[Path]:
    """Lock a checkpoint on this machine; a folder for Spark's temporary files beside it."""
    if "://" in checkpoint:
        work = Path(tempfile.mkdtemp(prefix="sparkraft-"))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return
    path = Path(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    work = path.with_name(path.name + ".work")
    with path.with_name(path.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(f"another process runs the pipeline of {checkpoint}") from None
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


_PYTHON_ERROR: Final = re.compile(
    r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|NoJava)): (.+)$", re.MULTILINE
)
_SPARK_ERROR: Final = re.compile(r"^(\[[A-Z_.]+\] .+?)(?: SQLSTATE.*)?$", re.MULTILINE)

_OWN_ERRORS: Final = frozenset(
    {
        "OptionError", "SpecError", "DataLossError", "KafkaError", "LostTransactionsError",
        "NotDecidedError", "AvroSchemaError", "RegistryError", "SchemaError",
    }
)  # fmt: skip

_SPARK_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")


_REASONS: Final = {
    "No module named 'sparkraft'": (
        "the Python of Spark's workers cannot import sparkraft. Pipeline files and "
        "sparkraft.pipeline.register(spark) send it to the workers; other jobs, and streams over "
        "Spark Connect without foreachBatch, need sparkraft[pipeline] in the Python of every "
        "worker, which PYSPARK_PYTHON names"
    ),
    connect_batches.SLOW_PYTHON: (
        "a Python process of Spark did not start within 10 seconds: the machine is too busy, or "
        "its Python lacks a package, such as those of pyspark[connect] on a Spark Connect server; "
        "Spark's log has its output"
    ),
}
"""Texts of Spark's failures."""


def cause_of(error: BaseException) -> str:
    """Summarize a Spark failure: the last Python error in it, else its first line."""
    text = str(error)
    damaged = json_values.COMPLAINT.search(text)
    if damaged:
        return damaged[0]
    for known, reason in _REASONS.items():
        if known in text:
            return reason
    found = _PYTHON_ERROR.findall(text)
    if found:
        name, said = found[-1]
        ours = name in _OWN_ERRORS
        return str(said) if ours else f"{name}: {said}"
    if "KAFKA_DATA_SOURCE_NOT_ENABLED" in text or "Failed to find data source: kafka" in text:
        return (
            'connector = "official" needs the jars of spark-sql-kafka-0-10 for this Spark: name '
            'them in [spark], as "spark.jars" (files) or "spark.jars.packages" (org.apache.spark:'
            "spark-sql-kafka-0-10_2.13:VERSION, which Spark fetches through Maven), or leave "
            "connector out, which needs none"
        )
    spark = _SPARK_ERROR.search(text)
    if not spark:
        lines = text.strip().splitlines()
        # Python's own line about an error in Java, which is in the next one.
        is_call = lines[0].startswith("An error occurred while calling") and len(lines) > 1
        return lines[1].removeprefix(": ") if is_call else lines[0]
    place = _SPARK_PLACE.search(text)
    return f"{spark[1]} (line {place[1]}, position {place[2]})" if place else spark[1]
