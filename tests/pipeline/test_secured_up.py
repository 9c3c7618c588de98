"""Spark with the options that `sparkraft up --secure` writes for a user."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.cli import main as cli
from tests.support.ports import cluster_port

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.real_clients, pytest.mark.long]

TOPIC = "alice-spark"


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Those of alice, who may use what begins with `alice-`."""
    home = tmp_path / "cluster"
    up = ["up", "--dir", str(home), "--port", str(cluster_port()), "--detach"]
    try:
        assert cli.main([*up, "--secure", "--user", "alice"]) == 0
        lines = (home / "clients" / "alice.spark.properties").read_text().splitlines()
        yield dict(line.split("=", 1) for line in lines)
    finally:
        cli.main(["down", "--dir", str(home)])


def test_a_job_writes_and_reads_with_the_options_of_the_file(spark, options):
    rows = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("sparkraft").options(**options, topic=TOPIC).mode("append").save()
    frame = spark.read.format("sparkraft").options(**options, subscribe=TOPIC).load()
    values = {int(row.value) for row in frame.selectExpr("CAST(value AS STRING)").collect()}
    assert values == set(range(20))
    denied = rows.write.format("sparkraft").options(**options, topic="others").mode("append")
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        denied.save()
