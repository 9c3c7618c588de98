"""One cluster of Apache Kafka's nodes and ours: the quorum, its snapshots, and brokers of both."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    # Every node takes a snapshot every few topics, so that restarts load them.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
BROKERS = (Member(11, "sparkraft", "broker"), Member(12, "kafka", "broker"))
MOVES_MAX = 8
"""Moves after which each direction has been seen by stop and by kill, unless something is wrong."""

BOTH_WAYS: tuple[tuple[Kind, Kind], ...] = (("kafka", "sparkraft"), ("sparkraft", "kafka"))


@contextmanager
def mixed(
    directory: Path, jars: Path, kinds: tuple[Kind, ...], quorum: str = "initial"
) -> Iterator[Cluster]:
    controllers = [Member(n, kind, "controller") for n, kind in enumerate(kinds, start=1)]
    cluster = Cluster(
        directory,
        [*controllers, *BROKERS],
        quorum=quorum,  # type: ignore[arg-type]
        overrides=SETTINGS,
        jars=jars,
    )
    with cluster:
        yield cluster


def check_both_see(cluster: Cluster, topics: set[str]) -> None:
    for broker in cluster.brokers:
        wait_until(
            lambda b=broker: topics <= cluster.topics(of=b), f"broker {broker} sees {topics}", 30
        )


def retention_seen(cluster: Cluster, topic: str, wanted: str) -> None:
    for broker in cluster.brokers:
        wait_until(
            lambda b=broker: cluster.config(topic, "retention.ms", of=b) == wanted,
            f"broker {broker} knows retention.ms={wanted} of {topic}",
            30,
        )


def take_over(cluster: Cluster, how: str) -> tuple[Kind, Kind]:
    """End the leader; one of the other kind is the first to stand. From which kind to which."""
    old = cluster.leader()
    kind = cluster.members[old].kind
    same = [n for n in cluster.controllers if n != old and cluster.members[n].kind == kind]
    if how == "stop":
        for node in same:
            cluster.nodes[node].pause()
        cluster.stop(old)
        for node in same:
            cluster.nodes[node].resume()
    else:
        # A voter that has just started has no leader to be faithful to.
        for node in same:
            cluster.stop(node)
        cluster.kill(old)
        cluster.start(same)
    new = cluster.leader(other_than=old)
    return kind, cluster.members[new].kind


def check_it_works(cluster: Cluster, number: int) -> None:
    topic = f"moved-{number}"
    cluster.create_topic(topic, partitions=2)
    cluster.set_config(topic, retention_ms=str(1_000_000 + number))
    check_both_see(cluster, {topic})
    retention_seen(cluster, topic, str(1_000_000 + number))


TWO_OF_KAFKAS: tuple[Kind, ...] = ("kafka", "kafka", "sparkraft")
TWO_OF_OURS: tuple[Kind, ...] = ("sparkraft", "sparkraft", "kafka")


@pytest.mark.parametrize(
    ("kinds", "quorum"),
    [
        pytest.param(TWO_OF_KAFKAS, "initial", id="two of Kafka's, dynamic"),
        pytest.param(TWO_OF_OURS, "static", id="two of ours, static"),
        pytest.param(TWO_OF_KAFKAS, "static", id="two of Kafka's, static", marks=pytest.mark.long),
        pytest.param(TWO_OF_OURS, "initial", id="two of ours, dynamic", marks=pytest.mark.long),
    ],
)
def test_leadership_moves_both_ways_and_all_see_the_same(
    tmp_path: Path, kafka_jars: Path, kinds: tuple[Kind, ...], quorum: str
) -> None:
    wanted = {(way, how) for way in BOTH_WAYS for how in ("stop", "kill")}
    with mixed(tmp_path, kafka_jars, kinds, quorum) as cluster:
        cluster.create_topic("first", partitions=4)
        for number in range(MOVES_MAX):
            leads = cluster.members[cluster.leader()].kind
            how = "stop" if any(w[0] == leads and h == "stop" for w, h in wanted) else "kill"
            wanted.discard((take_over(cluster, how), how))
            check_it_works(cluster, number)
            cluster.start()
            if not wanted:
                break
        assert not wanted, "leadership did not move that way"
        check_both_see(cluster, {"first", *(f"moved-{n}" for n in range(number + 1))})
        told = [cluster.topics(of=broker) for broker in cluster.brokers]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("sparkraft", "kafka", id="Kafka's loads ours"),
        # Kafka cuts its log once a minute only.
        pytest.param("kafka", "sparkraft", id="ours loads Kafka's", marks=pytest.mark.long),
    ],
)
def test_a_fresh_node_catches_up_from_a_snapshot_of_the_other_kind(
    tmp_path: Path, kafka_jars: Path, first: Kind, second: Kind
) -> None:
    overrides = {**SETTINGS, "metadata.max.retention.bytes": "2000"}
    cluster = Cluster(
        tmp_path,
        [Member(1, first, "controller"), Member(11, "sparkraft", "broker")],
        quorum="standalone",
        overrides=overrides,
        jars=kafka_jars,
    )
    with cluster:
        log = cluster.nodes[1].log_dir / "__cluster_metadata-0"
        made: set[str] = set()

        def cut() -> bool:
            """Create topics until two snapshots were taken and the older one is gone."""
            names = {f"topic-{len(made) + n}" for n in range(5)}
            for name in sorted(names):
                cluster.create_topic(name, partitions=3)
                cluster.set_config(name, retention_ms="123456")
            made.update(names)
            left = sorted(path.name for path in log.glob("*.checkpoint"))
            return bool(left) and not left[0].startswith("00000000000000000000-")

        wait_until(cut, "the log was cut", 150)
        cluster.add(Member(2, second, "controller"))
        cluster.add(Member(12, second, "broker"))
        cluster.start()
        wait_until(lambda: made <= cluster.topics(of=12), "the fresh broker knows all topics", 30)
        assert cluster.config(min(made), "retention.ms", of=12) == "123456"
        files = cluster.nodes[2].log_dir / "__cluster_metadata-0"
        # It has no log from before the snapshot that it was sent.
        wait_until(lambda: list(files.glob("*.log")), "the fresh node has a log", 30)
        assert min(path.name for path in files.glob("*.log")) > "00000000000000000000.log"
        lag = {o.id: o.log_end_offset for o in cluster.describe_quorum().observers}
        assert {2, 11, 12} <= set(lag)
