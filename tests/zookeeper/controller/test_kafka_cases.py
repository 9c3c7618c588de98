"""Cases of Kafka 3.9's ControllerIntegrationTest that no other test of this folder has.

Each is named after Kafka's test. The others: creation, expansion and deletion, preferred and
automatic elections, controlled shutdown and AlterPartition in `test_controller`, `test_deletion`
and `test_requests_of_*`; moves of the controller in `test_election` and
`broker/test_own_controller`.
"""

import json

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.zookeeper.controller import events, failover, store
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller.values import ReplicaAssignment
from tests.zookeeper.controller.cluster import Cluster
from tests.zookeeper.controller.test_controller import cluster_of, handle, kill, state_of

TOPIC = "/brokers/topics/t"


def features_of(cluster) -> dict:
    return json.loads(cluster.znodes.get("/feature").data)


def start(cluster, broker) -> None:
    cluster.register(broker)
    handle(cluster, events.BrokersChanged())


def reassign(cluster, *target) -> None:
    handle(cluster, events.AlterReassignments({("t", 0): target}))


def test_topic_creation_with_offline_replica():
    """testTopicCreationWithOfflineReplica: live replicas lead and are in sync."""
    cluster = cluster_of(2)
    cluster.topic("t", {0: [1, 2]})
    handle(cluster, events.TopicsChanged())
    assert state_of(cluster, "t", 0) == (2, 0, [2])


def test_topic_partition_expansion_with_offline_replica():
    """testTopicPartitionExpansionWithOfflineReplica."""
    cluster = cluster_of(1, topics={"t": {0: ([1, 2], 1, [1], 0)}})
    data = {"version": 3, "partitions": {"0": [1, 2], "1": [2, 1]}}
    cluster.set(TOPIC, json.dumps(data).encode())
    handle(cluster, events.TopicModified("t"))
    assert state_of(cluster, "t", 1) == (1, 0, [1])


def test_metadata_propagation_on_broker_shutdown_with_no_replicas():
    """testMetadataPropagationOnBrokerShutdownWithNoReplicas: the others learn that it has left."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1], 1, [1], 0)}})
    kill(cluster, 2)
    assert cluster.sends() == ["UpdateMetadata to 1:"]
    assert cluster.writes == []


def test_metadata_propagation_for_offline_replicas():
    """testMetadataPropagationForOfflineReplicas: UpdateMetadata names those of dead brokers."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 1, [1, 2], 0)}})
    kill(cluster, 2)
    updates = [e for e in cluster.sent if hasattr(e, "live_brokers") and e.partitions]
    assert [e.partitions["t", 0].offline for e in updates] == [(2,)] * len(updates)
    assert updates


def test_partition_reassignment_with_offline_replica_halting_progress():
    """testPartitionReassignmentWithOfflineReplicaHaltingProgress, …ResumesAfter…."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1], 1, [1], 0)}})
    kill(cluster, 2)
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}'
    cluster.make("/admin/reassign_partitions", moves)
    handle(cluster, events.ReassignmentsCreated())
    assert cluster.context.assignment(("t", 0)) == ReplicaAssignment((2, 1), (2,), (1,))
    assert state_of(cluster, "t", 0)[0] == 1
    start(cluster, 2)
    # It follows now; the leader adds it to the ISR, and the next event completes the move.
    cluster.state(("t", 0), 1, [1, 2], state_of(cluster, "t", 0)[1])
    reassign(cluster, 2)
    assert cluster.context.assignment(("t", 0)) == ReplicaAssignment((2,))
    assert state_of(cluster, "t", 0)[::2] == (2, [2])
    assert "reassign_partitions" not in cluster.znodes.get("/admin").children


def test_partition_reassignment_to_broker_with_offline_log_dir():
    """testPartitionReassignmentToBrokerWithOfflineLogDir: it waits, and the leader stays."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1], 1, [1], 0)}})
    reassign(cluster, 2)
    handle(cluster, events.LeaderAndIsrResponded(2, 0, {("t", 0): 56}))
    assert ("t", 0) in cluster.context.being_reassigned
    assert state_of(cluster, "t", 0)[::2] == (1, [1])


def test_back_to_back_preferred_replica_leader_elections():
    """testBackToBackPreferredReplicaLeaderElections: the znode may be created again at once."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 2, [1, 2], 0)}})
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    for _ in range(2):
        cluster.make("/admin/preferred_replica_election", data)
        handle(cluster, events.PreferredElectionsCreated())
        assert "preferred_replica_election" not in cluster.znodes.get("/admin").children
    assert state_of(cluster, "t", 0) == (1, 1, [1, 2])


def test_preferred_replica_leader_election_with_offline_preferred_replica():
    """testPreferredReplicaLeaderElectionWithOfflinePreferredReplica: the leader stays."""
    cluster = cluster_of(2, topics={"t": {0: ([1, 2], 2, [2], 3)}})
    cluster.make("/admin/preferred_replica_election",
                 b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')  # fmt: skip
    handle(cluster, events.PreferredElectionsCreated())
    assert state_of(cluster, "t", 0) == (2, 3, [2])


def test_auto_preferred_election_beside_a_reassignment():
    """testAutoPreferredReplicaLeaderElectionWithOther- and WithSameReassigningPartitions."""
    led = {p: ([1, 2], 2, [1, 2], 0) for p in range(2)}
    cluster = cluster_of(1, 2, 3, topics={"t": led})
    reassign(cluster, 3, 1, 2)  # its preferred replica is not in sync yet
    handle(cluster, events.BalanceLeaders())
    assert state_of(cluster, "t", 0)[0] == 2
    assert state_of(cluster, "t", 1)[0] == 1
    assert ("t", 0) in cluster.context.being_reassigned


@pytest.mark.parametrize(("unclean", "leader"), [(False, -1), (True, 2)])
def test_leader_and_isr_when_entire_isr_offline(unclean, leader):
    """testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled, ...Enabled."""
    cluster = Cluster(1, 2, unclean=unclean)
    cluster.topic("t", {0: [1, 2]})
    cluster.state(("t", 0), 1, [1])
    cluster.run(failover.load_and_derive(cluster.active))
    cluster.active.controller_id = 1
    cluster.controller = Controller(cluster.active)
    kill(cluster, 1)
    assert state_of(cluster, "t", 0)[::2] == (leader, [2] if unclean else [1])


@pytest.mark.parametrize("before", [None, 0, 1])
@pytest.mark.parametrize("version", [1, 2])
def test_feature_zk_node_setup(before, version):
    """testControllerFeatureZNodeSetup…: enabled in the version of the protocol, features stay."""
    cluster = Cluster(1)
    if before is not None:
        cluster.make("/feature", json.dumps(
            {"version": 2, "status": before, "features": {"f": {"max_version_level": 3}}}
        ).encode())  # fmt: skip
    cluster.run(store.set_up_features(version, enabled=True))
    found = features_of(cluster)
    assert (found["version"], found["status"]) == (version, 1)
    assert set(found["features"]) == ({"f"} if before == 1 else set())
    assert not cluster.run(store.set_up_features(version, enabled=True))


NEW_ID = "SNa8nB0mTbSVyzDERrVtEA"


def test_topic_ids_persist_through_controller_reelection():
    """testTopicIdPersistsThroughControllerReelection; a rehearsal adds none."""
    cluster = Cluster(1)
    cluster.topic("t", {0: [1]}, topic_id="tCd6H9mrR6y44P05yz6EbQ")
    cluster.topic("old", {0: [1]})
    for _ in range(2):
        cluster.run(failover.load(cluster.active))
        assert {name: str(each) for name, each in cluster.context.topic_ids.items()} == {
            "t": "tCd6H9mrR6y44P05yz6EbQ"}  # fmt: skip
    assert cluster.writes == []


def test_topic_id_is_created_on_upgrade():
    """testTopicIdCreatedOnUpgrade: a new controller gives an id to each topic without one."""
    cluster = Cluster(1)
    cluster.topic("t", {0: [1]}, topic_id="tCd6H9mrR6y44P05yz6EbQ")
    cluster.topic("old", {0: [1]}, adding_replicas={}, removing_replicas={})
    cluster.active.new_topic_id = lambda: Uuid.parse(NEW_ID)
    cluster.run(failover.load(cluster.active))
    assert str(cluster.context.topic_ids["old"]) == NEW_ID
    assert json.loads(cluster.znodes.get("/brokers/topics/old").data) == {
        "version": 3, "partitions": {"0": [1]}, "topic_id": NEW_ID,
        "adding_replicas": {}, "removing_replicas": {}}  # fmt: skip
    cluster.writes.clear()
    cluster.run(failover.load(cluster.active))
    assert cluster.writes == []


def test_topic_id_is_added_to_a_topic_that_an_old_tool_has_created():
    """testTopicIdMigrationAndHandling."""
    cluster = cluster_of(1)
    cluster.active.new_topic_id = lambda: Uuid.parse(NEW_ID)
    cluster.topic("old", {0: [1]})
    handle(cluster, events.TopicsChanged())
    assert json.loads(cluster.znodes.get("/brokers/topics/old").data)["topic_id"] == NEW_ID
    assert cluster.sent[0].topic_ids == {"old": Uuid.parse(NEW_ID)}


MOVES = {
    "testControllerMoveOnTopicCreation": ("/brokers/topics/new", events.TopicsChanged()),
    "testControllerMoveOnTopicDeletion": ("/admin/delete_topics/t", events.DeletionsChanged()),
    "testControllerMoveOnPreferredReplicaElection": (
        "/admin/preferred_replica_election",
        events.PreferredElectionsCreated(),
    ),
    "testControllerMoveOnPartitionReassignment": (
        "/admin/reassign_partitions",
        events.ReassignmentsCreated(),
    ),
}
"""Kafka's test → the znode that a client creates, and the event of its watch."""

CREATED = {
    "/brokers/topics/new": b'{"version":3,"partitions":{"0":[1,2]}}',
    "/admin/preferred_replica_election": (
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    ),
    "/admin/reassign_partitions": (
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
    ),
}


@pytest.mark.parametrize("case", MOVES)
def test_a_controller_that_moved_meanwhile_writes_nothing_and_resigns(case):
    path, event = MOVES[case]
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 2, [1, 2], 0)}})
    cluster.make(path, CREATED.get(path, b""))
    cluster.set("/controller_epoch", b"8")
    cluster.make("/controller", b'{"version":2,"brokerid":2,"timestamp":"1"}')
    handle(cluster, event)
    assert cluster.writes == []
    assert not cluster.active.is_active
    assert cluster.context.epoch == 0
    assert not [each for each in cluster.sends() if each.startswith("LeaderAndIsr")]
