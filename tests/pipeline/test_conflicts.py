"""Commits beside other writers are repeated after a conflict, and only then."""

import pytest

from sparkraft.pipeline import conflicts
from sparkraft.pipeline.conflicts import ATTEMPTS_MAX, commit_with_retries


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(conflicts, "_PAUSE_S", 0)


class ConflictError(Exception):
    pass


class Table:
    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors
        self.attempts = 0

    def commit(self) -> int:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.attempts


def test_a_commit_is_repeated_until_no_other_writer_was_first():
    table = Table([ConflictError()] * (ATTEMPTS_MAX - 1))
    assert commit_with_retries(table.commit, ConflictError, "t") == ATTEMPTS_MAX


def test_the_last_conflict_is_raised():
    table = Table([ConflictError()] * (ATTEMPTS_MAX + 1))
    with pytest.raises(ConflictError):
        commit_with_retries(table.commit, ConflictError, "t")
    assert table.attempts == ATTEMPTS_MAX


def test_another_error_is_raised_at_once():
    table = Table([ValueError("full")])
    with pytest.raises(ValueError, match="full"):
        commit_with_retries(table.commit, ConflictError, "t")
    assert table.attempts == 1
