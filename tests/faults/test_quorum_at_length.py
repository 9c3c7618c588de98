"""Every fault twenty times in a row, on three nodes and on five: pieces of `./test --long`."""

from pathlib import Path

import pytest

from tests.faults.quorum_faults import FAULTS, FAULTS_OF_FIVE
from tests.faults.quorum_world import SESSION_SECONDS, world

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

ROUNDS = 20
FLOOD_SESSIONS = 4
"""How many sessions of a broker a flood lasts."""

CASES = [(3, name) for name in FAULTS] + [(5, name) for name in FAULTS_OF_FIVE]


@pytest.mark.parametrize(("nodes", "name"), CASES, ids=[f"{n}-{name}" for n, name in CASES])
def test_twenty_rounds(tmp_path: Path, nodes: int, name: str) -> None:
    fault = FAULTS_OF_FIVE[name]
    with world(tmp_path, nodes) as made:
        made.flood_seconds = FLOOD_SESSIONS * SESSION_SECONDS
        for round_ in range(ROUNDS):
            try:
                made.round(fault)
            except AssertionError as error:
                raise AssertionError(f"round {round_ + 1} of {name}: {error}") from error
        slowest = max(made.recovery_seconds)
        print(  # noqa: T201 (the long run's account)
            f"{name} x {ROUNDS} on {nodes} nodes: {len(made.creations.acknowledged)} topics "
            f"acknowledged, {len(made.leaders)} epochs, recovered in {slowest:.1f} s at most"
        )
