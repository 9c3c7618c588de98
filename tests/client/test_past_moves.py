"""Reassignments and throttles of a replayed state, as requests return them."""

from sparkraft.client.past.moves import reassignments_of, throttles_of
from sparkraft.client.past.state import PastState
from sparkraft.client.values import Reassignment, ResourceType
from sparkraft.protocol.messages import metadata_records as records
from tests.client.test_past_settings import config, state_of
from tests.controller.cluster_of import uuid

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def state_of_moves() -> PastState:
    """Of t: partition 0 moves from 1 to 2, 1 loses a replica, 2 stays."""
    topic = uuid(1)
    partitions = [
        records.PartitionRecord(
            topic_id=topic, partition_id=index, replicas=replicas, isr=[1], leader=1
        )
        for index, replicas in enumerate(([1], [1, 2], [1]))
    ]
    return state_of(
        records.TopicRecord(name="t", topic_id=topic),
        *partitions,
        records.PartitionChangeRecord(
            topic_id=topic, partition_id=0, replicas=[2, 1], adding_replicas=[2],
            removing_replicas=[1],
        ),
        records.PartitionChangeRecord(topic_id=topic, partition_id=1, removing_replicas=[2]),
    )  # fmt: skip


def test_partitions_with_replicas_that_come_or_go_are_being_reassigned() -> None:
    state = state_of_moves()
    assert reassignments_of(state) == {
        ("t", 0): Reassignment(replicas=(2, 1), adding=(2,), removing=(1,)),
        ("t", 1): Reassignment(replicas=(1, 2), adding=(), removing=(2,)),
    }
    for index, replicas in ((0, [2]), (1, [1])):
        state.apply(
            records.PartitionChangeRecord(
                topic_id=uuid(1), partition_id=index, replicas=replicas, isr=replicas,
                adding_replicas=[], removing_replicas=[],
            )
        )  # fmt: skip
    assert reassignments_of(state) == {}


def test_throttles_are_those_of_single_brokers_and_topics() -> None:
    state = state_of(
        config(TOPIC, "t", "leader.replication.throttled.replicas", "0:1"),
        config(TOPIC, "t", "retention.ms", "5"),
        config(TOPIC, "u", "follower.replication.throttled.replicas", ""),
        config(BROKER, "", "leader.replication.throttled.rate", "7"),
        config(BROKER, "2", "leader.replication.throttled.rate", "8"),
        config(BROKER, "2", "follower.replication.throttled.rate", "9"),
        config(BROKER, "1", "leader.replication.throttled.rate", "6"),
        config(BROKER, "1", "leader.replication.throttled.rate", None),
    )
    assert throttles_of(state) == {
        (TOPIC, "t"): [("leader.replication.throttled.replicas", "0:1")],
        (BROKER, "2"): [
            ("follower.replication.throttled.rate", "9"),
            ("leader.replication.throttled.rate", "8"),
        ],
    }
