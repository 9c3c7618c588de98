"""What the metadata log tells of each kind of election, and of brokers that come and go."""

import pytest

from sparkraft.controller import history as history_module
from sparkraft.controller.history import History
from sparkraft.controller.leader_election import CauseKind, ChosenBy
from sparkraft.controller.past_events import PartitionEvent
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k64_unregister_broker as k64
from tests.controller.cluster_of import Cluster, uuid
from tests.controller.explanations import check_against_journal


def read(cluster: Cluster, *, events_max: int = 1000, batch: int = 10_000) -> History:
    history = History(EMPTY_IMAGE, lambda *_: True, events_max=events_max)
    for records, base in cluster.log:
        for start in range(0, len(records), batch):
            part = records[start : start + batch]
            first = base + start
            history.feed(
                part, base_offset=first, last_offset=first + len(part) - 1, epoch=1, at_ms=first
            )
    return history


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.start(1, 2, 3, 4)
    made.create("t", replicas=[[1, 2, 3]], min_insync_replicas="2")
    return made


def last(cluster: Cluster, topic: str = "t") -> PartitionEvent:
    """The newest event of the partition, whose account agrees with the journal's."""
    history = read(cluster)
    assert check_against_journal(history, cluster.core.journal) == len(cluster.core.journal)
    return history.partition_events(cluster.core.latest.topics_by_name[topic], 0)[-1]


def elect(cluster: Cluster, kind: int) -> None:
    request = k43.ElectLeadersRequest(
        election_type=kind, topic_partitions=[k43.TopicPartitions(topic="t", partitions=[0])]
    )
    answer = cluster.ask(ApiKey.ELECT_LEADERS, request)
    assert answer.replica_election_results[0].partition_result[0].error_code == 0


def reassign(cluster: Cluster, replicas: list[int] | None) -> None:
    wanted = k45.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = k45.ReassignableTopic(name="t", partitions=[wanted])
    cluster.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, k45.AlterPartitionReassignmentsRequest(topics=[topic])
    )


def lose_everybody(cluster: Cluster) -> None:
    cluster.alter_isr("t", [1, 2])
    cluster.alter_isr("t", [1])
    cluster.fence(2)
    cluster.fence(1)


def test_a_partition_that_was_made(cluster):
    event = last(cluster)
    assert event.cause.kind is CauseKind.CREATED
    assert event.before is None
    assert event.leader_changed
    assert not event.isr_changed


def test_offline(cluster):
    cluster.fence(1)
    event = last(cluster)
    assert event.election.name == "offline"
    assert event.election.ruled_out == ((1, "fenced"),)
    assert event.election.live == (2, 3)
    assert event.cause.text == "broker 1 was fenced"


def test_controlled_shutdown(cluster):
    cluster.heartbeat(1, want_shut_down=True)
    assert last(cluster).election.name == "controlled shutdown"


def test_preferred(cluster):
    cluster.fence(1)
    cluster.heartbeat(1)
    cluster.alter_isr("t", [2, 3, 1])
    assert last(cluster).cause == (CauseKind.ISR_CHANGED, "leader 2 changed the ISR")
    elect(cluster, 0)
    assert last(cluster).election.name == "preferred"


def test_reassignment(cluster):
    reassign(cluster, [4, 2, 3])
    assert last(cluster).cause.text == "the partition is reassigned"
    cluster.alter_isr("t", [1, 2, 3, 4])
    event = last(cluster)
    assert event.election.name == "reassignment"
    assert "completed the reassignment" in event.cause.text


def test_a_cancelled_reassignment(cluster):
    reassign(cluster, [4, 2, 3])
    reassign(cluster, None)
    assert last(cluster).cause.text == "the reassignment was cancelled"


def test_a_move_taken_back_when_whom_it_added_was_told_to_go(cluster):
    """Replicas are left that the move would have left, and nobody has joined. It ends only so: who
    is being added is waited for, as in Kafka.
    """
    reassign(cluster, [4, 2, 3])
    reassign(cluster, [1, 2, 3])
    before = last(cluster).after
    assert before is not None
    assert (before.adding_replicas, before.removing_replicas) == ((4,), (4,))
    reassign(cluster, None)
    after = last(cluster).after
    assert after is not None
    assert after.replicas == (1, 2, 3)
    assert last(cluster).cause.text == "the reassignment was cancelled"


def test_a_move_to_replicas_that_are_in_sync_ends_at_once(cluster):
    """The one before waited for somebody who stays."""
    cluster.alter_isr("t", [1, 2])
    reassign(cluster, [1, 3])
    reassign(cluster, [1])
    event = last(cluster)
    assert event.before is not None
    assert event.before.is_reassigning
    assert event.after is not None
    assert event.after.replicas == (1,)
    assert not event.after.is_reassigning
    assert event.cause.text == "the partition is reassigned"


def test_eligible_leader_replica(cluster):
    lose_everybody(cluster)
    event = last(cluster)
    assert (event.after.leader, event.election.chosen_by) == (NO_LEADER, ChosenBy.NOBODY)
    assert event.election.name == "offline"
    cluster.heartbeat(2)
    event = last(cluster)
    assert event.election.name == "eligible leader replica"
    assert event.election.elr == (1, 2)
    assert event.cause.text == "broker 2 was unfenced"


def test_last_known_leader(cluster):
    epochs = dict(cluster.epochs)
    for broker_id in (2, 3, 1):
        cluster.fence(broker_id)
    for broker_id in (2, 3, 1):
        # None of them stopped cleanly, so nobody is eligible any more.
        cluster.now += 10_000  # type: ignore[misc]
        cluster.register(broker_id, previous_broker_epoch=epochs[broker_id] - 1)
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(1)
    event = last(cluster)
    assert event.election.name == "last known leader (unclean)"
    assert event.after.leader == 1


def test_unclean(cluster):
    lose_everybody(cluster)
    elect(cluster, 1)
    event = last(cluster)
    assert event.election.name == "unclean"
    assert event.after.leader == 3
    assert event.election.ruled_out == ((1, "fenced"), (2, "fenced"))


def test_unclean_where_the_topic_allows_it():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]], unclean_leader_election_enable="true")
    cluster.alter_isr("t", [1])
    cluster.fence(1)
    event = last(cluster)
    assert event.election.name == "unclean"
    assert event.cause.kind is CauseKind.FENCED


def test_a_lost_directory(cluster):
    cluster.register(1, directories=2, incarnation_id=cluster.core.latest.brokers[1].incarnation_id)
    cluster.assign("t", 1, uuid(2001))
    assert last(cluster).cause.kind is CauseKind.DIRECTORY_ASSIGNED
    cluster.heartbeat(1, offline_log_dirs=[uuid(2001)])
    event = last(cluster)
    assert event.election.name == "offline"
    assert event.cause.kind is CauseKind.DIRECTORY_OFFLINE
    assert event.election.ruled_out == ((1, "its log directory is offline"),)


def test_a_directory_that_was_lost_before_it_was_assigned(cluster):
    """Without ELR the last of the ISR stays in it, whatever became of its directory."""
    cluster.ask_features(**{"eligible.leader.replicas.version": 0})
    for broker_id in (2, 3):
        cluster.fence(broker_id)
    assert cluster.partition("t").isr == (1,)
    cluster.assign("t", 1, uuid(666))
    event = last(cluster)
    assert event.cause.kind is CauseKind.DIRECTORY_OFFLINE
    assert (event.after.leader, event.after.isr) == (NO_LEADER, (1,))
    assert event.election.name == "offline"
    assert event.election.isr == ()
    assert dict(event.election.ruled_out)[1] == "its log directory is offline"
    assert event.derived


def test_a_broker_that_left_for_good_and_one_that_crashed(cluster):
    cluster.ask(ApiKey.UNREGISTER_BROKER, k64.UnregisterBrokerRequest(broker_id=1))
    assert last(cluster).election.ruled_out == ((1, "unregistered"),)
    cluster.now += 10_000  # type: ignore[misc]
    cluster.heartbeat(3)
    cluster.register(2)
    event = last(cluster)
    assert event.cause.text == "broker 2 registered again"
    assert event.after.leader == 3


def test_a_minimum_that_changed_and_a_topic_that_went(cluster):
    cluster.alter_isr("t", [1])
    cluster.set_topic_config("t", "min.insync.replicas", "1")
    assert last(cluster).cause.kind is CauseKind.ELR_CLEARED
    topic_id = cluster.core.latest.topics_by_name["t"]
    request = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="t")])
    cluster.ask(ApiKey.DELETE_TOPICS, request)
    cluster.create("t")
    history = read(cluster)
    assert history.partition_events(topic_id, 0)[-1].cause.kind is CauseKind.DELETED
    assert history.topic_ids("t") == [topic_id, cluster.core.latest.topics_by_name["t"]]


def test_brokers_that_come_and_go():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.heartbeat(1, cordoned_log_dirs=[uuid(2000)])
    cluster.create("t", replicas=[[1, 2]])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(1)
    cluster.ask(ApiKey.UNREGISTER_BROKER, k64.UnregisterBrokerRequest(broker_id=1))
    assert [event.what for event in read(cluster).broker_events(1)] == [
        "registered",
        "unfenced",
        "1 log directories cordoned",
        "began its controlled shutdown",
        "fenced",
        "registered again",
        "unregistered",
    ]
    assert [event.what for event in read(cluster, events_max=2).broker_events(1)] == [
        "registered again",
        "unregistered",
    ]


def test_a_decision_of_several_batches_is_explained_by_the_last_of_them(monkeypatch):
    monkeypatch.setattr(history_module, "SPLIT_RECORDS", {3})
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create("t", replicas=[[1, 2, 3], [2, 1, 3]] * 4)
    cluster.fence(1)
    history = read(cluster, batch=3)
    topic_id = cluster.core.latest.topics_by_name["t"]
    for index in range(8):
        event = history.partition_events(topic_id, index)[-1]
        assert event.cause.text == "broker 1 was fenced"
        assert event.derived
    check_against_journal(history, cluster.core.journal)


def test_a_history_may_begin_in_the_middle(cluster):
    cluster.fence(1)
    halfway = cluster.core.latest
    place = len(cluster.log)
    cluster.heartbeat(1)
    cluster.fence(2)
    history = History(halfway, lambda topic, index: (topic, index) == ("t", 0), events_max=10)
    assert history.start == halfway.offset + 1
    for records, base in cluster.log[place:]:
        last_offset = base + len(records) - 1
        history.feed(records, base_offset=base, last_offset=last_offset, epoch=1, at_ms=0)
    (event,) = history.partition_events(cluster.core.latest.topics_by_name["t"], 0)
    assert (event.before.leader, event.after.leader) == (2, 3)
    assert history.image == cluster.core.latest
