"""Configs changed by request."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from tests.controller.cluster_of import Cluster

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.start(1)
    made.create("t")
    return made


def alter(cluster, kind, name, *changes, **options):
    resource = k44.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            k44.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = k44.IncrementalAlterConfigsRequest(resources=[resource], **options)
    return ErrorCode(cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses[0].error_code)


def config(cluster, kind=TOPIC, name="t"):
    return dict(cluster.core.latest.config(kind, name))


def test_set_delete_append_subtract(cluster):
    assert alter(cluster, TOPIC, "t", ("retention.ms", SET, "5")) is ErrorCode.NONE
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert config(cluster) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.NONE
    assert alter(cluster, TOPIC, "t", ("retention.ms", DELETE, None)) is ErrorCode.NONE
    assert config(cluster) == {"cleanup.policy": "compact"}


def test_an_unchanged_topic_config_takes_no_record(cluster):
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"))
    before = len(cluster.log)
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"))
    assert len(cluster.log) == before


def test_an_unchanged_broker_config_does_so_that_files_are_read_again(cluster):
    alter(cluster, BROKER, "1", ("log.retention.ms", SET, "5"))
    before = len(cluster.log)
    alter(cluster, BROKER, "1", ("log.retention.ms", SET, "5"))
    assert len(cluster.log) == before + 1


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("nobody", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("leader.replication.throttled.replicas", SET, "x" * 40_000),
         ErrorCode.INVALID_CONFIG),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "nobody", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "9", ("log.retention.ms", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("listeners", SET, "PLAINTEXT://:1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "x"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("leader.replication.throttled.rate", SET, "1e6"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("follower.replication.throttled.rate", SET, "-1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("min.insync.replicas", SET, "1"), ErrorCode.INVALID_CONFIG),
        (BROKER, "", ("min.insync.replicas", DELETE, None), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("nobody", SET, "1"), ErrorCode.INVALID_CONFIG),
        (METRICS, "", ("interval.ms", SET, "1000"), ErrorCode.INVALID_REQUEST),
        (8, "1", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_changes_that_are_refused(cluster, kind, name, change, code):
    before = cluster.core.latest
    assert alter(cluster, kind, name, change) is code
    assert cluster.core.latest is before


def test_one_bad_key_refuses_its_whole_resource(cluster):
    changes = [("retention.ms", SET, "1"), ("segment.bytes", SET, "1")]
    assert alter(cluster, TOPIC, "t", *changes) is ErrorCode.INVALID_CONFIG
    assert config(cluster) == {}


def test_other_resources(cluster):
    assert alter(cluster, BROKER, "", ("log.retention.ms", SET, "1")) is ErrorCode.NONE
    assert alter(cluster, BROKER, "", ("my.plugin.key", SET, "1")) is ErrorCode.NONE
    assert alter(cluster, GROUP, "g", ("share.auto.offset.reset", SET, "earliest")) is (
        ErrorCode.NONE
    )
    assert alter(cluster, METRICS, "m", ("interval.ms", SET, "1000")) is ErrorCode.NONE
    assert config(cluster, GROUP, "g") == {"share.auto.offset.reset": "earliest"}


def test_validate_only_changes_nothing(cluster):
    before = cluster.core.latest
    answer = alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True)
    assert answer is ErrorCode.NONE
    assert cluster.core.latest is before


def test_a_resource_named_twice_is_refused(cluster):
    resource = k44.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    request = k44.IncrementalAlterConfigsRequest(resources=[resource, resource])
    answer = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_older_request_replaces_the_whole_map(cluster):
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"), ("flush.messages", SET, "7"))
    resource = k33.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[k33.AlterableConfig(name="retention.ms", value="6")],
    )
    request = k33.AlterConfigsRequest(resources=[resource])
    assert cluster.ask(ApiKey.ALTER_CONFIGS, request).responses[0].error_code == 0
    assert config(cluster) == {"retention.ms": "6"}


def test_the_cluster_level_minimum_clears_every_elr(cluster):
    alter(cluster, BROKER, "", ("min.insync.replicas", SET, "2"))
    kinds = [type(record).__name__ for record in cluster.log[-1][0]]
    assert kinds == ["ConfigRecord", "ClearElrRecord"]


def test_a_topics_setting_is_found_in_the_right_order():
    cluster = Cluster(static_configs={"log.retention.hours": "2"})
    cluster.start(1)
    cluster.create("t")
    assert cluster.core.context.topic_setting("t", "retention.ms") == 7_200_000
    alter(cluster, BROKER, "", ("log.retention.ms", SET, "3"))
    assert cluster.core.context.topic_setting("t", "retention.ms") == 3
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "4"))
    assert cluster.core.context.topic_setting("t", "retention.ms") == 4
