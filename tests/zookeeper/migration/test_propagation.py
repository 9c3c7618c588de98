"""Requests of a KRaft controller to brokers in ZooKeeper mode: those of Kafka 3.9 (KIP-866)."""

from itertools import chain

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages import metadata_records as m
from sparkraft.zookeeper.controller.control_messages import Sender, convert_at_once
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.migration.propagation import changed_requests, full_requests
from sparkraft.zookeeper.migration.state import unready_brokers

ZOOKEEPER_EPOCH, KRAFT_EPOCH = 8, 1
SENDER = Sender(3000, parse_protocol_version("3.9-IV0"), "PLAINTEXT", is_kraft=True)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def broker(number: int, *, migrating: bool = True, fenced: bool = False, epoch: int = 0):
    return m.RegisterBrokerRecord(
        broker_id=number,
        broker_epoch=epoch or 10 * number,
        is_migrating_zk_broker=migrating,
        incarnation_id=uuid(100 + number + epoch),
        end_points=[
            m.BrokerEndpoint(name="PLAINTEXT", host="h", port=9000 + number, security_protocol=0)
        ],
        fenced=fenced,
    )


def partition(topic: int, index: int, replicas: list[int], leader: int = 1, epoch: int = 3):
    return m.PartitionRecord(
        topic_id=uuid(topic), partition_id=index, replicas=replicas, isr=replicas, leader=leader,
        leader_epoch=epoch, partition_epoch=7,
    )  # fmt: skip


def after(image, *records):
    for record in records:
        image = apply(image, record)
    return image.at(50, KRAFT_EPOCH)


@pytest.fixture
def image():
    return registered()


def registered():
    """Brokers 1 and 2 that migrate, others, and topics a and b."""
    return after(
        EMPTY_IMAGE,
        broker(1),
        broker(2),
        broker(3, migrating=False),
        broker(4, fenced=True),
        m.TopicRecord(name="a", topic_id=uuid(1)),
        partition(1, 0, [1, 2]),
        partition(1, 1, [3, 4], leader=3),
        m.TopicRecord(name="b", topic_id=uuid(2)),
        partition(2, 0, [1, 9]),
    )


def lines(requests):
    """Kind, scope, receiver and partitions of each request."""
    found = []
    for each in chain.from_iterable(some for some in requests if some is not None):
        message, _ = convert_at_once(each, SENDER)
        assert message.is_kraft_controller
        assert message.controller_epoch == ZOOKEEPER_EPOCH
        assert message.broker_epoch == each.broker_epoch
        names = " ".join(f"{topic}-{index}" for topic, index in sorted(each.partitions))
        kind = type(message).__name__.removesuffix("Request")
        scope = f" {message.type}" if hasattr(message, "type") else ""
        found.append(f"{kind}{scope} to {each.broker}: {names}".rstrip())
    return found


def changed(before, image, topics=None):
    return lines(changed_requests(before, image, topics, ZOOKEEPER_EPOCH))


def test_at_the_takeover_each_migrating_broker_gets_everything(image):
    assert lines(full_requests(image, ZOOKEEPER_EPOCH)) == [
        "UpdateMetadata 0 to 1: a-0 a-1 b-0",
        "UpdateMetadata 0 to 2: a-0 a-1 b-0",
        "LeaderAndIsr 2 to 1: a-0 b-0",
        "LeaderAndIsr 2 to 2: a-0",
        "UpdateMetadata 2 to 1: a-0 a-1 b-0",
        "UpdateMetadata 2 to 2: a-0 a-1 b-0",
    ]


def test_partitions_are_new_and_have_the_epoch_of_kraft(image):
    requests = chain.from_iterable(r for r in full_requests(image, ZOOKEEPER_EPOCH) if r)
    message = next(
        convert_at_once(each, SENDER).message
        for each in requests
        if "LeaderAndIsr" in type(each).__name__
    )
    state = message.topic_states[0].partition_states[0]
    assert state.is_new
    assert (state.controller_epoch, state.leader, state.leader_epoch) == (KRAFT_EPOCH, 1, 3)
    assert (state.partition_epoch, state.replicas) == (7, [1, 2])
    assert [each.broker_id for each in message.live_leaders] == [1]


def test_brokers_see_all_registered_brokers_and_absent_replicas(image):
    requests = next(r for r in full_requests(image, ZOOKEEPER_EPOCH) if r)
    message = convert_at_once(requests[0], SENDER).message
    assert [each.id for each in message.live_brokers] == [1, 2, 3, 4]
    states = {each.topic_name: each.partition_states for each in message.topic_states}
    assert states["b"][0].offline_replicas == [9]
    assert states["a"][1].offline_replicas == []


def test_a_change_goes_to_the_replicas_and_its_metadata_to_all(image):
    change = m.PartitionChangeRecord(topic_id=uuid(1), partition_id=0, isr=[1])
    expected = [
        "LeaderAndIsr 1 to 1: a-0",
        "LeaderAndIsr 1 to 2: a-0",
        "UpdateMetadata 1 to 1: a-0",
        "UpdateMetadata 1 to 2: a-0",
    ]
    assert changed(image, after(image, change)) == expected
    assert changed(image, after(image, change), [uuid(1)]) == expected


def test_more_partitions_of_a_topic_are_sent(image):
    """KAFKA-15149."""
    assert changed(image, after(image, partition(2, 1, [2], leader=2))) == [
        "LeaderAndIsr 1 to 2: b-1",
        "UpdateMetadata 1 to 1: b-1",
        "UpdateMetadata 1 to 2: b-1",
    ]


def test_replicas_of_a_deleted_topic_are_deleted(image):
    assert changed(image, after(image, m.RemoveTopicRecord(topic_id=uuid(2)))) == [
        "UpdateMetadata 1 to 1: b-0",
        "UpdateMetadata 1 to 2: b-0",
        "StopReplica to 1: b-0",
    ]


def test_a_removed_replica_is_deleted_with_the_present_leader_epoch(image):
    change = m.PartitionChangeRecord(topic_id=uuid(1), partition_id=0, replicas=[1], isr=[1])
    later = after(image, change)
    assert changed(image, later)[-1] == "StopReplica to 2: a-0"
    stop = [r for some in changed_requests(image, later, None, 8) if some for r in some][-1]
    assert stop.partitions["a", 0].leader_epoch == 3
    assert stop.partitions["a", 0].delete


def test_a_broker_that_registered_again_gets_everything(image):
    assert changed(image, after(image, broker(2, epoch=40))) == [
        "UpdateMetadata 0 to 1:",
        "UpdateMetadata 0 to 2: a-0 a-1 b-0",
        "LeaderAndIsr 2 to 2: a-0",
        "UpdateMetadata 2 to 2: a-0 a-1 b-0",
    ]


def test_a_broker_in_kraft_mode_gets_nothing(image):
    later = after(image, broker(1, migrating=False, epoch=40))
    assert changed(image, later) == ["UpdateMetadata 0 to 2:"]


def test_other_changes_send_nothing(image):
    config = m.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1")
    assert changed(image, after(image, config)) == []


def test_brokers_are_ready_when_all_have_registered_as_migrating(image):
    assert unready_brokers(image, [1, 2, 4], [3000]) is None
    found = unready_brokers(image, [1, 3, 7], [3000])
    assert found == "brokers 3, 7 have not registered with this controller"
    found = unready_brokers(image, [1, 3000], [3000, 3001])
    assert found == "node ids 3000 are those of brokers and of controllers"
    assert unready_brokers(EMPTY_IMAGE, [], []) == "no broker has registered with this controller"
