"""Cases of Kafka 3.9's ControllerIntegrationTest: a table of all, and those without another test.

`OTHERS` names the tests of the others. Tests here name Kafka's in their docstrings.
"""

import ast
import json
import re
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.metadata.partition_state import RECOVERED, RECOVERING
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.server.zookeeper.controller_api import alter_partition
from sparkraft.zookeeper.controller import election, events, failover, store
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller.values import LeaderAndIsr, ReplicaAssignment
from tests.server.harness import run
from tests.zookeeper.controller.cluster import Cluster
from tests.zookeeper.controller.test_controller import cluster_of, handle, kill, state_of
from tests.zookeeper.controller.test_requests_of_brokers import alter

OTHERS = {
    "EmptyCluster": "controller/test_election::the_first_controller_of_a_cluster_creates_the_epoch",
    "ControllerMoveIncrementsControllerEpoch": (
        "broker/test_own_controller::another_broker_takes_over_when_the_controller_stops"
    ),
    "MetadataPropagationOnControlPlane": (
        "broker/test_own_controller::the_controller_uses_its_own_listener"
    ),
    "MetadataPropagationOnBrokerChange": (
        "controller/test_controller"
        "::a_started_broker_gets_all_partitions_and_the_others_its_endpoints"
    ),
    "TopicCreation": "controller/test_controller::a_new_topic_is_created_as_in_kafka",
    "TopicPartitionExpansion": (
        "controller/test_controller::added_partitions_are_created_and_other_changes_ignored"
    ),
    "PartitionReassignment": "controller/test_reassignment::it_completes_as_kafka_does",
    "PreferredReplicaLeaderElection": (
        "controller/test_controller::a_preferred_election_follows_the_znode_of_old_tools"
    ),
    "AutoPreferredReplicaLeaderElection": (
        "controller/test_controller::leaders_are_balanced_above_ten_percent"
    ),
    "ControlledShutdown": (
        "controller/test_controller"
        "::a_controlled_shutdown_moves_leaders_and_shrinks_isrs_as_in_kafka"
    ),
    "ControllerRejectControlledShutdownRequestWithStaleBrokerEpoch": (
        "controller/test_requests_of_brokers::a_shutdown_is_refused"
    ),
    "ControllerDetectsBouncedBrokers": (
        "controller/test_controller::a_broker_that_registered_again_unnoticed_is_bounced"
    ),
    "PreemptionOnControllerShutdown": (
        "controller/test_controller_task"
        "::events_that_wait_are_preempted_and_their_submitters_answered"
    ),
    "PreemptionWithCallbacks": (
        "controller/test_controller_task"
        "::events_that_wait_are_preempted_and_their_submitters_answered"
    ),
    "AlterPartition": (
        "controller/test_requests_of_brokers"
        "::an_isr_is_written_sent_and_answered_with_its_new_epoch"
    ),
    "IdempotentAlterPartition": (
        "controller/test_requests_of_brokers::a_repeated_request_succeeds_without_a_write"
    ),
    "ShutdownBrokerNotAddedToIsr": (
        "controller/test_requests_of_brokers::a_replica_that_shuts_down_is_ineligible"
    ),
    "AlterPartitionErrors": "controller/test_requests_of_brokers::a_partition_is_refused",
    "TopicIdsAreAdded": (
        "broker/test_old_protocol_versions::brokers_replicate_change_isrs_and_allocate_producer_ids"
    ),
    "TopicIdCreatedOnUpgradeMultiBrokerScenario": (
        "broker/test_old_protocol_versions::brokers_are_raised_one_by_one_and_topics_get_their_ids"
    ),
}
"""Kafka's test → ours, below tests/zookeeper."""

HERE = [
    "ControllerEpochPersistsWhenAllBrokersDown",
    "MetadataPropagationForOfflineReplicas",
    "MetadataPropagationOnBrokerShutdownWithNoReplicas",
    "TopicCreationWithOfflineReplica",
    "TopicPartitionExpansionWithOfflineReplica",
    "PartitionReassignmentToBrokerWithOfflineLogDir",
    "PartitionReassignmentWithOfflineReplicaHaltingProgress",
    "PartitionReassignmentResumesAfterReplicaComesOnline",
    "BackToBackPreferredReplicaLeaderElections",
    "PreferredReplicaLeaderElectionWithOfflinePreferredReplica",
    "AutoPreferredReplicaLeaderElectionWithOtherReassigningPartitions",
    "AutoPreferredReplicaLeaderElectionWithSamePartitionBeingReassigned",
    "LeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled",
    "LeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionEnabled",
    "ControllerMoveOnTopicCreation",
    "ControllerMoveOnTopicDeletion",
    "ControllerMoveOnPreferredReplicaElection",
    "ControllerMoveOnPartitionReassignment",
    "ControllerFeatureZNodeSetupWhenFeatureVersioningIsEnabledWithNonExistingFeatureZNode",
    "ControllerFeatureZNodeSetupWhenFeatureVersioningIsEnabledWithDisabledExistingFeatureZNode",
    "ControllerFeatureZNodeSetupWhenFeatureVersioningIsEnabledWithEnabledExistingFeatureZNode",
    "ControllerFeatureZNodeSetupWhenFeatureVersioningIsDisabledWithNonExistingFeatureZNode",
    "ControllerFeatureZNodeSetupWhenFeatureVersioningIsDisabledWithDisabledExistingFeatureZNode",
    "ControllerFeatureZNodeSetupWhenFeatureVersioningIsDisabledWithEnabledExistingFeatureZNode",
    "AlterPartitionVersion2KeepWorkingWhenControllerDowngradeToPre28IBP",
    "AlterPartitionErrorsAfterUncleanElection",
    "TopicIdsAreNotAdded",
    "TopicIdMigrationAndHandling",
    "TopicIdMigrationAndHandlingWithOlderVersion",
    "TopicIdPersistsThroughControllerReelection",
    "NoTopicIdPersistsThroughControllerReelection",
    "TopicIdPersistsThroughControllerRestart",
    "TopicIdCreatedOnUpgrade",
    "TopicIdUpgradeAfterReassigningPartitions",
]
"""The other tests of Kafka's class; names here may leave out a common end: "…"."""

BELOW = Path(__file__).parents[1]


def names_of_tests(path: Path) -> set[str]:
    functions = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
    return {each.name.removeprefix("test_") for each in functions}


def test_every_case_of_kafka_has_a_test():
    for case, ours in OTHERS.items():
        module, _, name = ours.partition("::")
        assert name in names_of_tests(BELOW / f"{module}.py"), (case, ours)
    own = Path(__file__).read_text().partition("BELOW = ")[2]
    named = re.findall(r"\btest([A-Z]\w+)(…?)", own)
    for case in HERE:
        found = any(case == name or (more and case.startswith(name)) for name, more in named)
        assert found, case
    assert not OTHERS.keys() & set(HERE)
    assert len(OTHERS) + len(HERE) == 54


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
    """testPartitionReassignmentWithOfflineReplicaHaltingProgress.

    And testPartitionReassignmentResumesAfterReplicaComesOnline.
    """
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
    """testAutoPreferredReplicaLeaderElectionWithOtherReassigningPartitions."""
    led = {p: ([1, 2], 2, [1, 2], 0) for p in range(2)}
    cluster = cluster_of(1, 2, 3, topics={"t": led})
    reassign(cluster, 3, 1, 2)  # its preferred replica is not in sync yet
    handle(cluster, events.BalanceLeaders())
    assert state_of(cluster, "t", 0)[0] == 2
    assert state_of(cluster, "t", 1)[0] == 1
    assert ("t", 0) in cluster.context.being_reassigned


def test_auto_preferred_election_of_a_partition_that_is_reassigned():
    """testAutoPreferredReplicaLeaderElectionWithSamePartitionBeingReassigned."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 1, [1, 2], 0)}})
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1,3]}]}'
    cluster.make("/admin/reassign_partitions", moves)
    handle(cluster, events.ReassignmentsCreated())
    handle(cluster, events.BalanceLeaders())
    assert state_of(cluster, "t", 0) == (2, 2, [1, 2])
    assert ("t", 0) in cluster.context.being_reassigned
    start(cluster, 3)
    assert state_of(cluster, "t", 0) == (2, 3, [1, 2])
    cluster.state(("t", 0), 2, [1, 2, 3], 3)
    reassign(cluster, 2, 1, 3)  # any event that completes it
    assert state_of(cluster, "t", 0) == (2, 4, [1, 2, 3])
    assert cluster.context.assignment(("t", 0)) == ReplicaAssignment((2, 1, 3))
    assert "reassign_partitions" not in cluster.znodes.get("/admin").children


@pytest.mark.parametrize(("unclean", "leader"), [(False, -1), (True, 2)])
def test_leader_and_isr_when_entire_isr_offline(unclean, leader):
    """testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElection…: Disabled, Enabled."""
    cluster = Cluster(1, 2, unclean=unclean)
    cluster.topic("t", {0: [1, 2]})
    cluster.state(("t", 0), 1, [1])
    cluster.run(failover.load_and_derive(cluster.active))
    cluster.active.controller_id = 1
    cluster.controller = Controller(cluster.active)
    kill(cluster, 1)
    assert state_of(cluster, "t", 0)[::2] == (leader, [2] if unclean else [1])


def test_controller_epoch_persists_when_all_brokers_are_down():
    """testControllerEpochPersistsWhenAllBrokersDown."""
    cluster = Cluster()
    assert cluster.run(election.compete(cluster.active, 0))
    cluster.znodes.end_session(cluster.active.settings.node_id)
    assert "controller" not in cluster.znodes.get("/").children
    assert cluster.znodes.get("/controller_epoch").data == b"8"


@pytest.mark.parametrize("before", [None, 0, 1])
def test_feature_zk_node_setup_with_an_old_protocol(before):
    """testControllerFeatureZNodeSetupWhenFeatureVersioningIsDisabledWith…: before 2.7."""
    cluster = Cluster(1)
    if before is not None:
        cluster.make("/feature", json.dumps(
            {"version": 1, "status": before,
             "features": {"f": {"min_version_level": 1, "max_version_level": 3}}}
        ).encode())  # fmt: skip
    assert cluster.run(store.set_up_features(1, enabled=False))
    assert features_of(cluster) == {"version": 1, "status": 0, "features": {}}
    assert not cluster.run(store.set_up_features(1, enabled=False))


@pytest.mark.parametrize("before", [None, 0, 1])
@pytest.mark.parametrize("version", [1, 2])
def test_feature_zk_node_setup(before, version):
    """testControllerFeatureZNodeSetupWhenFeatureVersioningIsEnabledWith…: features stay."""
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


def test_alter_partition_errors_after_unclean_election():
    """testAlterPartitionErrorsAfterUncleanElection: errors of epochs come first."""
    cluster = Cluster(1, 3, unclean=True)
    cluster.topic("t", {0: [2, 3]})
    cluster.state(("t", 0), -1, [2], epoch=4)
    cluster.run(failover.load_and_derive(cluster.active))
    cluster.active.controller_id = 1
    cluster.controller = Controller(cluster.active)
    handle(cluster, events.UncleanElectionEnabled())
    assert state_of(cluster, "t", 0) == (3, 5, [3])
    present = cluster.context.leaderships["t", 0].state
    assert present.recovery_state == RECOVERING

    def error(epoch=0, leader_epoch=0, recovery=RECOVERED, isr=(2, 3)):
        wanted = LeaderAndIsr(
            3, isr, present.leader_epoch + leader_epoch, present.partition_epoch + epoch, recovery
        )
        return alter(cluster, wanted, broker=3)

    for recovery in (RECOVERED, RECOVERING):
        assert error(epoch=-1, recovery=recovery) is ErrorCode.INVALID_UPDATE_VERSION
        assert error(epoch=1, recovery=recovery) is ErrorCode.NOT_CONTROLLER
        assert error(leader_epoch=-1, recovery=recovery) is ErrorCode.FENCED_LEADER_EPOCH
        assert error(leader_epoch=1, recovery=recovery) is ErrorCode.NOT_CONTROLLER
    assert error(recovery=RECOVERING) is ErrorCode.INVALID_REQUEST
    assert error(isr=(3,)).recovery_state == RECOVERED
    assert "leader_recovery_state" not in cluster.read(("t", 0))


NEW_ID = "SNa8nB0mTbSVyzDERrVtEA"
OLD_ID = "tCd6H9mrR6y44P05yz6EbQ"


class Requests:
    """Takes requests for a controller, as a `ControllerTask` does."""

    def __init__(self, cluster):
        self.controller = cluster.controller
        self._cluster = cluster

    async def request(self, event):
        handle(self._cluster, event)
        (answer,) = self._cluster.take_answers()
        return answer


def test_alter_partition_by_ids_works_after_a_downgrade():
    """testAlterPartitionVersion2KeepWorkingWhenControllerDowngradeToPre28IBP."""
    cluster = Cluster(1, 2)
    cluster.topic("t", {0: [1, 2]}, topic_id=OLD_ID)
    cluster.state(("t", 0), 1, [1], epoch=5)
    assert cluster.active.new_topic_id is None, "as before 2.8"
    assert cluster.run(election.compete(cluster.active, 0))
    cluster.controller = Controller(cluster.active)
    state = cluster.context.leaderships["t", 0].state
    part = k56.AlterPartitionRequestPartitionData(
        partition_index=0, leader_epoch=5, new_isr=[1, 2], partition_epoch=state.partition_epoch
    )
    topic_id = Uuid.parse(OLD_ID)
    request = k56.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.context.brokers[1].epoch,
        topics=[k56.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[part])],
    )

    async def test():
        response = await alter_partition(Requests(cluster), request, 2)
        (topic,) = response.topics
        assert topic.topic_id == topic_id
        assert (topic.partitions[0].error_code, topic.partitions[0].isr) == (0, [1, 2])

    run(test())


def test_topics_get_no_ids_before_2_8():
    """testTopicIdsAreNotAdded, testTopicIdMigrationAndHandlingWithOlderVersion.

    And testNoTopicIdPersistsThroughControllerReelection.
    """
    cluster = cluster_of(1)
    cluster.topic("t", {0: [1]})
    handle(cluster, events.TopicsChanged())
    cluster.set(TOPIC, b'{"version":3,"partitions":{"0":[1],"1":[1]}}')
    handle(cluster, events.TopicModified("t"))
    assert state_of(cluster, "t", 1) == (1, 0, [1])
    cluster.active.reset()
    cluster.context.epoch = 7
    cluster.run(failover.fail_over(cluster.active))
    assert cluster.context.topic_ids == {}
    assert all(each.topic_ids == {} for each in cluster.sent if hasattr(each, "topic_ids"))
    assert "topic_id" not in json.loads(cluster.znodes.get(TOPIC).data)


def test_topic_id_survives_a_reassignment_under_an_older_controller():
    """testTopicIdUpgradeAfterReassigningPartitions: upgrade, downgrade, reassignment, upgrade."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1], 1, [1], 0)}})

    def take_over(new_id):
        cluster.active.reset()
        cluster.context.epoch = 7
        cluster.active.new_topic_id = new_id and (lambda: Uuid.parse(new_id))
        cluster.run(failover.fail_over(cluster.active))
        assert str(cluster.context.topic_ids["t"]) == NEW_ID
        assert json.loads(cluster.znodes.get(TOPIC).data)["topic_id"] == NEW_ID

    take_over(NEW_ID)
    take_over(None)
    reassign(cluster, 1, 2)
    cluster.state(("t", 0), 1, [1, 2], state_of(cluster, "t", 0)[1])
    reassign(cluster, 1, 2)
    assert cluster.context.assignment(("t", 0)) == ReplicaAssignment((1, 2))
    take_over(OLD_ID)


def test_topic_ids_persist_through_controller_reelection():
    """testTopicIdPersistsThroughControllerReelection; a rehearsal adds none.

    And testTopicIdPersistsThroughControllerRestart: nothing but the znodes is read.
    """
    cluster = Cluster(1)
    cluster.topic("t", {0: [1]}, topic_id=OLD_ID)
    cluster.topic("old", {0: [1]})
    for _ in range(2):
        cluster.run(failover.load(cluster.active))
        assert {name: str(each) for name, each in cluster.context.topic_ids.items()} == {
            "t": OLD_ID}  # fmt: skip
    assert cluster.writes == []


def test_topic_id_is_created_on_upgrade():
    """testTopicIdCreatedOnUpgrade: a new controller gives an id to each topic without one."""
    cluster = Cluster(1)
    cluster.topic("t", {0: [1]}, topic_id=OLD_ID)
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
