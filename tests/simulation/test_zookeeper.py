"""Brokers in ZooKeeper mode in the simulator: one controller writes, and all end up the same."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.scenarios.campaign import Result, run
from sparkraft.simulation.scenarios.zookeeper_faults import ZOOKEEPER_FAULTS
from tests.mutants.mutant_seeds import assert_seen, by_settings, settings_for
from tests.mutants.registry import CASES, MutantCase

PLANTED = by_settings(case for case in CASES if case.mutant.workload == "zookeeper")

SEEDS, SECONDS = 10, 10

SLOW = (
    "a-controlled-shutdown-forgets-partitions",
    "any-version-of-the-epoch-guards",
    "kafka-7235-broker-epochs-are-ignored",
)
"""Planted bugs that take a minute or more to show."""

AT_THE_END = [case for case in PLANTED if case.mutant.seen_by[-1] == "Z8" or case.name in SLOW]
"""Planted bugs that show only in the healed cluster, which then waits for nothing: slow runs."""


def counts_of(result: Result) -> Counter[str]:
    text = f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert result.violation is None, f"seed {result.settings.seed}: {text}"
    assert result.checks["Z8"] > 0
    return result.counts


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_cluster_in_zookeeper_mode_survives_faults(seed: int) -> None:
    result = run(replace(settings_for(PLANTED[0], seed), seconds=SECONDS))
    counts = counts_of(result)
    assert sum(count for name, count in counts.items() if name.startswith("fault ")) > 0
    assert counts["elections won"] > 0
    assert {f"Z{number}" for number in range(1, 7)} <= set(result.checks)


def test_the_same_seed_is_the_same_run_under_any_hash_seed() -> None:
    """LeaderAndIsr changed the partitions of its topics in the order of a set of ids."""

    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "sparkraft.cli.main", "simulate"]
        text = subprocess.run(
            [*command, "--cluster", "zookeeper", "--seed", "7", "--seconds", "8"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return next(line for line in text.stdout.splitlines() if line.startswith("digest"))

    assert digest("1") == digest("2")


@pytest.mark.long
def test_every_fault_strikes_and_every_operation_succeeds() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS + 1, 5 * SEEDS + 1):
        total += counts_of(run(settings_for(PLANTED[0], seed)))
    assert {f"fault {kind}" for kind in ZOOKEEPER_FAULTS} <= set(total)
    done = ("topics created", "topics deleted", "partitions added", "reassignments begun")
    assert all(total[name] for name in done), total
    assert total["reassignments cancelled"] > 0
    assert total["znodes reassign_partitions"] > 0
    assert total["znodes preferred_replica_election"] > 0


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.long if case in AT_THE_END else ()) for case in PLANTED],
    ids=str,
)
def test_a_planted_bug_is_seen_in_zookeeper_mode(case: MutantCase) -> None:
    assert_seen(case)
