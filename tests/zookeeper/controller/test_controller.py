"""Events of the active controller, against a run of Kafka 3.9.2 as far as it shows them."""

import json

import pytest

from sparkraft.zookeeper.controller import brokers, events, failover
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.values import Replica, ReplicaAssignment
from sparkraft.zookeeper.requests import Delete
from tests.zookeeper.controller.cluster import Cluster

STATE = "/brokers/topics/{}/partitions/{}/state"


def cluster_of(*ids, topics=()):
    """An active controller that has loaded `topics`: name → partition → (replicas, leader, isr)."""
    cluster = Cluster(*ids)
    for name, partitions in dict(topics).items():
        cluster.topic(name, {p: each[0] for p, each in partitions.items()})
        for partition, (_, leader, isr, epoch) in partitions.items():
            cluster.state((name, partition), leader, isr, epoch)
    cluster.run(failover.load_and_derive(cluster.active))
    cluster.active.controller_id = 1
    cluster.controller = Controller(cluster.active)
    return cluster


def handle(cluster, event):
    cluster.run(cluster.controller.handle(event, 0))
    assert cluster.controller.state == "Idle"


def state_of(cluster, topic, partition):
    state = cluster.read((topic, partition))
    return state["leader"], state["leader_epoch"], state["isr"]


def kill(cluster, broker):
    cluster.znodes.apply(Delete(path=f"/brokers/ids/{broker}"), 0, 0)
    handle(cluster, events.BrokersChanged())


def test_a_failed_broker_loses_its_leaderships_as_in_kafka():
    cluster = cluster_of(1, 2, 3, topics={"t1": {
        0: ([3, 2], 3, [3, 2], 4), 1: ([3, 1], 1, [1], 6), 2: ([1, 2], 1, [1, 2], 1)}})  # fmt: skip
    kill(cluster, 3)
    assert cluster.writes == [f"SetData {STATE.format('t1', 0)}"]
    assert state_of(cluster, "t1", 0) == (2, 5, [2])
    assert cluster.sends() == [
        "LeaderAndIsr to 2: t1-0",
        "UpdateMetadata to 1: t1-0",
        "UpdateMetadata to 2: t1-0",
        "LeaderAndIsr to 1: t1-1",
        "LeaderAndIsr to 2: t1-0",
        "UpdateMetadata to 1: t1-0 t1-1",
        "UpdateMetadata to 2: t1-0 t1-1",
    ]
    assert cluster.active.journal.of("brokers") == ["failed: 3"]


def test_a_partition_with_one_replica_stays_without_a_leader_until_it_returns():
    cluster = cluster_of(1, 2, topics={"t2": {0: ([2], 2, [2], 0)}})
    kill(cluster, 2)
    assert state_of(cluster, "t2", 0) == (-1, 1, [2])
    assert cluster.context.partition_status(("t2", 0)) is PartitionStatus.OFFLINE
    cluster.register(2)
    handle(cluster, events.BrokersChanged())
    assert state_of(cluster, "t2", 0) == (2, 2, [2])
    assert cluster.context.offline_partition_count() == 0


def test_a_started_broker_gets_all_partitions_and_the_others_its_endpoints():
    cluster = cluster_of(1, topics={"t": {0: ([1, 2], 1, [1], 0)}})
    cluster.register(2)
    handle(cluster, events.BrokersChanged())
    assert cluster.sends()[:3] == [
        "UpdateMetadata to 1:", "UpdateMetadata to 2: t-0", "LeaderAndIsr to 2: t-0"]  # fmt: skip
    assert cluster.writes == []


def test_a_broker_that_registered_again_unnoticed_is_bounced():
    cluster = cluster_of(1, 2, topics={"t": {0: ([2, 1], 2, [2, 1], 0)}})
    cluster.znodes.apply(Delete(path="/brokers/ids/2"), 0, 0)
    cluster.register(2)
    handle(cluster, events.BrokersChanged())
    assert state_of(cluster, "t", 0) == (1, 1, [1])
    assert cluster.active.journal.of("brokers") == ["bounced: 2"]
    assert cluster.context.replica_status(Replica("t", 0, 2)) is ReplicaStatus.ONLINE


def test_changed_endpoints_are_sent_to_all_brokers():
    cluster = cluster_of(1, 2)
    handle(cluster, events.BrokerModified(2))
    assert cluster.sends() == []
    cluster.set("/brokers/ids/2", b'{"version":5,"jmx_port":-1,"endpoints":["PLAINTEXT://h:1"]}')
    handle(cluster, events.BrokerModified(2))
    assert cluster.sends() == ["UpdateMetadata to 1:", "UpdateMetadata to 2:"]
    assert cluster.context.brokers[2].endpoints[0].host == "h"


def test_a_broker_whose_registration_changed_before_it_bounced_is_bounced():
    """Its epoch is that of the registration that the controller has handled (KAFKA-7235)."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([2, 1], 2, [2, 1], 0)}})
    cluster.znodes.apply(Delete(path="/brokers/ids/2"), 0, 0)
    cluster.make("/brokers/ids/2", b'{"version":5,"jmx_port":-1,"endpoints":["PLAINTEXT://h:1"]}')
    handle(cluster, events.BrokerModified(2))
    assert cluster.sends() == []
    handle(cluster, events.BrokersChanged())
    assert state_of(cluster, "t", 0) == (1, 1, [1])
    assert cluster.active.journal.of("brokers") == ["bounced: 2"]
    assert cluster.context.brokers[2].endpoints[0].host == "h"


def test_a_new_topic_is_created_as_in_kafka():
    cluster = cluster_of(1, 3)
    cluster.topic("t3", {0: [3, 1], 1: [3, 1], 2: [3, 1]}, topic_id="SNa8nB0mTbSVyzDERrVtEA")
    handle(cluster, events.TopicsChanged())
    base = "/brokers/topics/t3/partitions"
    assert cluster.writes == [
        f"Create {base}",
        *[f"Create {base}/{p}" for p in range(3)],
        *[f"Create {base}/{p}/state" for p in range(3)],
    ]
    assert state_of(cluster, "t3", 2) == (3, 0, [3, 1])
    assert cluster.sends() == [
        "LeaderAndIsr to 1: t3-0 t3-1 t3-2", "LeaderAndIsr to 3: t3-0 t3-1 t3-2",
        "UpdateMetadata to 1: t3-0 t3-1 t3-2", "UpdateMetadata to 3: t3-0 t3-1 t3-2"]  # fmt: skip
    cluster.writes.clear()
    handle(cluster, events.TopicsChanged())
    assert cluster.writes == []


def test_a_topic_that_was_removed_by_hand_is_forgotten():
    cluster = cluster_of(1, topics={"t": {0: ([1], 1, [1], 0)}})
    for path in (STATE.format("t", 0), "/brokers/topics/t/partitions/0",
                 "/brokers/topics/t/partitions", "/brokers/topics/t"):  # fmt: skip
        cluster.znodes.apply(Delete(path=path), 0, 0)
    handle(cluster, events.TopicsChanged())
    assert list(cluster.context.partitions()) == []


def test_added_partitions_are_created_and_other_changes_ignored():
    cluster = cluster_of(1, 2, topics={"t": {0: ([1], 1, [1], 0)}})
    data = {"version": 3, "partitions": {"0": [2], "1": [2, 1]}}
    cluster.set("/brokers/topics/t", json.dumps(data).encode())
    handle(cluster, events.TopicModified("t"))
    assert state_of(cluster, "t", 1) == (2, 0, [2, 1])
    assert cluster.context.assignment(("t", 0)) == ReplicaAssignment((1,))


def test_a_topic_being_deleted_gets_no_partitions():
    cluster = cluster_of(1, topics={"t": {0: ([1], 1, [1], 0)}})
    cluster.context.topics_to_be_deleted.add("t")
    cluster.set("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1],"1":[1]}}')
    handle(cluster, events.TopicModified("t"))
    data = json.loads(cluster.znodes.get("/brokers/topics/t").data)
    assert data["partitions"] == {"0": [1]}


def test_a_deletion_runs_until_the_broker_has_responded():
    cluster = cluster_of(1, topics={"t": {0: ([1], 1, [1], 0)}})
    cluster.make("/admin/delete_topics/t")
    cluster.make("/admin/delete_topics/unknown")
    handle(cluster, events.DeletionsChanged())
    assert cluster.znodes.get("/admin/delete_topics").children == {"t"}
    assert cluster.context.topics_with_deletion_started == {"t"}
    handle(cluster, events.StopReplicaResponded(1, 0, {("t", 0): 0}))
    assert cluster.znodes.get("/admin/delete_topics").children == set()
    assert cluster.context.topics == set()


def test_a_failed_deletion_waits_for_a_start_of_the_broker():
    cluster = cluster_of(1, 2, topics={"t": {0: ([2], 2, [2], 0)}})
    cluster.make("/admin/delete_topics/t")
    handle(cluster, events.DeletionsChanged())
    handle(cluster, events.StopReplicaResponded(2, 0, {("t", 0): 56}))
    assert cluster.context.topics_ineligible_for_deletion == {"t"}
    kill(cluster, 2)
    cluster.register(2)
    handle(cluster, events.BrokersChanged())
    handle(cluster, events.StopReplicaResponded(2, 0, {("t", 0): 0}))
    assert cluster.context.topics == set()


def test_a_deletion_that_has_started_is_not_followed_by_a_reassignment():
    """Replicas that were deleted were created again, and stayed (simulator, seed 5)."""
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 1, [1, 2], 0)}})
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}'
    cluster.make("/admin/reassign_partitions", moves)
    handle(cluster, events.ReassignmentsCreated())
    cluster.make("/admin/delete_topics/t")
    handle(cluster, events.DeletionsChanged())
    kill(cluster, 2)
    cluster.register(2)
    handle(cluster, events.BrokersChanged())  # makes the topic eligible, as in Kafka
    assert cluster.context.topics_with_deletion_started == {"t"}
    for broker in (1, 2):
        handle(cluster, events.StopReplicaResponded(broker, 0, {("t", 0): 0}))
    cluster.sent.clear()
    cluster.register(3)
    handle(cluster, events.BrokersChanged())
    to_others = [line for line in cluster.sends() if " to 3" not in line]
    assert not [line for line in to_others if line.startswith("LeaderAndIsr")]
    handle(cluster, events.StopReplicaResponded(3, 0, {("t", 0): 0}))
    assert cluster.context.topics == set()


def test_a_failed_log_directory_moves_the_leaders_on_it():
    cluster = cluster_of(1, 3, topics={"t3": {
        0: ([3, 1], 3, [3, 1], 0), 1: ([3, 1], 3, [3, 1], 0)}})  # fmt: skip
    cluster.make("/log_dir_event_notification/log_dir_event_0000000000",
                 b'{"version":1,"broker":3,"event":1}')  # fmt: skip
    handle(cluster, events.LogDirEvents())
    assert cluster.sends()[0] == "LeaderAndIsr to 3: t3-0 t3-1"
    assert cluster.znodes.get("/log_dir_event_notification").children == set()
    handle(cluster, events.LeaderAndIsrResponded(3, 0, {("t3", 0): 56, ("t3", 1): 11}))
    assert state_of(cluster, "t3", 0) == (1, 1, [1])
    assert state_of(cluster, "t3", 1) == (3, 0, [3, 1])
    assert cluster.context.offline_replicas == {3: {("t3", 0)}}
    handle(cluster, events.LeaderAndIsrResponded(3, 0, {("t3", 0): 0}))
    assert cluster.context.offline_replicas == {3: set()}


def test_notified_isr_changes_are_sent_to_all_brokers():
    cluster = cluster_of(1, 2, topics={"o1": {0: ([1, 2], 1, [1, 2], 0)}})
    cluster.state(("o1", 0), 1, [1])
    cluster.make("/isr_change_notification/isr_change_0000000000",
                 b'{"version":1,"partitions":[{"topic":"o1","partition":0}]}')  # fmt: skip
    handle(cluster, events.IsrChanges())
    assert cluster.context.leaderships["o1", 0].state.isr == (1,)
    assert cluster.sends() == ["UpdateMetadata to 1: o1-0", "UpdateMetadata to 2: o1-0"]
    assert cluster.znodes.get("/isr_change_notification").children == set()


def test_a_controlled_shutdown_moves_leaders_and_shrinks_isrs_as_in_kafka():
    cluster = cluster_of(1, 2, 3, topics={
        "t1": {0: ([3, 2], 3, [2, 3], 3), 1: ([2, 1], 2, [2, 1], 0), 2: ([1, 2], 1, [1, 2], 0)},
        "t2": {0: ([2], 2, [2], 0)}})  # fmt: skip
    assert cluster.run(brokers.shut_down(cluster.active, 2)) == []
    assert state_of(cluster, "t1", 1) == (1, 1, [1])
    assert state_of(cluster, "t1", 2) == (1, 1, [1])
    assert state_of(cluster, "t1", 0) == (3, 4, [3])
    assert state_of(cluster, "t2", 0) == (2, 0, [2])  # until its session ends
    kill(cluster, 2)
    assert state_of(cluster, "t2", 0) == (-1, 1, [2])
    assert cluster.context.shutting_down == set()


def test_a_shutdown_reports_partitions_that_can_not_be_moved():
    cluster = cluster_of(1, 2, topics={"t": {0: ([2, 1], 2, [2], 0)}})
    assert cluster.run(brokers.shut_down(cluster.active, 2)) == [("t", 0)]


def test_a_preferred_election_follows_the_znode_of_old_tools():
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 2, [1, 2], 0)}})
    cluster.make("/admin/preferred_replica_election",
                 b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')  # fmt: skip
    handle(cluster, events.PreferredElectionsCreated())
    assert state_of(cluster, "t", 0) == (1, 1, [1, 2])
    assert "preferred_replica_election" not in cluster.znodes.get("/admin").children


@pytest.mark.parametrize(("count", "elected"), [(10, False), (9, True)])
def test_leaders_are_balanced_above_ten_percent(count, elected):
    led = {p: ([1, 2], 1, [1, 2], 0) for p in range(count)}
    cluster = cluster_of(1, 2, topics={"t": {**led, 0: ([1, 2], 2, [1, 2], 0)}})
    handle(cluster, events.BalanceLeaders())
    assert (state_of(cluster, "t", 0)[0] == 1) is elected


def test_balancing_leaves_out_a_preferred_replica_that_is_not_in_sync():
    cluster = cluster_of(1, 2, topics={"t": {0: ([1, 2], 2, [2], 0)}})
    handle(cluster, events.BalanceLeaders())
    assert cluster.writes == []


def test_enabled_unclean_elections_elect_at_once():
    cluster = cluster_of(2, topics={"t": {0: ([1, 2], 1, [1], 0)}})
    data = b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
    cluster.make("/config/topics/t", data)
    handle(cluster, events.UncleanElectionEnabled("other"))
    assert cluster.writes == []
    handle(cluster, events.UncleanElectionEnabled("t"))
    assert state_of(cluster, "t", 0) == (2, 1, [2])


def test_a_node_that_is_not_the_controller_ignores_events():
    cluster = cluster_of(1, topics={"t": {0: ([1], 1, [1], 0)}})
    cluster.active.controller_id = 2
    kill(cluster, 1)
    assert cluster.context.live_brokers == [1]


def test_a_deposed_controller_resigns_at_its_next_write():
    cluster = cluster_of(1, 2, topics={"t": {0: ([2, 1], 2, [2, 1], 0)}})
    cluster.set("/controller_epoch", b"8")
    cluster.make("/controller", b'{"version":2,"brokerid":2,"timestamp":"1"}')
    kill(cluster, 2)
    assert not cluster.active.is_active
    assert cluster.active.controller_id == 2
    assert cluster.sends() == []
    assert state_of(cluster, "t", 0) == (2, 0, [2, 1])


def test_an_expired_session_ends_the_leadership_and_the_next_one_competes():
    cluster = cluster_of(1)
    handle(cluster, events.Expired())
    assert cluster.active.journal.of("resignation") == ["epoch 7: the session has expired"]
    assert cluster.context.epoch == 0
    handle(cluster, events.Reelect())
    assert cluster.active.is_active
    assert cluster.context.epoch == 8
    handle(cluster, events.Reelect())
    assert cluster.context.epoch == 8
