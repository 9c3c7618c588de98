"""Groups in the simulator: coordinators fail, members come and go, and every group converges."""

from collections import Counter
from dataclasses import replace

import pytest

from sparkraft.simulation.scenarios.campaign import run
from sparkraft.simulation.scenarios.coordinator_scenarios import fault_kinds
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.workload.group_ledger import GroupLedger, Taken

GROUPS = Settings(seed=0, tier="nodes", nodes=3, seconds=12, workload="groups")


def check(settings: Settings) -> Counter[str]:
    result = run(settings)
    text = f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert result.violation is None, f"seed {settings.seed}: {text}"
    return result.counts


STATIC_MEMBER_WITH_ANOTHER_SUBSCRIPTION = 45
"""It takes over the target of its predecessor until the next one is computed."""


@pytest.mark.parametrize("seed", [*range(1, 11), STATIC_MEMBER_WITH_ANOTHER_SUBSCRIPTION])
def test_groups_converge_after_faults(seed: int) -> None:
    counts = check(replace(GROUPS, seed=seed))
    assert sum(counts[f"fault {kind}"] for kind in fault_kinds()) > 0
    assert counts["partitions given"] >= 5


def test_groups_are_converted_and_members_leave_without_faults() -> None:
    """Three seeds together: a seed alone depends on each number that the simulation draws."""
    counts: Counter[str] = Counter()
    for seed in (1, 3, 6):
        counts += check(replace(GROUPS, seed=seed, faults=()))
    assert counts["heartbeats accepted"] > 90
    assert counts["members left"] > 9
    assert counts["groups converted"] >= 2
    assert counts["offsets committed"] > 15
    assert counts["group records committed"] > 150


@pytest.mark.parametrize(("current", "taken"), [(2, None), (3, Taken("k2.0", 7))])
def test_only_commits_in_earlier_epochs_are_of_taken_partitions(
    current: int, taken: Taken | None
) -> None:
    """A member loses a partition by a new subscription and stays in its epoch."""
    ledger, partition = GroupLedger(None), (b"topic", 1)  # type: ignore[arg-type] (no world)
    ledger.on_given("k0.0", partition, 2, "n1")
    ledger.on_released("k0.0", partition)
    ledger.on_given("k2.0", partition, 7, "n1")
    assert ledger.taken_from("k0.0", partition, 2, current=current) == taken


def test_a_run_is_the_same_each_time() -> None:
    first, second = (run(replace(GROUPS, seed=3, seconds=4)) for _ in range(2))
    assert first.digest == second.digest


def test_coordinators_that_lead_again_have_new_shards() -> None:
    counts = check(replace(GROUPS, seed=3, scenario="coordinators-return"))
    assert counts["shards closed"] > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(11, 201))
def test_two_hundred_seeds_converge(seed: int) -> None:
    check(replace(GROUPS, seed=seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 41))
def test_forty_seeds_of_coordinators_that_lead_again_converge(seed: int) -> None:
    check(replace(GROUPS, seed=seed, scenario="coordinators-return"))
