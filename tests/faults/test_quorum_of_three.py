"""Three nodes: every fault once, one after another, on one cluster that must get over each."""

from collections.abc import Iterator

import pytest

from tests.faults.quorum_faults import FAULTS
from tests.faults.quorum_world import World, world

pytestmark = pytest.mark.real_clients


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("three"), 3) as made:
        yield made


@pytest.mark.parametrize("name", FAULTS)
def test_the_quorum_gets_over(three: World, name: str) -> None:
    three.round(FAULTS[name])
