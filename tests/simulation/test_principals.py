"""Users in the simulator: nodes fail, entries change, and each user gets what it may do."""

from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.scenarios.campaign import run
from sparkraft.simulation.scenarios.coordinator_scenarios import fault_kinds
from sparkraft.simulation.scenarios.core_scenarios import Settings
from tests.mutants.mutant_seeds import assert_seen, by_settings, run_clean
from tests.mutants.registry import CASES, MutantCase

PRINCIPALS = Settings(seed=0, tier="nodes", nodes=3, seconds=6, workload="principals")
SEEDS = range(1, 6)

PRINCIPAL_CASES = [case for case in CASES if case.mutant.workload == "principals"]
FIRST = list({case.mutant.seen_by[0]: case for case in reversed(PRINCIPAL_CASES)}.values())
"""One bug for each invariant; the others take longer than `./test` may."""


def check(settings: Settings) -> Counter[str]:
    result = run_clean(settings)
    text = f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert result.violation is None, f"seed {settings.seed}: {text}"
    return result.counts


@pytest.mark.parametrize("seed", SEEDS)
def test_users_get_what_they_may_under_faults(seed: int) -> None:
    counts = check(replace(PRINCIPALS, seed=seed))
    assert counts["requests allowed"] + counts["requests denied"] > 150
    assert sum(counts[f"fault {kind}"] for kind in fault_kinds()) > 0


def test_everything_is_exercised_without_faults() -> None:
    counts: Counter[str] = Counter()
    for seed in (4, 5):
        counts += check(replace(PRINCIPALS, seed=seed, faults=()))
    assert counts["logins accepted"] > 20
    assert counts["logins refused"] > 20
    assert counts["entries changed"] > 30
    assert counts["requests throttled"] > 5
    assert counts["bytes accepted"] > 5_000
    assert counts["topics found"] > 3


def test_a_run_is_the_same_each_time() -> None:
    first, second = (run(replace(PRINCIPALS, seed=3, seconds=3)) for _ in range(2))
    assert first.digest == second.digest


@pytest.mark.parametrize("case", by_settings(FIRST), ids=str)
def test_a_planted_bug_is_seen_among_users(case: MutantCase) -> None:
    assert_seen(case)


@pytest.mark.long
@pytest.mark.parametrize(
    "case", by_settings(case for case in PRINCIPAL_CASES if case not in FIRST), ids=str
)
def test_another_planted_bug_is_seen_among_users(case: MutantCase) -> None:
    assert_seen(case)


def test_each_invariant_of_users_reports_a_bug() -> None:
    reporters = {invariant for case in PRINCIPAL_CASES for invariant in case.mutant.seen_by}
    assert {"A1", "A2", "A3", "K15"} <= reporters
    assert len(PRINCIPAL_CASES) >= 15


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 101))
def test_a_hundred_seeds_of_users(seed: int) -> None:
    check(replace(PRINCIPALS, seed=seed, seconds=12))
