"""The configuration and the identity of a broker in ZooKeeper mode."""

import re
from pathlib import Path

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.identity import StartRefused
from sparkraft.server.zookeeper.identity import (
    check_broker_id,
    complete_directories,
    known_broker_id,
    read_directories,
)
from sparkraft.server.zookeeper_node import ZooKeeperNode
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.meta_properties import read_meta_properties
from tests.server.harness import make_env

CLUSTER = "fy5RcyzTRo2LxpZ6nRdsCQ"
BASE = {"zookeeper.connect": "127.0.0.1:2181/kafka", "broker.id": "3", "log.dirs": "/d"}


def test_the_configuration_of_kafka_3_9_is_that_of_a_broker():
    config = NodeConfig(
        BASE | {"zookeeper.connection.timeout.ms": "18000", "num.network.threads": "3"}
    )
    assert config.is_zookeeper
    assert config.is_broker
    assert not config.is_controller
    assert config.node_id == 3
    assert config.unknown == []
    assert NodeConfig(BASE | {"broker.id": "-1"}).node_id == -1


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("zookeeper.set.acl", "true", "zookeeper.set.acl=true needs a user"),
        ("zookeeper.ssl.crl.enable", "yes", "either true or false"),
        ("zookeeper.metadata.migration.enable", "true", "controller.quorum.voters must be set"),
        ("inter.broker.protocol.version", "2.5", "from 2.6 to 3.9"),
        ("inter.broker.protocol.version", "4.0", "from 2.6 to 3.9"),
        ("control.plane.listener.name", "CONTROL", "must be a listener name defined in"),
        ("control.plane.listener.name", "PLAINTEXT", "must differ from the inter-broker"),
    ],
)
def test_what_is_not_available_is_refused(key, value, reason):
    with pytest.raises(ConfigError, match=reason):
        NodeConfig(BASE | {key: value})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"broker.id": "1001"}, "broker.id=1001 is greater than reserved.broker.max.id=1000"),
        ({"broker.id": "6", "reserved.broker.max.id": "5"}, "max.id=5"),
        ({"broker.id": "-1", "broker.id.generation.enable": "false"}, "broker.id is missing"),
    ],
)
def test_a_broker_id_that_may_be_generated_is_refused(given, reason):
    """`KafkaConfig.validateValues` of Kafka 3.9."""
    with pytest.raises(ConfigError, match=re.escape(reason)):
        ZooKeeperNode(NodeConfig(BASE | given), make_env())


def test_other_broker_ids_are_accepted():
    for given in (
        {"broker.id": "1000"},
        {"broker.id": "-1"},
        {"broker.id": "1001", "reserved.broker.max.id": "1001"},
        {"broker.id": "1001", "broker.id.generation.enable": "false"},
    ):
        check_broker_id(NodeConfig(BASE | given))


def test_in_kraft_mode_its_keys_are_unknown():
    config = NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": "/d",
            "zookeeper.connect": "127.0.0.1:2181",
        }
    )
    assert not config.is_zookeeper
    assert config.unknown == ["zookeeper.connect"]


def config_of(folder: Path, **more: str) -> NodeConfig:
    return NodeConfig(BASE | {"log.dirs": f"{folder / 'a'},{folder / 'b'}"} | more)


def test_new_directories_get_version_0(tmp_path):
    config, disk = config_of(tmp_path), OsDisk()
    directories = read_directories(disk, config)
    assert known_broker_id(directories, cluster_id=CLUSTER, configured=3) == 3
    identity = complete_directories(disk, directories, cluster_id=CLUSTER, broker_id=3)
    assert (identity.cluster_id, identity.node_id) == (CLUSTER, 3)
    for name in "ab":
        meta = read_meta_properties(disk, str(tmp_path / name))
        assert meta is not None
        assert (meta.version, meta.node_id, meta.cluster_id) == (0, 3, CLUSTER)
    # A broker without broker.id finds it again.
    again = read_directories(disk, config)
    assert known_broker_id(again, cluster_id=CLUSTER, configured=-1) == 3


def test_a_directory_that_old_kafka_left_gets_the_cluster_id(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=0\nbroker.id=3\n")
    disk = OsDisk()
    directories = read_directories(disk, config_of(tmp_path))
    complete_directories(disk, directories, cluster_id=CLUSTER, broker_id=3)
    meta = read_meta_properties(disk, str(tmp_path / "a"))
    assert meta is not None
    assert meta.cluster_id == CLUSTER


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=0\nbroker.id=4\ncluster.id=" + CLUSTER, "belongs to broker 4"),
        ("version=0\nbroker.id=3\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg", "belongs to cluster MkU3"),
        ("version=1\nnode.id=3\ncluster.id=" + CLUSTER, "version 1, which is of KRaft mode"),
        ("version=0\n", "broker.id"),
    ],
)
def test_a_directory_of_another_broker_is_refused(tmp_path, text, reason):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text(text)
    with pytest.raises(StartRefused, match=reason):
        broker_id_in(config_of(tmp_path))


def broker_id_in(config: NodeConfig) -> int:
    directories = read_directories(OsDisk(), config)
    return known_broker_id(directories, cluster_id=CLUSTER, configured=3)


MIGRATING = BASE | {
    "zookeeper.metadata.migration.enable": "true",
    "controller.quorum.voters": "3000@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


def test_a_migrating_broker_has_a_metadata_log():
    config = NodeConfig(MIGRATING | {"metadata.log.dir": "/m"})
    assert config.is_zookeeper
    assert config.is_migrating_broker
    assert not config.migrates, "that is the part of a controller"
    assert config.metadata_log_dir == "/m"
    assert NodeConfig(BASE | {"metadata.log.dir": "/m"}).metadata_log_dir == "/d"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"broker.id": "-1"}, "broker.id generation is incompatible"),
        ({"controller.quorum.voters": "3@127.0.0.1:9093"}, "must not be in controller.quorum"),
        ({"controller.listener.names": None}, "needs controller.listener.names"),
        ({"inter.broker.protocol.version": "3.3-IV3"}, "needs .* 3.4-IV0 or later"),
        ({"inter.broker.protocol.version": "3.7-IV1", "log.dirs": "/d,/e"}, "needs .* 3.7-IV2"),
    ],
)
def test_a_migrating_broker_is_refused_as_in_kafka(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        NodeConfig({key: text for key, text in (MIGRATING | changes).items() if text is not None})


def test_the_directories_of_a_migrating_broker_get_ids_and_stay_of_version_0(tmp_path):
    config = NodeConfig(MIGRATING | {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    disk = OsDisk()
    made = iter([Uuid(b"\1" * 16), Uuid(b"\2" * 16)])
    directories = read_directories(disk, config)
    identity = complete_directories(
        disk, directories, cluster_id=CLUSTER, broker_id=3, new_directory_id=lambda: next(made)
    )
    assert identity.directory_ids == {
        f"{tmp_path}/a": Uuid(b"\1" * 16),
        f"{tmp_path}/b": Uuid(b"\2" * 16),
    }
    meta = read_meta_properties(disk, f"{tmp_path}/a")
    assert meta is not None
    assert (meta.version, meta.node_id, meta.directory_id) == (0, 3, Uuid(b"\1" * 16))
    # They stay, also in plain ZooKeeper mode after a roll-back.
    again = read_directories(disk, NodeConfig(BASE | {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}))
    assert complete_directories(disk, again, cluster_id=CLUSTER, broker_id=3) == identity
