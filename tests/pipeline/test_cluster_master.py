"""Pipelines and jobs on a standalone cluster whose workers have only pyspark, pyarrow and numpy.

The cluster has more cores than the driver, which runs on one.
"""

import json
import os
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from tests.pipeline.test_fetch_and_produce import fill
from tests.support.bare_python import SERVER, bare_python, python_of_place
from tests.support.spark_cluster import connect_server, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

PIPELINE = """
name = "shipped"
checkpoint = "checkpoint"
trigger = "available now"
[spark]
"spark.executor.memory" = "512m"
"spark.driver.host" = "127.0.0.1"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "shipped"
startingOffsets = "earliest"
[transform]
function = "change.py:change"
[[sink]]
kind = "delta"
path = "table"
[[sink]]
kind = "topic"
topic = "shipped-out"
keys = ["partition", "offset"]
"""

CHANGE = """
def change(records):
    return records.selectExpr("partition", "offset", "length(value) AS size")
"""


CORES = 6
PARTITIONS = 10

JOB = """
import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

import sparkraft.pipeline

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
master, bootstrap, folder = sys.argv[1:]
builder = SparkSession.builder
if master.startswith("sc:"):
    spark = builder.remote(master).create()
else:
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    settings |= {"spark.ui.enabled": "false"}
    spark = builder.master(master).config(map=settings).getOrCreate()
sparkraft.pipeline.register(spark)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "job", "startingOffsets": "earliest"}

def tasks(rows):
    counts = rows.groupBy(spark_partition_id()).count().collect()
    return len(counts), sum(row["count"] for row in counts)

batch = tasks(spark.read.format("sparkraft").options(**options).load())

def count(rows, number):
    with open(f"{folder}/streamed", "w") as file:
        json.dump([number, *tasks(rows)], file)

stream = spark.readStream.format("sparkraft").options(**options).load().writeStream
stream = stream.foreachBatch(count).option("checkpointLocation", f"{folder}/checkpoint")
stream.trigger(availableNow=True).start().awaitTermination()
print(json.dumps(batch))
spark.stop()
"""


@pytest.fixture
def master(tmp_path):
    with spark_cluster(tmp_path, cores=CORES // 2) as started:
        yield started.url


def ran_job(tmp_path, master, bootstrap, **environment):
    """Tasks and records of a batch, and the number, tasks and records of a stream's batch."""
    (tmp_path / "job.py").write_text(JOB)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), master, bootstrap, str(tmp_path)],
        env=os.environ | environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1]), json.loads((tmp_path / "streamed").read_text())


def test_a_job_reads_with_as_many_tasks_as_the_cluster_has_cores(node, cluster, tmp_path, master):
    fill(cluster, "job", 20_000, partitions=PARTITIONS)
    python = bare_python(tmp_path / "bare")
    batch, stream = ran_job(tmp_path, master, node.bootstrap, PYSPARK_PYTHON=str(python))
    assert batch == [CORES, 20_000]
    assert stream == [0, CORES, 20_000]


def test_a_job_over_spark_connect_does_so_too(node, cluster, tmp_path, master):
    if "job" not in cluster.topics(None):
        fill(cluster, "job", 20_000, partitions=PARTITIONS)
    workers = bare_python(tmp_path / "of-workers")
    server = bare_python(tmp_path / "of-server", SERVER)
    python = python_of_place(tmp_path / "python", in_executors=workers, elsewhere=server)
    with connect_server(master, tmp_path, python) as url:
        batch, stream = ran_job(tmp_path, url, node.bootstrap)
    assert batch == [CORES, 20_000]
    assert stream == [0, CORES, 20_000]


def test_the_package_ships_itself(node, cluster, tmp_path, master):
    fill(cluster, "shipped", 2000, partitions=4)
    python = bare_python(tmp_path / "bare")
    missing = subprocess.run(
        [python, "-c", "import sparkraft"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "No module named 'sparkraft'" in missing.stderr
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "change.py").write_text(CHANGE)
    done = subprocess.run(
        [
            sys.executable, "-m", "sparkraft.cli.main", "pipeline", "run",
            str(tmp_path / "pipeline.toml"), "--set", f"bootstrap={node.bootstrap}",
            "--master", master,
        ],
        env={**os.environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    log = tmp_path / "checkpoint.log"
    assert done.returncode == 0, done.stderr + log.read_text()[-5000:]
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == 2000
    ends = cluster.list_offsets({("shipped-out", 0): -1})
    assert sum(ends.values()) == 2000
