"""States that their leaders write before AlterPartition (KIP-497), and their notification.

Kafka 3.9: `ReplicationUtils.updateLeaderAndIsr`, `KafkaZkClient.propagateIsrChanges`.
"""

import json

import pytest

from sparkraft.zookeeper.controller import failover, store
from sparkraft.zookeeper.controller.events import ReassignedStateChanged, event_of
from sparkraft.zookeeper.controller.values import LeaderAndIsr
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from tests.zookeeper.controller.cluster import Cluster

AT = ("t", 0)


@pytest.fixture
def cluster():
    made = Cluster(1, 2)
    made.topic("t", {0: [1, 2]})
    made.state(AT, 1, [1], epoch=5, by=3)
    made.state(AT, 1, [1], epoch=5, by=3)
    return made


def wanted(version: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(1, isr, leader_epoch=5, partition_epoch=version)


def test_a_state_keeps_the_epoch_of_the_controller_that_chose_its_leader(cluster):
    written = cluster.run(store.write_isrs({AT: wanted(1, 1, 2)}))
    assert written == {AT: wanted(2, 1, 2)}
    found = cluster.read(AT)
    assert (found["isr"], found["controller_epoch"], found["znode_version"]) == ([1, 2], 3, 2)


def test_a_state_of_another_version_is_not_written(cluster):
    assert cluster.run(store.write_isrs({AT: wanted(0, 1, 2)})) == {}
    assert cluster.read(AT)["isr"] == [1]


def test_a_state_that_an_attempt_without_a_reply_has_written_counts(cluster):
    cluster.state(AT, 1, [1, 2], epoch=5, by=3)
    assert cluster.run(store.write_isrs({AT: wanted(1, 1, 2)})) == {AT: wanted(2, 1, 2)}
    assert cluster.read(AT)["znode_version"] == 2, "it is not written again"


def test_a_partition_without_a_state_is_left_out(cluster):
    assert cluster.run(store.write_isrs({("t", 1): wanted(0, 1)})) == {}


def test_a_notification_is_read_by_the_controller(cluster):
    cluster.run(failover.load(cluster.active))
    cluster.run(store.notify_isr_changes([AT, ("t", 1)]))
    (name,) = cluster.znodes.get("/isr_change_notification").children
    assert name == "isr_change_0000000000"
    data = json.loads(cluster.znodes.get(f"/isr_change_notification/{name}").data)
    partitions = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    assert data == {"version": 1, "partitions": partitions}
    read = store.read_isr_changes(cluster.active.ignore)
    assert cluster.run(read) == ([name], [AT, ("t", 1)])


def test_a_changed_state_is_an_event_of_its_reassignment():
    path = "/brokers/topics/t/partitions/12/state"
    changed = WatchEvent(EventType.NODE_DATA_CHANGED, path)
    assert event_of(changed) == ReassignedStateChanged("t", 12)
