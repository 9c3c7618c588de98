"""Who died is fenced at once; who is only out of reach keeps its session."""

import time
from pathlib import Path

import pytest

from sparkraft.client.admin import Admin
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

# A session that outlives every wait of these tests: whoever is fenced was fenced without it.
LONG = {"broker.session.timeout.ms": "600000", "broker.heartbeat.interval.ms": "500"}
GONE = "Fencing broker {}: its process has stopped"

CONTROLLERS = [Member(n, roles="controller") for n in (101, 102, 103)]
BROKERS = [Member(n, roles="broker") for n in (1, 2, 3)]


def fenced(cluster: Cluster, node_id: int) -> bool:
    async def work(admin: Admin) -> bool:
        nodes = (await admin.describe_cluster(include_fenced=True)).nodes
        return {node.id: node.is_fenced for node in nodes}[node_id]

    return cluster.ask(work)


def said_by(cluster: Cluster, sentence: str) -> list[int]:
    """The nodes that printed the sentence."""
    return [n for n, node in cluster.nodes.items() if sentence in node.output_path.read_text()]


def test_a_killed_broker_is_fenced_at_once_and_its_next_life_serves_at_once(tmp_path: Path) -> None:
    with Cluster(tmp_path, CONTROLLERS[:1] + BROKERS, overrides=LONG) as cluster:
        cluster.kill(2)
        wait_until(lambda: fenced(cluster, 2), "broker 2 is fenced")
        assert said_by(cluster, GONE.format(2)) == [101]
        cluster.start([2])
        assert not fenced(cluster, 2)
        cluster.kill(1, 3)
        wait_until(lambda: fenced(cluster, 1) and fenced(cluster, 3), "both are fenced")


def test_a_new_controller_finds_the_brokers_that_died_with_the_old_one(tmp_path: Path) -> None:
    members = [Member(n) for n in (1, 2, 3)]
    with Cluster(tmp_path, members, overrides=LONG) as cluster:
        dead = cluster.leader()
        cluster.kill(dead)
        wait_until(lambda: fenced(cluster, dead), "the dead node's broker is fenced")
        said = said_by(cluster, GONE.format(dead))
        assert said
        assert dead not in said


def test_a_broker_that_stands_still_keeps_its_session(tmp_path: Path) -> None:
    overrides = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}
    with Cluster(tmp_path, CONTROLLERS[:1] + BROKERS[:2], overrides=overrides) as cluster:
        cluster.nodes[2].pause()
        try:
            wait_until(lambda: fenced(cluster, 2), "broker 2 is fenced")
        finally:
            cluster.nodes[2].resume()
        assert said_by(cluster, GONE.format(2)) == []
        wait_until(lambda: not fenced(cluster, 2), "broker 2 is back")


def test_where_it_is_switched_off_the_session_counts(tmp_path: Path) -> None:
    overrides = {
        "broker.session.timeout.ms": "10000",
        "broker.heartbeat.interval.ms": "500",
        "broker.refused.connection.fence.enable": "false",
    }
    with Cluster(tmp_path, CONTROLLERS[:1] + BROKERS[:2], overrides=overrides) as cluster:
        before = time.monotonic()
        cluster.kill(2)
        wait_until(lambda: fenced(cluster, 2), "broker 2 is fenced")
        # The last heartbeat may be some seconds old when the process dies.
        assert time.monotonic() - before >= 5
        assert said_by(cluster, GONE.format(2)) == []


def test_a_broker_that_left_in_good_order_is_not_looked_for(tmp_path: Path) -> None:
    with Cluster(tmp_path, CONTROLLERS[:1] + BROKERS[:2], overrides=LONG) as cluster:
        cluster.stop(2)
        assert fenced(cluster, 2)
        cluster.start([2])
        assert not fenced(cluster, 2)
        assert said_by(cluster, GONE.format(2)) == []


@pytest.mark.java
def test_a_broker_of_kafka_that_was_killed_is_fenced_at_once_too(
    tmp_path: Path, kafka_jars: Path
) -> None:
    members = [CONTROLLERS[0], BROKERS[0], Member(2, kind="kafka", roles="broker")]
    with Cluster(tmp_path, members, overrides=LONG, jars=kafka_jars) as cluster:
        wait_until(lambda: not fenced(cluster, 2), "broker 2 serves")
        cluster.kill(2)
        wait_until(lambda: fenced(cluster, 2), "broker 2 is fenced")
        assert said_by(cluster, GONE.format(2)) == [101]
