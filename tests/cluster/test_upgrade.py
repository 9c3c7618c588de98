"""An upgrade from an earlier commit under load, node by node, and the way back: docs/UPGRADE.md."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from sparkraft.cli import main as cli
from sparkraft.simulation.workload.history import History, acknowledged, check
from tests.cluster.conftest import STEADY
from tests.cluster.upgraded_cluster import (
    CURRENT_SOURCE,
    ClusterOfSources,
    Earlier,
    UpgradedCluster,
)
from tests.support.clusters import Cluster, Member
from tests.support.groups import commit, committed
from tests.support.ports import cluster_port, wait_until
from tests.support.record_clients import (
    GROUP,
    GroupReader,
    LibrdkafkaProducer,
    TailReader,
    close,
    read_everything,
)

pytestmark = pytest.mark.real_clients

EARLIER = Earlier(
    "26b93b9aecc0aac7f8553c5a5977fd3c20852ec7",
    release="4.1",
    logs="These keys are Kafka's, and have no effect here yet",
)
TOPIC = "orders"
OFFSETS_TOPIC = "__consumer_offsets"
PARTITIONS = 3
RATE = 200
EARLIER_LEVEL = 27
OLDER_RELEASE = "4.2"
NEWER_RELEASE, NEWER_LEVEL = "4.3", 30
REFUSED_BY_LOG = "metadata.version at level 30; this node knows 7 to 29"
REFUSED_BY_CONTROLLER = "finalized at a level that this node does not support"
IDLE_GROUP = "idle"
IDLE_OFFSETS = {0: 3, 1: 5, 2: 7}


@pytest.fixture
def earlier_source() -> Path:
    return EARLIER.source()


class Load:
    """Two producers, a reader without a group, and a group of two, as long as its block lasts."""

    def __init__(self, cluster: Cluster) -> None:
        bootstrap = cluster.bootstrap
        # With several requests in flight librdkafka may send a batch twice, in a new epoch, when a
        # leader moves: tests.support.record_clients.NewEpochs.
        self.producers = [
            LibrdkafkaProducer(
                name, bootstrap, TOPIC, partitions=PARTITIONS, rate=RATE, requests_in_flight=1
            )
            for name in ("p1", "p2")
        ]
        self.tail = TailReader("tail", bootstrap, TOPIC, partitions=PARTITIONS)
        self.committed: dict[int, int] = {}
        self.members = [
            GroupReader(name, bootstrap, TOPIC, self.committed) for name in ("g1", "g2")
        ]
        self._cluster = cluster
        self._stack = ExitStack()

    def __enter__(self) -> "Load":
        for client in (*self.producers, self.tail, *self.members):
            self._stack.enter_context(client)  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def continues(self) -> None:
        """Return once every producer, the reader and every member of the group got further."""
        before = self._progress()

        def all_got_further() -> bool:
            pairs = zip(before, self._progress(), strict=True)
            return all(now >= then + RATE // 4 for then, now in pairs)

        try:
            wait_until(all_got_further, "the clients continue")
        except AssertionError as error:
            raise AssertionError(
                f"{error}: from {before} to {self._progress()}\n{self._cluster.tails()}"
            ) from None

    def _progress(self) -> list[int]:
        """What each producer had acknowledged, what the reader read, and what the group did."""
        of_group = sum(
            len(poll.records)
            for member in self.members
            for polls in list(member.polls.values())
            for poll in list(polls)
        )
        return [*(p.acknowledged for p in self.producers), self.tail.count, of_group]

    def verdict(self) -> int:
        """Check all that was sent and read; the number of acknowledged records."""
        final = read_everything(self._cluster.bootstrap, TOPIC, PARTITIONS)
        history = History()
        for client in (*self.producers, self.tail, final, *self.members):
            client.tell(history)
        anomalies = [str(anomaly) for anomaly in check(history)]
        assert not anomalies, "\n".join(anomalies[:20])
        for producer in self.producers:
            assert not producer.failures, producer.failures[:5]
        for reader in (self.tail, *self.members):
            assert not reader.errors, reader.errors[:5]
        for member in self.members:
            assert not member.went_back, f"committed offsets went back: {member.went_back}"
        with consumer_of(self._cluster, GROUP) as consumer:
            found = committed(consumer, places())
        assert all(found[partition] >= end for partition, end in self.committed.items()), (
            found,
            self.committed,
        )
        return acknowledged(history)


def test_nodes_are_upgraded_one_by_one_and_one_goes_back(tmp_path, capsys):
    with UpgradedCluster(tmp_path, EARLIER, topics=(TOPIC, OFFSETS_TOPIC)) as cluster:
        for node in cluster.nodes:
            cluster.assert_runs(node)
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        levels = cluster.features(1).finalized
        assert levels["metadata.version"] == EARLIER_LEVEL
        with consumer_of(cluster, IDLE_GROUP) as idle, Load(cluster) as load:
            load.continues()
            commit(idle, [TopicPartition(TOPIC, p, o) for p, o in IDLE_OFFSETS.items()])

            def restart(node: int, how: Callable[[int], None]) -> None:
                how(node)
                load.continues()
                assert cluster.features(node).finalized == levels
                assert committed(idle, places()) == IDLE_OFFSETS

            leader = cluster.leader()
            first, last = (node for node in cluster.nodes if node != leader)
            for node in (first, leader, last):
                restart(node, cluster.upgrade)
            # The active controller goes back, and is upgraded again.
            leader = cluster.leader()
            restart(leader, cluster.downgrade)
            restart(leader, cluster.upgrade)
        assert load.verdict() > RATE
        group_continues(cluster)
        features_are_upgraded(cluster, levels, capsys)


def places() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, partition) for partition in IDLE_OFFSETS]


@contextmanager
def consumer_of(cluster: Cluster, group: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        close(consumer, group)


def group_continues(cluster: Cluster) -> None:
    """A new member of the idle group gets each partition from its committed offset on."""
    first: dict[int, int] = {}
    with consumer_of(cluster, IDLE_GROUP) as consumer:
        consumer.subscribe([TOPIC])

        def has_read_all() -> bool:
            for message in consumer.consume(1_000, timeout=0.5):
                if message.error() is None:
                    first.setdefault(message.partition(), message.offset())
            return len(first) == PARTITIONS

        wait_until(has_read_all, "the group reads every partition", pause=0)
    assert first == IDLE_OFFSETS


def features_are_upgraded(cluster: UpgradedCluster, before: dict[str, int], capsys) -> None:
    """`features upgrade` raises the levels, on every node."""
    command = ["features", "--bootstrap-server", cluster.bootstrap, "upgrade"]
    assert cli.main([*command, "--release-version", NEWER_RELEASE]) == 0
    assert f"metadata.version was upgraded to {NEWER_LEVEL}." in capsys.readouterr().out

    def all_have_it() -> bool:
        levels = [cluster.features(node).finalized for node in cluster.nodes]
        return all(each["metadata.version"] == NEWER_LEVEL for each in levels)

    wait_until(all_have_it, "every node has the new level")
    after = cluster.features(1).finalized
    assert {name for name in after if after[name] < before.get(name, 0)} == set()


def test_nodes_of_an_older_release_are_refused_once_the_features_are_raised(tmp_path, capsys):
    older = source_without_newer_release(tmp_path)
    members = [Member(1), Member(2, roles="broker")]
    with ClusterOfReleases(tmp_path / "nodes", members, overrides=STEADY) as cluster:
        command = ["features", "--bootstrap-server", cluster.bootstrap, "upgrade"]
        assert cli.main([*command, "--release-version", NEWER_RELEASE]) == 0
        capsys.readouterr()
        # A broker, refused by the controller or by the metadata, and the controller itself.
        for node in (2, 1):
            cluster.stop(node)
            cluster.node(node).source = older
            (reason,) = [
                line
                for line in cluster.node(node).refused_start(seconds=60).splitlines()
                if " CRITICAL " in line
            ]
            refusals = (REFUSED_BY_LOG, REFUSED_BY_CONTROLLER) if node == 2 else (REFUSED_BY_LOG,)
            assert any(refusal in reason for refusal in refusals), reason


class ClusterOfReleases(ClusterOfSources):
    """Formatted with the feature levels before `NEWER_RELEASE`."""

    def _format_as(self, member: Member) -> list[str]:
        return [*super()._format_as(member), "--release-version", OLDER_RELEASE]


def source_without_newer_release(folder: Path) -> Path:
    """This source, as if it did not know `NEWER_LEVEL`."""
    source = folder / "older"
    shutil.copytree(CURRENT_SOURCE, source)
    features = source / "sparkraft" / "metadata" / "features.py"
    text = features.read_text()
    newest = f"METADATA_LEVEL_MAX = {NEWER_LEVEL}\n"
    assert newest in text
    features.write_text(text.replace(newest, f"METADATA_LEVEL_MAX = {NEWER_LEVEL - 1}\n"))
    return source


def test_a_cluster_of_the_earlier_up_is_started_by_this_one(tmp_path, earlier_source, capsys):
    home = tmp_path / "cluster"
    options = ["--dir", str(home)]

    def earlier(*words: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(earlier_source)}
        command = [sys.executable, "-m", "sparkraft.cli.main", *words]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        earlier("up", *options, "--port", str(cluster_port()), "--detach")
        before = json.loads((home / "cluster.json").read_text())
        log = Path(before["nodes"][0]["log"])
        assert EARLIER.logs in log.read_text()
        bootstrap = ["--bootstrap-server", before["bootstrap"]]
        earlier("topics", *bootstrap, "--create", "--topic", TOPIC)
        # The command of either source stops nodes of the other.
        assert cli.main(["down", *options]) == 0
        logged = len(log.read_text())
        assert cli.main(["up", *options, "--detach", "--no-console"]) == 0
        assert EARLIER.logs not in log.read_text()[logged:]
        after = json.loads((home / "cluster.json").read_text())
        assert _lasting(after) == _lasting(before)
        # The earlier source recorded a directory id of its own; it is read from the data now.
        (node,) = after["nodes"]
        properties = Path(node["log"]).parent.rglob("meta.properties")
        assert {f"directory.id={node['directory_id']}"} == {
            line
            for path in properties
            for line in path.read_text().splitlines()
            if line.startswith("directory.id=")
        }
        capsys.readouterr()
        assert cli.main(["topics", *bootstrap, "--list"]) == 0
        assert capsys.readouterr().out.split() == [TOPIC]
        earlier("down", *options)
        earlier("up", *options, "--detach")
    finally:
        cli.main(["down", *options])


def _lasting(cluster: dict) -> dict:
    """The content of cluster.json without the processes and the directory ids."""
    changing = {"pid", "started", "directory_id"}
    nodes = [
        {key: value for key, value in node.items() if key not in changing}
        for node in cluster["nodes"]
    ]
    return {**cluster, "nodes": nodes}
