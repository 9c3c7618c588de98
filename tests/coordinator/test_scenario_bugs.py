"""Bugs planted in coordinators, each reported by the test that plays its scenario."""

from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from tests.coordinator.consumer_world import AT_ONCE, ConsumerWorld
from tests.mutants.history_mutants import HISTORY_MUTANTS
from tests.mutants.kafka_issues import ISSUES, OTHERS, RACES
from tests.mutants.mutant import planted
from tests.mutants.registry import MUTANTS
from tests.mutants.scenario_bugs import SCENARIO_BUGS
from tests.storage.worlds import World as StorageWorld

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", SCENARIO_BUGS)
def test_a_planted_bug_is_reported_by_its_scenario(name: str) -> None:
    bug = SCENARIO_BUGS[name]
    play = bug.scenario(world=ConsumerWorld(AT_ONCE, t=4), log=StorageWorld().log())
    with planted(bug), pytest.raises((AssertionError, KafkaError, pytest.fail.Exception)):
        play()


def test_the_tables_name_planted_bugs_and_tests() -> None:
    named = [bug for bugs in ISSUES.values() for bug in bugs] + [*OTHERS]
    assert set(named) <= {*MUTANTS, *SCENARIO_BUGS}
    assert {*SCENARIO_BUGS, *HISTORY_MUTANTS} <= set(named)
    for test in sorted({test for tests in RACES.values() for test in tests}):
        path, _, name = test.partition("::")
        assert f"\ndef {name}(" in (TESTS / path).read_text(), test


def test_forty_bugs_of_the_history_of_coordinators_are_planted() -> None:
    assert len(ISSUES) + len(OTHERS) >= 40
