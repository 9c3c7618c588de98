"""Kafka 3.9.2 and ours with generated ids and two log directories each, on a real ensemble.

Ids come from /brokers/seqid, which both use. Replicas move between directories; then a directory
of ours fails under Kafka's controller, and one of Kafka's under ours.
"""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparkraft.base.errors import ErrorCode
from sparkraft.client.cluster import Cluster
from sparkraft.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from sparkraft.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from sparkraft.zookeeper.requests import Delete, GetChildren, GetData
from tests.support.failing_disk import FailingDisk
from tests.support.outside_tools import Missing
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.test_mixed_cluster import states

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

KAFKA, OURS = 1001, 1002
EVENTS = "/log_dir_event_notification"
Broker = KafkaBroker | OurBroker


class Brokers(NamedTuple):
    """Both brokers, their disks, and the ensemble."""

    by_id: dict[int, Broker]
    disks: dict[int, FailingDisk]
    connect: str

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.by_id.values())

    def directory(self, broker: int, name: str) -> str:
        return f"{self.by_id[broker].log_dir}/{name}"

    def ask(self, broker: int, request: Any) -> Any:
        """The response of one broker."""

        async def answer() -> Any:
            async with Cluster(self.by_id[broker].bootstrap) as cluster:
                return await cluster.ask_any(request)

        return asyncio.run(answer())

    def move(self, broker: int, partition: int, path: str, topic: str = "t") -> ErrorCode:
        """AlterReplicaLogDirs for one replica."""
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        (result,) = self.ask(broker, request).results
        return ErrorCode(result.partitions[0].error_code)

    def places(self, broker: int) -> dict[str, list[int] | ErrorCode]:
        """The partitions of t in each directory, or the error of the directory."""
        found: dict[str, list[int] | ErrorCode] = {}
        for each in self.ask(broker, DescribeLogDirsRequest(topics=None)).results:
            name = Path(each.log_dir).name
            found[name] = ErrorCode(each.error_code) or sorted(
                partition.partition_index
                for topic in each.topics
                if topic.name == "t"
                for partition in topic.partitions
            )
        return found


@pytest.fixture(scope="module")
def brokers(zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Kafka's broker is the controller."""
    folder = tmp_path_factory.mktemp("dirs")
    disks = {}
    for broker in (KAFKA, OURS):
        disk = FailingDisk.in_folder(tmp_path_factory.mktemp(f"disk-{broker}"))
        if isinstance(disk, Missing):
            pytest.skip(disk.reason)
        disks[broker] = disk
    settings = {"broker.id": "-1", "sparkraft.controllership.enable": "true"}
    with Ensemble(zookeeper_jars, folder) as ensemble:
        by_id: dict[int, Broker] = {
            KAFKA: KafkaBroker(folder / "kafka", -1, ensemble.connect, zookeeper_jars, settings),
            OURS: OurBroker(folder / "ours", -1, ensemble.connect, settings),
        }
        for broker, node in by_id.items():
            node.overrides = {**settings, "log.dirs": f"{node.log_dir}/a,{node.log_dir}/b"}
            node.write_properties()
            node.environment = disks[broker].environment
        with by_id[KAFKA], by_id[OURS]:
            yield Brokers(by_id, disks, ensemble.connect)


def produce(bootstrap: str, partitions: int = 4) -> None:
    """A record to each partition, acknowledged by its ISR."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in range(partitions):
        producer.produce(
            "t",
            b"v",
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failures


def is_in_sync(brokers: Brokers) -> bool:
    return all(isr == [KAFKA, OURS] for _, isr in states(brokers.bootstrap, "t").values())


def fail_directory(brokers: Brokers, broker: int) -> None:
    """The directory b of a broker fails at the next write; its partitions move to the other one."""
    other = KAFKA + OURS - broker
    led = {at: leader for at, (leader, _) in states(brokers.bootstrap, "t").items()}
    _, before = submit(brokers.connect, GetChildren(path=EVENTS))
    brokers.disks[broker].fail("write", errno.EIO, brokers.directory(broker, "b") + "/")
    produce(brokers.bootstrap)
    expected = {
        at: (other, [other]) if at in {1, 3} else (leader, [KAFKA, OURS])
        for at, leader in led.items()
    }
    wait_until(
        lambda: [states(each.bootstrap, "t") for each in brokers.by_id.values()] == [expected] * 2,
        "the partitions of b are led by the other broker, and those of a are not",
        30,
    )
    assert brokers.places(broker) == {"a": [0, 2], "b": ErrorCode.KAFKA_STORAGE_ERROR}
    # A znode of the broker, which the controller has deleted, tells it.
    names, after = submit(brokers.connect, GetChildren(path=EVENTS))
    assert names == []
    assert after.cversion == before.cversion + 2
    produce(brokers.bootstrap)
    # No replica moves while a directory is offline: it might have an older copy.
    moved = brokers.move(broker, 0, brokers.directory(broker, "b"))
    assert moved == ErrorCode.KAFKA_STORAGE_ERROR


def return_to_sync(brokers: Brokers, broker: int) -> None:
    """Replace the disk and restart the broker."""
    brokers.disks[broker].heal()
    node = brokers.by_id[broker]
    node.stop()
    node.start()
    wait_until(lambda: is_in_sync(brokers), f"broker {broker} is in sync", 30)
    assert brokers.places(broker) == {"a": [0, 2], "b": [1, 3]}


def test_ids_are_generated_from_one_sequence(brokers: Brokers) -> None:
    for broker, node in brokers.by_id.items():
        for name in ("a", "b"):
            lines = (Path(node.log_dir) / name / "meta.properties").read_text().splitlines()
            assert f"broker.id={broker}" in lines
    data, stat = submit(brokers.connect, GetData(path="/brokers/seqid"))
    assert (data or b"", stat.version) == (b"", 2)
    third = OurBroker(
        brokers.by_id[OURS].directory.parent / "third", OURS, brokers.connect
    )  # fmt: skip
    assert "reserved.broker.max.id=1000" in third.refused_start(seconds=60)


def test_replicas_are_created_in_and_move_to_the_directory_that_a_client_names(
    brokers: Brokers,
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both are live", 20)
    # Both respond alike, and remember the directory of a replica that does not exist yet.
    for broker in (KAFKA, OURS):
        for partition, name in enumerate("abab"):
            path = brokers.directory(broker, name)
            assert brokers.move(broker, partition, path) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = brokers.directory(broker, "c")
        assert brokers.move(broker, 0, unknown) == ErrorCode.LOG_DIR_NOT_FOUND
        long_name = brokers.move(broker, 0, brokers.directory(broker, "a"), "x" * 240)
        assert long_name == ErrorCode.INVALID_TOPIC_EXCEPTION
    assigned = [[KAFKA, OURS]] * 2 + [[OURS, KAFKA]] * 2
    admin.create_topics([NewTopic("t", 4, replica_assignment=assigned)])["t"].result(20)
    wait_until(lambda: is_in_sync(brokers), "all are in sync", 20)
    produce(brokers.bootstrap)
    for broker in (KAFKA, OURS):
        assert brokers.places(broker) == {"a": [0, 2], "b": [1, 3]}
        # A leader's replica there and a follower's back.
        for partition, name in ((0, "b"), (2, "b"), (0, "a"), (2, "a")):
            assert brokers.move(broker, partition, brokers.directory(broker, name)) == 0
            wait_until(
                lambda b=broker, p=partition, n=name: [
                    p in places for at, places in sorted(brokers.places(b).items())
                ] == [n == "a", n == "b"],
                f"{partition} of {broker} is in {name}",
                20,
            )  # fmt: skip
    produce(brokers.bootstrap)
    segments = {
        (Path(brokers.directory(broker, "a")) / "t-0/00000000000000000000.log").read_bytes()
        for broker in (KAFKA, OURS)
    }
    assert len(segments) == 1


def test_a_directory_of_ours_fails_under_kafkas_controller(brokers: Brokers) -> None:
    assert controller_of(brokers.connect)[0] == KAFKA
    fail_directory(brokers, OURS)
    return_to_sync(brokers, OURS)


def test_a_directory_of_kafkas_fails_under_our_controller(brokers: Brokers) -> None:
    def is_ours() -> bool:
        if controller_of(brokers.connect)[0] == KAFKA:
            submit(brokers.connect, Delete(path="/controller"))
        return controller_of(brokers.connect)[0] == OURS

    wait_until(is_ours, "ours is the controller", 30)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    wait_until(lambda: admin.list_topics(timeout=10).controller_id == OURS, "both know it", 20)
    wait_until(lambda: is_in_sync(brokers), "all are in sync", 20)
    fail_directory(brokers, KAFKA)
