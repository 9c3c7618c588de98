"""The compiled and the pure Python build pass the same tests of records and storage."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.native import SUFFIX, compile_native

ROOT = Path(__file__).resolve().parents[2]


def copied(folder: Path, *names: str, compiled: bool) -> dict[str, str]:
    """Copy parts of the project as one of its builds; returns the environment of its processes."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("src", *names):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    if compiled:
        compile_native(folder / f"src/sparkraft/records/native{SUFFIX}")
    return {**os.environ, "PYTHONPATH": str(folder / "src")}


def ran(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    """The output of a Python module that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


@pytest.mark.parametrize(("compiled", "name"), [(True, "compiled"), (False, "pure Python")])
def test_the_version_command_names_the_build(tmp_path, compiled, name):
    environment = copied(tmp_path, compiled=compiled)
    assert f"records: {name}\n" in ran(tmp_path, environment, "sparkraft.cli.main", "version")


@pytest.mark.long
@pytest.mark.parametrize("compiled", [True, False])
def test_both_builds_pass_the_tests_of_records_and_storage(tmp_path, compiled):
    environment = copied(tmp_path, "tests", "tools", "docs", compiled=compiled)
    ran(
        tmp_path, environment, "pytest", "-q", "-n", "2", "-m", "not long",
        "-p", "no:cacheprovider", "tests/records", "tests/storage",
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("compiler", "wish", "built"), [("cc", "", True), ("no-compiler-here", "", False),
                                    ("cc", "0", False), ("no-compiler-here", "1", None)],
)  # fmt: skip
def test_a_wheel_is_built_with_and_without_a_compiler(tmp_path, compiler, wish, built):
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so"))
    environment = {**os.environ, "CC": compiler, "SPARKRAFT_COMPILE": wish}
    done = subprocess.run(
        [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('out')"],
        cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode != 0) == (built is None), done.stderr[-2000:]
    if built is not None:
        (wheel,) = (tmp_path / "out").glob("*.whl")
        shutil.unpack_archive(wheel, tmp_path / "unpacked", "zip")
        assert bool([*(tmp_path / "unpacked").rglob("native*.so")]) == built
