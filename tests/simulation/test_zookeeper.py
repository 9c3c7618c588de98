"""Brokers in ZooKeeper mode in the simulator: one controller writes, and all end up the same."""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from sparkraft.simulation.scenarios.campaign import Result, run
from sparkraft.simulation.scenarios.zookeeper import ZooKeeperRun
from sparkraft.simulation.scenarios.zookeeper_faults import ZOOKEEPER_FAULTS
from sparkraft.simulation.world.loop import Incarnation, SimLoop
from sparkraft.simulation.world.network import SimNetwork
from sparkraft.simulation.world.nodes import Layout
from tests.mutants.mutant_seeds import assert_seen, by_settings, settings_for
from tests.mutants.registry import CASES, MutantCase

PLANTED = by_settings(case for case in CASES if case.mutant.workload == "zookeeper")

SEEDS, SECONDS = 10, 10

SLOW = (
    "a-controlled-shutdown-forgets-partitions",
    "a-new-session-forgets-the-listeners",
    "any-version-of-the-epoch-guards",
    "changed-registrations-are-ignored",
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
    if Layout.of_zookeeper(seed, None).readdressed:
        assert counts["advertised listeners changed"] > 0


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


def test_a_withdrawn_host_name_leads_nowhere() -> None:
    """`Layout.readdressed`: the machine can still be reached by its other names."""
    loop = SimLoop()
    network = SimNetwork(loop, random.Random(1))
    network.add_host("n1-0", "n1")
    seen: list[str] = []

    class End(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            seen.append(type(exc).__name__)

    async def serve() -> None:
        server = await network.listen(asyncio.Protocol, None, 9092)
        await server.start_serving()

    async def use() -> None:
        await asyncio.sleep(1)
        await network.connect(End, "n1-0", 9092)
        network.withdraw_host("n1-0")
        assert network.listens("n1-0", 9092) is None
        await asyncio.sleep(1)
        try:
            await network.connect(End, "n1-0", 9092)
        except ConnectionRefusedError:
            seen.append("refused")
        await network.connect(End, "n1", 9092)
        seen.append("connected")

    running = []
    for who, work in ((Incarnation("n1"), serve()), (Incarnation("client"), use())):
        boot = partial(loop.create_task, work, context=who.context)
        loop.call_soon(lambda boot=boot: running.append(boot()), context=who.context)
    loop.run_until_world(10)
    assert seen == ["ConnectionResetError", "refused", "connected"]
    loop.bury_tasks()


@pytest.mark.long  # 40 s: ten minutes of clients and brokers
def test_brokers_serve_for_ten_minutes_without_an_ensemble() -> None:
    settings = replace(settings_for(PLANTED[0], 1), seconds=630, faults=())
    simulated = ZooKeeperRun(settings)
    world, acknowledged = simulated.world, []
    try:
        world.after(15, simulated.ensemble.lose_leader)
        for after_s in (16, 300, 614):
            world.after(after_s, lambda: acknowledged.append(world.counts["records acknowledged"]))
        world.after(615, simulated.ensemble.elect_leader)
        simulated.play()
    finally:
        world.close()
    before, half, end = acknowledged
    assert 0 < before < half < end
    assert world.counts["elections won"] == 1, "sessions last"


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
    assert total["advertised listeners changed"] > total["addresses withdrawn"] > 0


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.long if case in AT_THE_END else ()) for case in PLANTED],
    ids=str,
)
def test_a_planted_bug_is_seen_in_zookeeper_mode(case: MutantCase) -> None:
    assert_seen(case)
