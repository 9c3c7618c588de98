"""A migration from ZooKeeper in the simulator: one ruler at a time, and nothing is lost."""

from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.scenarios import migration
from sparkraft.simulation.scenarios.campaign import Result, run
from sparkraft.simulation.scenarios.migration_endings import ENDINGS, choose_ending
from sparkraft.simulation.workload import zookeeper_broker
from sparkraft.zookeeper.migration.state import DriverState
from tests.mutants.mutant_seeds import assert_seen, by_settings, run_clean, settings_for
from tests.mutants.registry import CASES, MutantCase

PLANTED = by_settings(case for case in CASES if case.mutant.workload == "migration")

RARE = (
    "a-migration-is-not-finalized",
    "brokers-come-before-zookeeper",
    "copied-leader-epochs-begin-again",
    "states-have-a-later-controller-epoch",
)
"""Planted bugs that few seeds show, or only the end of a long run."""

SEEDS = (1, 3, 4, 6, 8)
"""With each ending. All but 6 are those of planted bugs, whose clean runs they share."""

MORE_SEEDS = [seed for seed in range(1, 51) if seed not in SEEDS]


def counts_of(result: Result) -> Counter[str]:
    text = f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert result.violation is None, f"seed {result.settings.seed}: {text}"
    assert result.checks["M4"] > 0
    return result.counts


def test_these_runs_have_each_ending() -> None:
    assert {choose_ending(seed)[1] for seed in SEEDS} == set(ENDINGS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_migration_loses_nothing_whatever_breaks(seed: int) -> None:
    counts = counts_of(run_clean(settings_for(PLANTED[0], seed)))
    assert sum(count for name, count in counts.items() if name.startswith("fault ")) > 0


@pytest.mark.parametrize(
    "seed", [6, *(pytest.param(each, marks=pytest.mark.long) for each in SEEDS if each != 6)]
)
def test_a_migration_at_the_lowest_metadata_version_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """V1: no record has fields that 3.6-IV1 does not know, and no controller registers."""
    monkeypatch.setattr(migration, "RELEASE", "3.6-IV1")
    monkeypatch.setattr(zookeeper_broker, "PROTOCOL", "3.6-IV1")
    monkeypatch.setattr(zookeeper_broker, "LEVEL", 13)
    result = run(settings_for(PLANTED[0], seed))
    assert counts_of(result)
    assert result.checks["V1"] > 0


@pytest.mark.long
def test_migrations_end_in_all_ways() -> None:
    total: Counter[str] = Counter()
    for seed in MORE_SEEDS[:25]:
        total += counts_of(run(settings_for(PLANTED[0], seed)))
    assert {f"ending {each}" for each in ("dual write", "roll back", "finalize")} <= set(total)
    assert total["forgotten controllers"] > 0


@pytest.mark.long
def test_faults_strike_in_every_state_of_a_migration() -> None:
    total: Counter[str] = Counter()
    for seed in MORE_SEEDS:
        total += counts_of(run(replace(settings_for(PLANTED[0], seed), seconds=40)))
    struck = {name.rpartition(" in ")[2] for name in total if " in " in name}
    assert {state.value for state in DriverState} - {DriverState.INACTIVE.value} <= struck


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.long if case.name in RARE else ()) for case in PLANTED],
    ids=str,
)
def test_a_planted_bug_is_seen_in_a_migration(case: MutantCase) -> None:
    assert_seen(case)
