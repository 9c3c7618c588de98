"""Optional build with compiled walks over records; the wheel is pure Python by default.

    SPARKRAFT_COMPILE=1 pip install --no-build-isolation .

Needs mypy and a C compiler in the environment.
"""

import os
from typing import Any

from setuptools import setup

COMPILED = ("walk", "record", "filter")
"""Modules of `sparkraft.records` that mypyc compiles: loops over records, byte by byte."""


def extensions() -> list[Any]:
    """Return the extension modules, none by default."""
    if os.environ.get("SPARKRAFT_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = "src"
    modules = [f"src/sparkraft/records/{name}.py" for name in COMPILED]
    # The strict checks of `./test` need every dependency; a build does not.
    lenient = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    return mypycify([*lenient, *modules], opt_level="3")


setup(ext_modules=extensions())
