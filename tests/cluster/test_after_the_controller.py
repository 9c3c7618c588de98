"""What was under way when the active controller died: the next one ends it unasked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.ids import TopicPartition
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.values import Reassignment
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import (
    create_assigned,
    log_folders,
    partition_of,
    read_partition,
    records_produced_throughout,
)

pytestmark = pytest.mark.real_clients

TOPIC = "moved"
OLD, NEW = 1, 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    members = [Member(n, roles="controller") for n in (101, 102, 103)]
    members += [Member(n, roles="broker") for n in (OLD, NEW)]
    with Cluster(tmp_path, members, overrides=STEADY) as cluster:
        yield cluster


def moves(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    """The moves under way, as the active controller lists them."""

    async def work(admin: Admin) -> dict[TopicPartition, Reassignment]:
        return await LeadershipAdmin(admin.cluster).reassignments()

    return cluster.ask(work, of=OLD)


def test_a_move_under_way_is_ended_by_the_next_controller(cluster: Cluster) -> None:
    create_assigned(cluster, TOPIC, [[OLD]])
    with records_produced_throughout(cluster, TOPIC, 1) as stream:
        stream.goes_on()
    produced = stream.acknowledged[0]

    async def move(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(TOPIC, 0): [NEW]})
        assert outcome == {(TOPIC, 0): None}

    # While the newcomer stands still the move can't end.
    cluster.nodes[NEW].pause()
    try:
        cluster.ask(move, of=OLD)
        dead = cluster.leader()
        cluster.kill(dead)
        assert cluster.leader(other_than=dead) != dead
        under_way = Reassignment(replicas=(NEW, OLD), adding=(NEW,), removing=(OLD,))
        assert moves(cluster) == {(TOPIC, 0): under_way}
        assert partition_of(cluster, TOPIC, of=OLD).isr == (OLD,)
    finally:
        cluster.nodes[NEW].resume()

    def ended() -> bool:
        found = partition_of(cluster, TOPIC, of=NEW)
        return found.leader == NEW and found.replicas == found.isr == (NEW,)

    wait_until(ended, "the newcomer has it alone", 90)
    wait_until(lambda: moves(cluster) == {}, "no move is under way", 90)
    wait_until(lambda: not log_folders(cluster.nodes[OLD], TOPIC, 0), "the old copy is gone", 90)
    assert read_partition(cluster.bootstrap, TOPIC, 0) == produced
