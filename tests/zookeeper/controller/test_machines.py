"""The two state machines on znodes in memory: writes, their guards, retries, and requests."""

import pytest

from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import failover, partitions, replicas
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.controller.strategies import Strategy
from sparkraft.zookeeper.controller.values import LeaderAndIsr, Replica, ReplicaAssignment
from tests.zookeeper.controller.cluster import Cluster

AT = ("t", 0)
CAUSE = Cause(CauseKind.PREFERRED, "a test asked for it")


def cluster_of(*brokers, leader=1, isr=(1, 2), unclean=False):
    """One partition on brokers 1 and 2, loaded, with its states derived."""
    cluster = Cluster(*brokers, unclean=unclean)
    cluster.topic("t", {0: [1, 2]})
    cluster.state(AT, leader, list(isr))
    cluster.run(failover.load(cluster.active))
    cluster.run(replicas.initialize(cluster.active))
    cluster.run(partitions.initialize(cluster.active))
    return cluster


def online(cluster, strategy=Strategy.OFFLINE, **options):
    return cluster.run(partitions.move_online(cluster.active, [AT], strategy, CAUSE, **options))


def failures(cluster):
    return cluster.active.journal.of("failed transition")


def test_a_new_partition_gets_its_znodes_and_first_leader():
    cluster = Cluster(2, 3)
    cluster.topic("t", {0: [1, 2, 3]})
    cluster.run(failover.load(cluster.active))
    cluster.run(partitions.move(cluster.active, [AT], PartitionStatus.NEW))
    assert online(cluster) == {}
    assert cluster.writes == [
        "Create /brokers/topics/t/partitions",
        "Create /brokers/topics/t/partitions/0",
        "Create /brokers/topics/t/partitions/0/state",
    ]
    assert cluster.znodes.get("/brokers/topics/t/partitions/0/state").data == (
        b'{"controller_epoch":7,"leader":2,"version":1,"leader_epoch":0,"isr":[2,3]}'
    )
    assert all(p.is_new for p in cluster.sent[0].partitions.values())
    assert cluster.sends() == [
        "LeaderAndIsr to 2: t-0",
        "LeaderAndIsr to 3: t-0",
        "UpdateMetadata to 2: t-0",
        "UpdateMetadata to 3: t-0",
    ]
    assert cluster.context.partition_status(AT) is PartitionStatus.ONLINE


def test_a_new_partition_without_a_live_replica_stays_new():
    cluster = Cluster(9)
    cluster.topic("t", {0: [1, 2]})
    cluster.run(failover.load(cluster.active))
    cluster.run(partitions.move(cluster.active, [AT], PartitionStatus.NEW))
    online(cluster)
    assert cluster.writes == []
    assert cluster.context.partition_status(AT) is PartitionStatus.NEW
    assert failures(cluster) == ["t-0 to OnlinePartition: no assigned replica is live"]


def test_a_state_that_exists_already_fails_the_creation():
    cluster = Cluster(1)
    cluster.topic("t", {0: [1]})
    cluster.run(failover.load(cluster.active))
    cluster.run(partitions.move(cluster.active, [AT], PartitionStatus.NEW))
    cluster.state(AT, 1, [1])
    online(cluster)
    assert cluster.context.partition_status(AT) is PartitionStatus.NEW
    assert "NODE_EXISTS" in failures(cluster)[0]


def test_an_election_increments_the_leader_epoch_and_is_sent():
    cluster = cluster_of(2)
    assert online(cluster) == {AT: LeaderAndIsr(2, (2,), 1, 1)}
    assert cluster.read(AT) == {"controller_epoch": 7, "leader": 2, "version": 1,
                                "leader_epoch": 1, "isr": [2], "znode_version": 1}  # fmt: skip
    assert cluster.sends() == ["LeaderAndIsr to 2: t-0", "UpdateMetadata to 2: t-0"]
    (entry,) = cluster.active.journal.elections.entries()
    assert (entry.election.previous, entry.election.leader) == (1, 2)
    assert entry.election.reason.cause == CAUSE


def test_an_election_that_meets_a_change_by_the_leader_is_decided_again():
    cluster = cluster_of(1, 2, leader=2)

    def shrink():
        cluster.before_write = lambda: None
        cluster.state(AT, 2, [2], epoch=3)

    cluster.before_write = shrink
    results = online(cluster, Strategy.PREFERRED)
    assert results == {AT: "no replica may lead under PreferredReplicaPartition"
                           "LeaderElectionStrategy"}  # fmt: skip
    assert cluster.read(AT)["leader"] == 2
    assert cluster.writes == []


def test_the_controller_writes_nothing_after_another_was_elected():
    cluster = cluster_of(2)
    cluster.set("/controller_epoch", b"8")
    with pytest.raises(ControllerMovedError):
        online(cluster)
    assert cluster.read(AT)["znode_version"] == 0
    assert cluster.sends() == []


def test_a_state_of_a_newer_controller_is_not_changed():
    cluster = cluster_of(2)
    cluster.state(AT, 1, [1, 2], by=8)
    assert online(cluster) == {AT: "the state was written by the controller of epoch 8"}
    assert cluster.writes == []


def test_an_unclean_election_follows_the_config_of_the_topic():
    cluster = cluster_of(2, isr=[1])
    assert isinstance(online(cluster)[AT], str)
    cluster.make("/config/topics/t",
                 b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')  # fmt: skip
    assert online(cluster)[AT].leader == 2
    assert b'"leader_recovery_state":1' in cluster.znodes.get(
        "/brokers/topics/t/partitions/0/state").data  # fmt: skip


def test_an_unclean_election_follows_the_config_of_the_broker_unless_the_topic_has_one():
    cluster = cluster_of(2, isr=[1], unclean=True)
    cluster.make("/config/topics/t",
                 b'{"version":1,"config":{"unclean.leader.election.enable":"false"}}')  # fmt: skip
    assert isinstance(online(cluster)[AT], str)
    cluster.set("/config/topics/t", b'{"version":1,"config":{}}')
    assert online(cluster)[AT].leader == 2


def test_an_unclean_election_may_be_forced():
    assert online(cluster_of(2, isr=[1]), unclean=True)[AT].leader == 2


def test_a_transition_that_the_table_does_not_allow_is_skipped():
    cluster = cluster_of(1, 2)
    cluster.run(partitions.move(cluster.active, [AT], PartitionStatus.NEW))
    assert cluster.context.partition_status(AT) is PartitionStatus.ONLINE
    assert failures(cluster) == ["t-0 to NewPartition: it is OnlinePartition"]


def move(cluster, broker, status):
    cluster.run(replicas.move(cluster.active, [Replica(*AT, broker)], status))
    return cluster.context.replica_status(Replica(*AT, broker))


def test_an_offline_follower_leaves_the_isr():
    cluster = cluster_of(1, 2)
    assert move(cluster, 2, ReplicaStatus.OFFLINE) is ReplicaStatus.OFFLINE
    assert cluster.read(AT)["isr"] == [1]
    assert cluster.read(AT)["leader_epoch"] == 1
    assert cluster.sends() == [
        "LeaderAndIsr to 1: t-0",
        "UpdateMetadata to 1: t-0",
        "UpdateMetadata to 2: t-0",
        "StopReplica to 2: t-0",
    ]


def test_an_offline_leader_leaves_the_partition_without_one_and_stays_as_last_of_the_isr():
    cluster = cluster_of(1, 2, isr=[1])
    move(cluster, 1, ReplicaStatus.OFFLINE)
    state = cluster.read(AT)
    assert (state["leader"], state["isr"], state["leader_epoch"]) == (-1, [1], 1)


def test_a_replica_outside_of_the_isr_changes_no_znode_when_it_goes_offline():
    cluster = cluster_of(1, 2, isr=[1])
    move(cluster, 2, ReplicaStatus.OFFLINE)
    assert cluster.writes == []
    assert cluster.sends()[0] == "LeaderAndIsr to 1: t-0"


def test_an_offline_replica_of_a_topic_being_deleted_is_not_sent_to_the_others():
    cluster = cluster_of(1, 2)
    cluster.context.topics_to_be_deleted.add("t")
    move(cluster, 2, ReplicaStatus.OFFLINE)
    assert cluster.sent[0].partitions[AT].leader_epoch == -2
    assert cluster.sends() == ["StopReplica to 2: t-0"]


def test_deletion_goes_through_its_states_and_forgets_the_replica():
    cluster = cluster_of(1, 2)
    move(cluster, 2, ReplicaStatus.OFFLINE)
    cluster.sent.clear()
    assert move(cluster, 2, ReplicaStatus.DELETION_STARTED) is ReplicaStatus.DELETION_STARTED
    assert cluster.sent[0].partitions[AT].delete
    move(cluster, 2, ReplicaStatus.DELETION_SUCCESSFUL)
    assert move(cluster, 2, ReplicaStatus.NON_EXISTENT) is ReplicaStatus.NON_EXISTENT
    assert cluster.context.assignment(AT) == ReplicaAssignment((1,))


def test_a_replica_added_by_a_reassignment_is_sent_as_new():
    cluster = cluster_of(1, 2, 3)
    cluster.context.assign(AT, ReplicaAssignment((1, 2)).reassign_to((3, 2)))
    assert move(cluster, 3, ReplicaStatus.NEW) is ReplicaStatus.NEW
    assert cluster.sent[0].partitions[AT].is_new
    assert cluster.sent[0].partitions[AT].assignment == ReplicaAssignment((3, 2, 1), (3,), (1,))
    cluster.sent.clear()
    assert move(cluster, 3, ReplicaStatus.ONLINE) is ReplicaStatus.ONLINE
    assert cluster.sends() == []


def test_the_leader_can_not_become_a_new_replica():
    cluster = cluster_of(1, 2)
    del cluster.context.replica_statuses[Replica(*AT, 1)]
    assert move(cluster, 1, ReplicaStatus.NEW) is ReplicaStatus.NON_EXISTENT
    assert failures(cluster) == [
        "replica 1 of t-0 to NewReplica: it is the leader, and a new replica may only follow"
    ]
