"""Feature levels, and what a new controller writes first."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch
from sparkraft.controller.activation import default_bootstrap
from sparkraft.controller.controller import Controller
from sparkraft.metadata.features import DEFAULT_FINALIZED
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from tests.controller.cluster_of import Cluster, Dice

ELR = "eligible.leader.replicas.version"


def level(name, value):
    return FeatureLevelRecord(name=name, feature_level=value), 0


def kinds(records):
    return [type(record).__name__ for record in records]


def test_an_empty_log_starts_with_a_transaction():
    cluster = Cluster()
    (records, base), *more = cluster.log
    assert not more
    assert base == 0
    assert kinds(records) == [
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * len(DEFAULT_FINALIZED),
        "ConfigRecord",
        "EndTransactionRecord",
    ]
    assert records[0].name == "Bootstrap records"
    assert records[1].name == "metadata.version"
    assert dict(cluster.core.stable.features) == DEFAULT_FINALIZED
    assert dict(cluster.core.stable.config(4, "")) == {"min.insync.replicas": "1"}


def test_the_cluster_minimum_comes_from_the_file():
    cluster = Cluster(static_configs={"min.insync.replicas": "2"})
    assert dict(cluster.core.stable.config(4, "")) == {"min.insync.replicas": "2"}


def test_without_elr_there_is_no_cluster_minimum():
    cluster = Cluster(bootstrap=[level("metadata.version", 25)])
    assert not cluster.core.stable.configs
    assert kinds(cluster.log[0][0]) == [
        "BeginTransactionRecord", "FeatureLevelRecord", "EndTransactionRecord",
    ]  # fmt: skip


def test_old_levels_know_no_transactions():
    cluster = Cluster(bootstrap=[level("metadata.version", 12)])
    assert kinds(cluster.log[0][0]) == ["FeatureLevelRecord"]


def test_a_second_controller_writes_nothing():
    cluster = Cluster()
    cluster.core.deactivate()
    outcome = cluster.core.activate(default_bootstrap(), LeaderEpoch(2), cluster.now)
    assert outcome.records == ()


def test_an_open_bootstrap_is_aborted_and_done_again():
    cluster = Cluster()
    records, _ = cluster.log[0]
    core = Controller(cluster.config, Dice())
    core.replay_committed(records[:3], base_offset=0, last_offset=2, epoch=1)
    assert core.in_transaction
    assert not core.stable.features
    outcome = core.activate(default_bootstrap(), LeaderEpoch(2), cluster.now)
    written = [record for record, _ in outcome.records]
    assert kinds(written)[:2] == ["AbortTransactionRecord", "BeginTransactionRecord"]
    core.replay_appended(written, last_offset=2 + len(written), epoch=2)
    core.commit(2 + len(written))
    assert dict(core.stable.features) == DEFAULT_FINALIZED


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.start(1)
    return made


def refused(cluster, **levels):
    options = {key: levels.pop(key) for key in ("kind",) if key in levels}
    before = cluster.core.latest
    with pytest.raises(KafkaError) as caught:
        cluster.ask_features(**options, **levels)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.core.latest is before


def test_levels_go_down_and_up(cluster):
    cluster.ask_features(**{"group.version": 0})
    assert "group.version" not in cluster.core.latest.features
    cluster.ask_features(**{"group.version": 1})
    assert cluster.core.latest.features["group.version"] == 1


def test_levels_that_are_refused(cluster):
    refused(cluster, **{"group.version": 2})
    refused(cluster, **{"group.version": -1})
    refused(cluster, **{"no.such.version": 1})
    refused(cluster, **{"metadata.version": 31})
    refused(cluster, **{"metadata.version": 29})  # 4.3-IV0 changed records
    refused(cluster, **{"group.version": 0}, kind=1)
    refused(cluster, **{"kraft.version": 1})
    refused(cluster, **{"group.version": 1}, kind=9)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (
            2,
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information.",
        ),
        (3, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_a_refused_downgrade_names_levels_releases_and_a_remedy(kind, why):
    cluster = Cluster(bootstrap=[level("metadata.version", 27)])
    with pytest.raises(KafkaError) as caught:
        cluster.ask_features(**{"metadata.version": 22}, kind=kind)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert caught.value.detail == (
        f"Unsupported metadata.version downgrade from 27 to 22. {why} "
        "Level 27 is 4.1-IV1, level 22 is 4.0-IV0; the lowest level without loss is 23 (4.0-IV1). "
        "To run 4.0-IV0, format a new cluster with "
        "`sparkraft storage format --release-version 4.0-IV0` and copy the topics to it."
    )
    cluster.ask_features(**{"metadata.version": 23}, kind=2)
    assert cluster.core.latest.features["metadata.version"] == 23


def test_a_broker_that_lacks_a_level_holds_it_back():
    cluster = Cluster(bootstrap=[level("metadata.version", 25)])
    from sparkraft.protocol.messages import k62_broker_registration as k62

    old = [k62.Feature(name="metadata.version", min_supported_version=7, max_supported_version=25)]
    cluster.start(1, features=old)
    refused(cluster, **{"metadata.version": 26})


def test_a_voter_nobody_knows_holds_it_back():
    cluster = Cluster(bootstrap=[level("metadata.version", 25)], voter_ids=(1000, 1001))
    refused(cluster, **{"metadata.version": 26})


def test_elr_needs_its_metadata_version():
    cluster = Cluster(bootstrap=[level("metadata.version", 22)])
    refused(cluster, **{ELR: 1})


def test_switching_elr_on_makes_it_safe():
    cluster = Cluster(bootstrap=[level("metadata.version", 30)])
    cluster.start(1)
    cluster.ask_features(**{ELR: 1})
    assert dict(cluster.core.latest.config(4, "")) == {"min.insync.replicas": "1"}


def test_all_updates_or_none(cluster):
    refused(cluster, **{"group.version": 0, "share.version": 7})


def test_validate_only_changes_nothing(cluster):
    before = cluster.core.latest
    cluster.ask_features(**{"group.version": 0}, validate_only=True)
    assert cluster.core.latest is before


def test_version_0_knew_one_kind_of_downgrade(cluster):
    update = k57.FeatureUpdateKey(
        feature="group.version", max_version_level=0, allow_downgrade=True
    )
    request = k57.UpdateFeaturesRequest(feature_updates=[update])
    answer = cluster.ask(ApiKey.UPDATE_FEATURES, request, version=0)
    assert [(r.feature, r.error_code) for r in answer.results] == [("group.version", 0)]
    assert "group.version" not in cluster.core.latest.features
