"""Quorums of bare cores by seed: no invariant breaks, whatever breaks."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.checks.invariants import Invariants
from sparkraft.simulation.scenarios.campaign import Summary, run, run_all
from sparkraft.simulation.scenarios.core_scenarios import SCENARIOS, Settings
from sparkraft.simulation.world.core_points import CORE_POINTS
from sparkraft.simulation.world.cores import World
from sparkraft.simulation.world.nemesis import FAULTS

QUIETER = sorted(set(SCENARIOS) - {"chaos", "rogue"})

SLICE = 3
"""Seeds of each kind in every run of the tests; the long ones run a thousand."""


def sweep(settings: Settings, first: int, last: int) -> Summary:
    summary = Summary()
    for seed in range(first, last + 1):
        result = run(replace(settings, seed=seed))
        told = "".join(result.tail)
        assert result.violation is None, f"seed {seed}: {result.violation} {result.text}\n{told}"
        summary.add(result)
    return summary


@pytest.mark.parametrize("liveness", [False, True], ids=["safety", "liveness"])
def test_no_invariant_breaks_whatever_else_does(liveness: bool) -> None:
    settings = Settings(seed=0, seconds=30, liveness=liveness)
    summary = sweep(settings, 1, 2 * SLICE)
    assert summary.counts["elections won"] > SLICE
    assert summary.counts["appends"] > 100 * SLICE


def test_a_majority_may_lose_its_leader_while_the_rest_is_about_to_break() -> None:
    sweep(Settings(seed=0, seconds=60, liveness=True), 367, 367)


def test_whom_a_minority_loses_is_chosen_among_voters_that_are_committed() -> None:
    """A majority of a set that only a broken leader has in its log could elect nobody."""
    sweep(Settings(seed=0, seconds=60, liveness=True), 97, 97)


def test_a_fault_point_that_is_seldom_reached_always_strikes() -> None:
    summary = sweep(Settings(seed=0, seconds=60), 493, 493)
    assert summary.counts["point candidate_with_unsynced_records"]


@pytest.mark.parametrize("scenario", QUIETER)
def test_every_scenario_comes_out_well(scenario: str) -> None:
    summary = sweep(Settings(seed=0, scenario=scenario), 1, SLICE)
    assert summary.counts["elections won"] >= SLICE


def test_a_rogue_changes_no_committed_record_and_leaves_a_quorum_that_works() -> None:
    summary = sweep(Settings(seed=0, scenario="rogue", seconds=8), 1, 10)
    assert summary.counts["rogue messages"] > 1_000
    assert summary.checks["Q12"] > 1_000


def test_five_voters_come_and_go_whatever_breaks() -> None:
    kinds = ("kill", "power", "cut", "mend", "voters", "snapshot", "wipe", "points", "loss")
    summary = sweep(Settings(seed=0, nodes=5, seconds=30, faults=kinds), 100, 100 + SLICE)
    assert summary.counts["voter sets written"] > 0
    assert summary.counts["voter change: NONE"] > 0


@pytest.mark.parametrize("voters", [3, 5])
def test_one_election_replaces_nearly_every_killed_leader(voters: int) -> None:
    settings = Settings(seed=0, scenario="killed-leaders-are-replaced", nodes=voters)
    counts = sweep(settings, 1, 5 * SLICE).counts
    assert counts["leaders killed"] >= 5 * 5 * SLICE
    assert counts["replaced in one election"] >= 0.97 * counts["leaders killed"]


def test_the_same_seed_is_the_same_run_under_any_hash_seed() -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "sparkraft.cli.main", "simulate", "--tier", "cores"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(
            [*command, "--seed", "5", "--seconds", "10"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return next(line for line in told.stdout.splitlines() if line.startswith("digest"))

    assert digest("0") == digest("1") == digest("4242")


def test_another_seed_is_another_run() -> None:
    settings = Settings(seed=1, seconds=5)
    assert run(settings).digest == run(settings).digest
    assert run(settings).digest != run(replace(settings, seed=2)).digest


def test_a_quorum_of_one_leads_at_its_first_step_and_again_after_a_restart() -> None:
    world = World(seed=1, voters=1, observed_by=Invariants)
    node = world.nodes[1]
    node.start()
    world.run_for(100)
    assert node.is_leader
    assert node.quorum.state.epoch == 1
    assert world.invariants.committed_end == 1
    node.stop(power=True)
    node.start()
    world.run_for(100)
    assert node.quorum.state.epoch == 2


@pytest.mark.long
@pytest.mark.parametrize("scenario", [*QUIETER, "rogue"])
def test_a_thousand_seeds_of_each_scenario(scenario: str) -> None:
    jobs = [Settings(seed=seed, scenario=scenario) for seed in range(1, 1_001)]
    failed = [result for result in run_all(jobs) if result.violation is not None]
    assert not failed, [(result.settings.seed, result.text) for result in failed]


@pytest.mark.long
@pytest.mark.parametrize("liveness", [False, True], ids=["safety", "liveness"])
def test_a_thousand_seeds_of_chaos_in_which_every_fault_strikes(liveness: bool) -> None:
    settings = Settings(seed=0, seconds=60, liveness=liveness)
    total: Counter[str] = Counter()
    broken = []
    for result in run_all([replace(settings, seed=seed) for seed in range(1, 1_001)]):
        total += result.counts
        if result.violation is not None:
            broken.append((result.settings.seed, result.violation, result.text))
    assert not broken, broken
    silent = [f"fault {kind}" for kind in FAULTS if not total[f"fault {kind}"]]
    silent += [f"point {point}" for point in CORE_POINTS if not total[f"point {point}"]]
    assert not silent
