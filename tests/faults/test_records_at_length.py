"""Records under every fault, again and again for half an hour: pieces of `./test --long`."""

import time
from pathlib import Path

import pytest

from tests.faults.records_faults import FAULTS_AT_LENGTH
from tests.faults.records_world import records_world

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

SECONDS = 30 * 60


@pytest.mark.parametrize("nodes", [3, 5])
def test_half_an_hour_of_faults_loses_nothing(tmp_path: Path, kafka_jars: Path, nodes: int) -> None:
    faults = list(FAULTS_AT_LENGTH)
    end = time.monotonic() + SECONDS
    with records_world(tmp_path, nodes, jars=kafka_jars) as world:
        while time.monotonic() < end or len(world.struck) < len(faults):
            waiting = [name for name in faults if not world.struck[name]]
            name = world.dice.choice(waiting or faults)
            world.strike(name, FAULTS_AT_LENGTH[name])
    world.assert_it_counts(faults)
    print(world.account(world.history))  # noqa: T201 (the run's account)
