"""Every pair of states, against the previous states that Kafka 3.9 lists for each target."""

import itertools

import pytest

from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.values import Replica

AT = ("t", 0)
REPLICA = Replica("t", 0, 1)

PREVIOUS_OF_PARTITION = {
    "NewPartition": {"NonExistentPartition"},
    "OnlinePartition": {"NewPartition", "OnlinePartition", "OfflinePartition"},
    "OfflinePartition": {"NewPartition", "OnlinePartition", "OfflinePartition"},
    "NonExistentPartition": {"OfflinePartition"},
}
LIVING = {"NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible"}
PREVIOUS_OF_REPLICA = {
    "NewReplica": {"NonExistentReplica"},
    "OnlineReplica": LIVING,
    "OfflineReplica": LIVING,
    "ReplicaDeletionStarted": {"OfflineReplica"},
    "ReplicaDeletionSuccessful": {"ReplicaDeletionStarted"},
    "ReplicaDeletionIneligible": {"OfflineReplica", "ReplicaDeletionStarted"},
    "NonExistentReplica": {"ReplicaDeletionSuccessful"},
}


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product(PartitionStatus, repeat=2)), ids=lambda s: s.value
)
def test_a_partition_changes_its_state_as_in_kafka(before, after):
    context = ControllerContext()
    context.partition_statuses[AT] = before
    allowed = before.value in PREVIOUS_OF_PARTITION[after.value]
    assert context.may_become(AT, after) is allowed
    if allowed:
        context.put_partition_status(AT, after)
        assert context.partition_status(AT) is after
    else:
        with pytest.raises(AssertionError):
            context.put_partition_status(AT, after)


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product(ReplicaStatus, repeat=2)), ids=lambda s: s.value
)
def test_a_replica_changes_its_state_as_in_kafka(before, after):
    context = ControllerContext()
    context.replica_statuses[REPLICA] = before
    allowed = before.value in PREVIOUS_OF_REPLICA[after.value]
    assert context.replica_may_become(REPLICA, after) is allowed
    if allowed:
        context.put_replica_status(REPLICA, after)
        assert context.replica_status(REPLICA) is after
    else:
        with pytest.raises(AssertionError):
            context.put_replica_status(REPLICA, after)
