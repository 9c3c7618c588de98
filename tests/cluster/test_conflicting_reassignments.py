"""A partition that is being moved is moved elsewhere, or back: Kafka's answer and effect, and ours.

One node of each kind, with the same partitions. The brokers they are moved to are registered and
never alive, so a move ends before the next one is asked for only where it awaits nobody.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.values import Reassignment
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.registrations import registration_of
from tests.support.replicas import create_assigned, partition_of

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.shared_kafka]

TOPIC = "contested"
AWAY = (2, 3, 4)

MOVES: dict[str, list[list[int] | None]] = {
    "to others": [[2], [3]],
    "to some more": [[2], [2, 3]],
    "to fewer": [[2, 3, 4], [3]],
    "to where it comes from": [[2], [1]],
    "to where it comes from, and more": [[2, 3], [1, 3]],
    "to the same again": [[1, 2], [1, 2]],
    "to the same in another order": [[1, 2], [2, 1]],
    "there, back and there": [[2], [1], [2]],
    "elsewhere, then cancelled": [[2], [3], None],
    "to two others, then cancelled": [[2], [3, 4], None],
    "elsewhere, then cancelled twice": [[1, 2], [1, 3], None, None],
    "cancelled, then elsewhere": [[2], None, [3]],
    "to a stranger": [[2], [9]],
    "to nobody": [[2], []],
    "to one twice": [[2], [3, 3]],
}
"""What is asked for a partition of broker 1, in turn; None takes back what is under way."""

OF_ONE_SIZE: dict[str, list[list[int] | None]] = {
    "to another, one size": [[2], [3]],
    "to two, one size": [[2], [3, 4]],
    "back and one more, one size": [[2], [1, 3]],
}
"""The same where the number of replicas may not change (KIP-860)."""


@pytest.fixture
def clusters(tmp_path: Path, shared_kafka: Cluster) -> Iterator[tuple[Cluster, Cluster]]:
    """Ours and Kafka's."""
    with Cluster(tmp_path, [Member(1)], overrides=STEADY) as ours:
        for cluster in (ours, shared_kafka):
            cluster.ask(lambda admin, port=cluster.ports[1][1]: register(admin, port))
            create_assigned(cluster, TOPIC, [[1]] * (len(MOVES) + len(OF_ONE_SIZE)))
        yield ours, shared_kafka


async def register(admin: Admin, controller_port: int) -> None:
    """Let brokers join that nobody will hear of again."""
    cluster_id = (await admin.describe_cluster()).cluster_id
    connection = await Connection.open("127.0.0.1", controller_port, client_id="test")
    for broker in AWAY:
        answer = await connection.send(registration_of(broker, cluster_id))
        assert answer.error_code == 0, answer
    await connection.close()


Told = list[tuple[str, ErrorCode | None, Reassignment | None]]


async def contend(admin: Admin) -> Told:
    """Ask for every move, a partition after another: (case, error code, what is under way then)."""
    leadership = LeadershipAdmin(admin.cluster)
    told: Told = []
    for index, (case, moves) in enumerate((MOVES | OF_ONE_SIZE).items()):
        partition = (TOPIC, index)
        for replicas in moves:
            outcome = await leadership.reassign(
                {partition: replicas}, may_change_replication_factor=case not in OF_ONE_SIZE
            )
            error = outcome[partition]
            under_way = (await leadership.reassignments([partition])).get(partition)
            code = None if error is None else error.code
            told.append((f"{case}: {replicas}", code, under_way))
    return told


def test_conflicting_moves_are_answered_and_done_as_kafka_does(
    clusters: tuple[Cluster, Cluster],
) -> None:
    answers = [cluster.ask(contend) for cluster in clusters]
    different = [pair for pair in zip(*answers, strict=True) if pair[0] != pair[1]]
    assert different == [], "\n".join(map(str, different))
    refused = [case for case, code, _ in answers[0] if code is not None]
    assert refused == [
        "elsewhere, then cancelled twice: None",
        "to a stranger: [9]",
        "to nobody: []",
        "to one twice: [3, 3]",
        "to two, one size: [3, 4]",
        "back and one more, one size: [1, 3]",
    ]
    ours, kafkas = (places(cluster) for cluster in clusters)
    assert ours == kafkas


def places(cluster: Cluster) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Leader, replicas and ISR of every partition, once all was heard of."""
    # A broker that knows of a later topic has heard of everything before.
    cluster.create_topic("afterwards")
    found = [partition_of(cluster, TOPIC, index) for index in range(len(MOVES | OF_ONE_SIZE))]
    return [(each.leader, each.replicas, each.isr) for each in found]
