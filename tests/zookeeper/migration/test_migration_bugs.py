"""Bugs planted in the migration from ZooKeeper, each reported by the test of its rule."""

from pathlib import Path

import pytest

from sparkraft.zookeeper.controller.steps import ControllerMovedError
from tests.mutants.kafka_issues import MIGRATION_ISSUES
from tests.mutants.migration_bugs import MIGRATION_BUGS
from tests.mutants.mutant import planted
from tests.mutants.registry import MUTANTS
from tests.zookeeper.migration.test_propagation import registered
from tests.zookeeper.migration.test_writes import Migration


@pytest.mark.long
@pytest.mark.parametrize("name", MIGRATION_BUGS)
def test_a_planted_bug_is_reported_by_its_test(name: str, tmp_path: Path) -> None:
    bug = MIGRATION_BUGS[name]
    play = bug.scenario(migration=Migration(), image=registered(), tmp_path=tmp_path)
    with planted(bug), pytest.raises((AssertionError, ControllerMovedError)):
        play()


def test_each_issue_names_planted_bugs() -> None:
    named = {bug for bugs in MIGRATION_ISSUES.values() for bug in bugs}
    assert {*MIGRATION_BUGS} <= named <= {*MUTANTS, *MIGRATION_BUGS}
