"""A replica that is moved under a throttle comes at the rate it was told, by bytes (KIP-73)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.values import ResourceType
from tests.cluster.conftest import STEADY
from tests.faults.stalls import Stalls
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, log_folders, partition_of

pytestmark = pytest.mark.real_clients

TOPIC = "moved"
OLD, NEW = 1, 2

RATE = 2_000_000
"""Bytes a second: a fetch brings a megabyte at most, so each takes half a second of it."""

VALUE_BYTES = 10_000
RECORDS = 4_000
BATCH_BYTES = 16_384
"""A batch that a fetch cuts off is counted and comes again: of large ones, that is some percent."""

FIRST_BYTES = 4 * RATE
"""Left out of the measure: until a second has passed, more may come than a second's worth."""

WINDOWS = "replication.quota.window.num"
"""A config: of so many seconds a quota knows what came in them."""

WITHIN = 0.1

POLL_SECONDS = 0.01
SENT, FETCHED = (f"{side}.replication.throttled.replicas" for side in ("leader", "follower"))
RATES = {f"{side}.replication.throttled.rate": str(RATE) for side in ("leader", "follower")}


@pytest.fixture(params=["5", "11"])  # 11 is the default; tests/moved.toml leaves it to --long
def windows(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(tmp_path: Path, windows: str) -> Iterator[Cluster]:
    overrides = {**STEADY, WINDOWS: windows}
    with Cluster(tmp_path, [Member(OLD), Member(NEW)], overrides=overrides) as cluster:
        yield cluster


def fill(cluster: Cluster) -> None:
    """Write the topic to the broker that has it now."""
    create_assigned(cluster, TOPIC, [[OLD]])
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": BATCH_BYTES}
    producer = Producer(settings)
    for _ in range(RECORDS):
        producer.produce(
            TOPIC,
            bytes(VALUE_BYTES),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(90) == 0
    assert failed == []


def size_on(cluster: Cluster, node: int) -> int:
    """Bytes of the replica's log on a node; 0 where it has none yet."""
    folders = log_folders(cluster.nodes[node], TOPIC, 0)
    return sum(path.stat().st_size for folder in folders for path in folder.glob("*.log"))


def until_grown(cluster: Cluster, size: int) -> tuple[float, int]:
    """When the new replica was first seen to be longer than `size` (monotonic s), and its size.

    Bytes come in whole fetches: between two such moments the fetches between them are just right.
    """
    seen = [size, -1]

    def rests() -> bool:
        """All batches of the fetch are there."""
        seen[:] = [seen[1], size_on(cluster, NEW)]
        return seen[0] == seen[1] > size

    wait_until(rests, "it grows", 90, pause=POLL_SECONDS)
    return time.monotonic(), seen[1]


def bytes_a_second(cluster: Cluster, seconds: float) -> float:
    """How fast the new replica grows, over `seconds` and until its next fetch."""
    begun, first = until_grown(cluster, FIRST_BYTES)
    now, size = begun, first
    while now < begun + seconds:
        now, size = until_grown(cluster, size)
    return (size - first) / (now - begun)


def throttles(cluster: Cluster) -> list[dict[str, str]]:
    """What is set of throttles: of both brokers, and of the topic."""
    brokers = [(ResourceType.BROKER, str(broker)) for broker in (OLD, NEW)]

    async def work(admin: Admin) -> list[dict[str, str]]:
        told = await admin.describe_configs([*brokers, (ResourceType.TOPIC, TOPIC)])
        return [
            {entry.name: entry.value or "" for entry in entries if ".throttled." in entry.name}
            for entries in told.values()
            if not isinstance(entries, Exception)
        ]

    return cluster.ask(work)


def test_a_throttled_reassignment_stays_within_a_tenth_of_its_rate(
    cluster: Cluster, windows: str, tmp_path: Path
) -> None:
    seconds = int(windows) + 1.0  # longer than all windows of the quota together
    fill(cluster)
    total = size_on(cluster, OLD)
    move = tmp_path / "move.json"
    place = {"topic": TOPIC, "partition": 0, "replicas": [NEW]}
    move.write_text(json.dumps({"version": 1, "partitions": [place]}))

    def reassign(*argv: str) -> None:
        common = ["--reassignment-json-file", str(move), "--bootstrap-server", cluster.bootstrap]
        assert cli.main(["reassign-partitions", *argv, *common]) == 0

    with Stalls(tmp_path) as stalls:
        reassign("--execute", "--throttle", str(RATE))
        replicas = {SENT: f"0:{OLD}", FETCHED: f"0:{NEW}"}
        assert throttles(cluster) == [RATES, RATES, replicas]
        found = bytes_a_second(cluster, seconds) / RATE
        assert size_on(cluster, NEW) < total, "it was measured while the move was under way"
    told = f"{found:.3f} of the rate, {stalls}"
    assert abs(found - 1) <= WITHIN or stalls.excuse(WITHIN * seconds), told
    wait_until(lambda: partition_of(cluster, TOPIC).replicas == (NEW,), "it has moved", 90)
    assert size_on(cluster, NEW) == total
    reassign("--verify")
    wait_until(
        lambda: throttles(cluster) == [{}, {}, {SENT: "", FETCHED: ""}], "the throttles are gone"
    )
