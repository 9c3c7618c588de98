"""Other people's clients move records exactly once while client, coordinator and leader are killed.

Three nodes of ours; in the long tests the third may be one of Apache Kafka. A worker reads one
topic and writes another in transactions with its offsets; read_committed consumers must see each
input once, whatever was killed with `kill -9`.
"""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkraft.client.cluster import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.producer import Producer
from tests.interop.exactly_once_worker import GROUP, SESSION_MS, TRANSACTIONAL_ID, moved
from tests.support.clusters import Cluster, Kind, Member

pytestmark = pytest.mark.real_clients

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 1_000
SECONDS = 240
SILENT_SECONDS = 20
"""A worker without progress for so long is killed and started again, as a supervisor does."""

MAY_HANG = {"kafka-python"}
"""Its 3.0 waits in send_offsets_to_transaction without a timeout, also after the coordinator was
killed. The other clients must continue by themselves."""

MEMBERS = {f"{protocol}-{number}" for protocol in ("classic", "consumer") for number in (1, 2)}
"""Clients whose partitions the group assigns; their names are their transactional ids."""

SOURCE, TARGET = "inputs", "outputs"
THIRD = 3
"""The node that may be one of Apache Kafka."""

SETTINGS = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Worker:
    """A process of the other client; started again whenever it has ended."""

    def __init__(self, client: str, bootstrap: str, output: Path) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.output = output
        self.starts = 0
        self.hangs = 0
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start it if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        module = "tests.interop.exactly_once_worker"
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, self.client, self.bootstrap, SOURCE, TARGET],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT,
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        """The end of its output."""
        return self.output.read_text(errors="replace")[-3_000:] if self.output.exists() else ""


@contextmanager
def workers_of(clients: list[str], cluster: Cluster, directory: Path) -> Iterator[list[Worker]]:
    workers = [Worker(one, cluster.bootstrap, directory / f"{one}.out") for one in clients]
    try:
        for worker in workers:
            worker.keep()
        yield workers
    finally:
        for worker in workers:
            worker.kill()


async def fill(bootstrap: str, first: int, count: int) -> None:
    async with Client(bootstrap) as client, Producer(client) as producer:
        for number in range(first, first + count):
            await producer.send(SOURCE, b"%d" % number, partition=number % 2)


async def coordinator_of(bootstrap: str, key: str, kind: int) -> int:
    async with Client(bootstrap) as client:
        return await client.retrying(lambda: client.coordinator(key, kind=kind))


async def leader_of(bootstrap: str, topic: str) -> int:
    async with Client(bootstrap) as client:
        return (await client.retrying(lambda: client.leader(topic, 0))).leader


async def run(cluster: Cluster, workers: list[Worker], targets: list[str]) -> Counter[bytes]:
    """What read_committed sees after each of `targets` was killed once; nodes are started again."""
    await fill(cluster.bootstrap, 0, RECORDS)
    seen: Counter[bytes] = Counter()
    settings = ConsumerSettings(auto_offset_reset="earliest", read_committed=True)
    left = list(targets)
    async with Client(cluster.bootstrap) as client, Consumer(client, settings) as consumer:
        consumer.assign([(TARGET, 0), (TARGET, 1)])
        progress_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(SECONDS):
            while seen.total() < RECORDS:
                for worker in workers:
                    worker.keep()
                records = await consumer.poll(200)
                seen.update(record.value or b"" for record in records)
                now = asyncio.get_running_loop().time()
                progress_at = now if records else progress_at
                if now - progress_at > SILENT_SECONDS:
                    for worker in workers:
                        worker.hangs += 1
                        worker.kill()
                    progress_at = now
                due = (len(targets) - len(left) + 1) * RECORDS // (len(targets) + 1)
                if left and seen.total() >= due:
                    await kill(left.pop(0), cluster, workers[len(left) % len(workers)])
            # Time for one more transaction, if anything were left to write twice.
            seen.update(record.value or b"" for record in await consumer.poll(2_000))
    return seen


async def kill(target: str, cluster: Cluster, worker: Worker) -> None:
    if target == "client":
        worker.kill()
        return
    if target == "coordinator":
        key = worker.client if worker.client in MEMBERS else TRANSACTIONAL_ID
        node = await coordinator_of(cluster.bootstrap, key, TRANSACTION_COORDINATOR)
    elif target == "group":
        node = await coordinator_of(cluster.bootstrap, GROUP, GROUP_COORDINATOR)
    elif target == "third":
        node = THIRD
    else:
        node = await leader_of(cluster.bootstrap, TARGET)
    cluster.kill(node)
    await asyncio.to_thread(cluster.start, [node])


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    third: Kind = getattr(request, "param", "sparkraft")
    jars = request.getfixturevalue("kafka_jars") if third == "kafka" else None
    members = [Member(1), Member(2), Member(THIRD, third)]
    with Cluster(tmp_path / "nodes", members, overrides=SETTINGS, jars=jars) as running:
        for topic in (SOURCE, TARGET):
            running.create_topic(topic, partitions=2, replicas=3)
        yield running


of_either_kind = pytest.mark.parametrize(
    "cluster", ["sparkraft", pytest.param("kafka", marks=pytest.mark.java)], indirect=True
)
"""The kind of the third node."""


def moves_each_once(
    clients: list[str], cluster: Cluster, directory: Path, targets: list[str]
) -> None:
    with workers_of(clients, cluster, directory) as workers:
        try:
            seen = asyncio.run(run(cluster, workers, targets))
        except TimeoutError:
            said = [worker.said() for worker in workers]
            pytest.fail(f"not all records came within {SECONDS} s; the workers:\n{said}")
    wanted = Counter(moved(b"%d" % number) for number in range(RECORDS))
    for worker in workers:
        assert seen == wanted, (seen - wanted, wanted - seen, worker.said())
        assert worker.hangs == 0 or worker.client in MAY_HANG, worker.said()


def test_each_record_moves_once_with_confluent_kafka(cluster, tmp_path):
    moves_each_once(["confluent-kafka"], cluster, tmp_path, ["client", "coordinator"])


@pytest.mark.long
@of_either_kind
@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_each_record_moves_once_under_many_kills(client, cluster, tmp_path):
    targets = ["client", "coordinator", "leader"] * 3 + ["third"]
    random.Random(client).shuffle(targets)
    moves_each_once([client], cluster, tmp_path, targets)


@pytest.mark.long
@of_either_kind
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_record_moves_once_by_two_members_of_a_group(protocol, cluster, tmp_path):
    """Offsets are committed in the generation, or member epoch, in which they were read."""
    members = [f"{protocol}-1", f"{protocol}-2"]
    assert set(members) <= MEMBERS
    targets = ["client", "group", "coordinator", "client", "leader", "third", "group"]
    moves_each_once(members, cluster, tmp_path, targets)
    for member in members:
        assert "moved [" in (tmp_path / f"{member}.out").read_text(), f"{member} moved nothing"
