"""Spark Connect servers as masters: `sc://HOST:PORT/;PARAMETER=VALUE`.

A Spark Connect session lacks some of what a Spark master offers:

    SparkContext, Java objects      plans take their place: `spark_tasks`
    settings of the application     only those that may change while Spark runs are accepted
    files of `addPyFile`            artifacts of the session take their place: `worker_python`
    foreachBatch in this process    the server starts a process for the query (`connect_batches`)
    local properties                the query's id is read from its checkpoint
    metrics of the running batch    nothing takes their place: dead letters of sources are refused

The server's Python needs `pyspark[connect]` and the libraries of table sinks; that of the workers
needs pyspark, pyarrow and numpy. Checkpoint and tables must be on storage that this machine, the
server and its workers share.

Not here: the query (`run`, `query`), its start and its batches (`connect_batches`).
"""

from __future__ import annotations

import socket
import tempfile
from typing import TYPE_CHECKING, Final

from sparkraft.pipeline.spark_tasks import file_exists, parallelism
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.status import is_local, nearest_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from sparkraft.pipeline.spec import Pipeline

_SCHEME: Final = "sc://"
_ANSWER_SECONDS: Final = 10.0

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
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


def check_shared(spark: SparkSession, path: str) -> None:
    """Refuse a local path that the server does not see as this machine does.

    Args:
        spark: a session.
        path: of a checkpoint or a table, which need not exist yet; a URI is not checked.
    """
    if not is_local(path):
        return
    folder = nearest_folder(path)
    with tempfile.NamedTemporaryFile(prefix="sparkraft-check-", dir=folder) as file:
        if not file_exists(spark, file.name):
            raise SpecError(
                f"the Spark Connect server does not see {folder} of this machine: {path} must be "
                "on storage that both share, or a URI"
            )
