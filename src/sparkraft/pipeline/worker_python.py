"""The Python interpreter of Spark's workers, and our package in it."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALLED_PYSPARK = """\
#!/bin/sh
# Without Spark's zip of pyspark, whose modules Python would compile at each start.
PYTHONPATH="${PYTHONPATH#*/py4j-*-src.zip:}" exec %s "$@"
"""


def use_own_python(spark: SparkSession) -> None:
    """Let workers on this machine run this process's Python, not the first `python3` on the PATH.

    Without it, workers miss our packages if the virtual environment is not activated.
    PYSPARK_PYTHON and spark.pyspark.python have priority. Workers import the installed pyspark:
    each starts a second earlier than with Spark's zip of it.
    """
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        return  # Spark Connect: the server starts the workers
    named = os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable
    named = named or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not named:
        context.pythonExec = _quick_python()


def _quick_python() -> str:
    """A command that runs this process's Python without Spark's zip; else the Python itself."""
    import pyspark
    from pyspark import SparkFiles

    if Path(pyspark.__file__).parents[1] != Path(sysconfig.get_path("purelib")):
        return sys.executable  # workers may find pyspark only in the zip
    command = Path(SparkFiles.getRootDirectory()) / "python"
    command.write_text(_INSTALLED_PYSPARK % shlex.quote(sys.executable))
    command.chmod(0o755)
    # False if the file system forbids programs.
    return str(command) if os.access(command, os.X_OK) else sys.executable


def ship_package(spark: SparkSession) -> None:
    """Send this package to the workers of a cluster, whose Python then needs not have it.

    They need pyspark, pyarrow and numpy. The packages crc32c, lz4, zstandard and cramjam are used
    if they are there. On a local master, workers import what this process does.
    """
    from pyspark import SparkFiles
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        return  # Spark Connect: the server has its own package
    if (context.master or "").startswith("local"):
        return
    # Executors may start and fetch the file at any time while the application runs.
    folder = tempfile.mkdtemp(prefix="sparkraft-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = packed(Path(folder) / "sparkraft.zip")
    context.addPyFile(str(package))
    # Spark 4.3 lets the planner of a streaming source look for added files here, and puts none
    # here (PythonStreamingSourceRunner).
    planner = Path(SparkFiles.getRootDirectory()) / "streaming_job"
    planner.mkdir(exist_ok=True)
    shutil.copy(package, planner)


def packed(path: Path) -> Path:
    """Write a zip with the Python files of this package."""
    import sparkraft

    root = Path(sparkraft.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(root.rglob("*.py")):
            archive.write(each, each.relative_to(root.parent))
    return path
