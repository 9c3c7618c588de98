"""The Python interpreter of Spark's workers, and our package in it."""

from __future__ import annotations

import atexit
import os
import pickle
import shlex
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.pipeline.spark_tasks import context_of

if TYPE_CHECKING:
    from collections.abc import Callable

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
    context = context_of(spark)
    if context is None:
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

    They need pyspark, pyarrow and numpy. The packages crc32c, lz4, zlib-ng, zstandard and cramjam
    are used if they are there. On a local master, workers import what this process does. Over Spark
    Connect, the server's own Python gets the package, too.
    """
    context = context_of(spark)
    if context is not None and (context.master or "").startswith("local"):
        return
    # Executors may start and fetch the file at any time while the application runs.
    folder = tempfile.mkdtemp(prefix="sparkraft-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = packed(Path(folder) / "sparkraft.zip")
    # A Spark Connect session refuses a second file with the name of another one.
    named = package.with_name(f"sparkraft-{sha256(package.read_bytes()).hexdigest()[:12]}.zip")
    ship_file(spark, package.rename(named))


def ship_functions(function: str, folder: Path, spark: SparkSession) -> None:
    """Send the file of a function that a pipeline file names to the workers.

    Args:
        function: `file.py:name`; anything else is ignored.
        folder: of the pipeline file.
        spark: the session.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    place = function.partition(":")[0]
    if place.endswith(".py"):
        ship_file(spark, folder / place)
        module = sys.modules.get(Path(place).stem)
        if context_of(spark) is None and module is not None:
            # The tasks of a stream do not find the file.
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def ship_file(spark: SparkSession, path: Path) -> None:
    """Let the workers import a module or a zip of packages."""
    context = context_of(spark)
    if context is None:
        spark.addArtifacts(str(path), pyfile=True)
    else:
        context.addPyFile(str(path))


def packed(path: Path) -> Path:
    """Write a zip with the Python files of this package."""
    import sparkraft

    root = Path(sparkraft.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(root.rglob("*.py")):
            archive.write(each, each.relative_to(root.parent))
    return path


class PickledElsewhere:
    """A base of objects that processes unpickle which do not know where the package is.

    In Spark 4.3, the planner of a streaming source does not know the folder with the files of a
    session (`PythonStreamingSourceRunner`), and over Spark Connect, neither do the tasks of a
    stream: their files are in a folder below. cloudpickle writes a local function as a whole, and
    one of a module by its name, so that this one runs before anything of the package is imported.
    """

    def __reduce_ex__(self, protocol: Any) -> Any:
        import sparkraft

        reduced = super().__reduce_ex__(protocol)
        package = Path(sparkraft.__file__).parents[1]
        if not package.is_file():
            return reduced  # it is installed
        return _unpickling(str(package)), (pickle.dumps(reduced[:3]),)


def _unpickling(package: str) -> Callable[[bytes], Any]:
    """A function that makes an object of what `object.__reduce_ex__` has returned.

    Args:
        package: the path of the zip in this process, which another one may not see.
    """

    def unpickled(reduced: bytes) -> Any:
        import importlib
        import os
        import pickle
        import sys
        from glob import glob

        from pyspark import SparkFiles

        try:
            importlib.import_module("sparkraft.pipeline")
        except ImportError:
            below = os.path.join(SparkFiles.getRootDirectory(), "*", os.path.basename(package))
            sys.path[:0] = [each for each in (*glob(below), package) if os.path.exists(each)][:1]
            importlib.invalidate_caches()
        make, arguments, state = pickle.loads(reduced)
        made = make(*arguments)
        made.__dict__.update(state or {})
        return made

    return unpickled
