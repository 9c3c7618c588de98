"""Migrations with brokers of other versions: inter.broker.protocol.version 3.6, and Kafka 4.3."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble
from tests.zookeeper.migration.clusters import KraftBroker, MigratingBroker, OurController
from tests.zookeeper.migration.test_migration import (
    ALONE,
    RECORDS,
    SECONDS,
    consume,
    in_sync,
    produce,
    wait_for_stage,
)

pytestmark = [pytest.mark.java, pytest.mark.real_clients, pytest.mark.long]

BOTH = {0: [1, 2], 1: [1, 2]}
"""Both replicas of each partition are in sync."""


def metadata_version(bootstrap: str) -> str:
    """The finalized level, as the command shows it."""
    shown = features(bootstrap, "describe")
    (line,) = [each for each in shown.splitlines() if "metadata.version" in each]
    return line.split("FinalizedVersionLevel: ")[1].split()[0]


def features(bootstrap: str, *action: str) -> str:
    """Run `sparkraft features`; return what it prints."""
    command = [sys.executable, "-m", "sparkraft.cli.main", "features"]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap, *action],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("release", ["3.6-IV1", "3.6-IV2"])
def test_brokers_with_protocol_version_3_6_leave_zookeeper(
    zookeeper_jars: Path, tmp_path: Path, release: str
) -> None:
    """The lowest metadata.version that can be migrated, which is raised in the end."""
    older = {"inter.broker.protocol.version": release}
    with (
        Ensemble(zookeeper_jars, tmp_path) as ensemble,
        MigratingBroker(tmp_path / "1", 1, ensemble.connect, zookeeper_jars, older) as kafka,
        MigratingBroker(
            tmp_path / "2", 2, ensemble.connect, zookeeper_jars, older, is_ours=True
        ) as ours,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both", SECONDS)
        admin.create_topics([NewTopic("old", 2, 2)])["old"].result(SECONDS)
        produce(kafka, "old", 0)
        assert consume(kafka, "old", RECORDS) == list(range(RECORDS))
        with OurController(
            tmp_path / "controller", ensemble.connect, release=release
        ) as controller:
            for broker in (kafka, ours):
                broker.join(controller)
            wait_for_stage(ensemble, "dual write", controller)
            admin.create_topics([NewTopic("new", 2, 2)])["new"].result(SECONDS)
            produce(ours, "old", RECORDS)
            for round_, (broker, other) in enumerate(((kafka, ours), (ours, kafka)), 2):
                wait_until(lambda other=other: in_sync(other) == BOTH, "in sync", SECONDS)
                broker.leave_zookeeper()
                produce(other, "old", round_ * RECORDS)
            wait_for_stage(ensemble, "kraft brokers", controller)
            controller.restart(migrates=False)
            produce(kafka, "old", 4 * RECORDS)
            assert consume(kafka, "old", 4 * RECORDS) == list(range(RECORDS, 5 * RECORDS))
            assert "new" in admin.list_topics(timeout=SECONDS).topics
            assert metadata_version(ours.bootstrap) == release
            features(ours.bootstrap, "upgrade", "--metadata", "3.9-IV0")
            assert metadata_version(kafka.bootstrap) == "3.9-IV0"
            admin.create_topics([NewTopic("last", 2, 2)])["last"].result(SECONDS)
            produce(kafka, "last", 0)


def test_brokers_of_kafka_4_3_join_during_a_migration(
    zookeeper_jars: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    """A new one beside a broker in ZooKeeper mode; then that broker itself becomes one."""
    with (
        Ensemble(zookeeper_jars, tmp_path) as ensemble,
        MigratingBroker(tmp_path / "1", 1, ensemble.connect, zookeeper_jars, ALONE) as old,
    ):
        admin = AdminClient({"bootstrap.servers": old.bootstrap})
        admin.create_topics([NewTopic("only", 2, 1)])["only"].result(SECONDS)
        produce(old, "only", 0)
        assert consume(old, "only", RECORDS) == list(range(RECORDS))
        with OurController(tmp_path / "controller", ensemble.connect) as controller:
            old.join(controller)
            wait_for_stage(ensemble, "dual write", controller)
            with KraftBroker(tmp_path / "2", 2, controller, kafka_jars) as new:
                wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "2", SECONDS)
                admin.create_topics([NewTopic("old", 2, 2)])["old"].result(SECONDS)
                for broker in (old, new):
                    wait_until(lambda broker=broker: in_sync(broker) == BOTH, "in sync", SECONDS)
                produce(new, "old", 0)
                old.leave_zookeeper(jars=kafka_jars)
                wait_for_stage(ensemble, "kraft brokers", controller)
                wait_until(lambda: in_sync(new) == BOTH, "in sync", SECONDS)
                produce(old, "old", RECORDS)
                produce(old, "only", RECORDS)
                controller.restart(migrates=False)
                produce(new, "old", 2 * RECORDS)
                features(new.bootstrap, "upgrade", "--metadata", "4.3-IV0")
                assert metadata_version(old.bootstrap) == "4.3-IV0"
                produce(new, "old", 3 * RECORDS)
                assert consume(new, "old", 4 * RECORDS) == list(range(4 * RECORDS))
                assert consume(old, "only", RECORDS) == list(range(RECORDS, 2 * RECORDS))
