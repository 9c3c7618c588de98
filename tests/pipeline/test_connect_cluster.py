"""Spark Connect on a standalone cluster of two workers, none of which has this package.

The server's Python has pyspark[connect] and deltalake, that of the workers pyspark, pyarrow and
numpy. The clients have no Java.
"""

import os
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from sparkraft.pipeline.places import LATEST
from sparkraft.pipeline.produce import Producer
from tests.support.bare_python import SERVER, bare_python, python_of_place
from tests.support.killed_batches import committed_values
from tests.support.ports import wait_until
from tests.support.spark_cluster import connect_server, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

PARTITIONS = 4
RECORDS = 2000
SLOTS = 7

PIPELINE = """
name = "connected"
checkpoint = "checkpoint"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "${topic}"
startingOffsets = "earliest"
[transform]
function = "change.py:change"
[[sink]]
kind = "delta"
path = "table"
[[sink]]
kind = "delta"
path = "keyed"
keys = ["slot"]
order_by = "place"
[[sink]]
kind = "topic"
topic = "${topic}-out"
delivery = "exactly_once"
[[sink]]
kind = "parquet"
path = "files"
[[sink]]
kind = "function"
function = "counting.py:count"
"""

CHANGE = """
import os
import time
from pathlib import Path

FOLDER = Path("{folder}")

def change(records):
    rows = records.selectExpr(
        "partition AS number",
        "offset",
        "offset % 7 AS slot",
        "offset * 4 + partition AS place",
        "concat(partition, '-', offset) AS value",
    )
    return rows.mapInArrow(waiting, rows.schema)

def waiting(batches):
    (FOLDER / f"task-{os.getpid()}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.05)
    yield from batches
"""

COUNTING = """
from pathlib import Path

FOLDER = Path("{folder}")

def count(batch, number):
    with (FOLDER / "counts").open("a") as file:
        print(number, batch.mapInArrow(same, batch.schema).count(), file=file)

def same(batches):  # the workers import this module for it
    yield from batches
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """A cluster, and the URL of a server on it."""
    folder = tmp_path_factory.mktemp("cluster")
    workers = bare_python(folder / "of-workers")
    server = bare_python(folder / "of-server", SERVER)
    for each in (workers, server):
        missing = subprocess.run(
            [each, "-c", "import sparkraft"], capture_output=True, text=True, check=False, cwd="/"
        )
        assert "No module named 'sparkraft'" in missing.stderr
    python = python_of_place(folder / "python", in_executors=workers, elsewhere=server)
    with spark_cluster(folder) as cluster, connect_server(cluster.url, folder, python) as url:
        yield cluster, url


def without_java():
    return {**os.environ, "JAVA_HOME": "/nonexistent"}


class Pipeline:
    """A pipeline file in a folder, and the results of its runs."""

    def __init__(self, folder, node, url, topic, text=PIPELINE):
        self.folder = folder
        self.started = []
        (folder / "change.py").write_text(CHANGE.replace("{folder}", str(folder)))
        (folder / "counting.py").write_text(COUNTING.replace("{folder}", str(folder)))
        (folder / "p.toml").write_text(text)
        self.command = [
            sys.executable, "-m", "sparkraft.cli.main", "pipeline", "run", str(folder / "p.toml"),
            "--set", f"bootstrap={node.bootstrap}", "--set", f"topic={topic}", "--master", url,
        ]  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.kill()

    def start(self, *more):
        process = subprocess.Popen(
            [*self.command, *more], env=without_java(), stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def kill(self, process):
        """kill -9 of a client, whose query continues in the server."""
        process.kill()
        process.communicate(timeout=60)
        for each in self.folder.glob("task-*"):
            each.unlink()

    def run(self, *more):
        """Exit code and output."""
        return self.finish(self.start(*more))

    def finish(self, process):
        _, errors = process.communicate(timeout=300)
        return process.returncode, errors

    def wait_for_tasks(self, count, process):
        wait_until(
            lambda: process.poll() is not None or len(list(self.folder.glob("task-*"))) >= count,
            f"{count} tasks run",
            240,
        )
        assert process.poll() is None, process.stderr.read()

    def let_tasks_go(self):
        (self.folder / "go").touch()

    def rows(self, name):
        return DeltaTable(str(self.folder / name)).to_pyarrow_table().to_pylist()

    def parquet_rows(self):
        import pyarrow.parquet as pq

        files = self.folder.glob("files/run=*/batch=*/*.parquet")
        return [row for file in files for row in pq.read_table(file).to_pylist()]


def put(cluster, topic, count):
    producer = Producer(cluster)
    for number in range(count):
        producer.send(topic, None, b"v", partition=number % PARTITIONS, timestamp_ms=1)
    producer.flush()


def new_topic(cluster, topic, count=RECORDS):
    keep = {"retention.ms": "-1"}
    cluster.create_topic(topic, partitions=PARTITIONS, configs=keep)
    cluster.create_topic(f"{topic}-out", partitions=1, configs=keep)
    put(cluster, topic, count)


def places(cluster, topic):
    """Partition and offset of each record."""
    ends = cluster.list_offsets({(topic, number): LATEST for number in range(PARTITIONS)})
    return sorted((number, offset) for (_, number), end in ends.items() for offset in range(end))


def check_results(pipeline, cluster, topic):
    """Each record is in each sink once."""
    expected = places(cluster, topic)
    for rows in (pipeline.rows("table"), pipeline.parquet_rows()):
        assert sorted((row["number"], row["offset"]) for row in rows) == expected
    written = sorted(map(bytes.decode, committed_values(cluster, f"{topic}-out", 1)))
    assert written == sorted(f"{number}-{offset}" for number, offset in expected)
    last = {}
    for number, offset in sorted(expected, key=lambda place: (place[1], place[0])):
        last[offset % SLOTS] = f"{number}-{offset}"
    assert {row["slot"]: row["value"] for row in pipeline.rows("keyed")} == last


def test_the_results_are_exact_if_a_worker_is_killed_in_the_middle_of_a_batch(
    processes, node, cluster, tmp_path
):
    spark, url = processes
    new_topic(cluster, "killed")
    with Pipeline(tmp_path, node, url, "killed") as pipeline:
        running = pipeline.start()
        pipeline.wait_for_tasks(2, running)
        spark.kill_worker()
        pipeline.let_tasks_go()
        code, said = pipeline.finish(running)
    assert code == 0, said
    assert f"{RECORDS:,} records" in said
    check_results(pipeline, cluster, "killed")
    assert (tmp_path / "counts").read_text() == f"0 {RECORDS}\n"
