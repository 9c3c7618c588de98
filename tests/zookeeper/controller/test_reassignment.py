"""Phases of a reassignment, against a run of Kafka 3.9.2: t1-0 moved from [1, 2] to [3, 2]."""

import json

import pytest

from sparkraft.zookeeper.controller import failover, partitions, reassignment, replicas
from sparkraft.zookeeper.controller.reassignment import ReassignmentFailedError
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.values import Replica, ReplicaAssignment
from tests.zookeeper.controller.cluster import Cluster

AT = ("t1", 0)
TOPIC = "/brokers/topics/t1"
STATE = f"{TOPIC}/partitions/0/state"
NODE = "/admin/reassign_partitions"


@pytest.fixture
def cluster():
    made = Cluster(1, 2, 3)
    made.topic("t1", {0: [1, 2], 1: [2, 1], 2: [1, 2]}, topic_id="tCd6H9mrR6y44P05yz6EbQ")
    for partition, (leader, isr) in {0: (1, [1, 2]), 1: (2, [2, 1]), 2: (1, [1, 2])}.items():
        made.state(("t1", partition), leader, isr)
    made.make("/admin/x")
    made.run(failover.load(made.active))
    made.run(replicas.initialize(made.active))
    made.run(partitions.initialize(made.active))
    return made


def reassign(cluster, *target):
    assignment = cluster.context.assignment(AT).reassign_to(target)
    cluster.run(reassignment.reassign(cluster.active, AT, assignment))


def topic_data(cluster):
    return cluster.znodes.get(TOPIC).data.decode()


def in_sync(cluster, *isr):
    """The leader changes the ISR, with the leader epoch unchanged."""
    state = cluster.read(AT)
    cluster.state(AT, state["leader"], list(isr), state["leader_epoch"])


def test_it_starts_as_kafka_does(cluster):
    reassign(cluster, 3, 2)
    assert topic_data(cluster) == (
        '{"partitions":{"0":[3,2,1],"1":[2,1],"2":[1,2]},"topic_id":"tCd6H9mrR6y44P05yz6EbQ",'
        '"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}'
    )
    assert cluster.writes == [f"SetData {TOPIC}", f"SetData {STATE}"]
    state = cluster.read(AT)
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 1, [1, 2])
    to_all = [each for each in cluster.sent if each.partitions[AT].leadership.state.leader == 1]
    new = {e.broker: e.partitions[AT].is_new for e in to_all if hasattr(e.partitions[AT], "is_new")}
    assert new == {1: False, 2: False, 3: True}
    assert cluster.context.replica_status(Replica(*AT, 3)) is ReplicaStatus.NEW
    assert cluster.context.being_reassigned == {AT}


def test_it_completes_as_kafka_does(cluster):
    reassign(cluster, 3, 2)
    in_sync(cluster, 1, 2, 3)
    cluster.writes.clear()
    cluster.sent.clear()
    cluster.run(reassignment.resume_all(cluster.active, lambda *_: True))
    assert cluster.writes == [f"SetData {STATE}", f"SetData {STATE}", f"SetData {TOPIC}"]
    state = cluster.read(AT)
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (3, 3, [2, 3])
    assert '{"0":[3,2],"1":[2,1],"2":[1,2]}' in topic_data(cluster)
    assert '"adding_replicas":{},"removing_replicas":{}' in topic_data(cluster)
    stops = [each.partitions[AT] for each in cluster.sent if hasattr(each.partitions[AT], "delete")]
    assert [(each.leader_epoch, each.delete) for each in stops] == [(2, False), (3, True)]
    assert cluster.context.being_reassigned == set()
    assert cluster.context.assignment(AT) == ReplicaAssignment((3, 2))
    assert cluster.context.replica_status(Replica(*AT, 1)) is ReplicaStatus.NON_EXISTENT
    assert cluster.sends()[-3:] == [f"UpdateMetadata to {broker}: t1-0" for broker in (1, 2, 3)]


def test_a_leader_that_stays_gets_the_next_epoch(cluster):
    reassign(cluster, 1, 3)
    in_sync(cluster, 1, 2, 3)
    cluster.run(reassignment.resume_all(cluster.active, lambda *_: True))
    state = cluster.read(AT)
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 3, [1, 3])


def test_a_replaced_reassignment_deletes_the_replicas_that_are_not_needed(cluster):
    reassign(cluster, 3, 2)
    cluster.sent.clear()
    reassign(cluster, 1, 2)
    assert '"0":[1,2]' in topic_data(cluster)
    assert cluster.context.assignment(AT) == ReplicaAssignment((1, 2))
    assert "StopReplica to 3: t1-0" in cluster.sends()
    assert cluster.context.being_reassigned == set()


def test_a_topic_that_is_reassigned_is_ineligible_for_deletion_until_it_ends(cluster):
    cluster.context.topics_to_be_deleted.add("t1")
    reassign(cluster, 3, 2)
    assert cluster.context.topics_ineligible_for_deletion == {"t1"}
    in_sync(cluster, 1, 2, 3)
    cluster.run(reassignment.resume_all(cluster.active, lambda *_: True))
    assert cluster.context.topics_with_deletion_started == {"t1"}


def test_a_partition_without_a_state_can_not_be_reassigned(cluster):
    cluster.topic("t2", {0: [1]})
    cluster.run(failover.load(cluster.active))
    assignment = cluster.context.assignment(("t2", 0)).reassign_to([2])
    with pytest.raises(ReassignmentFailedError, match="no state znode"):
        cluster.run(reassignment.reassign(cluster.active, ("t2", 0), assignment))


def test_the_znode_of_old_tools_is_followed_and_loses_failed_partitions(cluster):
    wanted = [{"topic": "t1", "partition": 0, "replicas": [3, 2]},
              {"topic": "nope", "partition": 0, "replicas": [1]}]  # fmt: skip
    cluster.make(NODE, json.dumps({"version": 1, "partitions": wanted}).encode())
    assert cluster.run(reassignment.reassign_by_znode(cluster.active)) == {AT}
    assert cluster.znodes.get(NODE).data == (
        b'{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[3,2]}]}'
    )
    in_sync(cluster, 1, 2, 3)
    cluster.run(reassignment.resume_all(cluster.active, lambda *_: True))
    assert "reassign_partitions" not in cluster.znodes.get("/admin").children


def test_a_new_controller_continues_it(cluster):
    reassign(cluster, 3, 2)
    in_sync(cluster, 1, 2, 3)
    cluster.active.reset()
    cluster.context.epoch = 7
    cluster.run(failover.fail_over(cluster.active))
    assert cluster.context.assignment(AT) == ReplicaAssignment((3, 2))
    assert cluster.active.journal.of("reassignment")[-1] == "t1-0: completed"


def test_a_new_controller_continues_preferred_elections(cluster):
    cluster.make("/admin/preferred_replica_election",
                 b'{"version":1,"partitions":[{"topic":"t1","partition":2},'
                 b'{"topic":"t1","partition":0},{"topic":"nope","partition":0}]}')  # fmt: skip
    cluster.state(("t1", 2), 2, [2, 1])
    cluster.active.reset()
    cluster.context.epoch = 7
    cluster.run(failover.fail_over(cluster.active))
    assert cluster.read(("t1", 2))["leader"] == 1
    assert "preferred_replica_election" not in cluster.znodes.get("/admin").children
    assert cluster.active.journal.of("failover")[-1] == "1 preferred elections were pending"
