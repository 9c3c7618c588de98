"""The checks of transactions on real processes report bugs that are planted in the nodes."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from tests.faults.transactions_world import transactions_world
from tests.support.broken_networks import ProxiedCluster
from tests.support.clusters import KafkaMember, MemberProcess, SparkraftMember

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

VALUES = 400
"""Committed with the bug before everything is checked."""


def cluster_with(bug: str) -> type[ProxiedCluster]:
    """A cluster whose nodes have a bug."""

    class PlantedMember(SparkraftMember):
        def start_command(self) -> list[str]:
            module = ["-m", "tests.faults.planted_node", bug]
            return [sys.executable, *module, "server-start", str(self.properties_path)]

    class PlantedCluster(ProxiedCluster):
        kinds: ClassVar[Mapping[str, type[MemberProcess]]] = {  # type: ignore[misc]
            "sparkraft": PlantedMember,
            "kafka": KafkaMember,
        }

    return PlantedCluster


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("commit-markers-for-aborts", "read_committed: aborted-read"),
        ("a-marker-of-the-other-result", "T[134]: "),
        ("the-last-stable-offset-is-ignored", "T4: |aborted-read"),
        ("no-aborted-transactions-in-a-fetch", "T4: |aborted-read"),
        ("committed-transactions-listed-as-aborted", "T3: |lost-write"),
        ("offsets-count-at-once", "T14: |copy: "),
        ("transactions-never-time-out", "T9: "),
        ("partitions-are-always-free", "K1: |copy: "),
    ],
)
def test_a_planted_bug_is_reported(tmp_path: Path, bug: str, found: str) -> None:
    with (
        pytest.raises(AssertionError, match=found),
        transactions_world(tmp_path, cluster_class=cluster_with(bug)) as world,
    ):
        world.values_go_on(VALUES)
