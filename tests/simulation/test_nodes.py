"""Whole nodes in the simulator: clients at work, faults, and nothing acknowledged is lost."""

import gc
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import sparkraft
from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.checks.versions import record_is_allowed, request_is_allowed
from sparkraft.simulation.scenarios.campaign import run, run_all
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.node_faults import (
    MOVE_FAULTS,
    NODE_FAULTS,
    RECORD_FAULTS,
    lonely_leader,
)
from sparkraft.simulation.scenarios.node_scenarios import KAFKAS
from sparkraft.simulation.workload.clients import Workload
from sparkraft.simulation.workload.record_clients import PARTITIONS
from sparkraft.simulation.world.nodes import Layout, NodesWorld
from sparkraft.simulation.world.points import POINTS

SLICE = 2
"""Seeds of each kind in every run of the tests; the long ones run hundreds."""

NODES = Settings(seed=0, tier="nodes", nodes=3, seconds=20)


def check(settings: Settings) -> Counter[str]:
    result = run(settings)
    text = f"{result.violation} {result.text}\n{''.join(result.tail)}"
    assert result.violation is None, f"seed {settings.seed}: {text}"
    return result.counts


def test_three_nodes_create_topics_when_nothing_breaks() -> None:
    counts = check(replace(NODES, seed=1, seconds=10, faults=()))
    assert counts["elections won"] == 1
    assert counts["topics created"] > 5
    assert counts["producer ids"] > 5


@pytest.mark.parametrize("seed", range(1, 3 * SLICE + 1))
def test_nothing_acknowledged_is_lost_whatever_breaks(seed: int) -> None:
    counts = check(replace(NODES, seed=seed))
    assert sum(counts[f"fault {kind}"] for kind in NODE_FAULTS) > 0
    assert counts["topics created"] > 0


@pytest.mark.parametrize("seed", range(1, SLICE + 1))
def test_a_majority_converges_though_the_rest_stays_broken(seed: int) -> None:
    counts = check(replace(NODES, seed=seed, liveness=True))
    assert counts["topics created"] > 0


@pytest.mark.parametrize("seed", range(1, 3 * SLICE + 1))
def test_records_are_read_once_and_in_order_whatever_breaks(seed: int) -> None:
    counts = check(replace(NODES, seed=seed, workload="produce-consume"))
    assert counts["records acknowledged"] >= 20
    assert counts["records read"] >= 2 * counts["records acknowledged"]


def test_records_flow_when_nothing_breaks() -> None:
    counts = check(replace(NODES, seed=1, seconds=10, workload="produce-consume", faults=()))
    assert counts["records acknowledged"] > 200
    assert counts["offsets committed"] > 5
    assert counts["partitions given"] >= PARTITIONS
    assert counts["wrong epochs refused"] > 5
    assert counts["keyed read"] == counts["short read"] == 1


@pytest.mark.parametrize("seed", range(1, 2 * SLICE + 1))
def test_records_outlive_their_leaders(seed: int) -> None:
    counts = check(replace(NODES, seed=seed, scenario="leaders-come-and-go"))
    assert counts["records acknowledged"] >= 20


def test_records_outlive_the_moves_of_their_replicas() -> None:
    total: Counter[str] = Counter()
    for seed in (6, 10):  # both finish a move
        total += check(replace(NODES, seed=seed, scenario="replicas-move"))
    assert total["records acknowledged"] >= 40
    assert total["reassignments done"] > 0


def test_brokers_outlive_late_registrations_of_earlier_processes() -> None:
    counts = check(replace(NODES, seed=2, seconds=12, scenario="registrations-arrive-late"))
    assert counts["late registration: NONE"] >= 2


@pytest.mark.parametrize("mended", [False, True])
def test_a_fault_that_lasts_strikes_no_more_once_all_is_mended(*, mended: bool) -> None:
    world = NodesWorld(seed=1, observed_by=NodeChecks, layout=Layout.of_records(1, 3))
    try:
        world.start_all(Workload(world).clients)
        assert world.run_for(60, lambda: world.counts["records acknowledged"] > 0)
        lives = [machine.life for machine in world.machines]
        assert world.run_for(10, lambda: lonely_leader(world))
        world.is_healed = mended
        world.run_for(8)
        assert ([machine.life for machine in world.machines] == lives) is mended
    finally:
        world.close()


@pytest.mark.parametrize("nodes", [1, 5])
def test_five_nodes_and_one_do_as_well(nodes: int) -> None:
    check(replace(NODES, seed=7, nodes=nodes, seconds=10))


@pytest.mark.parametrize("scenario", KAFKAS)
def test_kafkas_scenarios_come_out_well_on_whole_nodes(scenario: str) -> None:
    for seed in range(1, SLICE + 1):
        check(replace(NODES, seed=seed, scenario=scenario, nodes=None))


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        ("can-elect-initial-leader", 807),  # text of a topic when a node is yet to hear of it
        ("can-elect-new-leader-after-old-leader-failure", 157),  # killed on its way out, and back
    ],
)
def test_what_happens_at_the_last_moment_is_no_violation(scenario: str, seed: int) -> None:
    check(replace(NODES, seed=seed, scenario=scenario, nodes=None))


@pytest.mark.parametrize(
    "seed",
    [
        22,  # a move that is taken back after the replica it added was text to go
        29,  # a replica goes, and another of the same partition comes
        60,  # an operator takes out whom the leader asks to leave
        249,  # the answer to a producer is on its way when the replica goes
    ],
)
def test_what_crosses_a_move_is_no_violation(seed: int) -> None:
    check(replace(NODES, seed=seed, scenario="replicas-move", seconds=40))


@pytest.mark.parametrize("seed", [840, 1000])
def test_an_old_leader_may_be_paused_or_slow_to_write_what_is_committed(seed: int) -> None:
    """Of 840 a fault point pauses the leader that is to stop; in 1000 a vote waits for the disk."""
    scenario = "can-elect-new-leader-after-old-leader-failure"
    check(replace(NODES, seed=seed, nodes=None, scenario=scenario))


def test_a_minority_may_be_lost_for_good_after_moves_that_left_two_replicas() -> None:
    counts = check(replace(NODES, seed=3, scenario="replicas-move", seconds=40, liveness=True))
    assert counts["end of moves: NONE"] >= 1


def test_a_voter_that_is_being_started_again_is_not_lost() -> None:
    check(replace(NODES, seed=291, seconds=60, liveness=True))


@pytest.mark.parametrize("seed", [3, 119, 192])
def test_records_flow_on_when_a_minority_is_broken_for_good(seed: int) -> None:
    check(replace(NODES, seed=seed, seconds=60, liveness=True, workload="produce-consume"))


def test_a_world_that_is_over_is_forgotten() -> None:
    def worlds() -> int:
        return sum(type(found) is NodesWorld for found in gc.get_objects())

    gc.collect()
    before, spared = worlds(), gc.get_freeze_count()
    for seed in range(1, 4):
        check(replace(NODES, seed=seed, seconds=2))
    assert worlds() <= before + 1  # the last one is collected by whoever comes next
    # A freeze would spare hundreds of thousands more; a frozen object may end meanwhile.
    assert gc.get_freeze_count() <= spared


def test_who_has_heard_of_a_later_leader_asks_no_former_one() -> None:
    check(replace(NODES, seed=380, seconds=60, workload="produce-consume"))


def test_a_voter_that_joined_counts_when_all_were_killed() -> None:
    check(replace(NODES, seed=680, scenario="can-recover-after-all-nodes-killed", nodes=None))


@pytest.mark.parametrize("workload", ["create-topics", "produce-consume"])
def test_the_same_seed_is_the_same_run_under_any_hash_seed(workload: str) -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "sparkraft.cli.main", "simulate", "--tier", "nodes"]
        text = subprocess.run(
            [*command, "--seed", "3", "--seconds", "6", "--workload", workload],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return next(line for line in text.stdout.splitlines() if line.startswith("digest"))

    assert digest("0") == digest("1") == digest("4242")


def test_the_products_fault_points_are_those_that_the_simulator_knows() -> None:
    source = Path(sparkraft.__file__).parent
    asked = Counter[str]()
    for path in sorted(source.rglob("*.py")):
        if "simulation" not in path.parts:
            asked.update(re.findall(r"fault_point\(\s*\"(\w+)\"", path.read_text()))
    assert set(asked) == set(POINTS)
    assert len(POINTS) >= 25


@pytest.mark.parametrize(
    ("kind", "version", "level", "allowed"),
    [
        (3, 2, 22, False),
        (3, 2, 23, True),
        (3, 1, 16, False),
        (0, 4, 29, False),
        (0, 4, 30, True),
        (27, 0, 14, False),
        (27, 0, 15, True),
        (23, 0, 12, False),
        (2, 0, 7, True),
        (2, 1, 30, False),
    ],
)
def test_a_record_waits_for_the_version_that_knows_it(
    kind: int, version: int, level: int, *, allowed: bool
) -> None:
    assert record_is_allowed(kind, version, level) is allowed


def test_brokers_fetch_and_register_only_as_the_version_allows() -> None:
    assert not request_is_allowed(1, 18, 26, to_broker=True)
    assert request_is_allowed(1, 18, 27, to_broker=True)
    assert request_is_allowed(1, 18, 7, to_broker=False)
    assert not request_is_allowed(70, 0, 14, to_broker=False)
    assert not request_is_allowed(73, 0, 16, to_broker=False)


def all_clean(settings: Settings, seeds: range) -> Counter[str]:
    """What the runs of all seeds counted; every seed that broke an invariant is text."""
    total: Counter[str] = Counter()
    broken = []
    for result in run_all([replace(settings, seed=seed) for seed in seeds]):
        total += result.counts
        if result.violation is not None:
            broken.append(f"seed {result.settings.seed}: {result.violation}: {result.text}")
    assert not broken, "\n".join(broken)
    return total


@pytest.mark.long
@pytest.mark.parametrize("scenario", KAFKAS)
def test_a_thousand_seeds_of_each_scenario_on_whole_nodes(scenario: str) -> None:
    all_clean(replace(NODES, scenario=scenario, nodes=None), range(1, 1_001))


@pytest.mark.long
def test_five_hundred_seeds_of_records_written_and_read() -> None:
    total = all_clean(replace(NODES, seconds=60, workload="produce-consume"), range(1, 501))
    assert total["records acknowledged"] > 50_000
    assert total["fenced on refusal"] > 0
    reached = [name for name, point in POINTS.items() if point.workload == "produce-consume"]
    assert not [name for name in reached if not total[f"point {name}"]]


@pytest.mark.long
def test_five_hundred_seeds_of_leaders_that_come_and_go() -> None:
    total = all_clean(replace(NODES, scenario="leaders-come-and-go"), range(1, 501))
    assert not [kind for kind in RECORD_FAULTS if not total[f"fault {kind}"]]


@pytest.mark.long
@pytest.mark.parametrize("liveness", [False, True], ids=["safety", "liveness"])
def test_three_hundred_seeds_of_replicas_that_move(liveness: bool) -> None:
    settings = replace(NODES, scenario="replicas-move", seconds=40, liveness=liveness)
    total = all_clean(settings, range(1, 301))
    silent = [kind for kind in (*RECORD_FAULTS, *MOVE_FAULTS) if not total[f"fault {kind}"]]
    silent += [how for how in ("done", "cancelled") if not total[f"reassignments {how}"]]
    assert not silent


@pytest.mark.long
@pytest.mark.parametrize("liveness", [False, True], ids=["safety", "liveness"])
def test_five_hundred_seeds_of_chaos_in_which_every_fault_strikes(liveness: bool) -> None:
    total = all_clean(replace(NODES, seconds=60, liveness=liveness), range(1, 501))
    silent = [f"fault {kind}" for kind in NODE_FAULTS if not total[f"fault {kind}"]]
    reached = [name for name, point in POINTS.items() if point.workload == "create-topics"]
    silent += [f"point {name}" for name in reached if not total[f"point {name}"]]
    assert not silent
