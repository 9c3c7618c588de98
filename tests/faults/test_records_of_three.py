"""Records on three nodes: every fault once, then the whole history is checked."""

from pathlib import Path

import pytest

from tests.faults.records_faults import FAULTS
from tests.faults.records_world import records_world

pytestmark = [pytest.mark.real_clients, pytest.mark.java]


def test_every_acknowledged_record_is_read_back_once_and_in_order(
    tmp_path: Path, kafka_jars: Path
) -> None:
    with records_world(tmp_path, 3, jars=kafka_jars) as world:
        for name, fault in FAULTS.items():
            world.strike(name, fault)
    world.assert_it_counts(list(FAULTS))
    print(world.account(world.history))  # noqa: T201 (the run's account)
