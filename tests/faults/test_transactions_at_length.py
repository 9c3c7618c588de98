"""Transactions under every fault, again and again for ten minutes: a piece of `./test --long`."""

import time
from functools import partial
from pathlib import Path

import pytest

from tests.faults import quorum_faults
from tests.faults.records_faults import (
    bridge,
    clean_bounces,
    deaf_leader,
    half_open,
    hard_bounces,
    lonely_leader,
    mute_leader,
    pause,
    resets,
    slow_links,
)
from tests.faults.records_world import Fault
from tests.faults.transactions_world import transactions_world

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

SECONDS = 10 * 60

FAULTS: dict[str, Fault] = {
    "hard-bounces": partial(hard_bounces, leaders=3),
    "clean-bounces": partial(clean_bounces, leaders=3),
    "kill-all": quorum_faults.kill_all,
    "pause": pause,
    "deaf-leader": deaf_leader,
    "mute-leader": mute_leader,
    "lonely-leader": lonely_leader,
    "bridge": bridge,
    "half-open": half_open,
    "resets": resets,
    "slow-links": slow_links,
}


def test_ten_minutes_of_faults_tear_no_transaction(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    with transactions_world(tmp_path, moves=True) as world:
        while time.monotonic() < end or len(world.struck) < len(FAULTS):
            waiting = [name for name in FAULTS if not world.struck[name]]
            name = world.dice.choice(waiting or list(FAULTS))
            world.strike(name, FAULTS[name])
    world.assert_it_counts(list(FAULTS))
    print(world.account())  # noqa: T201 (the run's account)
