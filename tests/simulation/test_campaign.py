"""A run that never ends is a failing seed, not a campaign that hangs."""

import asyncio
import signal
from typing import Any

import pytest

from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.scenarios import campaign, node_scenarios
from sparkraft.simulation.scenarios import core_scenarios as scenarios
from sparkraft.simulation.scenarios.core_scenarios import Settings, make_world
from sparkraft.simulation.world.nodes import NodesWorld


def stands_still(settings: Settings) -> Any:
    """A core that computes and computes."""
    make_world(settings, voters=(1, 1), dynamic=True).run_for(1500)
    while True:
        pass


def goes_round(settings: Settings) -> NodesWorld:
    """A node that gives others their turns, but lets no time pass."""
    world = NodesWorld(settings.seed, 1, observed_by=NodeChecks)
    settings.on_world(world)

    async def ask_over_and_over() -> None:
        while True:  # noqa: ASYNC110 (the very bug that is to be told)
            await asyncio.sleep(0)

    try:
        world.start_all([])
        world.run_for(2)
        world.loop.create_task(ask_over_and_over())
        world.run_for(60)
    finally:
        world.close()
    return world


@pytest.fixture(scope="module")
def loaded() -> None:
    """A node loads most of its modules at first use: that is no part of a run's second."""
    world = NodesWorld(7, 1, observed_by=NodeChecks)
    try:
        world.start_all([])
        world.run_for(2)
    finally:
        world.close()


@pytest.fixture(autouse=True)
def short_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has a second, whatever it plays."""
    monkeypatch.setattr(campaign, "REAL_SECONDS_MAX", 1.0)
    monkeypatch.setattr(campaign, "REAL_SECONDS_MAX_A_SECOND", 0.0)


def test_a_core_that_never_ends_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scenarios.SCENARIOS, "stands-still", stands_still)
    result = campaign.run(Settings(seed=7, scenario="stands-still"))
    assert result.violation == "Ending"
    assert f"{result.simulated_ms / 1000:.3f} simulated seconds" in result.text
    assert "stands_still (test_campaign.py:" in result.text


@pytest.mark.usefixtures("loaded")
def test_a_node_that_never_ends_is_told_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(node_scenarios.NODE_SCENARIOS, "goes-round", goes_round)
    result = campaign.run(Settings(seed=7, tier="nodes", scenario="goes-round"))
    assert result.violation == "Ending"
    assert "2.000 simulated seconds" in result.text
    assert result.tail


def test_a_run_that_ends_leaves_no_alarm_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "REAL_SECONDS_MAX", 1000.0)
    before = signal.getsignal(signal.SIGALRM)
    assert campaign.run(Settings(seed=7, seconds=1)).violation is None
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
