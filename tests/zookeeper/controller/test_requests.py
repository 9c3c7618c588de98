"""The batch of requests; cases of Kafka's ControllerChannelManagerTest."""

from sparkraft.base.ids import Uuid
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.requests import RequestBatch, StopReplicaRequest
from sparkraft.zookeeper.controller.values import (
    Broker,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)

A, B = ("a", 0), ("b", 0)
LEADERSHIP = Leadership(LeaderAndIsr(1, (1, 2), 3, 4), 5)


def batch_of(*brokers):
    context = ControllerContext(epoch=7)
    context.brokers = {broker: Broker(broker, 100 + broker, ()) for broker in brokers}
    for at in (A, B):
        context.assign(at, ReplicaAssignment((1, 2)))
        context.leaderships[at] = LEADERSHIP
    context.topic_ids["a"] = Uuid(bytes([1] * 16))
    return context, RequestBatch(context)


def test_requests_are_ordered_and_have_the_epoch_of_their_receiver():
    _, batch = batch_of(1, 2)
    batch.add_stop_replica(2, B, delete=False)
    batch.add_leader_and_isr([2], A, LEADERSHIP, is_new=False)
    requests = batch.drain()
    names = [(type(each).__name__, each.broker, each.broker_epoch) for each in requests]
    assert names == [
        ("LeaderAndIsrRequest", 2, 102),
        ("UpdateMetadataRequest", 1, 101),
        ("UpdateMetadataRequest", 2, 102),
        ("StopReplicaRequest", 2, 102),
    ]
    assert [leader.id for leader in requests[0].live_leaders] == [1]
    assert requests[0].topic_ids == {"a": Uuid(bytes([1] * 16))}
    assert batch.drain() == ()


def test_a_partition_stays_new_once_it_was_new():
    _, batch = batch_of(1, 2)
    batch.add_leader_and_isr([2], A, LEADERSHIP, is_new=True)
    batch.add_leader_and_isr([2], A, LEADERSHIP, is_new=False)
    assert batch.drain()[0].partitions[A].is_new


def test_a_leader_that_was_replaced_in_the_batch_is_not_named():
    _, batch = batch_of(1, 2)
    batch.add_leader_and_isr([2], A, LEADERSHIP, is_new=False)
    moved = Leadership(LEADERSHIP.state.elect(2, (2,)), 5)
    batch.add_leader_and_isr([2], A, moved, is_new=False)
    batch.add_leader_and_isr([2], B, moved, is_new=False)
    assert [leader.id for leader in batch.drain()[0].live_leaders] == [2]


def test_a_replica_stays_deleted_once_it_was_deleted():
    _, batch = batch_of(1, 2)
    batch.add_stop_replica(2, A, delete=True)
    batch.add_stop_replica(2, A, delete=False)
    (request,) = batch.drain()
    assert isinstance(request, StopReplicaRequest)
    assert request.partitions[A].delete
    assert request.partitions[A].leader_epoch == 3


def test_requests_go_to_registered_brokers_only():
    context, batch = batch_of(1)
    context.shutting_down.add(1)
    batch.add_leader_and_isr([-1, 1, 2], A, LEADERSHIP, is_new=False)
    batch.add_stop_replica(2, A, delete=False)
    assert [(type(each).__name__, each.broker) for each in batch.drain()] == [
        ("LeaderAndIsrRequest", 1),
        ("UpdateMetadataRequest", 1),
    ]


def test_update_metadata_unites_brokers_and_partitions():
    context, batch = batch_of(1, 2)
    context.shutting_down.add(2)
    batch.add_update_metadata([1], [A])
    batch.add_update_metadata([2], [B])
    first, second = batch.drain()
    assert first.partitions == second.partitions
    assert set(first.partitions) == {A, B}
    assert first.partitions[A].offline == (2,)
    assert [broker.id for broker in first.live_brokers] == [1, 2]


def test_update_metadata_leaves_out_partitions_without_leadership():
    context, batch = batch_of(1)
    del context.leaderships[A]
    batch.add_update_metadata([1], [A, B])
    assert set(batch.drain()[0].partitions) == {B}


def test_a_topic_being_deleted_has_the_epochs_and_the_leader_of_a_deletion():
    context, batch = batch_of(1, 2)
    context.topics_to_be_deleted.add("a")
    batch.add_update_metadata([1], [A])
    batch.add_stop_replica(2, A, delete=True)
    metadata, stop = batch.drain()
    state = metadata.partitions[A].leadership.state
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (
        -2,
        0,
        0,
        (1, 2),
    )
    assert stop.partitions[A].leader_epoch == -2


def test_an_unknown_partition_is_stopped_without_an_epoch():
    _, batch = batch_of(1)
    batch.add_stop_replica(1, ("c", 0), delete=False)
    assert batch.drain()[0].partitions["c", 0].leader_epoch == -1


def test_the_imbalance_counts_partitions_that_the_preferred_replica_does_not_lead():
    context, _ = batch_of(1, 2)
    assert context.preferred_imbalance_count() == 0
    context.assign(A, ReplicaAssignment((2, 1)))
    assert context.preferred_imbalance_count() == 1
    context.assign(A, ReplicaAssignment((3, 1, 2), (3,), (2,)))
    assert context.preferred_imbalance_count() == 0  # 3 is being added and not in sync yet
    context.assign(A, ReplicaAssignment((2, 1)))
    context.topics_to_be_deleted.add("a")
    assert context.preferred_imbalance_count() == 0


def test_a_replaced_reassignment_keeps_the_original_replicas():
    first = ReplicaAssignment((1, 2)).reassign_to((3, 2))
    assert first == ReplicaAssignment((3, 2, 1), (3,), (1,))
    assert (first.origin, first.target) == ((2, 1), (3, 2))
    second = first.reassign_to((4, 2))
    assert second == ReplicaAssignment((4, 2, 1), (4,), (1,))
    assert second.reassign_to(second.origin) == ReplicaAssignment((2, 1), (), ())


def test_a_removed_topic_leaves_nothing_behind():
    context, _ = batch_of(1)
    context.topics.add("a")
    context.remove_topic("a")
    assert list(context.partitions()) == [B]
    assert "a" not in context.topics
    assert A not in context.leaderships
