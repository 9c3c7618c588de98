"""A worker of Kafka Connect with exactly-once sources is killed, and so are nodes: each line once.

The worker runs in distributed mode with the file source of Apache Kafka. Its offsets, its configs
and its lines are in transactions; a worker that starts again fences its former tasks.

`test_kafka_streams` has a case of Java's exactly-once clients that stays in `./test`.
"""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import OF_TRANSACTIONS, Cluster, Kind, Member
from tests.support.coordinators import group_coordinator, transaction_coordinator
from tests.support.java_programs import JavaProgram, running
from tests.support.kafka_jars import kafka_applications_jars_or_reason
from tests.support.kafka_tools import kafka_tool_command
from tests.support.ports import lasting_ports, wait_until
from tests.support.record_reader import RecordReader
from tests.support.replicas import partition_of, until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

CONNECTOR, TOPIC, WORKERS = "lines", "connected", "workers"
TRANSACTIONAL_ID = f"{WORKERS}-{CONNECTOR}-0"
"""As Connect names the producer of task 0."""

PER_TRANSACTION = 10
KILLS = ["worker", "transactions", "leader", "worker", "group", "third", "transactions"]
THIRD = 3
"""The node that may be one of Apache Kafka."""

PER_KILL = 700
"""Lines between two kills."""

KEPT_MAX = 200
"""The file source may keep the last 1,024 characters until the file grows."""

SECONDS = 180


class Worker(JavaProgram):
    """One process of ConnectDistributed."""

    def __init__(self, cluster: Cluster, jars: Path, libs: Path) -> None:
        (port,) = lasting_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": WORKERS,
            "exactly.once.source.support": "enabled",
            "listeners": self.url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "scheduled.rebalance.max.delay.ms": "0",
            "plugin.discovery": "service_load",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
        }
        for kind in ("config", "offset", "status"):
            settings[f"{kind}.storage.topic"] = f"connect-{kind}s"
            settings[f"{kind}.storage.replication.factor"] = "3"
        properties = cluster.directory / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = kafka_tool_command(
            jars, "org.apache.kafka.connect.cli.ConnectDistributed", beside=[libs / "*"]
        )
        super().__init__([*command, str(properties)], cluster.directory / "worker.out")

    def put(self, path: str, body: dict[str, str]) -> Any:
        """A PUT request to the worker's REST interface."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def connect(self, file: Path) -> None:
        """Create the connector, once the worker has joined its group."""
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(file),
            "topic": TOPIC,
            "batch.size": str(PER_TRANSACTION),
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        }

        def created() -> bool:
            assert self.is_running, self.tail()
            try:
                return bool(self.put(f"/connectors/{CONNECTOR}/config", config))
            except OSError:
                return False  # It does not listen yet, or has not joined its group.

        wait_until(created, "the connector is created", SECONDS, pause=0.5)


def bounce(cluster: Cluster, node: int) -> None:
    """kill -9 a node, start it again, and return once it has all records."""
    cluster.kill(node)
    cluster.start([node])
    for topic, partitions in (
        (TOPIC, 1),
        ("connect-offsets", 1),
        ("__transaction_state", 3),
        ("__consumer_offsets", 3),
    ):
        until_in_sync(cluster, topic, partitions, 3)


@pytest.mark.long
@pytest.mark.parametrize("third", ["sparkraft", "kafka"])
def test_each_line_is_there_once(tmp_path: Path, kafka_jars: Path, third: Kind) -> None:
    libs = kafka_applications_jars_or_reason()
    if not isinstance(libs, Path):
        pytest.skip(libs.reason)
    members = [Member(1), Member(2), Member(THIRD, third)]
    with Cluster(tmp_path, members, overrides=OF_TRANSACTIONS, jars=kafka_jars) as cluster:
        cluster.create_topic(TOPIC, replicas=3)
        until_in_sync(cluster, TOPIC, 1, 3)
        count = PER_KILL * (len(KILLS) + 1)
        lines = [f"line {number}" for number in range(count + KEPT_MAX)]
        file = tmp_path / "lines.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        worker = Worker(cluster, kafka_jars, libs)
        with RecordReader(cluster.bootstrap, TOPIC) as reader, running(worker):
            worker.connect(file)
            for number, target in enumerate(KILLS):
                until_read(reader, worker, PER_KILL * number + PER_TRANSACTION)
                kill(target, cluster, worker)
            until_read(reader, worker, count)
            assert worker.terminate() in {0, 143}, worker.tail()
            reader.poll(2)
        assert [value for _, value in reader.records] == lines[: len(reader.records)]


def until_read(reader: RecordReader, worker: Worker, count: int) -> None:
    """Return once so many lines were committed; the worker may not end by itself."""

    def check() -> None:
        assert worker.is_running, worker.tail()

    reader.until_read(count, seconds=SECONDS, check=check)


def kill(target: str, cluster: Cluster, worker: Worker) -> None:
    """kill -9 the worker or a node, and start it again."""
    match target:
        case "worker":
            worker.kill()
            worker.start()
        case "transactions":
            bounce(cluster, transaction_coordinator(cluster, TRANSACTIONAL_ID))
        case "group":
            bounce(cluster, group_coordinator(cluster, WORKERS))
        case "third":
            bounce(cluster, THIRD)
        case _:
            bounce(cluster, partition_of(cluster, TOPIC).leader)
