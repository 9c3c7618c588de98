"""Bugs planted in whole nodes: seen by what they break, and the same seed is clean without."""

import pytest

from sparkraft.simulation.campaign import run
from sparkraft.simulation.invariants import NAMES
from sparkraft.simulation.kills import KILLS, replay, search, sees
from sparkraft.simulation.mutants import MUTANTS, all_mutants

PLANTED = {name: mutant for name, mutant in all_mutants().items() if mutant.tier == "nodes"}

OF_THE_CONTROLLER = ("C5", "C6", "C7", "C9", "C10")
OF_VERSIONS = "V1"
"""Nothing is written or asked above the finalized metadata.version."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_seen_on_whole_nodes(name: str) -> None:
    found = replay(name)
    assert sees(found, name), f"no seed from {KILLS[name]} on shows it: {found.violation}"
    clean = run(found.settings)
    assert clean.violation is None, f"{clean.violation} without the bug: {clean.text}"


def test_every_planted_bug_is_replayed_here_or_among_the_cores() -> None:
    assert PLANTED.keys() | MUTANTS.keys() == all_mutants().keys()
    assert PLANTED.keys().isdisjoint(MUTANTS)


def test_every_planted_bug_has_a_stored_seed() -> None:
    assert set(KILLS) == set(all_mutants())


def test_every_invariant_of_whole_nodes_has_a_bug_that_it_alone_may_report() -> None:
    """Its replay shows that this one does report it: of a bug that several may see, no seed says
    which of them will."""
    reporters = {mutant.seen_by[0] for mutant in PLANTED.values() if len(mutant.seen_by) == 1}
    assert {*NAMES, *OF_THE_CONTROLLER, OF_VERSIONS} <= reporters


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED)
def test_a_search_from_nothing_finds_it_on_whole_nodes(name: str) -> None:
    assert search(name) is not None
