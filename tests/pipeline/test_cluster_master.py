"""A pipeline on a standalone cluster whose workers have only pyspark, pyarrow and numpy."""

import os
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from tests.pipeline.test_fetch_and_produce import fill
from tests.support.bare_python import bare_python
from tests.support.spark_cluster import spark_cluster

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


@pytest.fixture
def master(tmp_path):
    with spark_cluster(tmp_path) as started:
        yield started.url


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
