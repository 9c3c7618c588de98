"""ElectLeaders and reassignments by clients, as in Kafka 3.9."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.values import ReplicaAssignment
from tests.zookeeper.controller.test_controller import cluster_of, handle, kill, state_of

AT = ("t", 0)


@pytest.fixture
def cluster():
    return cluster_of(1, 2, 3, topics={"t": {
        0: ([1, 2], 2, [2, 1], 0), 1: ([1, 2], 1, [1, 2], 0), 2: ([3, 2], 2, [2], 0)}})  # fmt: skip


def elect(cluster, *wanted, unclean=False):
    handle(cluster, events.ElectLeaders(wanted or None, unclean))
    (answer,) = cluster.take_answers()
    return {at: each if isinstance(each, int) else each[0] for at, each in answer.items()}


def test_preferred_elections_of_all_partitions(cluster):
    assert elect(cluster) == {
        ("t", 0): 1,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    assert state_of(cluster, "t", 0) == (1, 1, [2, 1])


def test_elections_of_unknown_and_deleted_topics_are_refused(cluster):
    cluster.context.topics_to_be_deleted.add("t")
    assert elect(cluster, AT, ("other", 0)) == {
        AT: ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("other", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_unclean_election_by_a_client_ignores_the_configs(cluster):
    assert elect(cluster, AT, unclean=True) == {AT: ErrorCode.ELECTION_NOT_NEEDED}
    kill(cluster, 2)
    assert state_of(cluster, "t", 2) == (-1, 1, [2])
    assert elect(cluster, ("t", 2), unclean=True) == {("t", 2): 3}
    kill(cluster, 3)
    error = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(cluster, ("t", 2), unclean=True) == {("t", 2): error}


def reassign(cluster, at, target):
    handle(cluster, events.AlterReassignments({at: target}))
    (answer,) = cluster.take_answers()
    return answer[at]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ((), "Empty replica list specified in partition reassignment."),
        ((1, 1), "Duplicate replica ids in partition reassignment replica list: 1,1"),
        ((1, -2), "Invalid broker id in replica list: 1,-2"),
        ((1, 9), "Replica assignment has brokers that are not alive. Replica list: 1,9, "
                 "live broker list: 1,2,3"),
    ],
)  # fmt: skip
def test_an_invalid_target_is_refused(cluster, target, text):
    assert reassign(cluster, AT, target) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    assert cluster.writes == []


def test_a_partition_is_reassigned_listed_and_cancelled(cluster):
    assert reassign(cluster, AT, (3, 2)) == (ErrorCode.NONE, "")
    handle(cluster, events.ListReassignments(None))
    handle(cluster, events.ListReassignments([("t", 1)]))
    assert cluster.take_answers() == [{AT: ReplicaAssignment((3, 2, 1), (3,), (1,))}, {}]
    assert reassign(cluster, AT, None) == (ErrorCode.NONE, "")
    assert set(cluster.context.assignment(AT).replicas) == {1, 2}
    assert not cluster.context.assignment(AT).is_being_reassigned
    assert reassign(cluster, AT, None)[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_an_unknown_or_deleted_partition_is_refused(cluster):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, ("other", 0), (1,))[0] is unknown
    cluster.context.topics_to_be_deleted.add("t")
    assert reassign(cluster, AT, (3, 2))[0] is unknown


def test_a_client_replaces_a_reassignment_by_znode(cluster):
    wanted = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3]}]}'
    cluster.make("/admin/reassign_partitions", wanted)
    assert reassign(cluster, AT, (3, 2)) == (ErrorCode.NONE, "")
    assert "reassign_partitions" not in cluster.znodes.get("/admin").children


def test_a_node_that_is_not_the_controller_refuses(cluster):
    cluster.active.controller_id = 2
    for event in (events.ElectLeaders(None, unclean=False), events.ListReassignments(None),
                  events.AlterReassignments({AT: (1,)})):  # fmt: skip
        handle(cluster, event)
    assert {answer.code for answer in cluster.take_answers()} == {ErrorCode.NOT_CONTROLLER}


def test_a_deposed_controller_answers_and_resigns(cluster):
    cluster.set("/controller_epoch", b"8")
    handle(cluster, events.ElectLeaders([AT], unclean=False))
    (answer,) = cluster.take_answers()
    assert answer.code is ErrorCode.NOT_CONTROLLER
    assert not cluster.active.is_active
