"""Transactions in the simulator: coordinators fail, and every transaction ends whole."""

from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.scenarios.campaign import run
from sparkraft.simulation.scenarios.coordinator_scenarios import fault_kinds
from sparkraft.simulation.scenarios.core_scenarios import Settings

TRANSACTIONS = Settings(seed=0, tier="nodes", nodes=3, seconds=12, workload="transactions")


def check(settings: Settings) -> Counter[str]:
    result = run(settings)
    text = f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert result.violation is None, f"seed {settings.seed}: {text}"
    return result.counts


@pytest.mark.parametrize("seed", range(1, 11))
def test_transactions_end_whole_under_faults(seed: int) -> None:
    counts = check(replace(TRANSACTIONS, seed=seed))
    assert sum(counts[f"fault {kind}"] for kind in fault_kinds()) > 0
    assert counts["transactions committed"] >= 3


def test_transactions_commit_and_abort_without_faults() -> None:
    counts = check(replace(TRANSACTIONS, seed=1, faults=()))
    assert counts["transactions committed"] > 10
    assert counts["transactions aborted"] > 3
    assert counts["offsets sent"] > 3
    assert counts["records read"] >= counts["transactions committed"]
    assert counts["transitions committed"] > 3 * counts["transactions committed"]


def test_a_run_is_the_same_each_time() -> None:
    first, second = (run(replace(TRANSACTIONS, seed=3, seconds=6)) for _ in range(2))
    assert first.digest == second.digest


@pytest.mark.long
@pytest.mark.parametrize("seed", range(11, 201))
def test_two_hundred_seeds_end_whole(seed: int) -> None:
    check(replace(TRANSACTIONS, seed=seed))
