"""No piece of a decision grows with the number of partitions; its function calls are counted."""

import sys

from sparkraft.zookeeper.controller import brokers, elections, failover, topics
from sparkraft.zookeeper.controller.steps import Worked
from sparkraft.zookeeper.requests import Delete
from tests.zookeeper.controller.cluster import Cluster

TOPICS, PARTITIONS = 200, 5
CALLS_MAX = 10_000
"""A loop over all partitions makes more: at least ten calls for each of 1,000."""


class Counted:
    """A decision that counts the function calls of each piece."""

    def __init__(self, decision) -> None:
        self._decision = decision
        self.most = 0
        self.worked = 0

    def send(self, result):
        calls = 0

        def count(_frame, event, _argument):
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            effect = self._decision.send(result)
        finally:
            sys.setprofile(None)
            self.most = max(self.most, calls)
        self.worked += isinstance(effect, Worked)
        return effect


def test_decisions_about_many_partitions_are_cut_into_pieces():
    cluster = Cluster(1, 2, 3)
    for topic in range(TOPICS):
        replicas = {p: [1 + (p + topic) % 3, 1 + (p + topic + 1) % 3] for p in range(PARTITIONS)}
        cluster.topic(f"t{topic}", replicas)
        for partition, (leader, follower) in replicas.items():
            cluster.state((f"t{topic}", partition), leader, [leader, follower])
    cluster.active.controller_id = 1

    def run(decision) -> None:
        counted = Counted(decision)
        cluster.run(counted)
        assert counted.most < CALLS_MAX
        assert counted.worked >= TOPICS * PARTITIONS // 100

    run(failover.fail_over(cluster.active))
    run(elections.balance(cluster.active))
    cluster.znodes.apply(Delete(path="/brokers/ids/3"), 0, 0)
    run(brokers.on_brokers_changed(cluster.active))
    cluster.register(3)
    run(brokers.on_brokers_changed(cluster.active))
    run(brokers.shut_down(cluster.active, 2))
    for code in (0, 56, 56, 0):  # KAFKA_STORAGE_ERROR, again, and none
        errors = dict.fromkeys(cluster.active.context.partitions(), code)
        run(brokers.on_leader_and_isr_response(cluster.active, 3, 0, errors))
        offline = cluster.active.context.offline_replicas[3]
        assert offline == (set(errors) if code else set())
    errors = dict.fromkeys(cluster.active.context.partitions(), 0)
    run(topics.on_stop_replica_response(cluster.active, 3, 41, errors))
