"""Other people's clients move records exactly once while client, coordinator and leader are killed.

Three nodes of ours. A worker reads one topic and writes another in transactions with its offsets;
read_committed consumers must see each input once, whatever was killed with `kill -9`.
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

from sparkraft.client.cluster import TRANSACTION_COORDINATOR
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.producer import Producer
from tests.interop.exactly_once_worker import TRANSACTIONAL_ID, moved
from tests.support.clusters import Cluster, Member

pytestmark = pytest.mark.real_clients

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 1_000
SECONDS = 240
SILENT_SECONDS = 20
"""A worker without progress for so long is killed and started again, as a supervisor does."""

MAY_HANG = {"kafka-python"}
"""Its 3.0 waits in send_offsets_to_transaction without a timeout, also after the coordinator was
killed. The other clients must continue by themselves."""

SOURCE, TARGET = "inputs", "outputs"
SETTINGS = {
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
def worker_of(client: str, cluster: Cluster, directory: Path) -> Iterator[Worker]:
    worker = Worker(client, cluster.bootstrap, directory / f"{client}.out")
    worker.keep()
    try:
        yield worker
    finally:
        worker.kill()


async def fill(bootstrap: str, first: int, count: int) -> None:
    async with Client(bootstrap) as client, Producer(client) as producer:
        for number in range(first, first + count):
            await producer.send(SOURCE, b"%d" % number, partition=number % 2)


async def coordinator_of(bootstrap: str) -> int:
    async with Client(bootstrap) as client:
        return await client.retrying(
            lambda: client.coordinator(TRANSACTIONAL_ID, kind=TRANSACTION_COORDINATOR)
        )


async def leader_of(bootstrap: str, topic: str) -> int:
    async with Client(bootstrap) as client:
        return (await client.retrying(lambda: client.leader(topic, 0))).leader


async def run(cluster: Cluster, worker: Worker, targets: list[str]) -> Counter[bytes]:
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
                worker.keep()
                records = await consumer.poll(200)
                seen.update(record.value or b"" for record in records)
                now = asyncio.get_running_loop().time()
                progress_at = now if records else progress_at
                if now - progress_at > SILENT_SECONDS:
                    worker.hangs += 1
                    worker.kill()
                    progress_at = now
                due = (len(targets) - len(left) + 1) * RECORDS // (len(targets) + 1)
                if left and seen.total() >= due:
                    await kill(left.pop(0), cluster, worker)
            # Time for one more transaction, if anything were left to write twice.
            seen.update(record.value or b"" for record in await consumer.poll(2_000))
    return seen


async def kill(target: str, cluster: Cluster, worker: Worker) -> None:
    if target == "client":
        worker.kill()
        return
    if target == "coordinator":
        node = await coordinator_of(cluster.bootstrap)
    else:
        node = await leader_of(cluster.bootstrap, TARGET)
    cluster.kill(node)
    await asyncio.to_thread(cluster.start, [node])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    members = [Member(1), Member(2), Member(3)]
    with Cluster(tmp_path / "nodes", members, overrides=SETTINGS) as running:
        for topic in (SOURCE, TARGET):
            running.create_topic(topic, partitions=2, replicas=3)
        yield running


def moves_each_once(client: str, cluster: Cluster, directory: Path, targets: list[str]) -> None:
    with worker_of(client, cluster, directory) as worker:
        try:
            seen = asyncio.run(run(cluster, worker, targets))
        except TimeoutError:
            pytest.fail(f"not all records came within {SECONDS} s; the worker:\n{worker.said()}")
    wanted = Counter(moved(b"%d" % number) for number in range(RECORDS))
    assert seen == wanted, (seen - wanted, wanted - seen, worker.said())
    assert worker.hangs == 0 or client in MAY_HANG, worker.said()


def test_each_record_moves_once_with_confluent_kafka(cluster, tmp_path):
    moves_each_once("confluent-kafka", cluster, tmp_path, ["client", "coordinator"])


@pytest.mark.long
@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_each_record_moves_once_under_many_kills(client, cluster, tmp_path):
    targets = ["client", "coordinator", "leader"] * 3
    random.Random(client).shuffle(targets)
    moves_each_once(client, cluster, tmp_path, targets)
