"""The compiled loops over records, built from the present source."""

import functools
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/sparkraft/records/native.c"
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


def compile_native(target: Path) -> None:
    """Compile the module to `target`; skips the test if that is impossible here."""
    compiler = shutil.which("cc")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").exists():
        pytest.skip("needs a C compiler and Python's headers")
    target.parent.mkdir(parents=True, exist_ok=True)
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        subprocess.run(
            [compiler, "-O3", "-shared", "-fPIC", *strict, f"-I{headers}", SOURCE, "-o", made],
            check=True,
        )
        made.replace(target)  # tests of several processes may build it at once


@functools.cache
def native() -> ModuleType:
    """The module; skips the test if it cannot be built."""
    folder = ROOT / ".cache/native" / sha256(SOURCE.read_bytes()).hexdigest()[:16]
    path = folder / f"native{SUFFIX}"
    if not path.exists():
        compile_native(path)
    spec = importlib.util.spec_from_file_location("native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
