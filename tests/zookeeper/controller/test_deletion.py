"""Deletion of topics, against a run of Kafka 3.9.2: t2 was deleted, t3 waited for a directory."""

from dataclasses import replace

import pytest

from sparkraft.zookeeper.controller import (
    deletion,
    failover,
    partitions,
    replicas,
    store,
    topics,
    znodes,
)
from sparkraft.zookeeper.controller.requests import StopReplicaRequest, UpdateMetadataRequest
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.values import Replica
from tests.zookeeper.controller.cluster import Cluster

AT = ("t2", 0)


def cluster_of(*brokers, assigned=(2,)):
    cluster = Cluster(*brokers)
    cluster.topic("t2", {0: list(assigned)})
    cluster.state(AT, assigned[0], list(assigned), epoch=2)
    cluster.make("/config/topics/t2", b'{"version":1,"config":{}}')
    cluster.make("/admin/delete_topics/t2")
    cluster.run(failover.load(cluster.active))
    cluster.run(replicas.initialize(cluster.active))
    cluster.run(partitions.initialize(cluster.active))
    return cluster


def enqueue(cluster):
    cluster.run(deletion.enqueue(cluster.active, ["t2"]))


def respond(cluster, broker, *, failed=False):
    decide = deletion.fail_replicas if failed else deletion.complete_replicas
    cluster.run(decide(cluster.active, [Replica(*AT, broker)]))


def status(cluster, broker):
    return cluster.context.replica_status(Replica(*AT, broker))


def test_a_topic_is_deleted_as_in_kafka():
    cluster = cluster_of(1, 2)
    enqueue(cluster)
    state = cluster.read(AT)
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (-1, 3, [2])
    updates = [each for each in cluster.sent if isinstance(each, UpdateMetadataRequest)]
    assert [each.broker for each in updates] == [1, 2]
    assert {each.partitions[AT].leadership.state.leader for each in updates} == {-2}
    stops = [each for each in cluster.sent if isinstance(each, StopReplicaRequest)]
    assert [(s.broker, s.partitions[AT].leader_epoch, s.partitions[AT].delete) for s in stops] == [
        (2, -2, False), (2, -2, True)]  # fmt: skip
    cluster.writes.clear()
    respond(cluster, 2)
    assert cluster.writes == [
        "Delete /brokers/topics/t2/partitions/0/state",
        "Delete /brokers/topics/t2/partitions/0",
        "Delete /brokers/topics/t2/partitions",
        "Delete /brokers/topics/t2",
        "Delete /config/topics/t2",
        "Delete /admin/delete_topics/t2",
    ]
    assert cluster.context.topics_to_be_deleted == set()
    assert cluster.context.topics == set()
    assert cluster.active.journal.of("deletion") == ["t2: started", "t2: deleted"]


def test_a_topic_waits_for_a_replica_on_a_failed_directory():
    cluster = cluster_of(1, 2, assigned=(2, 1))
    cluster.context.offline_replicas[2] = {AT}
    cluster.run(replicas.move(cluster.active, [Replica(*AT, 2)], ReplicaStatus.OFFLINE))
    enqueue(cluster)
    assert status(cluster, 2) is ReplicaStatus.DELETION_INELIGIBLE
    respond(cluster, 1)
    assert status(cluster, 1) is ReplicaStatus.DELETION_SUCCESSFUL
    assert "t2" in cluster.znodes.get("/brokers/topics").children
    assert cluster.context.topics_ineligible_for_deletion == {"t2"}
    cluster.context.offline_replicas.clear()  # the broker started again
    cluster.run(replicas.move(cluster.active, [Replica(*AT, 2)], ReplicaStatus.ONLINE))
    cluster.run(deletion.resume_topics(cluster.active, ["t2"]))
    assert status(cluster, 2) is ReplicaStatus.DELETION_STARTED
    respond(cluster, 2)
    assert "t2" not in cluster.znodes.get("/brokers/topics").children


def test_a_topic_waits_if_a_broker_fails_to_delete_a_replica():
    cluster = cluster_of(1, 2)
    enqueue(cluster)
    respond(cluster, 2, failed=True)
    assert cluster.context.topics_ineligible_for_deletion == {"t2"}
    assert status(cluster, 2) is ReplicaStatus.OFFLINE  # retried when the topic is eligible
    cluster.run(deletion.resume_topics(cluster.active, ["t2"]))
    respond(cluster, 2)
    assert cluster.context.topics == set()


def test_the_reassignments_of_a_deleted_topic_end():
    """Seed 9 of simulated brokers: a broker started and made the topic eligible again."""
    cluster = cluster_of(1, 2)
    orders = {("t2", 0): (1,), ("t1", 0): (2,)}
    cluster.make("/admin/reassign_partitions", znodes.encode_reassignments(orders))
    cluster.context.being_reassigned |= set(orders)
    enqueue(cluster)
    respond(cluster, 2)
    assert cluster.context.being_reassigned == {("t1", 0)}
    left = cluster.run(store.read_reassignments(cluster.active.ignore))
    assert left == {("t1", 0): (2,)}


def test_nothing_is_sent_twice_while_a_deletion_is_in_progress():
    cluster = cluster_of(1, 2)
    enqueue(cluster)
    cluster.sent.clear()
    cluster.run(deletion.resume(cluster.active))
    assert cluster.sends() == []


def test_other_topics_are_not_resumed():
    cluster = cluster_of(1, 2)
    cluster.run(deletion.resume_topics(cluster.active, ["t2", "other"]))
    respond(cluster, 2)
    assert cluster.context.topics == {"t2"}
    assert cluster.writes == []


def test_topics_stay_if_deletion_is_disabled():
    """Old tools write the znode whatever delete.topic.enable is; a failover may find it."""
    cluster = cluster_of(1, 2)
    cluster.active.controller_id = 1
    cluster.active.settings = replace(cluster.active.settings, deletes_topics=False)
    cluster.make("/admin/delete_topics/unknown")
    cluster.run(topics.on_deletions_changed(cluster.active))
    assert cluster.znodes.get("/admin/delete_topics").children == set()
    cluster.make("/admin/delete_topics/t2")
    cluster.active.reset()
    cluster.context.epoch = 7
    cluster.run(failover.fail_over(cluster.active))
    assert cluster.znodes.get("/admin/delete_topics").children == set()
    text = "t2: not deleted, because delete.topic.enable is false"
    assert cluster.active.journal.of("deletion") == [text] * 2
    assert cluster.context.topics_to_be_deleted == set()
    assert cluster.read(AT)["leader"] == 2
    assert not any(isinstance(each, StopReplicaRequest) for each in cluster.sent)


@pytest.mark.parametrize("live", [True, False])
def test_a_new_controller_continues_a_deletion(live):
    cluster = cluster_of(*((1, 2) if live else (1,)))
    cluster.active.reset()
    cluster.context.epoch = 7
    cluster.run(failover.fail_over(cluster.active))
    started = [] if not live else ["t2: started"]
    assert cluster.active.journal.of("deletion") == started
    assert (status(cluster, 2) is ReplicaStatus.DELETION_STARTED) is live
