"""Bugs planted in bare raft cores: the invariants meant for them report them."""

import pytest

from sparkraft.simulation.checks.invariants import NAMES
from tests.mutants.mutant_seeds import SECONDS, assert_seen, by_settings, search
from tests.mutants.registry import CASES, MutantCase

CORE_CASES = [case for case in CASES if case.tier == "cores"]


@pytest.mark.parametrize("case", by_settings(CORE_CASES), ids=str)
def test_a_planted_bug_is_seen_by_the_invariant_meant_for_it(case: MutantCase) -> None:
    assert_seen(case)


def test_every_invariant_has_a_bug_that_it_alone_may_report() -> None:
    bugs = [case.mutant for case in CORE_CASES]
    assert {bug.seen_by[0] for bug in bugs if len(bug.seen_by) == 1} == set(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("case", CORE_CASES, ids=str)
def test_a_search_from_nothing_finds_the_planted_bug(case: MutantCase) -> None:
    result = search(case)
    assert result is not None
    assert result.settings.seconds == SECONDS
