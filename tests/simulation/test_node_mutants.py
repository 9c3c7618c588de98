"""Bugs planted in whole nodes whose clients create topics; and what holds for all planted bugs."""

import pytest

from sparkraft.simulation.checks.invariants import NAMES
from tests.mutants.mutant_seeds import MUTANT_SEEDS, assert_seen, by_settings, search
from tests.mutants.registry import CASES, MutantCase

NODE_CASES = [case for case in CASES if case.tier == "nodes"]

OF_THE_CONTROLLER = ("C5", "C6", "C7", "C9", "C10")
OF_VERSIONS = "V1"
"""Nothing is written or asked above the finalized metadata.version."""


@pytest.mark.parametrize(
    "case",
    by_settings(case for case in NODE_CASES if case.mutant.workload == "create-topics"),
    ids=str,
)
def test_a_planted_bug_is_seen_on_whole_nodes(case: MutantCase) -> None:
    assert_seen(case)


def test_every_planted_bug_has_a_stored_seed() -> None:
    assert set(MUTANT_SEEDS) == set(CASES)


def test_every_invariant_of_whole_nodes_has_a_bug_that_it_alone_may_report() -> None:
    """Its replay shows that this one does report it: of a bug that several may see, no seed says
    which of them will. Q12 is about forged messages, which only scenarios of bare cores send."""
    bugs = [case.mutant for case in NODE_CASES]
    reporters = {bug.seen_by[0] for bug in bugs if len(bug.seen_by) == 1}
    assert {*NAMES, *OF_THE_CONTROLLER, OF_VERSIONS} - {"Q12"} <= reporters


@pytest.mark.long
@pytest.mark.parametrize("case", NODE_CASES, ids=str)
def test_a_search_from_nothing_finds_it_on_whole_nodes(case: MutantCase) -> None:
    assert search(case) is not None
