"""Spark Connect servers as masters: `sc://HOST:PORT/;PARAMETER=VALUE`.

A Spark Connect session lacks some of what a Spark master offers:

    SparkContext, Java objects      plans take their place: `spark_tasks`
    settings of the application     only those that may change while Spark runs are accepted
    files of `addPyFile`            artifacts of the session take their place: `worker_python`
    foreachBatch in this process    the server starts a process for the query, and does not show it
                                    the artifacts: the function brings the package along
    local properties                the query's id is read from its checkpoint
    metrics of the running batch    nothing takes their place: dead letters of sources are refused

The server's process has neither a terminal nor the memory of this one. Its Python needs
`pyspark[connect]` and the libraries of table sinks; that of the workers needs pyspark, pyarrow and
numpy. Checkpoint and tables must be on storage that this machine, the server and its workers share.

Not here: the query (`run`, `query`), the sinks (`sinks`).
"""

from __future__ import annotations

import json
import pickle
import socket
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.spark_tasks import file_exists, parallelism
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.worker_python import packed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sparkraft.pipeline.sinks import BatchSink
    from sparkraft.pipeline.spec import Pipeline

_SCHEME: Final = "sc://"
_ANSWER_SECONDS: Final = 10.0

_LIBRARIES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # The query of a client that was killed still runs in the server.
    "spark.sql.streaming.stopActiveRunOnRestart": "true",
}
"""Like those of `session`, as far as they may change while Spark runs."""


def is_connect(master: str) -> bool:
    """Whether the master is a Spark Connect server."""
    return master.startswith(_SCHEME)


def shown(master: str) -> str:
    """The master without parameters, which may have a token."""
    return master.partition("/;")[0] if is_connect(master) else master


def check(pipeline: Pipeline) -> None:
    """Refuse what cannot work over Spark Connect, and a server that does not answer.

    Raises:
        SpecError: with the reason, and what to do instead.
    """
    for source in pipeline.sources:
        if source.on_error == "dead_letter":
            raise SpecError(
                f'{source.place}: on_error = "dead_letter" does not work over Spark Connect, which '
                "shows damaged records only after their batch is done: set stop or drop, or use a "
                "Spark master"
            )
    if any(sink.kind == "console" for sink in pipeline.sinks):
        raise SpecError(
            "the console sink does not work over Spark Connect: it would print in a process of "
            "the server; use another sink or a Spark master"
        )
    _check_answers(pipeline.master)


def session(*, master: str, settings: Mapping[str, str]) -> SparkSession:
    """A new session of a server.

    Args:
        master: its URL.
        settings: of Spark, which may change while it runs.

    Raises:
        SpecError: the server is too old, or refuses a setting.
    """
    # Importing pyspark takes half a second; an invalid pipeline file is reported before that.
    from pyspark.sql import SparkSession

    from sparkraft.pipeline import register
    from sparkraft.pipeline.session import silence_query_errors

    silence_query_errors()
    made: SparkSession = SparkSession.builder.remote(master).create()
    try:
        _check_version(made, master)
        _configure(made, settings)
        register(made)
    except BaseException:
        made.stop()
        raise
    return made


def _check_answers(master: str) -> None:
    """Fail at once; Spark's own client would try for ten minutes."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        host, _, port = DefaultChannelBuilder(master).endpoint.rpartition(":")
    except (PySparkException, ValueError) as error:
        raise SpecError(f"master {shown(master)}: {error}") from error
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(
            f"no Spark Connect server answers at {shown(master)}: {reason}; start one with "
            "start-connect-server.sh of Spark, or name another master"
        ) from error


def _check_version(spark: SparkSession, master: str) -> None:
    import pyspark

    theirs, ours = (tuple(map(int, v.split(".")[:2])) for v in (spark.version, pyspark.__version__))
    if theirs < ours:
        raise SpecError(
            f"the Spark Connect server at {shown(master)} runs Spark {spark.version}, which is "
            f"older than pyspark {pyspark.__version__} here: use a server of that version or a "
            "newer one"
        )


def _configure(spark: SparkSession, settings: Mapping[str, str]) -> None:
    from pyspark.errors import PySparkException

    defaults = {**_SETTINGS, "spark.sql.shuffle.partitions": str(parallelism(spark))}
    for name, value in (defaults | dict(settings)).items():
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            reason = str(error).strip().splitlines()[0]
            raise SpecError(
                f"[spark] {name} cannot be set over Spark Connect ({reason}): pass it with --conf "
                "when you start the server"
            ) from error


def check_shared(spark: SparkSession, file: Path) -> None:
    """Refuse a checkpoint folder of this machine that the server does not see.

    Args:
        spark: a session.
        file: beside the checkpoint, which exists.
    """
    if not file_exists(spark, str(file)):
        raise SpecError(
            f"the Spark Connect server does not see {file.parent}: checkpoint and tables must be "
            "on storage that it shares with this machine, or the checkpoint must be a URI"
        )


# foreachBatch

SLOW_PYTHON: Final = "Python worker failed to connect back"
"""Of Spark's failure if a Python process did not import pyspark within ten seconds."""

_STARTS_MAX: Final = 5


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query with `foreachBatch`.

    Spark waits ten seconds for the process of the function (`PythonWorkerFactory`), which imports
    pyspark, pandas and grpc meanwhile: a busy server needs longer, and less from the second time
    on. No query has begun then.
    """
    from pyspark.errors import PySparkException

    for _ in range(_STARTS_MAX - 1):
        try:
            return writer.start()
        except PySparkException as error:
            if SLOW_PYTHON not in str(error):
                raise
    return writer.start()


def on_server(pipeline: Pipeline) -> BatchSink:
    """The function for `foreachBatch`: it writes to all sinks, in a process of the server."""
    with tempfile.TemporaryDirectory(prefix="sparkraft-") as folder:
        package = packed(Path(folder) / "sparkraft.zip").read_bytes()
    # The server needs neither the token of its own URL nor settings of the session.
    sent = replace(pipeline, master=shown(pipeline.master), spark={})
    return _unpacking(package, _files(pipeline), pickle.dumps(sent))


def _files(pipeline: Pipeline) -> dict[str, bytes]:
    """The Python files of the pipeline's folder that sinks name."""
    places = [sink.function.partition(":")[0] for sink in pipeline.sinks if sink.function]
    return {each: (pipeline.folder / each).read_bytes() for each in places if each.endswith(".py")}


def _unpacking(package: bytes, files: Mapping[str, bytes], pipeline: bytes) -> BatchSink:
    """Return a function that needs nothing of this package until it runs.

    Spark 4.3 does not let this process import the artifacts of the session
    (`foreach_batch_worker`). cloudpickle writes a local function as a whole, and one of a module
    by its name.
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
            from sparkraft.pipeline.connect import sinks_of

            made.append(sinks_of(pipeline, folder))
        made[0](batch, batch_id)

    return write


def sinks_of(pickled: bytes, folder: Path) -> BatchSink:
    """The sinks, in the process of the server.

    Args:
        pickled: the pipeline.
        folder: with the Python files of its sinks.

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
