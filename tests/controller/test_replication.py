"""ISR changes, elections by request and by timer, directories, reassignment."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.controller.leader_election import ChosenBy
from sparkraft.metadata.image import DIRECTORY_MIGRATING
from sparkraft.metadata.partition_state import NO_LEADER, RECOVERING
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k46_list_partition_reassignments as k46
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k73_assign_replicas_to_dirs as k73
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from tests.controller.cluster_of import Cluster, uuid


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.start(1, 2, 3, 4)
    made.create("t", replicas=[[1, 2, 3]], min_insync_replicas="2")
    return made


def state(cluster, topic="t", index=0):
    partition = cluster.partition(topic, index)
    return partition.leader, partition.isr, partition.elr


def test_the_isr_shrinks_and_grows_at_the_leaders_word(cluster):
    answer = cluster.alter_isr("t", [1, 2])
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2], 1)
    assert answer.leader_epoch == 0  # since metadata.version 3.6-IV0 a shrink keeps it
    assert cluster.alter_isr("t", [1, 2, 3]).isr == [1, 2, 3]


def test_below_the_minimum_the_elr_remembers_who_had_everything(cluster):
    cluster.alter_isr("t", [1, 2])
    assert state(cluster) == (1, (1, 2), ())
    cluster.alter_isr("t", [1])
    assert state(cluster) == (1, (1,), (2,))
    cluster.alter_isr("t", [1, 3])
    assert state(cluster) == (1, (1, 3), ())


@pytest.mark.parametrize(
    ("isr", "fields", "code"),
    [
        ([1, 2], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2], {"leader": 2}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"index": 0, "partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_isr_changes_that_are_refused(cluster, isr, fields, code):
    before = cluster.core.latest
    assert ErrorCode(cluster.alter_isr("t", isr, **fields).error_code) is code
    assert cluster.core.latest is before


def test_a_replica_that_is_away_can_not_join_the_isr(cluster):
    cluster.fence(3)
    assert cluster.alter_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(3)
    cluster.epochs[3] -= 1  # the leader speaks of an earlier incarnation
    assert cluster.alter_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_in_controlled_shutdown_can_not_join_the_isr(cluster):
    cluster.create("alone", replicas=[[3]])  # nobody else may lead it, so 3 doesn't get away yet
    cluster.heartbeat(3, want_shut_down=True)
    broker = cluster.core.latest.brokers[3]
    assert (broker.in_controlled_shutdown, broker.fenced) == (True, False)
    assert state(cluster)[1] == (1, 2)
    before = cluster.core.latest
    assert cluster.alter_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.core.latest is before
    cluster.now += 60_000  # its session is over
    cluster.start(3)
    assert cluster.alter_isr("t", [1, 2, 3]).isr == [1, 2, 3]


def test_a_leader_that_recovers_is_alone_in_the_isr(cluster):
    """Kafka's `ReplicationControlManager.validateAlterPartitionData`, KIP-704."""
    lose_everybody(cluster)
    elect(cluster, 1, 0)
    cluster.heartbeat(1)
    before = cluster.core.latest
    refused = cluster.alter_isr("t", [3, 1], leader_recovery_state=RECOVERING)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert cluster.core.latest is before
    alone = cluster.alter_isr("t", [3], leader_recovery_state=RECOVERING)
    assert (alone.error_code, alone.isr, alone.leader_recovery_state) == (0, [3], RECOVERING)
    recovered = cluster.alter_isr("t", [3, 1], leader_recovery_state=0)
    assert (recovered.error_code, recovered.isr, recovered.leader_recovery_state) == (0, [3, 1], 0)


def test_version_2_sends_bare_ids(cluster):
    answer = cluster.alter_isr("t", [], new_isr=[1, 3])
    assert (answer.error_code, answer.isr) == (0, [1, 3])


def test_a_stale_broker_epoch_and_an_unknown_topic(cluster):
    request = k56.AlterPartitionRequest(broker_id=1, broker_epoch=0)
    with pytest.raises(KafkaError) as caught:
        cluster.ask(ApiKey.ALTER_PARTITION, request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    data = k56.AlterPartitionRequestPartitionData(partition_index=0)
    topic = k56.AlterPartitionRequestTopicData(topic_id=uuid(9), partitions=[data])
    request = k56.AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epochs[1], topics=[topic])
    answer = cluster.ask(ApiKey.ALTER_PARTITION, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def elect(cluster, kind, *partitions, topic="t"):
    wanted = None
    if partitions:
        wanted = [k43.TopicPartitions(topic=topic, partitions=list(partitions))]
    request = k43.ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    return [
        (r.topic, p.partition_id, ErrorCode(p.error_code))
        for r in cluster.ask(ApiKey.ELECT_LEADERS, request).replica_election_results
        for p in r.partition_result
    ]


def test_a_preferred_election_brings_the_leader_home(cluster):
    cluster.fence(1)
    assert state(cluster)[0] == 2
    assert elect(cluster, 0, 0) == [("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    cluster.heartbeat(1)
    cluster.alter_isr("t", [2, 3, 1])
    assert elect(cluster, 0, 0) == [("t", 0, ErrorCode.NONE)]
    assert state(cluster)[0] == 1
    assert elect(cluster, 0, 0) == [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)]
    *_, entry = cluster.core.journal.entries()
    assert entry.election.reason.chosen_by is ChosenBy.PREFERRED_REPLICA


def test_electing_all_leaves_out_what_needs_none(cluster):
    assert elect(cluster, 0) == []


def test_elections_for_what_is_not_there(cluster):
    assert elect(cluster, 0, 7) == [("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert elect(cluster, 0, 0, topic="nobody") == [
        ("nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    with pytest.raises(KafkaError):
        elect(cluster, 9, 0)


def lose_everybody(cluster):
    """The ISR shrinks to broker 1, which dies without a trace."""
    cluster.alter_isr("t", [1, 2])
    cluster.alter_isr("t", [1])
    cluster.fence(2)
    cluster.fence(1)


def test_an_unclean_election_takes_who_is_there(cluster):
    lose_everybody(cluster)
    assert state(cluster) == (NO_LEADER, (), (1, 2))
    assert elect(cluster, 1, 0) == [("t", 0, ErrorCode.NONE)]
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (3, (3,), ())
    assert partition.leader_recovery_state == RECOVERING
    assert cluster.alter_isr("t", [3], leader_recovery_state=0).error_code == 0
    assert cluster.partition("t").leader_recovery_state == 0


def test_the_timer_elects_uncleanly_only_where_that_is_allowed(cluster):
    lose_everybody(cluster)
    cluster.carry_out(complete(cluster.core.elect_uncleanly_where_allowed()))
    assert state(cluster)[0] == NO_LEADER
    cluster.set_topic_config("t", "unclean.leader.election.enable", "true")
    cluster.carry_out(complete(cluster.core.elect_uncleanly_where_allowed()))
    assert state(cluster)[0] == 3


def test_the_timer_balances_so_many_leaders_at_once():
    cluster = Cluster(elections_per_balance_max=2)
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]] * 3)
    cluster.fence(1)
    cluster.heartbeat(1)
    for index in range(3):
        cluster.alter_isr("t", [2, 1], index=index)
    assert cluster.carry_out(complete(cluster.core.balance_leaders())) is True
    assert cluster.carry_out(complete(cluster.core.balance_leaders())) is False
    assert [cluster.partition("t", i).leader for i in range(3)] == [1, 1, 1]


def test_a_new_minimum_clears_the_elr(cluster):
    cluster.alter_isr("t", [1])
    assert state(cluster)[2] == (2, 3)
    cluster.set_topic_config("t", "min.insync.replicas", "1")
    assert state(cluster)[2] == ()


def test_directories_are_noted_and_offline_ones_cost_the_isr(cluster):
    cluster.register(1, directories=2, incarnation_id=cluster.core.latest.brokers[1].incarnation_id)
    cluster.assign("t", 1, uuid(2001))
    assert cluster.partition("t").directory(1) == uuid(2001)
    cluster.assign("t", 1, uuid(5555))
    assert state(cluster)[:2] == (2, (2, 3))


def test_assignments_of_what_is_not_theirs(cluster):
    def assign(topic_id: Uuid, index: int, broker: int) -> ErrorCode:
        request = k73.AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=cluster.epochs[broker],
            directories=[
                k73.AssignReplicasToDirsRequestDirectoryData(
                    id=uuid(1000 * (broker + 1)),
                    topics=[
                        k73.AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                k73.AssignReplicasToDirsRequestPartitionData(partition_index=index)
                            ],
                        )
                    ],
                )
            ],
        )
        answer = cluster.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request)
        return ErrorCode(answer.directories[0].topics[0].partitions[0].error_code)

    topic_id = cluster.core.latest.topics_by_name["t"]
    assert assign(topic_id, 0, 1) is ErrorCode.NONE
    assert assign(topic_id, 9, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(topic_id, 0, 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(uuid(9), 0, 1) is ErrorCode.UNKNOWN_TOPIC_ID


def reassign(cluster, replicas, *, topic="t", index=0, resize=True):
    wanted = k45.ReassignablePartition(partition_index=index, replicas=replicas)
    request = k45.AlterPartitionReassignmentsRequest(
        topics=[k45.ReassignableTopic(name=topic, partitions=[wanted])],
        allow_replication_factor_change=resize,
    )
    answer = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def ongoing(cluster, topics=None):
    request = k46.ListPartitionReassignmentsRequest(topics=topics)
    answer = cluster.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    return [
        (topic.name, p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in answer.topics
        for p in topic.partitions
    ]


def test_a_move_ends_when_the_newcomers_are_in_sync(cluster):
    assert reassign(cluster, [4, 2, 3]) is ErrorCode.NONE
    assert ongoing(cluster) == [("t", [4, 2, 3, 1], [4], [1])]
    answer = cluster.alter_isr("t", [1, 2, 3, 4])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 2, 3), (2, 3, 4), 4)
    assert not partition.is_reassigning
    assert ongoing(cluster) == []


def test_who_stays_may_lag_when_a_move_ends_unless_more_leave_than_come(cluster):
    cluster.fence(3)
    assert reassign(cluster, [4, 2, 3]) is ErrorCode.NONE
    cluster.alter_isr("t", [1, 2, 4])
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr) == ((4, 2, 3), (2, 4))
    assert not partition.is_reassigning
    assert reassign(cluster, [3, 4]) is ErrorCode.NONE  # 2 leaves, nobody comes, 3 is away
    assert cluster.partition("t").is_reassigning
    cluster.heartbeat(3)
    cluster.alter_isr("t", [2, 4, 3])
    assert not cluster.partition("t").is_reassigning
    assert cluster.partition("t").replicas == (3, 4)


def test_a_new_order_takes_effect_at_once(cluster):
    assert reassign(cluster, [3, 2, 1]) is ErrorCode.NONE
    assert cluster.partition("t").replicas == (3, 2, 1)
    assert cluster.partition("t").leader == 1
    assert ongoing(cluster) == []


def test_a_smaller_set_takes_effect_at_once(cluster):
    assert reassign(cluster, [2, 3]) is ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.leader) == ((2, 3), 2)


def test_a_move_may_be_cancelled(cluster):
    assert reassign(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, [4, 2, 3])
    assert reassign(cluster, None) is ErrorCode.NONE
    partition = cluster.partition("t")
    assert partition.replicas == (2, 3, 1)
    assert not partition.is_reassigning


def test_moves_that_are_refused(cluster):
    assert reassign(cluster, [9]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, []) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, [1, 1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, [1, 2], resize=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [1], topic="nobody") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, [1], index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_of_a_move_under_way_the_size_it_ends_with_counts(cluster):
    assert reassign(cluster, [1, 4]) is ErrorCode.NONE
    assert cluster.partition("t").is_reassigning
    assert reassign(cluster, [1, 2, 4], resize=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [2, 4], resize=False) is ErrorCode.NONE
    assert cluster.partition("t").removing_replicas == (1, 3)


def test_a_partition_named_twice_is_changed_twice(cluster):
    wanted = [
        k45.ReassignablePartition(partition_index=0, replicas=[4, 2, 3]),
        k45.ReassignablePartition(partition_index=0, replicas=None),
    ]
    topic = k45.ReassignableTopic(name="t", partitions=wanted)
    request = k45.AlterPartitionReassignmentsRequest(topics=[topic])
    answer = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    assert [p.error_code for p in answer.responses[0].partitions] == [0, 0]
    assert not cluster.partition("t").is_reassigning
    assert cluster.partition("t").partition_epoch == 2


def test_a_move_away_from_all_that_are_in_sync_is_not_reverted_cleanly(cluster):
    assert reassign(cluster, [4, 2, 3]) is ErrorCode.NONE
    for gone in (1, 2, 3):
        cluster.fence(gone)
    cluster.set_topic_config("t", "unclean.leader.election.enable", "true")
    assert elect(cluster, 1, 0) == [("t", 0, ErrorCode.NONE)]
    assert cluster.partition("t").isr == (4,)
    cluster.set_topic_config("t", "unclean.leader.election.enable", "false")
    assert reassign(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.heartbeat(2)
    cluster.set_topic_config("t", "unclean.leader.election.enable", "true")
    assert reassign(cluster, None) is ErrorCode.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.leader) == ((2, 3, 1), 2)
    assert partition.leader_recovery_state == RECOVERING


def test_listing_what_is_not_moving(cluster):
    named = [k46.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9])]
    assert ongoing(cluster, named) == []


def test_replicas_move_at_a_metadata_version_without_directories():
    level = FeatureLevelRecord(name="metadata.version", feature_level=7)
    cluster = Cluster(bootstrap=[(level, 0)])
    cluster.start(1, 2, 3)
    cluster.create("t", replicas=[[1, 2]])
    wanted = k45.ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
    topic = k45.ReassignableTopic(name="t", partitions=[wanted])
    request = k45.AlterPartitionReassignmentsRequest(topics=[topic])
    cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    cluster.alter_isr("t", [1, 2, 3])
    cluster.fence(1)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (2, 3), 2)
    assert partition.directories == (DIRECTORY_MIGRATING,) * 3
