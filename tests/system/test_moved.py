"""tests/moved.toml names tests that exist, each with a reason, and not too many."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MOVED

ROOT = Path(__file__).resolve().parents[2]
MINUTES_MAX = 25
FILES = sorted({entry["test"].partition("::")[0] for entry in MOVED})


def collected(select: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    told = subprocess.run(
        [*command, "-m", select, *FILES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {line for line in told.stdout.splitlines() if "::" in line}


def test_moved_tests_are_long_and_others_of_their_files_are_not() -> None:
    moved = {entry["test"] for entry in MOVED}
    assert collected("long") >= moved
    stay = collected("not long")
    assert stay.isdisjoint(moved)
    assert {test.partition("::")[0] for test in stay} == set(FILES)


@pytest.mark.parametrize("entry", MOVED, ids=lambda entry: entry["test"].partition("::")[2])
def test_a_moved_test_has_a_reason_and_a_time(entry: dict[str, object]) -> None:
    assert entry.keys() == {"test", "reason", "minutes"}
    assert len(str(entry["reason"])) > 20


def test_no_test_is_listed_twice() -> None:
    assert len({entry["test"] for entry in MOVED}) == len(MOVED)


def test_not_too_much_has_moved() -> None:
    assert sum(entry["minutes"] for entry in MOVED) <= MINUTES_MAX
