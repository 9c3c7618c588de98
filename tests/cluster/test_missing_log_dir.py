"""A node that starts again without one of its log directories: ours, and Apache Kafka's."""

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.values import LogDir
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, KafkaMember, Member, SparkraftMember
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients


class _TwoDirs:
    """A node with the directories `data/a`, which has the metadata too, and `data/b`."""

    def write_properties(self) -> None:
        self.overrides["log.dirs"] = f"{self.log_dir}/a,{self.log_dir}/b"  # type: ignore[attr-defined]
        super().write_properties()  # type: ignore[misc]


class _Ours(_TwoDirs, SparkraftMember):
    pass


class _Kafkas(_TwoDirs, KafkaMember):
    pass


class _Cluster(Cluster):
    kinds = {"sparkraft": _Ours, "kafka": _Kafkas}  # noqa: RUF012


@pytest.fixture(params=["sparkraft", pytest.param("kafka", marks=pytest.mark.java)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    jars = request.getfixturevalue("kafka_jars") if request.param == "kafka" else None
    members = [Member(1, request.param)]
    with _Cluster(tmp_path, members, quorum="standalone", overrides=STEADY, jars=jars) as cluster:
        yield cluster


def dirs_of(cluster: Cluster) -> dict[str, LogDir]:
    """By the last part of their paths."""

    async def work(admin: Admin) -> dict[str, LogDir]:
        found = (await admin.describe_log_dirs([1]))[1]
        if isinstance(found, KafkaError):
            raise found
        return {Path(each.path).name: each for each in found}

    return cluster.ask(work)


def sizes(cluster: Cluster, name: str) -> dict[int, int]:
    """Partition of `t` → bytes, in one of the directories."""
    return {r.partition: r.size for r in dirs_of(cluster)[name].replicas if r.topic == "t"}


def meta_properties(cluster: Cluster, name: str) -> dict[str, str]:
    text = (cluster.nodes[1].log_dir / name / "meta.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_a_node_does_not_start_without_one_of_its_directories_until_that_is_formatted_anew(
    cluster: Cluster,
) -> None:
    """It may only not be mounted. Formatted anew it has another id (KIP-858), and is empty."""
    cluster.create_topic("t", partitions=4)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(4):
        producer.produce("t", b"value", partition=partition)
    assert producer.flush(60) == 0
    wait_until(lambda: sum(map(len, map(partial(sizes, cluster), "ab"))) == 4, "all are placed")
    kept, lost = sizes(cluster, "a"), sizes(cluster, "b")
    assert kept
    assert lost
    assert min(*kept.values(), *lost.values()) > 0
    before = meta_properties(cluster, "b")
    cluster.stop(1)
    node = cluster.nodes[1]
    shutil.rmtree(node.log_dir / "b")
    node.launch()
    assert node.process is not None
    assert node.process.wait(90) == 1
    assert f"{node.log_dir}/b" in node.output_tail()
    assert re.search("is not formatted|No `meta.properties` found in", node.output_tail())
    node.process = None
    cluster.start([1])  # formats what is not
    wait_until(lambda: len(sizes(cluster, "b")) == len(lost), "its replicas are made again", 90)
    assert {each.error for each in dirs_of(cluster).values()} == {ErrorCode.NONE}
    assert sizes(cluster, "b") == dict.fromkeys(lost, 0)
    assert sizes(cluster, "a") == kept
    after = meta_properties(cluster, "b")
    assert after.pop("directory.id") != before.pop("directory.id")
    assert after == before
