"""Five nodes, of which two may fail at once: every fault once, on one cluster."""

from collections.abc import Iterator

import pytest

from tests.faults.quorum_faults import FAULTS_OF_FIVE
from tests.faults.quorum_world import World, world

pytestmark = pytest.mark.real_clients


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("five"), 5) as made:
        yield made


@pytest.mark.parametrize("name", FAULTS_OF_FIVE)
def test_the_quorum_gets_over(five: World, name: str) -> None:
    five.round(FAULTS_OF_FIVE[name])
