"""A replica damaged below its recovery point is told of, never served, and fetched anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from sparkraft.server.config import RACK_AWARE_SELECTOR
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import log_folders, partition_of, until_equal, until_in_sync

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
            f"{topic}-0 is damaged: it is set aside, and fetched anew"
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
    again = f"{topic}-0 is damaged: it is set aside, and fetched anew from node {leader}"
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
