"""Bugs planted in whole nodes: seen by what they break, and the same seed is clean without."""

import pytest

from sparkraft.simulation.campaign import run
from sparkraft.simulation.kills import KILLS, replay, search, sees
from sparkraft.simulation.mutants import all_mutants
from sparkraft.simulation.node_mutants import NODE_MUTANTS
from sparkraft.simulation.record_mutants import RECORD_MUTANTS
from sparkraft.simulation.single_mutants import SINGLE_MUTANTS
from sparkraft.simulation.storage_mutants import STORAGE_MUTANTS

PLANTED = {**NODE_MUTANTS, **RECORD_MUTANTS, **SINGLE_MUTANTS, **STORAGE_MUTANTS}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_seen_on_whole_nodes(name: str) -> None:
    found = replay(name)
    assert sees(found, name), f"no seed from {KILLS[name]} on shows it: {found.violation}"
    clean = run(found.settings)
    assert clean.violation is None, f"{clean.violation} without the bug: {clean.text}"


def test_every_planted_bug_has_a_stored_seed() -> None:
    assert set(KILLS) == set(all_mutants())


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED)
def test_a_search_from_nothing_finds_it_on_whole_nodes(name: str) -> None:
    assert search(name) is not None
