"""Every property holds for examples that no run before has seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHERE = {
    "codecs": ("not long and not java", "tests/protocol"),
    "all others": ("hypothesis and not long", "tests"),
}
ROUNDS = 5


@pytest.mark.long
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("where", WHERE)
def test_properties_hold_for_fresh_examples(where: str, number: int, tmp_path: Path) -> None:
    """A failing run tells the example; it becomes a test of its own."""
    marks, folder = WHERE[where]
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-m", marks,
            "-p", "no:cacheprovider", f"--basetemp={tmp_path / str(number)}", folder,
        ],
        cwd=ROOT,
        env={**os.environ, "SPARKRAFT_EXAMPLES": "fresh"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout
