"""Znodes that another writer has damaged: the controller names them, and continues without them.

Kafka 3.9 (`ZkData`) reads data that is not JSON as no data; a missing field fails its event, and
every failover. Registrations are not optional: without them a controller gives its role away.
"""

import pytest

from sparkraft.zookeeper.controller import election, events, failover
from tests.zookeeper.controller.cluster import Cluster
from tests.zookeeper.controller.test_controller import cluster_of, handle, kill, state_of

DAMAGED = [b"{", b"", b"[]", b'{"version":1}', b'{"version":1,"partitions":7}', b"\xff\xfe"]

LED = {0: ([2, 1], 2, [2, 1], 0)}


def ignored(cluster) -> list[str]:
    """The znodes that were reported as malformed."""
    return [text.partition(": ")[0] for text in cluster.active.journal.of("malformed")]


def names(cluster, path) -> set[str]:
    return cluster.znodes.get(path).children


@pytest.mark.parametrize("data", DAMAGED)
def test_a_notification_of_a_log_directory_does_not_hide_the_others(data):
    cluster = cluster_of(1, 2, topics={"t": LED})
    root = "/log_dir_event_notification"
    cluster.make(f"{root}/log_dir_event_0000000000", data)
    cluster.make(f"{root}/log_dir_event_0000000001", b'{"version":1,"broker":2,"event":1}')
    handle(cluster, events.LogDirEvents())
    assert cluster.sends() == ["LeaderAndIsr to 2: t-0", *updates("t-0")]
    assert names(cluster, root) == set()
    assert ignored(cluster) == [f"{root}/log_dir_event_0000000000"]


def updates(partitions: str) -> list[str]:
    return [f"UpdateMetadata to {broker}: {partitions}" for broker in (1, 2)]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_notification_of_isr_changes_does_not_hide_the_others(data):
    cluster = cluster_of(1, 2, topics={"t": LED})
    root = "/isr_change_notification"
    cluster.make(f"{root}/isr_change_0000000000", data)
    good = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    cluster.make(f"{root}/isr_change_0000000001", good)
    handle(cluster, events.IsrChanges())
    assert cluster.sends() == updates("t-0")
    assert names(cluster, root) == set()
    assert ignored(cluster) == [f"{root}/isr_change_0000000000"]


@pytest.mark.parametrize("data", DAMAGED)
def test_orders_of_old_tools_are_not_followed(data):
    """Kafka leaves the one in place, and deletes the other as after an election."""
    cluster = cluster_of(1, 2, topics={"t": LED})
    cluster.make("/admin/reassign_partitions", data)
    cluster.make("/admin/preferred_replica_election", data)
    handle(cluster, events.ReassignmentsCreated())
    handle(cluster, events.PreferredElectionsCreated())
    expected = ["/admin/reassign_partitions", "/admin/preferred_replica_election"]
    assert ignored(cluster) == expected
    assert names(cluster, "/admin") == {"delete_topics", "reassign_partitions"}
    assert state_of(cluster, "t", 0) == (2, 0, [2, 1])


@pytest.mark.parametrize("data", DAMAGED)
def test_a_new_controller_takes_over_beside_them(data):
    cluster = Cluster(1, 2)
    cluster.topic("t", {0: [2, 1], 1: [2, 1]})
    for partition in (0, 1):
        cluster.state(("t", partition), 2, [2, 1])
    damaged = ["/brokers/topics/u", "/brokers/topics/t/partitions/1/state"]
    cluster.make(damaged[0], data)
    cluster.set(damaged[1], data)
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election",
                 "/isr_change_notification/isr_change_0000000000",
                 "/log_dir_event_notification/log_dir_event_0000000000"):  # fmt: skip
        cluster.make(path, data)
    assert cluster.run(election.compete(cluster.active, 0))
    assert set(cluster.context.leaderships) == {("t", 0)}
    orders = ["/admin/reassign_partitions", "/admin/preferred_replica_election"]
    # `{"version":1}` is a topic without partitions, in Kafka as well.
    assert ignored(cluster) == [*(damaged if data != DAMAGED[3] else damaged[1:]), *orders]
    assert cluster.znodes.get(damaged[0]).data == data or data == DAMAGED[3]
    assert cluster.znodes.get(damaged[1]).data == data
    cluster.controller = controller_of(cluster)
    kill(cluster, 2)
    assert state_of(cluster, "t", 0)[0] == 1


def controller_of(cluster):
    from sparkraft.zookeeper.controller.controller import Controller

    return Controller(cluster.active)


def test_a_topic_gets_its_partitions_when_its_znode_is_repaired():
    cluster = cluster_of(1, 2)
    cluster.make("/brokers/topics/t", b"{")
    handle(cluster, events.TopicsChanged())
    assert cluster.writes == []
    cluster.set("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1,2]}}')
    handle(cluster, events.TopicModified("t"))
    assert state_of(cluster, "t", 0) == (1, 0, [1, 2])


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff"])
def test_configs_of_one_topic_do_not_prevent_the_elections_of_others(data):
    cluster = cluster_of(1, 2, topics={"t": LED, "u": {0: ([2], 2, [2], 0)}})
    cluster.make("/config/topics/u", data)
    kill(cluster, 2)
    assert state_of(cluster, "t", 0) == (1, 1, [1])
    assert state_of(cluster, "u", 0) == (-1, 1, [2])
    assert set(ignored(cluster)) == {"/config/topics/u"}


@pytest.mark.parametrize(
    ("path", "data"),
    [("/brokers/ids/2", b"{"), ("/brokers/ids/x", b"{}"), ("/brokers/ids/-1", b"{}")],
)
def test_a_malformed_registration_moves_the_controller(path, data):
    """As in Kafka: any broker may be the next, and all fail until it is repaired."""
    cluster = Cluster(1)
    cluster.make(path, data)
    assert not cluster.run(election.compete(cluster.active, 0))
    assert "controller" not in names(cluster, "/")
    (reason,) = cluster.active.journal.of("resignation")
    assert f"the failover failed: {path}: " in reason


def test_a_failover_ignores_what_a_rehearsal_names():
    """`explain failover` shows the same."""
    cluster = Cluster(1)
    cluster.make("/brokers/topics/t", b"{")
    cluster.run(failover.load_and_derive(cluster.active))
    assert ignored(cluster) == ["/brokers/topics/t"]
    assert cluster.writes == []
