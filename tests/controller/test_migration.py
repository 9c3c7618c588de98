"""A controller that migrates a cluster from ZooKeeper: what it allows in each state (KIP-866)."""

from dataclasses import replace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch
from sparkraft.base.steps import complete
from sparkraft.controller.activation import MigrationRefusedError, check_levels, default_bootstrap
from sparkraft.controller.controller import Controller
from sparkraft.metadata.image import MigrationState
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k70_controller_registration as k70
from sparkraft.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from tests.controller.cluster_of import Cluster, Dice

BOOTSTRAP = [(FeatureLevelRecord(name="metadata.version", feature_level=21), 0)]
KAFKA_3_9 = [
    k62.Feature(name="metadata.version", min_supported_version=21, max_supported_version=21)
]
ZOOKEEPER = {"is_migrating_zk_broker": True, "features": KAFKA_3_9}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(bootstrap=BOOTSTRAP, migration_enabled=True)


def copy_everything(cluster: Cluster) -> None:
    """As the migration does, but there was nothing to copy."""
    record = ZkMigrationStateRecord(zk_migration_state=MigrationState.MIGRATION)
    cluster.log.append(([record], cluster.next_offset))
    cluster.core.replay_appended([record], last_offset=cluster.next_offset, epoch=1)
    cluster.core.commit(cluster.core.latest.offset)


def refused(ask, code: ErrorCode) -> str:
    with pytest.raises(KafkaError) as caught:
        ask()
    assert caught.value.code is code
    return caught.value.detail


def test_a_new_log_begins_in_pre_migration(cluster):
    (records, _), *more = cluster.log
    assert not more
    assert [type(record).__name__ for record in records] == [
        "BeginTransactionRecord",
        "FeatureLevelRecord",
        "ZkMigrationStateRecord",
        "EndTransactionRecord",
    ]
    assert cluster.core.stable.migration == MigrationState.PRE_MIGRATION


def test_nothing_changes_before_the_copy(cluster):
    cluster.start(1, **ZOOKEEPER)
    assert cluster.core.latest.brokers[1].is_migrating_zk_broker
    assert cluster.core.latest.brokers[1].active
    detail = refused(lambda: cluster.create("t"), ErrorCode.NOT_CONTROLLER)
    assert detail == "The controller is in pre-migration mode."
    cluster.now += 100_000
    assert complete(cluster.core.fence_one_stale_broker(cluster.now)) is None
    assert complete(cluster.core.fence_refused_broker(1)) is None
    assert not complete(cluster.core.balance_leaders()).records
    assert not complete(cluster.core.elect_uncleanly_where_allowed()).records
    copy_everything(cluster)
    cluster.heartbeat(1)
    cluster.create("t")
    cluster.now += 100_000
    assert complete(cluster.core.fence_one_stale_broker(cluster.now)) is not None


def test_brokers_in_kraft_mode_register_after_the_copy(cluster):
    detail = refused(lambda: cluster.register(1), ErrorCode.BROKER_ID_NOT_REGISTERED)
    assert "pre-migration mode" in detail
    copy_everything(cluster)
    cluster.start(1)
    assert not cluster.core.latest.brokers[1].is_migrating_zk_broker


def test_a_broker_in_zookeeper_mode_needs_the_inter_broker_listener(cluster):
    listeners = [k62.Listener(name="OTHER", host="localhost", port=9092)]
    detail = refused(
        lambda: cluster.register(1, listeners=listeners, **ZOOKEEPER),
        ErrorCode.INVALID_REGISTRATION,
    )
    assert detail == "Broker does not have the current inter.broker.listener PLAINTEXT"


def test_brokers_in_zookeeper_mode_register_during_a_migration_only(cluster):
    other = Cluster(bootstrap=BOOTSTRAP)
    refused(lambda: other.register(1, **ZOOKEEPER), ErrorCode.BROKER_ID_NOT_REGISTERED)


def test_features_stay_until_the_end(cluster):
    cluster.start(1, **ZOOKEEPER)
    copy_everything(cluster)
    cluster.heartbeat(1)
    detail = refused(
        lambda: cluster.ask_features(**{"group.version": 1}), ErrorCode.INVALID_UPDATE_VERSION
    )
    assert "while a ZK migration is in progress" in detail


@pytest.mark.parametrize("enabled", [True, False])
def test_a_shrinking_isr_raises_the_leader_epoch(enabled):
    bootstrap = BOOTSTRAP
    cluster = Cluster(bootstrap=bootstrap, migration_enabled=enabled)
    if enabled:
        copy_everything(cluster)
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.fence(2)
    partition = cluster.partition("t")
    assert partition.isr == (1,)
    # Brokers in ZooKeeper mode rely on it (KAFKA-15109); others have not since 3.6-IV0.
    assert partition.leader_epoch == (1 if enabled else 0)


def test_a_controller_registers_whether_it_is_ready(cluster):
    request = k70.ControllerRegistrationRequest(controller_id=1000, zk_migration_ready=True)
    cluster.ask(ApiKey.CONTROLLER_REGISTRATION, request)
    assert cluster.core.latest.controllers[1000].zk_migration_ready


def restarted(cluster: Cluster, *, enabled: bool) -> Controller:
    core = Controller(replace(cluster.config, migration_enabled=enabled), Dice())
    for records, base in cluster.log:
        last = base + len(records) - 1
        core.replay_committed(records, base_offset=base, last_offset=last, epoch=1)
    return core


@pytest.mark.parametrize(
    ("is_copied", "enabled", "written"),
    [(True, True, []), (True, False, [3]), (False, True, []), (False, False, [])],
)
def test_a_migration_ends_when_it_is_no_longer_configured(cluster, is_copied, enabled, written):
    if is_copied:
        copy_everything(cluster)
    core = restarted(cluster, enabled=enabled)
    decision = core.activate([], LeaderEpoch(2), cluster.now)
    assert [record.zk_migration_state for record, _ in decision.records] == written


def test_a_cluster_without_zookeeper_cannot_be_migrated():
    core = restarted(Cluster(bootstrap=BOOTSTRAP), enabled=True)
    with pytest.raises(MigrationRefusedError, match="was created in KRaft mode"):
        core.activate([], LeaderEpoch(2), Cluster().now)


def test_the_features_must_be_those_of_brokers_in_zookeeper_mode():
    check_levels({"metadata.version": 13})
    check_levels({"metadata.version": 21, "group.version": 0})
    for level in (12, 22):
        with pytest.raises(MigrationRefusedError, match=r"from 3\.6-IV1 to 3\.9-IV0"):
            check_levels({"metadata.version": level})
    with pytest.raises(MigrationRefusedError, match=r"without the features group\.version"):
        check_levels({"metadata.version": 21, "group.version": 1})
    with pytest.raises(MigrationRefusedError, match=r"formatted with 4\.3-IV0"):
        Cluster(bootstrap=default_bootstrap(), migration_enabled=True)


def test_passwords_are_not_written_to_zookeeper(cluster):
    cluster.start(1, **ZOOKEEPER)
    copy_everything(cluster)
    cluster.heartbeat(1)
    key = "listener.name.external.ssl.key.password"
    for name, expected in ((key, ErrorCode.INVALID_REQUEST), ("log.retention.ms", ErrorCode.NONE)):
        config = k44.AlterableConfig(name=name, config_operation=0, value="5")
        resource = k44.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        request = k44.IncrementalAlterConfigsRequest(resources=[resource])
        response = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        assert response.responses[0].error_code == expected, response
