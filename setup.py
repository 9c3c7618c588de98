"""Build with compiled loops over records if there is a C compiler, else without.

    SPARKRAFT_COMPILE=0 pip install .    never compile
    SPARKRAFT_COMPILE=1 pip install .    fail if compiling fails

The compiled module needs nothing but the compiler and Python's headers, and replaces nothing: every
function in it has a Python one that does the same. `sparkraft version` names the build.
"""

import os

from setuptools import Extension, setup

WISH = os.environ.get("SPARKRAFT_COMPILE", "")

NATIVE = Extension(
    "sparkraft.records.native",
    ["src/sparkraft/records/native.c"],
    extra_compile_args=["-O3"],
    optional=WISH != "1",
)

setup(ext_modules=[] if WISH == "0" else [NATIVE])
