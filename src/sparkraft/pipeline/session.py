"""A Spark session for a pipeline: quiet, in UTC, with nothing left behind.

Spark runs in this process (`local[*]`) or on any master. Settings whose defaults suit one machine
badly are set here; a pipeline file's `[spark]` overrides them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

JAVA_OLDEST: Final = 17

NO_JAVA: Final = (
    "Spark needs Java 17 or newer, and the PATH has no java: install one, such as "
    "openjdk-17-jre-headless (Debian, Ubuntu), java-17-openjdk-headless (Fedora) or "
    "temurin@17 (Homebrew)"
)


class NoJava(RuntimeError):  # noqa: N818 (a missing thing, not a mistake)
    """There is no Java that Spark can run on; the message names the remedy."""


_QUIET_LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%throwable{short.message}
logger.query.name = org.apache.spark.sql.execution.streaming
logger.query.level = off
logger.task.name = org.apache.spark.scheduler
logger.task.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.util.name = org.apache.spark.util
logger.util.level = off
"""
"""Failures arrive as exceptions and are reported once, in a sentence; Spark would print them as
well."""


def java_version() -> int | None:
    """The major version of the `java` that Spark would start; None if there is none."""
    import re
    import subprocess

    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if java is None:
        return None
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def check_java() -> None:
    """Raise `NoJava` unless Spark can start."""
    version = java_version()
    if version is None:
        raise NoJava(NO_JAVA)
    if version < JAVA_OLDEST:
        raise NoJava(f"Spark needs Java {JAVA_OLDEST} or newer, and java here is {version}")


def session(
    name: str,
    *,
    master: str,
    work: Path,
    log: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, with its temporary files in `work`, which only this session uses.

    Output of the JVM and its Python workers goes to the file `log`, if one is given.
    """
    check_java()
    _prepare(work)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Importing pyspark takes half a second; an invalid pipeline file is reported before that.
    from pyspark.sql import SparkSession

    from sparkraft.pipeline import register

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (_defaults(master, work) | dict(settings or {})).items():
        builder = builder.config(key, value)
    silence_query_errors()
    with _errors_to(log), _own_signals():
        made = builder.getOrCreate()
    register(made)
    return made


def silence_query_errors() -> None:
    """Keep pyspark from printing errors that it also raises, as JSON with a Java stack."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Let processes that are started meanwhile inherit a file as their standard error."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handling of Ctrl-C: pyspark takes it over to raise in the middle of anything."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _prepare(work: Path) -> None:
    """Return an empty folder: a killed Spark does not delete its blocks."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "log4j2.properties").write_text(_QUIET_LOG)


def _defaults(master: str, work: Path) -> dict[str, str]:
    cores = os.cpu_count() or 1
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.driver.extraJavaOptions": (
            # Spark matches long messages with recursive patterns: more stack than the default.
            # A file's URI has no spaces, at which Spark would cut a path.
            f"-Dlog4j2.configurationFile={(work / 'log4j2.properties').resolve().as_uri()} "
            "-XX:+UseSerialGC -Xss4m"
        ),
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return settings
