"""The replica-verification command on three nodes, one of which keeps a record of its own."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from sparkraft.cli.replica_verification import Verification
from sparkraft.records.batch import CRC_AT, HEADER
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.replicas import (
    log_folders,
    partition_of,
    records_produced_throughout,
    until_equal,
    until_in_sync,
)

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("verified")
    with Cluster(directory, [Member(n) for n in IDS], overrides=STEADY) as cluster:
        yield cluster


def verify(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkraft.cli.main", "replica-verification", "--once"]
    return subprocess.run(
        [*command, "--broker-list", cluster.bootstrap, "--time", "-2", *options],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def filled(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=2, replicas=3)
    until_in_sync(cluster, topic, 2, 3)
    with records_produced_throughout(cluster, topic, 2) as stream:
        stream.goes_on(3_000)
    for partition in range(2):
        until_equal(cluster, topic, partition, list(IDS))


def test_replicas_that_are_equal_are_told_so(cluster: Cluster) -> None:
    filled(cluster, "equal")
    done = verify(cluster, "--topics-include", "equal", "--fetch-size", "20000")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.endswith(": verification process is started")
    assert ": max lag is 0 for partition equal-" in last
    assert last.endswith(" among 2 partitions")


def test_a_replica_with_another_record_is_found(cluster: Cluster) -> None:
    """A byte of its value and the checksum over it: no read of its own finds that."""
    filled(cluster, "differs")
    follower = next(n for n in IDS if n != partition_of(cluster, "differs").leader)
    cluster.stop(follower)
    (folder,) = log_folders(cluster.nodes[follower], "differs", 0)
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    from sparkraft.records.crc import crc32c

    size = HEADER.unpack_from(data)[1] + 12
    data[size - 10] ^= 1
    data[CRC_AT : CRC_AT + 4] = crc32c(memoryview(data)[CRC_AT + 4 : size]).to_bytes(4, "big")
    path.write_bytes(data)
    cluster.start([follower])
    until_in_sync(cluster, "differs", 2, 3)
    done = verify(cluster, "--topics-include", "differs")
    assert done.returncode == 1, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if "unmatched" in line]
    # Every replica is compared with the first: where that one is wrong, each of the others differs.
    differing = IDS[1:] if follower == IDS[0] else (follower,)
    for line, replica in zip(told, differing, strict=True):
        assert "partition differs-0 has unmatched checksum at offset " in line
        assert f"replica {IDS[0]}'s checksum " in line
        assert f"replica {replica}'s checksum " in line


def test_without_a_topic_there_is_nothing_to_verify(cluster: Cluster) -> None:
    done = verify(cluster, "--topics-include", "no-such-topic")
    assert done.returncode == 1
    assert "no topic fits" in done.stderr


def test_offsets_that_differ_end_it() -> None:
    """One replica's batch ends elsewhere: from there on nothing can be compared."""
    from types import SimpleNamespace

    from sparkraft.base.ids import Uuid

    topic = SimpleNamespace(
        name="t",
        id=Uuid(b"t" * 16),
        partitions={0: SimpleNamespace(replicas=(1, 2))},
    )
    values = SimpleNamespace(report_interval_ms=0, once=False)
    verification = Verification(None, [topic], values)  # type: ignore[arg-type, list-item]
    verification._offsets["t", 0] = 0

    def answer(count: int) -> SimpleNamespace:
        records = HEADER.pack(0, 49, 1, 2, 7, 0, count - 1, 0, 0, -1, -1, -1, count)
        return SimpleNamespace(error_code=0, records=records, high_watermark=10)

    assert verification._compare(("t", 0), {1: answer(3), 2: answer(3)}) == 7
    verification._offsets["t", 0] = 0
    assert verification._compare(("t", 0), {1: answer(3)}) == 10
    assert verification._compare(("t", 0), {1: answer(3), 2: answer(4)}) is None
