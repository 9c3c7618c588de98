"""Transactions on three nodes: kills, a pause and a partition, then everything is checked."""

from functools import partial
from pathlib import Path

import pytest

from tests.faults.records_faults import hard_bounces, lonely_leader, pause
from tests.faults.records_world import Fault
from tests.faults.transactions_world import transactions_world

pytestmark = pytest.mark.real_clients

FAULTS: dict[str, Fault] = {
    "hard-bounces": partial(hard_bounces, leaders=1),
    "pause": pause,
    "lonely-leader": lonely_leader,
}


def test_every_transaction_is_committed_or_aborted_as_a_whole(tmp_path: Path) -> None:
    with transactions_world(tmp_path) as world:
        for name, fault in FAULTS.items():
            world.strike(name, fault)
    world.assert_it_counts(list(FAULTS))
    print(world.account())  # noqa: T201 (the run's account)
