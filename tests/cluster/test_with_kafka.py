"""One cluster of Apache Kafka's nodes and ours: the quorum, its snapshots, and brokers of both."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from tests.support.admin_stream import admin_stream
from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    # Every node takes a snapshot every few topics, so that restarts load them.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
BROKERS = (Member(11, "sparkraft", "broker"), Member(12, "kafka", "broker"))
MOVES_MAX = 20
"""Moves after which each way was seen once by stop and by kill, unless something is wrong."""

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


def shows(cluster: Cluster, broker: int, topics: set[str]) -> bool:
    return topics <= cluster.topics(of=broker)


def knows_retention(cluster: Cluster, broker: int, topic: str, wanted: str) -> bool:
    return cluster.config(topic, "retention.ms", of=broker) == wanted


def check_both_see(cluster: Cluster, topics: set[str]) -> None:
    for broker in cluster.brokers:
        look = partial(shows, cluster, broker, topics)
        wait_until(look, f"broker {broker} sees {topics}", 90)


def retention_seen(cluster: Cluster, topic: str, wanted: str) -> None:
    for broker in cluster.brokers:
        look = partial(knows_retention, cluster, broker, topic, wanted)
        wait_until(look, f"broker {broker} knows retention.ms={wanted} of {topic}", 90)


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


def move_leadership(cluster: Cluster, times: int) -> int:
    """Until it moved both ways, by stop and by kill, `times` each; how many moves it took."""
    wanted = Counter({(way, how): times for way in BOTH_WAYS for how in ("stop", "kill")})
    for number in range(MOVES_MAX * times):
        leads = cluster.members[cluster.leader()].kind
        stops = any(way[0] == leads and how == "stop" for way, how in +wanted)
        how = "stop" if stops else "kill"
        wanted[take_over(cluster, how), how] -= 1
        check_it_works(cluster, number)
        cluster.start()
        if not +wanted:
            return number + 1
    raise AssertionError(f"leadership did not move that way: {+wanted}")


def check_moves(cluster: Cluster, times: int) -> None:
    cluster.create_topic("first", partitions=4)
    moves = move_leadership(cluster, times)
    check_both_see(cluster, {"first", *(f"moved-{n}" for n in range(moves))})
    told = [cluster.topics(of=broker) for broker in cluster.brokers]
    assert told[0] == told[1]


QUORUMS = {
    "two of Kafka's, dynamic": (TWO_OF_KAFKAS, "initial"),
    "two of Kafka's, static": (TWO_OF_KAFKAS, "static"),
    "two of ours, dynamic": (TWO_OF_OURS, "initial"),
    "two of ours, static": (TWO_OF_OURS, "static"),
}


@pytest.mark.parametrize("name", ["two of Kafka's, dynamic", "two of ours, static"])
def test_leadership_moves_both_ways_and_all_see_the_same(
    tmp_path: Path, kafka_jars: Path, name: str
) -> None:
    kinds, quorum = QUORUMS[name]
    with mixed(tmp_path, kafka_jars, kinds, quorum) as cluster:
        check_moves(cluster, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", QUORUMS)
def test_leadership_moves_ten_times_each_way_by_stop_and_by_kill(
    tmp_path: Path, kafka_jars: Path, name: str
) -> None:
    kinds, quorum = QUORUMS[name]
    with mixed(tmp_path, kafka_jars, kinds, quorum) as cluster:
        check_moves(cluster, 10)


def replace_every_controller(cluster: Cluster, kind: Kind, how: str) -> None:
    """One after another, on its directory, as soon as the one before follows the leader again."""
    for node in cluster.controllers:
        cluster.kill(node) if how == "kill" else cluster.stop(node)
        cluster.replace(node, kind)
        cluster.start([node])
        wait_until(partial(is_caught_up, cluster, node), f"{node} follows again", 120)


def is_caught_up(cluster: Cluster, node: int) -> bool:
    try:
        quorum = cluster.describe_quorum()
    except (KafkaError, OSError):
        return False
    ends = {voter.id: voter.log_end_offset for voter in quorum.voters}
    return ends[node] >= quorum.high_watermark >= 0


@pytest.mark.parametrize(
    ("quorum", "how", "rounds"),
    [
        pytest.param("initial", "stop", 1, id="dynamic, stopped"),
        pytest.param("static", "kill", 1, id="static, killed"),
        pytest.param("initial", "kill", 5, id="dynamic, killed 5 times", marks=pytest.mark.long),
        pytest.param("static", "stop", 5, id="static, stopped 5 times", marks=pytest.mark.long),
    ],
)
def test_every_controller_is_replaced_and_replaced_back_under_admin_requests(
    tmp_path: Path, kafka_jars: Path, quorum: str, how: str, rounds: int
) -> None:
    with mixed(tmp_path, kafka_jars, ("kafka", "kafka", "kafka"), quorum) as cluster:
        cluster.leader()
        with admin_stream(cluster, "rolled") as stream:
            for _ in range(rounds):
                before = stream.acknowledged
                replace_every_controller(cluster, "sparkraft", how)
                among_ours = stream.acknowledged
                replace_every_controller(cluster, "kafka", how)
                assert before < among_ours < stream.acknowledged


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

        wait_until(cut, "the log was cut", 240)
        cluster.add(Member(2, second, "controller"))
        cluster.add(Member(12, second, "broker"))
        cluster.start()
        wait_until(lambda: made <= cluster.topics(of=12), "the fresh broker knows all topics", 90)
        assert cluster.config(min(made), "retention.ms", of=12) == "123456"
        files = cluster.nodes[2].log_dir / "__cluster_metadata-0"
        # It has no log from before the snapshot that it was sent.
        wait_until(lambda: list(files.glob("*.log")), "the fresh node has a log", 90)
        assert min(path.name for path in files.glob("*.log")) > "00000000000000000000.log"
        wait_until(
            lambda: {o.id for o in cluster.describe_quorum().observers} >= {2, 11, 12},
            "the leader tells of all observers",
            90,
        )
