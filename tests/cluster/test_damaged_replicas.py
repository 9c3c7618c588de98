"""A replica damaged below its recovery point is told of, never served, and fetched anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sparkraft.base.errors import ErrorCode
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.client.leadership import PREFERRED, LeadershipAdmin
from sparkraft.server.config import RACK_AWARE_SELECTOR
from tests.cluster.conftest import STEADY
from tests.server.harness import fetch, values_of
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import (
    create_assigned,
    log_bytes,
    log_folders,
    partition_of,
    until_equal,
    until_in_sync,
)

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)
RECORDS = 500


class ClusterOfRacks(Cluster):
    """Node 1 is in rack-1, and so on: a consumer chooses whose replica it reads."""

    def _properties(self, member: Member) -> dict[str, str]:
        return {**super()._properties(member), "broker.rack": f"rack-{member.id}"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    overrides = {
        **STEADY,
        "default.replication.factor": "3",
        "min.insync.replicas": "1",
        "replica.lag.time.max.ms": "3000",
        "replica.selector.class": RACK_AWARE_SELECTOR,
    }
    members = [Member(9, roles="controller"), *(Member(n, roles="broker") for n in IDS)]
    with ClusterOfRacks(
        tmp_path_factory.mktemp("damaged"), members, overrides=overrides
    ) as cluster:
        yield cluster


def value_of(number: int) -> bytes:
    return b"%d " % number * 20


def fill(cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 2})
    for number in range(RECORDS):
        producer.produce(topic, value_of(number))
        if number % 50 == 49:
            assert producer.flush(60) == 0


def damage(path: Path) -> bytes:
    """Flip a bit in the first batch of a log; what it holds then."""
    log = path / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    return bytes(data)


def filled(cluster: Cluster, topic: str) -> tuple[int, int, Path]:
    """Write to it and wait until all have it; its leader, a follower, and the follower's log."""
    fill(cluster, topic)
    until_equal(cluster, topic, 0, list(IDS))
    leader = partition_of(cluster, topic).leader
    follower = next(n for n in IDS if n != leader)
    (place,) = log_folders(cluster.nodes[follower], topic, 0)
    return leader, follower, place


@pytest.mark.parametrize("how", ["clean stop", "kill -9"])
def test_a_follower_found_damaged_at_its_start_is_fetched_anew(cluster: Cluster, how: str) -> None:
    topic = f"damaged-{how[:4].strip()}"
    cluster.create_topic(topic, replicas=3, flush_messages="1")
    until_in_sync(cluster, topic, 1, 3)
    _, follower, place = filled(cluster, topic)
    points = place.parent / "recovery-point-offset-checkpoint"
    wait_until(lambda: f"{topic} 0 500" in points.read_text(), "the recovery point is on disk")
    (cluster.stop if how == "clean stop" else cluster.kill)(follower)
    broken = damage(place)
    if how == "clean stop":
        (place.parent / ".kafka_cleanshutdown").unlink()
    cluster.start([follower])
    wait_until(
        lambda: (
            f"Setting damaged {topic}-0 aside; fetching it again"
            in cluster.nodes[follower].output_path.read_text()
        ),
        "the node says what it does",
    )
    until_equal(cluster, topic, 0, list(IDS))
    until_in_sync(cluster, topic, 1, 3)
    assert_kept(place, broken)


def assert_kept(place: Path, broken: bytes) -> None:
    """For whoever asks why: nothing was cut off."""
    (stray,) = place.parent.glob(f"{place.name}.*-stray")
    assert (stray / "00000000000000000000.log").read_bytes() == broken


def test_a_follower_found_damaged_by_a_consumer_is_fetched_anew(cluster: Cluster) -> None:
    """It stopped in good order, so nothing looks at its records before somebody reads them."""
    topic = "damaged-read"
    cluster.create_topic(topic, replicas=3)
    until_in_sync(cluster, topic, 1, 3)
    leader, follower, place = filled(cluster, topic)
    cluster.stop(follower)
    broken = damage(place)
    cluster.start([follower])
    until_in_sync(cluster, topic, 1, 3)
    output = cluster.nodes[follower].output_path
    assert f"replica of {topic}-0 is damaged" not in output.read_text()

    wanted = [value_of(number) for number in range(RECORDS)]
    told = f"replica of {topic}-0 is damaged: {place / '00000000000000000000.log'}"

    def reads_what_is_damaged() -> bool:
        # The leader sends nobody to a follower that it doesn't know to be in sync.
        assert read_in_rack(cluster, topic, follower) == wanted
        return told in output.read_text()

    wait_until(reads_what_is_damaged, "a consumer is sent to the damaged replica")
    again = f"Setting damaged {topic}-0 aside; fetching it again from node {leader}"
    wait_until(lambda: again in output.read_text(), "it begins anew once nobody counts on it")
    until_equal(cluster, topic, 0, list(IDS))
    until_in_sync(cluster, topic, 1, 3)
    assert_kept(place, broken)
    assert read_in_rack(cluster, topic, follower) == wanted


def read_in_rack(cluster: Cluster, topic: str, node: int) -> list[bytes]:
    """Every record, by a consumer beside `node` that trusts the bytes it gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reads-near",
            "client.rack": f"rack-{node}",
            "check.crcs": False,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(m.value() or b"" for m in consumer.consume(RECORDS, 0.2) if not m.error())
        return len(found) >= RECORDS

    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        wait_until(all_read, f"all records of {topic} are read near {node}", 90)
    finally:
        consumer.close()
    return found


def test_a_leader_found_damaged_while_it_runs_serves_what_is_whole(cluster: Cluster) -> None:
    """Nobody gets the rest, and nobody cuts it off; once another leads, it is fetched anew."""
    topic = "damaged-leader"
    create_assigned(cluster, topic, [[1, 2]])
    until_in_sync(cluster, topic, 1, 2)
    fill(cluster, topic)
    whole = until_equal(cluster, topic, 0, [1, 2])
    # A process trusts what it has written or read itself; of its predecessor it has read nothing.
    cluster.stop(1)
    cluster.start([1])
    until_in_sync(cluster, topic, 1, 2)
    lead(cluster, topic, [1, 2])
    (place,) = log_folders(cluster.nodes[1], topic, 0)
    with (place / "00000000000000000000.log").open("r+b") as file:
        file.seek(100)
        file.write(bytes([whole[100] ^ 1]))
    reassign(cluster, topic, [1, 2, 3])
    said = f"{topic}-0 set aside, leader 1: CORRUPT_MESSAGE"
    wait_until(lambda: said in cluster.nodes[3].output_path.read_text(), "the new follower tells")
    told = f"replica of {topic}-0 is damaged: {place / '00000000000000000000.log'}"
    assert told in cluster.nodes[1].output_path.read_text()
    refused = fetched(cluster, topic, 0)
    assert (refused.error_code, values_of(refused)) == (ErrorCode.CORRUPT_MESSAGE, [])
    (last,) = values_of(fetched(cluster, topic, RECORDS - 1))[-1:]
    assert last == value_of(RECORDS - 1)

    fill(cluster, topic)
    longer = bytearray(log_bytes(cluster.nodes[1], topic, 0))
    assert len(longer) > len(whole), "writing goes on"
    broken = bytes(longer)
    longer[100] ^= 1
    assert longer.startswith(whole), "nothing was cut"
    wait_until(
        lambda: log_bytes(cluster.nodes[2], topic, 0) == longer,
        "the follower in sync keeps what it has, and goes on",
    )
    assert log_bytes(cluster.nodes[3], topic, 0) == b""
    found = partition_of(cluster, topic)
    assert (found.leader, 3 in found.isr) == (1, False)

    lead(cluster, topic, [2, 1, 3])
    assert until_equal(cluster, topic, 0, list(IDS)) == longer
    until_in_sync(cluster, topic, 1, 3)
    assert_kept(place, broken)


def reassign(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Begin to give the partition these replicas."""

    async def work(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(topic, 0): replicas})
        assert outcome == {(topic, 0): None}

    cluster.ask(work)


def lead(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Give the partition these replicas, and have the first of them lead."""
    reassign(cluster, topic, replicas)

    async def elect(admin: Admin) -> None:
        await LeadershipAdmin(admin.cluster).elect_leaders(PREFERRED, [(topic, 0)])

    def led() -> bool:
        cluster.ask(elect)
        return partition_of(cluster, topic).leader == replicas[0]

    wait_until(led, f"{replicas[0]} leads {topic}", 90)


def fetched(cluster: Cluster, topic: str, offset: int) -> Any:
    """What its leader answers about the partition to one Fetch."""

    async def work(admin: Admin) -> Any:
        told = (await admin.describe_topics([topic]))[topic]
        assert not isinstance(told, Exception), told
        port = cluster.ports[told.partitions[0].leader][0]
        connection = await Connection.open("127.0.0.1", port, client_id="test")
        try:
            answer = await connection.send(fetch(told.id, offset))
        finally:
            await connection.close()
        return answer.responses[0].partitions[0]

    return cluster.ask(work)
