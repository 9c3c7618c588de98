"""The query of a Spark Connect client, and its batches, which a process of the server writes.

The process has neither a terminal nor the memory of the client, and Spark 4.3 does not show it the
artifacts of the session (`foreach_batch_worker`). So the function for `foreachBatch` brings this
package and the user's files along.

The query of a client that was killed still runs in the server. Spark stops it before it starts the
next one on the same checkpoint (`stopActiveRunOnRestart`). But Spark 4.3 stops a query only after
its batch, however long that takes: the thread of the query waits for the process, and the jobs of
the batch belong to a session of their own (`StreamingForeachBatchHelper`). So a batch looks whether
its query is being stopped. It has `_CALM_SECONDS` to end then; after that its jobs are canceled, it
fails, and the next start of the query runs it again. Until then its tasks may have all cores: a
client runs no job before the start.

Invariants:
    * Only a batch whose query is being stopped is canceled. If the server does not know, it runs.
    * A batch has returned before the next query starts.

Not here: the session (`connect`), the sinks (`sinks`).
"""

from __future__ import annotations

import json
import logging
import pickle
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.connect import shown
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.worker_python import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sparkraft.pipeline.sinks import BatchSink
    from sparkraft.pipeline.spec import Pipeline

log = logging.getLogger(__name__)

_LIBRARIES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}

_CALM_SECONDS: Final = 5.0
"""The time that a batch has to end after its query was stopped."""

_LOOK_SECONDS: Final = 1.0
"""Between two requests of a batch to the server; shorter batches send none."""


# the start, by the client

SLOW_PYTHON: Final = "Python worker failed to connect back"
"""Of Spark's failure if a Python process did not import pyspark within ten seconds."""

_STARTS_MAX: Final = 5

_NOTICE_SECONDS: Final = 4.0
"""A start that takes longer is explained."""


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query with `foreachBatch`, after the end of one that a killed client has left.

    Spark waits ten seconds for the process of the function (`PythonWorkerFactory`), which imports
    pyspark, pandas and grpc meanwhile: a busy server needs longer, and less from the second time
    on. No query has begun then.
    """
    from pyspark.errors import PySparkException

    with _explained_if_slow():
        for _ in range(_STARTS_MAX - 1):
            try:
                return writer.start()
            except PySparkException as error:
                if SLOW_PYTHON not in str(error):
                    raise
        return writer.start()


@contextmanager
def _explained_if_slow() -> Iterator[None]:
    timer = threading.Timer(_NOTICE_SECONDS, _explain)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _explain() -> None:
    log.warning(
        "Waiting until the Spark Connect server has started the query. If a killed client has left "
        "one, the server stops it first: its batch has %d seconds to end, or is run again",
        _CALM_SECONDS,
    )


# batches, in the server


def on_server(pipeline: Pipeline, spark: SparkSession) -> BatchSink:
    """The function for `foreachBatch`: it writes to all sinks, in a process of the server.

    Args:
        pipeline: whose sinks to write.
        spark: the session that starts the query. The process finds it by its id.
    """
    with tempfile.TemporaryDirectory(prefix="sparkraft-") as folder:
        package = packed(Path(folder) / "sparkraft.zip").read_bytes()
    # The server needs neither the token of its own URL nor settings of the session.
    sent = replace(pipeline, master=shown(pipeline.master), spark={})
    return _unpacking(package, _files(pipeline), pickle.dumps(sent), spark)


def _files(pipeline: Pipeline) -> dict[str, bytes]:
    """The Python files of the pipeline's folder that sinks name."""
    places = [sink.function.partition(":")[0] for sink in pipeline.sinks if sink.function]
    return {each: (pipeline.folder / each).read_bytes() for each in places if each.endswith(".py")}


def _unpacking(
    package: bytes, files: Mapping[str, bytes], pipeline: bytes, spark: SparkSession
) -> BatchSink:
    """Return a function that needs nothing of this package until it runs.

    cloudpickle writes a local function as a whole, and one of a module by its name.
    """
    made: list[BatchSink] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        if not made:
            import os
            import sys
            import tempfile
            from pathlib import Path

            # The server deletes its own folder, and ends this process without notice.
            parent = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
            folder = Path(tempfile.mkdtemp(prefix="sparkraft-", dir=parent or None))
            zipped = folder / "sparkraft.zip"
            zipped.write_bytes(package)
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            sys.path.insert(0, str(zipped))
            from sparkraft.pipeline.connect_batches import sinks_of

            made.append(sinks_of(pipeline, folder, spark))
        made[0](batch, batch_id)

    return write


def sinks_of(pickled: bytes, folder: Path, spark: SparkSession) -> BatchSink:
    """The sinks, in the process of the server.

    Args:
        pickled: the pipeline.
        folder: with the Python files of its sinks.
        spark: the session of the query; that of batches is another one.

    Raises:
        SpecError: a library of a sink is missing.
    """
    from sparkraft.pipeline import sinks

    pipeline: Pipeline = replace(pickle.loads(pickled), folder=folder)
    _check_libraries(pipeline)
    write = sinks.in_order(pipeline)
    names: list[str] = []

    def call(batch: DataFrame, batch_id: int) -> None:
        if not names:
            names.append(_query_id(pipeline.checkpoint, batch.sparkSession))
        with canceled_with_query(names[0], spark, batch.sparkSession):
            write(batch, QueryBatch(names[0], batch_id))

    return call


def _check_libraries(pipeline: Pipeline) -> None:
    import sys

    kinds = [sink.kind for sink in (*pipeline.sinks, pipeline.dead_letter) if sink]
    for kind in kinds:
        library = _LIBRARIES.get(kind)
        if library and find_spec(library) is None:
            raise SpecError(
                f"the Python of the Spark Connect server ({sys.executable}) cannot import "
                f"{library}, which the {kind} sink needs: install it there"
            )


def _query_id(checkpoint: str, spark: SparkSession) -> str:
    """The query's id, which Spark writes into the checkpoint before the first batch."""
    if "://" not in checkpoint:
        found: Any = Path(checkpoint, "metadata").read_text()
    else:
        row: Any = spark.read.text(f"{checkpoint}/metadata").first()
        found = row["value"]
    return str(json.loads(found)["id"])


@contextmanager
def canceled_with_query(
    query_id: str, of_query: SparkSession, of_batch: SparkSession
) -> Iterator[None]:
    """Cancel the jobs of a batch that runs `_CALM_SECONDS` after its query was stopped."""
    has_ended = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(query_id, of_query, of_batch, has_ended), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        has_ended.set()


def _watch(
    query_id: str, of_query: SparkSession, of_batch: SparkSession, has_ended: threading.Event
) -> None:
    from pyspark.errors import PySparkException

    while not has_ended.wait(_LOOK_SECONDS):
        if not _is_stopped(query_id, of_query):
            continue
        has_ended.wait(_CALM_SECONDS)
        while not has_ended.is_set():
            with suppress(PySparkException):
                of_batch.interruptAll()
            has_ended.wait(_LOOK_SECONDS)


def _is_stopped(query_id: str, spark: SparkSession) -> bool:
    """Whether the query was stopped, or its session released; False if that is not known."""
    from pyspark.errors import PySparkException

    try:
        query = spark.streams.get(query_id)
        is_stopped = query is not None and not query.isActive
    except PySparkException as error:
        # A query that has just started is not known yet, either.
        return _SESSION_CLOSED in str(error)
    return is_stopped


_SESSION_CLOSED: Final = "SESSION_CLOSED"
