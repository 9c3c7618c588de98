"""Whole nodes in the simulator: clients at work, faults, and nothing acknowledged is lost."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.campaign import run, run_all
from sparkraft.simulation.node_scenarios import NODE_FAULTS
from sparkraft.simulation.scenarios import Settings

SLICE = 4
NODES = Settings(seed=0, tier="nodes", nodes=3, seconds=20)


def test_three_nodes_create_topics_when_nothing_breaks() -> None:
    result = run(replace(NODES, seed=1, seconds=10, faults=()))
    assert result.violation is None, result.text
    assert result.counts["elections won"] == 1
    assert result.counts["topics created"] > 5
    assert result.counts["producer ids"] > 5


@pytest.mark.parametrize("seed", range(1, SLICE + 1))
def test_nothing_acknowledged_is_lost_whatever_breaks(seed: int) -> None:
    result = run(replace(NODES, seed=seed))
    assert result.violation is None, f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert sum(result.counts[f"fault {kind}"] for kind in NODE_FAULTS) > 0
    assert result.counts["topics created"] > 0


def test_five_nodes_and_one_do_as_well() -> None:
    for nodes in (1, 5):
        result = run(replace(NODES, seed=7, nodes=nodes, seconds=10))
        assert result.violation is None, f"{nodes}: {result.violation} {result.text}"


def test_the_same_seed_is_the_same_run_under_any_hash_seed() -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "sparkraft.cli.main", "simulate", "--tier", "nodes"]
        told = subprocess.run(
            [*command, "--seed", "3", "--seconds", "15"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return next(line for line in told.stdout.splitlines() if line.startswith("digest"))

    assert digest("0") == digest("1") == digest("4242")


@pytest.mark.long
def test_five_hundred_seeds_of_chaos_in_which_every_fault_strikes() -> None:
    total: Counter[str] = Counter()
    jobs = [(replace(NODES, seed=seed, seconds=60), None) for seed in range(1, 501)]
    for result in run_all(jobs):
        assert result.violation is None, (result.settings.seed, result.violation, result.text)
        total += result.counts
    assert not [kind for kind in NODE_FAULTS if not total[f"fault {kind}"]]
