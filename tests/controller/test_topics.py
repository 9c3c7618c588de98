"""Topics: created, refused, deleted, grown."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k37_create_partitions as k37
from tests.controller.cluster_of import Cluster, uuid


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.start(1, 2, 3)
    return made


def test_a_topic_gets_replicas_leaders_and_an_id(cluster):
    result = cluster.create("t", partitions=4, replication=3)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 3)
    topic = cluster.core.latest.topic("t")
    assert topic.id == result.topic_id
    for _, partition in topic.in_order():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(uuid(1000 * (r + 1)) for r in partition.replicas)


def test_the_records_stand_topic_configs_partitions(cluster):
    cluster.create("t", partitions=2, retention_ms="5")
    kinds = [type(record).__name__ for record in cluster.log[-1][0]]
    assert kinds == ["TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord"]


def test_defaults_come_from_the_controller():
    cluster = Cluster(default_partitions=3, default_replication_factor=2)
    cluster.start(1, 2)
    result = cluster.create("t", partitions=-1, replication=-1)
    assert (result.num_partitions, result.replication_factor) == (3, 2)


def test_the_answer_shows_the_configs_in_force(cluster):
    result = cluster.create("t", retention_ms="5")
    shown = {config.name: config for config in result.configs}
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5", 1)
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == ("delete", 5)
    # ELR is on, so the cluster has its own.
    assert shown["min.insync.replicas"].config_source == 3


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("old", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("my_topic", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__cluster_metadata", {}, ErrorCode.INVALID_REQUEST),
        ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("t", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ("t", {"replication": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", {"replication": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", {"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("t", {"no_such_key": "1"}, ErrorCode.INVALID_CONFIG),
        ("t", {"replicas": [[1, 1]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", {"replicas": [[9]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", {"replicas": [[]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", {"replicas": [[1, 2], [3]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_is_refused_changes_nothing(cluster, name, options, code):
    cluster.create("old")
    cluster.create("my.topic")
    before = cluster.core.latest
    result = cluster.create(name, **options)
    assert ErrorCode(result.error_code) is code
    assert result.error_message
    assert cluster.core.latest is before


def ask(cluster, *topics, **options):
    return cluster.ask(
        ApiKey.CREATE_TOPICS, k19.CreateTopicsRequest(topics=list(topics), **options)
    )


def topic(name, **fields):
    return k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1, **fields)


def test_one_bad_topic_does_not_touch_the_others(cluster):
    response = ask(cluster, topic("good"), topic("b a d"), topic("good.too"))
    codes = {result.name: result.error_code for result in response.topics}
    assert codes == {"good": 0, "b a d": 17, "good.too": 0}
    assert sorted(cluster.core.latest.topics_by_name) == ["good", "good.too"]


def test_a_topic_asked_for_twice_is_refused_once(cluster):
    response = ask(cluster, topic("t"), topic("t"), topic("u"))
    assert [(r.name, r.error_code) for r in response.topics] == [("u", 0), ("t", 42)]


def test_two_new_names_of_one_request_may_collide_as_in_kafka(cluster):
    response = ask(cluster, topic("a.b"), topic("a_b"))
    assert [result.error_code for result in response.topics] == [0, 0]


def test_validate_only_creates_nothing(cluster):
    response = ask(cluster, topic("t"), validate_only=True)
    assert response.topics[0].error_code == 0
    assert cluster.core.latest.topic("t") is None


def test_a_null_config_is_refused(cluster):
    bad = topic("t", configs=[k19.CreatableTopicConfig(name="retention.ms", value=None)])
    assert ask(cluster, bad).topics[0].error_code == ErrorCode.INVALID_CONFIG


def test_assignments_by_hand_exclude_counts(cluster):
    by_hand = [k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    both = topic("t", assignments=by_hand)
    assert ask(cluster, both).topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_assignments_must_count_from_zero(cluster):
    gap = k19.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[k19.CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
    )
    assert ask(cluster, gap).topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_fenced_replicas_start_outside_the_isr(cluster):
    cluster.fence(2)
    cluster.create("t", replicas=[[2, 1]])
    partition = cluster.partition("t")
    assert (partition.isr, partition.leader) == ((1,), 1)
    refused = cluster.create("u", replicas=[[2]])
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_no_live_broker_no_topic():
    cluster = Cluster()
    assert cluster.create("t").error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.register(1)
    assert cluster.create("t").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_only_create_topics_adds_the_replication_factor_to_the_placers_error(cluster):
    refused = cluster.create("many", replication=4)
    assert refused.error_message == (
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be "
        "reached because only 3 broker(s) are registered or some brokers have all their log "
        "directories cordoned."
    )
    cluster.create("t", partitions=1, replication=1)
    for broker in (1, 2, 3):
        cluster.fence(broker)
    refused = grow(cluster, "t", 3)
    assert refused.error_message == (
        "All brokers are currently fenced, or have all their log directories cordoned."
    )


def test_too_many_partitions_at_once_are_refused_as_a_whole(cluster):
    with pytest.raises(KafkaError) as caught:
        cluster.create("t", partitions=10_001)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def delete(cluster, *names, ids=(), version=6):
    return cluster.ask(
        ApiKey.DELETE_TOPICS,
        k20.DeleteTopicsRequest(
            topics=[k20.DeleteTopicState(name=name) for name in names]
            + [k20.DeleteTopicState(topic_id=topic_id) for topic_id in ids]
        ),
        version=version,
    )


def test_delete_by_name_and_by_id(cluster):
    a, b = cluster.create("a", retention_ms="1"), cluster.create("b")
    response = delete(cluster, "a", ids=[b.topic_id])
    assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
        ("b", b.topic_id, 0),
        ("a", a.topic_id, 0),
    ]
    assert not cluster.core.latest.topics_by_id
    assert (2, "a") not in cluster.core.latest.configs


def test_delete_by_name_in_old_versions(cluster):
    cluster.create("a")
    request = k20.DeleteTopicsRequest(topic_names=["a", "nobody"])
    response = cluster.ask(ApiKey.DELETE_TOPICS, request, version=1)
    assert {r.name: r.error_code for r in response.responses} == {"a": 0, "nobody": 3}


class CountedName(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("each_name", [1, 2])
def test_names_are_not_compared_with_all_others(cluster, each_name):
    """A request of 1 MB has 100,000 names, and 10^10 comparisons would stop the controller."""
    count = 3_000
    names = [CountedName(f"t{index}") for index in range(count)] * each_name
    CountedName.compared = 0
    response = delete(cluster, *names)
    assert len(response.responses) == count
    assert CountedName.compared < 10 * len(names)


def test_what_can_not_be_deleted(cluster):
    a = cluster.create("a")
    response = delete(cluster, "a", "nobody", ids=[a.topic_id, uuid(77), Uuid.ZERO])
    assert sorted((str(r.name), r.error_code) for r in response.responses) == [
        ("None", ErrorCode.INVALID_REQUEST),
        ("None", ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", ErrorCode.INVALID_REQUEST),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert cluster.core.latest.topic("a") is not None


def test_a_name_given_twice_is_refused(cluster):
    cluster.create("a")
    assert [r.error_code for r in delete(cluster, "a", "a").responses] == [42]


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73)])
def test_deletion_can_be_switched_off(version, code):
    cluster = Cluster(delete_topics=False)
    with pytest.raises(KafkaError) as caught:
        delete(cluster, "a", version=version)
    assert caught.value.code == code


def grow(cluster, name, count, assignments=None, **options):
    wanted = k37.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = k37.CreatePartitionsRequest(topics=[wanted], **options)
    return cluster.ask(ApiKey.CREATE_PARTITIONS, request).results[0]


def test_partitions_are_added_with_the_same_replication(cluster):
    cluster.create("t", partitions=1, replication=2)
    assert grow(cluster, "t", 3).error_code == 0
    topic = cluster.core.latest.topic("t")
    assert sorted(topic.partitions) == [0, 1, 2]
    assert len(topic.partitions[2].replicas) == 2


def test_partitions_are_added_by_hand(cluster):
    cluster.create("t")
    by_hand = [k37.CreatePartitionsAssignment(broker_ids=[3])]
    assert grow(cluster, "t", 2, by_hand).error_code == 0
    assert cluster.partition("t", 1).replicas == (3,)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("nobody", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 100_000, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_can_not_grow(cluster, name, count, assignments, code):
    cluster.create("t", partitions=2)
    if assignments is not None:
        assignments = [k37.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    assert grow(cluster, name, count, assignments).error_code == code


def test_growing_may_be_tried_without_doing_it(cluster):
    cluster.create("t")
    assert grow(cluster, "t", 2, validate_only=True).error_code == 0
    assert len(cluster.core.latest.topic("t").partitions) == 1
