"""`connector = "official"`: a pipeline file on Spark's own Kafka connector, against our nodes.

Its jars come from Maven, in Spark's version or an earlier one. So what needs them is among the long
tests.
"""

import json
import subprocess
import sys

import pytest

from sparkraft.pipeline import run as running
from sparkraft.pipeline import spec
from tests.pipeline.test_fetch_and_produce import fill
from tests.support.kafka_jars import spark_kafka_jars_or_reason

pytestmark = pytest.mark.spark

PIPELINE = """
name = "official"
checkpoint = "checkpoint"
trigger = "available now"
connector = "official"
[spark]
{spark}
[source]
"kafka.bootstrap.servers" = "${{bootstrap}}"
subscribe = "piped"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 250
[transform]
sql = "SELECT partition, offset, length(value) AS size FROM source"
[[sink]]
kind = "parquet"
path = "files"
[[sink]]
kind = "topic"
topic = "piped-out"
keys = ["partition", "offset"]
"""


@pytest.fixture
def pipeline(tmp_path, node, cluster):
    """Runs the pipeline of its file with what `[spark]` is given."""
    fill(cluster, "piped", 600, partitions=2)

    def run(spark=""):
        path = tmp_path / "pipeline.toml"
        path.write_text(PIPELINE.format(spark=spark))
        return subprocess.run(
            [
                sys.executable, "-m", "sparkraft.cli.main", "pipeline", "run", str(path),
                "--set", f"bootstrap={node.bootstrap}", "--master", "local[2]",
            ],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def connector_jars():
    """The jars, comma-separated; skips the test, saying why, where there are none."""
    found = spark_kafka_jars_or_reason()
    if not isinstance(found, list):
        pytest.skip(found.reason)
    return ",".join(map(str, found))


def test_without_its_jars_the_official_connector_ends_in_a_sentence(spark, node, tmp_path):
    text = PIPELINE.format(spark="")
    read = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
    with pytest.raises(running.PipelineError) as failed:
        running._started(read, spark)
    message = str(failed.value)
    assert "needs the jars of spark-sql-kafka-0-10" in message
    assert "spark.jars.packages" in message
    assert "\n" not in message


@pytest.mark.long
def test_a_pipeline_reads_and_writes_through_the_official_connector(
    pipeline, connector_jars, tmp_path, node, spark
):
    done = pipeline(f'"spark.jars" = "{connector_jars}"')
    assert done.returncode == 0, done.stderr
    assert "250 records" in done.stderr
    assert spark.read.parquet(str(tmp_path / "files")).count() == 600
    options = {"kafka.bootstrap.servers": node.bootstrap}
    out = spark.read.format("sparkraft").options(**options, subscribe="piped-out").load()
    rows = out.collect()
    assert len(rows) == 600
    assert set(json.loads(rows[0].value)) == {"partition", "offset", "size"}
