"""A pipeline on a standalone cluster whose workers have only pyspark, pyarrow and numpy."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from tests.pipeline.test_fetch_and_produce import fill
from tests.support.ports import lasting_ports, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

HOME = Path(pyspark.__file__).parent
PACKAGES = ("pyspark", "py4j", "pyarrow", "numpy")
STARTED_SECONDS = 120

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


def bare_python(folder: Path) -> Path:
    """A Python that can import the packages above and the standard library."""
    site = folder / "site"
    site.mkdir()
    for package in PACKAGES:
        for file in metadata.files(package):
            top = file.parts[0]
            if top not in {"..", "."} and not (site / top).exists():
                (site / top).symlink_to(Path(file.locate()).parents[len(file.parts) - 2])
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def master(tmp_path):
    """The URL of a master with two workers of one core each."""
    port, environment = lasting_ports(1)[0], {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    url = f"spark://127.0.0.1:{port}"
    run = "org.apache.spark.deploy"
    commands = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    worker = ["worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    commands += [[*worker, "--work-dir", str(tmp_path / f"worker-{n}"), url] for n in range(2)]
    log = tmp_path / "cluster.log"
    processes = []
    with log.open("ab") as out:
        for name, *arguments in commands:
            command = [str(HOME / "bin" / "spark-class"), f"{run}.{name}", *arguments]
            processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
    wait_until(
        lambda: log.read_text().count("Registering worker") == 2,
        "two workers registered",
        STARTED_SECONDS,
    )
    yield url
    for process in processes:
        process.kill()
        process.wait(60)


def test_the_package_ships_itself(node, cluster, tmp_path, master):
    fill(cluster, "shipped", 2000, partitions=4)
    python = bare_python(tmp_path)
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
