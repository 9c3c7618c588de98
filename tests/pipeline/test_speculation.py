"""Spark's speculation: two copies of a slow task write, and each record is there once.

The first copy of the first task writes its rows, in small batches, and does not end until Spark
kills it. Iceberg's tasks are those of Delta, and the files of Parquet sinks are committed by Spark.
"""

import os
import re
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from sparkraft.pipeline.places import LATEST
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.transactions import ONGOING, TransactionCalls
from tests.support.bare_python import bare_python
from tests.support.killed_batches import committed_values
from tests.support.spark_cluster import spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

PARTITIONS = 4
RECORDS = 4000
SPECULATION = """
"spark.speculation" = "true"
"spark.speculation.interval" = "100ms"
"spark.speculation.quantile" = "0.5"
"spark.speculation.minTaskRuntime" = "1s"
"spark.speculation.efficiency.enabled" = "false"
"spark.sql.execution.arrow.maxRecordsPerBatch" = "100"
"spark.executor.memory" = "512m"
"spark.driver.host" = "127.0.0.1"
"""
PIPELINE = f"""
name = "speculating"
checkpoint = "checkpoint"
trigger = "available now"
[spark]{SPECULATION}
[source]
"kafka.bootstrap.servers" = "${{bootstrap}}"
subscribe = "speculated"
startingOffsets = "earliest"
[transform]
function = "lagging.py:lagging"
"""
SINKS = {
    "topic": (
        'kind = "topic"\ntopic = "copied"\ndelivery = "exactly_once"\n'
        'options = { "kafka.batch.size" = "16384" }'
    ),
    "delta": 'kind = "delta"\npath = "table"',
    "delta by key": 'kind = "delta"\npath = "table"\nkeys = ["value"]',
}
LAGGING = """
import time
from pathlib import Path

FOLDER = Path("{folder}")

def lagging(records):
    # More bytes than the buffers between the processes of a task have.
    rows = records.selectExpr("concat(partition, '-', offset, ' ', repeat('x', 1000)) AS value")
    return rows.mapInArrow(in_tasks, rows.schema)

def in_tasks(batches):
    from pyspark import TaskContext

    task = TaskContext.get()
    name = f"task-{task.partitionId()}-{task.attemptNumber()}"
    (FOLDER / name).touch()
    yield from batches
    while name == "task-0-0":
        time.sleep(0.1)
"""
STREAM = f"""
import sys
import tomllib

import lagging
from pyspark.sql import SparkSession

import sparkraft.pipeline

master, bootstrap, folder = sys.argv[1:]
settings = tomllib.loads('''{SPECULATION}''')
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
spark.sparkContext.addPyFile(lagging.__file__)
sparkraft.pipeline.register(spark)
servers = {{"kafka.bootstrap.servers": bootstrap}}
options = {{"subscribe": "speculated", "startingOffsets": "earliest"}}
records = spark.readStream.format("sparkraft").options(**servers, **options).load()
stream = lagging.lagging(records).writeStream.format("sparkraft")
stream = stream.options(**servers, topic="streamed", transactionalIdPrefix="speculating.streamed")
stream = stream.option("kafka.batch.size", "16384")
stream = stream.option("checkpointLocation", f"{{folder}}/checkpoint")
stream.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with spark_cluster(folder, cores=PARTITIONS // 2, hosts=("127.0.0.1", "127.0.0.2")) as started:
        yield started.url


@pytest.fixture
def expected(cluster):
    """The places of all records, as the sinks have them."""
    if "speculated" not in cluster.topics(None):
        keep = {"retention.ms": "-1"}
        cluster.create_topic("speculated", partitions=PARTITIONS, configs=keep)
        producer = Producer(cluster)
        for number in range(RECORDS):
            producer.send(
                "speculated", None, b"v" * 100, partition=number % PARTITIONS, timestamp_ms=1
            )
        producer.flush()
    ends = cluster.list_offsets({("speculated", each): LATEST for each in range(PARTITIONS)})
    return sorted(f"{number}-{n}" for (_, number), end in ends.items() for n in range(end))


class Programs:
    """Runs programs whose first task has two copies.

    Args:
        master: of Spark.
        folder: of the programs and their files.
    """

    def __init__(self, master, folder):
        self.master, self._folder = master, folder
        self._python = bare_python(folder / "bare")
        (folder / "lagging.py").write_text(LAGGING.replace("{folder}", str(folder)))

    def run(self, *arguments):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "PYSPARK_PYTHON": str(self._python)},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        copies = {each.name for each in self._folder.glob("task-0-*")}
        assert copies == {"task-0-0", "task-0-1"}


@pytest.fixture
def programs(master, tmp_path):
    return Programs(master, tmp_path)


def places(values):
    return sorted(each.partition(" ")[0] for each in values)


def check_topic(cluster, topic, prefix, expected):
    """Check the topic, and that both copies have taken an id and left nothing open."""
    calls = TransactionCalls(cluster, timeout_ms=60_000)
    ids = calls.ids(rf"{re.escape(prefix)}\.0\.[0-9]+")
    assert set(ids) == {f"{prefix}.0.0", f"{prefix}.0.1"}
    assert ONGOING not in ids.values()
    assert places(map(bytes.decode, committed_values(cluster, topic, 1))) == expected


@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_of_a_pipeline_has_each_record_once(
    kind, programs, node, cluster, tmp_path, expected
):
    (tmp_path / "p.toml").write_text(f"{PIPELINE}[[sink]]\n{SINKS[kind]}\n")
    programs.run(
        "-m", "sparkraft.cli.main", "pipeline", "run", tmp_path / "p.toml",
        "--set", f"bootstrap={node.bootstrap}", "--master", programs.master,
    )  # fmt: skip
    if kind == "topic":
        check_topic(cluster, "copied", "speculating.copied", expected)
    else:
        rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
        assert places(rows["value"].to_pylist()) == expected


def test_a_stream_of_a_job_has_each_record_once(programs, node, cluster, tmp_path, expected):
    cluster.create_topic("streamed", partitions=1)
    (tmp_path / "stream.py").write_text(STREAM)
    programs.run(tmp_path / "stream.py", programs.master, node.bootstrap, tmp_path)
    check_topic(cluster, "streamed", "speculating.streamed", expected)
