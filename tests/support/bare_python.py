"""Pythons that can import the standard library and some installed packages, and nothing else."""

import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

WORKER = ("pyspark", "py4j", "pyarrow", "numpy")
"""What Spark's workers need."""

SERVER = (*WORKER, "deltalake", "googleapis-common-protos", "grpcio-status", "pandas", "zstandard")
"""What a Spark Connect server needs to write Delta tables in foreachBatch."""


def bare_python(folder, packages=WORKER):
    """A command in `folder`, which it creates."""
    site = folder / "site"
    site.mkdir(parents=True)
    for package in _with_required(packages):
        for file in metadata.files(package):
            top = file.parts[0]
            if top not in {"..", "."} and not (site / top).exists():
                below = len(file.parts) - 1
                place = Path(file.locate())
                (site / top).symlink_to(place.parents[below - 1] if below else place)
    return _command(folder / "python", f'PYTHONPATH="{site}" exec {sys.executable} -S "$@"')


def python_of_place(file, in_executors, elsewhere):
    """A command that runs one Python in Spark's executors, and another one in other processes."""
    return _command(
        file,
        f'if [ -n "$SPARK_EXECUTOR_DIRS" ]; then exec {in_executors} "$@"; fi\n'
        f'exec {elsewhere} "$@"',
    )


def _command(file, script):
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def _with_required(packages):
    found, to_do = set(), list(packages)
    while to_do:
        package = to_do.pop()
        if package not in found:
            found.add(package)
            required = [Requirement(each) for each in metadata.requires(package) or ()]
            to_do += [
                each.name for each in required
                if each.marker is None or each.marker.evaluate({"extra": ""})
            ]  # fmt: skip
    return found
