"""Followers of real nodes: they come back, catch up, are cut where they diverge, and begin anew."""

import shutil
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import UNCLEAN, LeadershipAdmin
from sparkraft.client.values import ConfigOperation, ResourceType
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import (
    log_bytes,
    log_folders,
    partition_of,
    records_produced_throughout,
    until_equal,
    until_in_sync,
    until_read,
)

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)
RATE = 2_000
"""Records a second while nodes are killed: some are under way whenever one goes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, whose controllers are processes of their own, so that brokers may be wiped."""
    overrides = {
        **STEADY,
        "default.replication.factor": "3",
        "min.insync.replicas": "1",
        "replica.lag.time.max.ms": "3000",
        "log.segment.bytes": "1048576",
    }
    members = [Member(9, roles="controller"), *(Member(n, roles="broker") for n in IDS)]
    with Cluster(tmp_path_factory.mktemp("followers"), members, overrides=overrides) as cluster:
        yield cluster


def leader_and_others(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    leader = partition_of(cluster, topic).leader
    return leader, [n for n in IDS if n != leader]


def produce(cluster: Cluster, topic: str, values: list[str], *, acks: str = "all") -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 2})
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert not failed


def until_led(cluster: Cluster, topic: str, *, by: int | None = None, not_by: int = -1) -> None:
    def led() -> bool:
        try:
            leader = partition_of(cluster, topic).leader
        except KafkaError:
            return False
        return leader == by if by is not None else leader not in {-1, not_by}

    wait_until(led, f"{topic} is led by {by or 'somebody else'}", 90)


def test_a_killed_follower_catches_up_and_joins_the_isr_again(cluster: Cluster) -> None:
    cluster.create_topic("back", replicas=3)
    until_in_sync(cluster, "back", 1, 3)
    leader, (follower, _) = leader_and_others(cluster, "back")
    with records_produced_throughout(cluster, "back", 1, rate=RATE) as stream:
        stream.goes_on(500)
        cluster.kill(follower)
        wait_until(
            lambda: follower not in partition_of(cluster, "back", of=leader).isr,
            "the dead follower left the ISR",
        )
        stream.goes_on(2_000)
        cluster.start([follower])
        until_in_sync(cluster, "back", 1, 3)
        stream.goes_on(500)
        sent = stream.stop()[0]
        assert not stream.failures
    until_equal(cluster, "back", 0, list(IDS))
    until_read(cluster, "back", 0, sent)
    assert partition_of(cluster, "back").leader == leader


def test_the_leader_is_killed_under_load_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    cluster.create_topic("chased", replicas=3, min_insync_replicas="2")
    until_in_sync(cluster, "chased", 1, 3)
    with records_produced_throughout(cluster, "chased", 1, rate=RATE) as stream:
        for _ in range(3):
            stream.goes_on(1_000)
            leader, _others = leader_and_others(cluster, "chased")
            cluster.kill(leader)
            until_led(cluster, "chased", not_by=leader)
            stream.goes_on(500)
            cluster.start([leader])
            until_in_sync(cluster, "chased", 1, 3)
        sent = stream.stop()[0]
        assert not stream.failures
    until_equal(cluster, "chased", 0, list(IDS))
    until_read(cluster, "chased", 0, sent)


def test_what_diverged_after_an_unclean_election_is_cut_by_epoch(cluster: Cluster) -> None:
    """The old leader has records nobody else has; it comes back as a follower of one without."""
    cluster.create_topic("diverged", replicas=3, unclean_leader_election_enable="true")
    until_in_sync(cluster, "diverged", 1, 3)
    leader, others = leader_and_others(cluster, "diverged")
    produce(cluster, "diverged", [f"common-{n}" for n in range(50)])
    until_equal(cluster, "diverged", 0, list(IDS))
    cluster.kill(*others)
    wait_until(
        lambda: partition_of(cluster, "diverged", of=leader).isr == (leader,),
        "the leader is alone",
    )
    produce(cluster, "diverged", [f"lost-{n}" for n in range(80)])
    cluster.kill(leader)
    cluster.start(others)

    async def elect(admin: Admin) -> None:
        await LeadershipAdmin(admin.cluster).elect_leaders(UNCLEAN, [("diverged", 0)])

    def led_by_another() -> bool:
        found = partition_of(cluster, "diverged")
        if found.leader in others:
            return True
        cluster.ask(elect)
        return False

    wait_until(led_by_another, "one of the others leads", 90)
    produce(cluster, "diverged", [f"after-{n}" for n in range(20)])
    longer = log_bytes(cluster.nodes[leader], "diverged", 0)
    cluster.start([leader])
    until_in_sync(cluster, "diverged", 1, 3)
    until_equal(cluster, "diverged", 0, list(IDS))
    wanted = [f"common-{n}" for n in range(50)] + [f"after-{n}" for n in range(20)]
    until_read(cluster, "diverged", 0, wanted)
    assert b"lost-0" in longer
    assert b"lost-0" not in log_bytes(cluster.nodes[leader], "diverged", 0)
    said = cluster.nodes[leader].output_path.read_text()
    assert "diverged-0 truncated" in said


def test_a_wiped_follower_fetches_everything_again(cluster: Cluster) -> None:
    cluster.create_topic("wiped", replicas=3)
    until_in_sync(cluster, "wiped", 1, 3)
    sent = [f"{n:05d}" + "w" * 500 for n in range(6_000)]
    produce(cluster, "wiped", sent)
    until_equal(cluster, "wiped", 0, list(IDS))
    leader, (follower, _) = leader_and_others(cluster, "wiped")
    cluster.stop(follower)
    assert len(list(log_folders(cluster.nodes[follower], "wiped", 0)[0].glob("*.log"))) > 1
    shutil.rmtree(cluster.nodes[follower].log_dir)
    cluster.start([follower])
    until_in_sync(cluster, "wiped", 1, 3)
    until_equal(cluster, "wiped", 0, [leader, follower])
    until_read(cluster, "wiped", 0, sent)


def delete_before(cluster: Cluster, topic: str, offset: int) -> None:
    async def work(admin: Admin) -> None:
        outcome = (await admin.delete_records({(topic, 0): offset}))[topic, 0]
        if isinstance(outcome, KafkaError):
            raise outcome

    cluster.ask(work)


def first_segment(cluster: Cluster, node: int, topic: str) -> int:
    (folder,) = log_folders(cluster.nodes[node], topic, 0)
    return min(int(path.stem) for path in folder.glob("*.log"))


def test_the_log_start_of_followers_follows_deleted_records(cluster: Cluster) -> None:
    """DeleteRecords answers when all live replicas have followed; a new leader begins there too."""
    cluster.create_topic("deleted", replicas=3)
    until_in_sync(cluster, "deleted", 1, 3)
    sent = [f"{n:05d}" for n in range(400)]
    produce(cluster, "deleted", sent)
    delete_before(cluster, "deleted", 150)
    until_read(cluster, "deleted", 0, sent[150:])
    leader, _ = leader_and_others(cluster, "deleted")
    cluster.kill(leader)
    until_led(cluster, "deleted", not_by=leader)
    until_read(cluster, "deleted", 0, sent[150:])
    cluster.start([leader])
    until_in_sync(cluster, "deleted", 1, 3)


def test_a_follower_that_ends_before_the_leader_begins_starts_anew(cluster: Cluster) -> None:
    cluster.create_topic("restarted", replicas=3)
    until_in_sync(cluster, "restarted", 1, 3)
    leader, (follower, _) = leader_and_others(cluster, "restarted")
    produce(cluster, "restarted", [f"old-{n}" for n in range(10)])
    cluster.kill(follower)
    wait_until(
        lambda: follower not in partition_of(cluster, "restarted", of=leader).isr,
        "the dead follower left the ISR",
    )
    sent = [f"{n:04d}" for n in range(300)]
    produce(cluster, "restarted", sent)
    delete_before(cluster, "restarted", 100)
    cluster.start([follower])
    until_in_sync(cluster, "restarted", 1, 3)
    until_read(cluster, "restarted", 0, sent[90:])
    assert "restarted-0 restarted" in cluster.nodes[follower].output_path.read_text()
    others = [n for n in IDS if n not in {leader, follower}]
    cluster.kill(leader, *others)
    until_led(cluster, "restarted", by=follower)
    until_read(cluster, "restarted", 0, sent[90:])
    cluster.start([leader, *others])
    until_in_sync(cluster, "restarted", 1, 3)


def throttle(cluster: Cluster, topic: str, rate: int | None, *sides: str) -> None:
    """Let these sides of `topic` send or fetch at `rate` bytes a second; None: freely."""
    operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET

    async def work(admin: Admin) -> None:
        rates = [(f"{s}.replication.throttled.rate", operation, rate and str(rate)) for s in sides]
        lists = [(f"{s}.replication.throttled.replicas", operation, rate and "*") for s in sides]
        changes = {(ResourceType.BROKER, ""): rates, (ResourceType.TOPIC, topic): lists}
        refused = {k: v for k, v in (await admin.alter_configs(changes)).items() if v is not None}
        assert not refused, refused

    cluster.ask(work)


@pytest.mark.parametrize("sides", [("leader", "follower"), ("leader",), ("follower",)])
def test_a_throttled_follower_catches_up_at_its_rate(
    cluster: Cluster, sides: tuple[str, ...]
) -> None:
    """And those in sync are not held back meanwhile. Each side keeps the rate by itself."""
    topic = "-".join(("throttled", *sides))
    cluster.create_topic(topic, replicas=3)
    until_in_sync(cluster, topic, 1, 3)
    leader, (follower, _) = leader_and_others(cluster, topic)
    cluster.kill(follower)
    wait_until(
        lambda: follower not in partition_of(cluster, topic, of=leader).isr,
        "the dead follower left the ISR",
    )
    produce(cluster, topic, ["x" * 10_000 for _ in range(800)])
    # Slow enough that the follower is behind for long after the others have the next records.
    rate = 500_000
    throttle(cluster, topic, rate, *sides)
    began = time.monotonic()
    cluster.start([follower])
    produce(cluster, topic, ["in sync" for _ in range(100)])
    assert follower not in partition_of(cluster, topic, of=leader).isr
    until_in_sync(cluster, topic, 1, 3)
    took = time.monotonic() - began
    size = len(until_equal(cluster, topic, 0, list(IDS)))
    # Kafka's windows let a first second's worth and what is under way pass before they bite.
    assert size / took < rate * 1.4
    throttle(cluster, topic, None, *sides)


def test_fetchers_become_more_while_they_fetch(cluster: Cluster) -> None:
    cluster.create_topic("many", partitions=6, replicas=3)
    until_in_sync(cluster, "many", 6, 3)

    def set_fetchers(count: int) -> None:
        async def work(admin: Admin) -> None:
            resource = (ResourceType.BROKER, "")
            value = [("num.replica.fetchers", ConfigOperation.SET, str(count))]
            refused = (await admin.alter_configs({resource: value}))[resource]
            assert refused is None, refused

        cluster.ask(work)

    with records_produced_throughout(cluster, "many", 6) as stream:
        for count in (2, 1):
            stream.goes_on(1_000)
            set_fetchers(count)
            for node in IDS:
                told = f"num.replica.fetchers changed from {3 - count} to {count}"
                path = cluster.nodes[node].output_path
                wait_until(lambda p=path, t=told: t in p.read_text(), told)
        stream.goes_on(1_000)
        sent = stream.stop()
        assert not stream.failures
    for partition in range(6):
        until_equal(cluster, "many", partition, list(IDS))
        until_read(cluster, "many", partition, sent[partition])


POLLS = {
    "replica.fetch.wait.max.ms": "50000",
    "replica.lag.time.max.ms": "60000",
    "replica.socket.timeout.ms": "60000",
}


def test_a_new_partition_does_not_wait_behind_a_long_poll(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Nothing written to it is committed before its followers' first fetch."""
    overrides = {**STEADY, "min.insync.replicas": "2", **POLLS}
    members = [Member(n) for n in IDS]
    with Cluster(tmp_path_factory.mktemp("polls"), members, overrides=overrides) as cluster:
        cluster.create_topic("first", partitions=6, replicas=3)
        produce(cluster, "first", ["a"] * 60)
        cluster.create_topic("second", partitions=6, replicas=3)
        failed: list[object] = []
        settings = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 30_000}
        producer = Producer({**settings, "acks": "all"})
        for partition in range(6):
            producer.produce(
                "second",
                "b",
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert not failed, failed
