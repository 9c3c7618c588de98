"""The compiled build of the record walks passes the tests of records and of the cleaner."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = [f"sparkraft/records/{name}.py" for name in ("walk", "record", "filter")]


@pytest.mark.long
def test_the_compiled_modules_pass_the_same_tests(tmp_path):
    mypyc = Path(sys.executable).with_name("mypyc")
    if not mypyc.exists() or shutil.which("cc") is None:
        pytest.skip("needs mypyc and a C compiler")
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(source), "MYPYPATH": str(source)}
    subprocess.run(
        [mypyc, "--follow-imports=silent", "--ignore-missing-imports", *MODULES],
        cwd=source, env=environment, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    named = subprocess.run(
        [sys.executable, "-m", "sparkraft.cli.main", "version"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "records: compiled" in named.stdout
    paths = ["tests/records", "tests/storage/test_cleaner.py", "tests/storage/test_log.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not long", *paths],
        cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
