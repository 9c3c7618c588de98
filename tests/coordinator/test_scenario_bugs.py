"""Bugs planted in coordinators, each reported by the test that plays its scenario."""

import pytest

from sparkraft.base.errors import KafkaError
from tests.coordinator.consumer_world import AT_ONCE, ConsumerWorld
from tests.mutants.mutant import planted
from tests.mutants.scenario_bugs import SCENARIO_BUGS


@pytest.mark.parametrize("name", SCENARIO_BUGS)
def test_a_planted_bug_is_reported_by_its_scenario(name: str) -> None:
    bug = SCENARIO_BUGS[name]
    play = bug.scenario(world=ConsumerWorld(AT_ONCE, t=4))
    with planted(bug), pytest.raises((AssertionError, KafkaError, pytest.fail.Exception)):
        play()
