"""Apache Kafka's node behind the fault proxy, in one cluster with ours: it is told by its ids."""

from functools import partial
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from tests.cluster.conftest import QUICK
from tests.faults.quorum_world import TRY_MS
from tests.support.broken_networks import ProxiedCluster
from tests.support.clusters import Member
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

SECONDS_MAX = 120


def test_a_node_of_kafka_is_cut_off_and_comes_back(tmp_path: Path, kafka_jars: Path) -> None:
    members = [Member(1, "kafka"), Member(2), Member(3)]

    def sees(of: int, wanted: set[int]) -> bool:
        async def work(admin: Admin) -> set[int]:
            return {node.id for node in (await admin.describe_cluster()).nodes}

        try:
            return cluster.ask(work, of=of, timeout_ms=TRY_MS) == wanted
        except KafkaError:
            return False

    with ProxiedCluster(tmp_path, members, overrides=QUICK, jars=kafka_jars) as cluster:
        for node in (1, 2, 3):
            wait_until(partial(sees, node, {1, 2, 3}), f"{node} sees all", SECONDS_MAX)
        cluster.network("mute 1")
        wait_until(partial(sees, 2, {2, 3}), "nobody hears of node 1", SECONDS_MAX)
        cluster.create_topic("without-it", of=2)
        cluster.network("heal")
        wait_until(partial(sees, 3, {1, 2, 3}), "node 1 is back", SECONDS_MAX)
        wait_until(lambda: "without-it" in cluster.topics(of=1), "it has caught up", SECONDS_MAX)
        assert cluster.network_faults_seen()["cut"]
