"""The failover of a controller, and its rehearsal, against a run of Kafka 3.9.2.

The run: brokers 1, 2 and 3; broker 1 was the controller of epoch 1 and was killed; broker 3 became
the controller of epoch 2. Znodes before, and writes and requests of Kafka, as recorded then.
"""

import json

import pytest

from sparkraft.zookeeper.controller import failover
from sparkraft.zookeeper.controller.rehearsal import Rehearsal
from sparkraft.zookeeper.controller.states import PartitionStatus
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.controller.store import read_epoch
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from tests.zookeeper.controller.cluster import Cluster

ASSIGNMENT = {0: [3, 2], 1: [3, 1], 2: [1, 2]}
STATES = {0: (2, [2, 3], 5), 1: (1, [1, 3], 6), 2: (1, [1, 2], 1)}
AFTER = {0: (2, [2, 3], 5), 1: (3, [3], 8), 2: (2, [2], 3)}


def recorded_cluster():
    """The znodes of the run when broker 1 was gone."""
    cluster = Cluster(2, 3)
    cluster.topic("t1", ASSIGNMENT, topic_id="tCd6H9mrR6y44P05yz6EbQ")
    for partition, (leader, isr, epoch) in STATES.items():
        cluster.state(("t1", partition), leader, isr, epoch, by=1)
    cluster.context.epoch = 2
    return cluster


def states(cluster):
    found = {partition: cluster.read(("t1", partition)) for partition in ASSIGNMENT}
    return {p: (each["leader"], each["isr"], each["leader_epoch"]) for p, each in found.items()}


def leaders(request):
    return {
        f"{topic}-{partition}": (each.leadership.state.leader, each.leadership.state.leader_epoch)
        for (topic, partition), each in request.partitions.items()
    }


def test_a_failover_leaves_the_znodes_that_kafka_left():
    cluster = recorded_cluster()
    cluster.run(failover.fail_over(cluster.active))
    assert states(cluster) == AFTER
    assert cluster.read(("t1", 1))["controller_epoch"] == 2
    assert cluster.read(("t1", 0))["controller_epoch"] == 1  # not written
    path = "SetData /brokers/topics/t1/partitions/{}/state"
    assert cluster.writes == [path.format(p) for p in (1, 2, 1, 2)]
    assert all(
        status is PartitionStatus.ONLINE for status in cluster.context.partition_statuses.values()
    )


def test_a_failover_sends_the_requests_that_kafka_sent():
    cluster = recorded_cluster()
    cluster.run(failover.fail_over(cluster.active))
    to_3 = [each for each in cluster.sent if each.broker == 3]
    names = [type(each).__name__.removesuffix("Request") for each in to_3]
    assert names == ["UpdateMetadata", *["LeaderAndIsr", "UpdateMetadata"] * 3]
    assert to_3[0].partitions == {}
    assert [each.id for each in to_3[0].live_brokers] == [2, 3]
    assert leaders(to_3[1]) == {"t1-0": (2, 5), "t1-1": (1, 6)}
    assert leaders(to_3[2]) == {"t1-0": (2, 5), "t1-1": (1, 6), "t1-2": (1, 1)}
    assert to_3[2].partitions["t1", 1].offline == (1,)
    assert leaders(to_3[3]) == {"t1-1": (-1, 7)}
    assert leaders(to_3[5]) == {"t1-1": (3, 8)}
    assert {each.controller_epoch for each in cluster.sent} == {2}
    assert to_3[1].broker_epoch == cluster.context.brokers[3].epoch > 0


def test_the_journal_has_the_steps_in_order_and_the_reasons_of_elections():
    cluster = recorded_cluster()
    cluster.make("/isr_change_notification/isr_change_0000000000")
    cluster.make("/admin/delete_topics/t1")
    cluster.run(failover.fail_over(cluster.active))
    assert cluster.active.journal.of("failover") == [
        "deleted 0 notifications of log directories, 1 of ISR changes",
        "read 2 brokers, 1 topics, 3 partitions",
        "1 topics to be deleted, 1 of them not now",
        "sent the live brokers to 2 brokers",
        "started 4 online replicas, 2 are offline",
        "elected 0 leaders, 0 partitions stay without a leader",
        "0 reassignments in progress",
        "0 preferred elections were pending",
    ]


def test_a_rehearsal_decides_the_same_and_changes_nothing():
    cluster = recorded_cluster()
    before = cluster.znodes.zxid
    rehearsal = Rehearsal()
    cluster.run(rehearsal.run(failover.fail_over(cluster.active)))
    assert cluster.znodes.zxid == before
    assert cluster.sent == []
    real = recorded_cluster()
    real.run(failover.fail_over(real.active))
    assert [f"{type(each).__name__} {each.path}" for each in rehearsal.writes] == real.writes
    assert rehearsal.sent == real.sent
    assert cluster.context.leaderships == real.context.leaderships


def test_a_rehearsal_may_assume_that_a_broker_failed():
    cluster = recorded_cluster()
    rehearsal = Rehearsal(frozenset({"/brokers/ids/2"}))
    cluster.run(rehearsal.run(failover.fail_over(cluster.active)))
    assert cluster.context.live_brokers == [3]
    assert cluster.context.leaderships["t1", 0].state.leader == 3
    assert cluster.context.partition_status(("t1", 2)) is PartitionStatus.OFFLINE
    assert cluster.context.offline_partition_count() == 1


def test_a_deposed_controller_stops_at_its_first_write():
    cluster = recorded_cluster()
    cluster.make("/isr_change_notification/isr_change_0000000000")
    cluster.set("/controller_epoch", b"3")
    with pytest.raises(ControllerMovedError):
        cluster.run(failover.fail_over(cluster.active))
    assert cluster.writes == []
    assert cluster.sent == []


def test_the_epoch_is_a_number_with_the_version_of_its_znode():
    cluster = Cluster()
    cluster.set("/controller_epoch", b"12")
    assert cluster.run(read_epoch()) == (12, 1)
    cluster.set("/controller_epoch", b"twelve")
    with pytest.raises(ZnodeError, match="expected a number"):
        cluster.run(read_epoch())


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/ids/2", b"{"),
        ("/brokers/ids/2", b'{"version":5}'),
        ("/brokers/ids/2", b'{"version":5,"jmx_port":-1,"endpoints":["PLAINTEXT://h"]}'),
    ],
)
def test_a_malformed_znode_is_named(path, data):
    cluster = recorded_cluster()
    cluster.set(path, data)
    with pytest.raises(ZnodeError) as caught:
        cluster.run(failover.load(cluster.active))
    assert caught.value.path == path


def test_registrations_of_old_brokers_are_read():
    cluster = recorded_cluster()
    old = {"version": 1, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "1"}
    cluster.set("/brokers/ids/2", json.dumps(old).encode())
    older_map = {"version": 3, "jmx_port": -1, "endpoints": ["PLAINTEXT://[::1]:9093"], "rack": "a"}
    cluster.set("/brokers/ids/3", json.dumps(older_map).encode())
    cluster.run(failover.load(cluster.active))
    brokers = cluster.context.brokers
    assert brokers[2].endpoints == (("PLAINTEXT", "h", 9092, "PLAINTEXT"),)
    assert brokers[3].endpoints == (("PLAINTEXT", "::1", 9093, "PLAINTEXT"),)
    assert brokers[3].rack == "a"
