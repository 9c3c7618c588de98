"""Ordinary operation writes no warnings: topics come and go, replicas move, nodes restart."""

import re
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import LeadershipAdmin
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import (
    create_assigned,
    partition_of,
    records_produced_throughout,
    until_in_sync,
)

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

NODES = (1, 2, 3)
TOPIC = "kept"
PARTITIONS = 6
SEVERE = re.compile(r" (WARNING|ERROR|CRITICAL) ")
OF_A_BUSY_MACHINE = re.compile(
    r"The event loop was busy for|Slow request|No contact with a quorum leader"
)
"""Warnings about time, which depend on what else the machine does."""


def warnings(cluster: Cluster) -> str:
    """The lines that should not be there."""
    return "\n".join(
        f"{node_id}: {line}"
        for node_id, node in cluster.nodes.items()
        for line in node.output_path.read_text().splitlines()
        if SEVERE.search(line) and not OF_A_BUSY_MACHINE.search(line)
    )


def delete(cluster: Cluster, names: list[str]) -> None:
    async def work(admin: Admin) -> None:
        assert await admin.delete_topics(names) == dict.fromkeys(names)

    cluster.ask(work)
    wait_until(
        lambda: all(cluster.topics(of=n).isdisjoint(names) for n in NODES), "they are deleted"
    )


def move(cluster: Cluster, replicas: list[int]) -> None:
    """Move all partitions of the topic, and wait until they have arrived."""

    async def work(admin: Admin) -> None:
        wanted = {(TOPIC, index): replicas for index in range(PARTITIONS)}
        outcome = await LeadershipAdmin(admin.cluster).reassign(wanted)
        assert not any(isinstance(error, KafkaError) for error in outcome.values()), outcome

    cluster.ask(work)

    def arrived() -> bool:
        found = [partition_of(cluster, TOPIC, index) for index in range(PARTITIONS)]
        return all(set(each.replicas) == set(each.isr) == set(replicas) for each in found)

    wait_until(arrived, f"the replicas are at {replicas}", 90)


def test_deletions_moves_and_restarts_are_no_warnings(tmp_path: Path) -> None:
    overrides = {**STEADY, "log.segment.delete.delay.ms": "100"}
    with Cluster(tmp_path, [Member(n) for n in NODES], overrides=overrides) as cluster:
        create_assigned(cluster, TOPIC, [[1, 2]] * PARTITIONS)
        with records_produced_throughout(cluster, TOPIC, PARTITIONS, rate=300) as stream:
            names = [f"gone-{number}" for number in range(5)]
            for name in names:
                cluster.create_topic(name, partitions=4, replicas=3)
            delete(cluster, names)
            move(cluster, [2, 3])
            move(cluster, [3, 1])
            move(cluster, [1, 2, 3])
            for node_id in NODES:
                cluster.stop(node_id)
                cluster.start([node_id])
                until_in_sync(cluster, TOPIC, PARTITIONS, 3)
            stream.goes_on()
        assert stream.failures == []
        assert warnings(cluster) == ""
        cluster.kill(2)
        cluster.start([2])
        until_in_sync(cluster, TOPIC, PARTITIONS, 3)
        assert warnings(cluster) == ""
