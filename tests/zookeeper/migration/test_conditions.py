"""What keeps a cluster from being migrated, and how far a migration is."""

import re

import pytest

from sparkraft.metadata.features import METADATA_VERSION
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.zookeeper.migration.conditions import (
    EVERYTHING,
    Enforced,
    conditions_of,
    obstacle_in,
)
from sparkraft.zookeeper.migration.progress import Stage, progress_of
from sparkraft.zookeeper.migration.state import unready_controllers
from sparkraft.zookeeper.migration.tree import ZnodeTree
from tests.zookeeper.migration.trees import SECURED, tree_of


def obstacle_of(tree: ZnodeTree, enforced: Enforced = EVERYTHING) -> str | None:
    return obstacle_in(conditions_of(tree, enforced))


KRAFT = '{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":1}'
COPIED = (
    '{"version":0,"kraft_metadata_offset":122,"kraft_controller_id":3000,'
    '"kraft_metadata_epoch":1,"kraft_controller_epoch":1}'
)


def test_a_cluster_is_ready():
    assert [each.obstacle for each in conditions_of(tree_of())] == [None] * 7
    assert obstacle_of(tree_of()) is None


def test_entries_and_tokens_that_the_controller_cannot_enforce_are_refused():
    nothing = Enforced(has_authorizer=False, has_tokens=False)
    unmet = {e.text: e.obstacle for e in conditions_of(tree_of(), nothing) if e.obstacle}
    assert unmet == {
        "access control entries need authorizer.class.name at the controller": "/kafka-acl/Cluster/"
        "kafka-cluster; /kafka-acl/Group/*; /kafka-acl/Topic/t1; "
        "/kafka-acl-extended/prefixed/Topic/pre-",
        "delegation tokens need delegation.token.secret.key at the controller": "0A2pX07CToq_4vbBz"
        "Ik2cw",
    }
    assert obstacle_of(tree_of(without=SECURED), nothing) is None


def test_tokens_are_refused_if_metadata_version_has_no_record_of_them():
    """3.6-IV1, in which Kafka 3.9 writes the records nevertheless, and loses them in snapshots."""
    found = obstacle_of(tree_of(), EVERYTHING._replace(metadata_level=13))
    assert found is not None
    assert found.startswith(
        "not met: delegation tokens need metadata.version 3.6-IV2 or later (0A2"
    )
    assert obstacle_of(tree_of(), EVERYTHING._replace(metadata_level=14)) is None
    assert obstacle_of(tree_of(without=SECURED), EVERYTHING._replace(metadata_level=13)) is None


@pytest.mark.parametrize(("level", "unready"), [(13, False), (14, False), (15, True)])
def test_controllers_are_ready_unless_they_could_register(level, unready):
    """As `QuorumFeatures.reasonAllControllersZkMigrationNotReady` of Kafka 3.9."""
    image = EMPTY_IMAGE._replace(features=EMPTY_IMAGE.features.set(METADATA_VERSION, level))
    reason = "controllers 3000 have not registered as ready for a migration"
    assert unready_controllers(image, [3000]) == (reason if unready else None)


@pytest.mark.parametrize(
    ("path", "data", "obstacle"),
    [
        ("/cluster/id", None, "the cluster has an id (no /cluster/id)"),
        ("/feature", '{"version":9}', "every znode is readable (/feature: version 9"),
        ("/controller", KRAFT, "migrated it before (/controller: KRaft controller 3000)"),
        ("/migration", COPIED, "migrated it before (/migration is left; delete it"),
        ("/brokers/ids/3", None, "is registered (broker 3 has replicas of t1)"),
        (
            "/config/brokers/1",
            '{"version":1,"config":{"ssl.key.password":"x"}}',
            "no encrypted configs of brokers (/config/brokers/1: ssl.key.password)",
        ),
        (
            "/brokers/topics/t1",
            '{"partitions":{"0":[1]},"version":2}',
            "every znode can be copied (/brokers/topics/t1: no topic id",
        ),
        (
            "/brokers/topics/twin",
            '{"partitions":{},"topic_id":"tCd6H9mrR6y44P05yz6EbQ","version":3}',
            "every znode can be copied (topic twin with id tCd6H9mrR6y44P05yz6EbQ is there already",
        ),
    ],
)
def test_each_obstacle_is_a_sentence(path, data, obstacle):
    found = obstacle_of(tree_of({path: data}, without=SECURED))
    assert found is not None
    assert obstacle in found


def test_brokers_have_to_be_registered():
    topics = ("/brokers/topics/", "/brokers/ids/")
    found = obstacle_of(tree_of(without=(*SECURED, *topics)))
    assert found == "not met: brokers are registered (no znode in /brokers/ids)"


@pytest.mark.parametrize(
    ("changes", "stage", "step"),
    [
        ({"/migration": None}, Stage.ZOOKEEPER, "zookeeper-migration check"),
        ({}, Stage.WAITING, "restart each broker with zookeeper.metadata.migration.enable=true"),
        ({"/migration": COPIED, "/controller": KRAFT}, Stage.DUAL_WRITE, "restart brokers 1, 2, 3"),
        ({"/migration": COPIED}, Stage.ROLLED_BACK, "delete /migration"),
    ],
)
def test_the_stage_follows_from_znodes(changes, stage, step):
    progress = progress_of(tree_of(changes))
    assert progress.stage is stage
    assert step in progress.next_step


def test_without_brokers_in_zookeeper_the_migration_can_be_finalized():
    changes = {"/migration": COPIED, "/controller": KRAFT}
    progress = progress_of(tree_of(changes, without=("/brokers/ids/",)))
    assert progress.stage is Stage.KRAFT_BROKERS
    assert progress.controller == "KRaft controller 3000"
    assert progress.metadata_offset == 122
    assert "to finalize" in progress.next_step


MIGRATES = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.quorum.voters": "3000@127.0.0.1:9093",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "unused",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.metadata.migration.enable": "true",
}


def test_a_controller_may_migrate():
    config = NodeConfig(MIGRATES)
    assert config.migrates
    assert not config.is_zookeeper
    assert not config.unknown
    # Without the key, those of ZooKeeper are unknown, as in Kafka 4.
    assert not NodeConfig({**MIGRATES, "zookeeper.metadata.migration.enable": "false"}).migrates


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("zookeeper.connect", "", "needs zookeeper.connect"),
        ("zookeeper.connect", "localhost:x", "zookeeper.connect: "),
    ],
)
def test_a_migration_that_is_not_available_is_refused(key, value, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        NodeConfig({**MIGRATES, key: value})


def test_a_broker_does_not_migrate():
    roles = {"process.roles": "broker,controller", "listeners": "PLAINTEXT://:1,CONTROLLER://:2"}
    with pytest.raises(ConfigError, match=r"process\.roles=controller only"):
        NodeConfig({**MIGRATES, **roles})
