"""A backfill processes the records of its time, and doubles nothing."""

import pytest
from deltalake import DeltaTable

from sparkraft.cli import main as cli
from sparkraft.pipeline import backfill, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.produce import Producer

START = 1_700_000_000_000

FILE = """
name = "filled"
checkpoint = "checkpoint"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "filled"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 100
[source.json]
schema = "id INT"
on_error = "dead_letter"
[transform]
sql = "SELECT value.id AS id, timestamp FROM source"
[dead_letter]
kind = "delta"
path = "dead"
[[sink]]
kind = "delta"
path = "table"
keys = ["id"]
"""


def parse(tmp_path, old="", new="", bootstrap="h:1"):
    return spec.parse(FILE.replace(old, new), folder=tmp_path, values={"bootstrap": bootstrap})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('keys = ["id"]', "", "cannot write the delta sink: only tables with keys"),
        ('kind = "delta"\npath = "table"\nkeys = ["id"]', 'kind = "console"', "the console sink"),
        ('name = "filled"', 'name = "f"\noutput_mode = "update"', 'needs output_mode = "append"'),
        ('name = "filled"', 'name = "f"\nconnector = "official"', 'needs connector = "sparkraft"'),
    ],
)
def test_what_would_double_rows_is_refused(tmp_path, old, new, why):
    with pytest.raises(spec.SpecError, match=why):
        backfill.check(parse(tmp_path, old, new))


@pytest.mark.parametrize(
    ("first", "last", "code", "message"),
    [
        ("2026-01-02T00:00:00", "2026-01-01T00:00:00", 2, "--from is not before --to"),
        ("yesterday", "2026-01-01T00:00:00", 2, "--from"),
        ("2h", "1h", 1, "backfill cannot write the console sink: only tables with keys"),
    ],
)
def test_a_backfill_that_cannot_be_is_refused(tmp_path, capsys, first, last, code, message):
    sink = FILE.partition("[[sink]]")[0] + '[[sink]]\nkind = "console"\n'
    (tmp_path / "p.toml").write_text(sink)
    command = ["pipeline", "backfill", str(tmp_path / "p.toml"), "--set", "bootstrap=h:1"]
    assert cli.main([*command, "--from", first, "--to", last]) == code
    assert message in capsys.readouterr().err


@pytest.mark.spark
def test_the_records_of_a_time_are_processed_again(spark, node, cluster, tmp_path):
    cluster.create_topic("filled", partitions=2, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for number in range(100):
        value = b'{"id": %d}' % number if number != 55 else b"damaged"
        at = START + number * 1000
        producer.send("filled", None, value, partition=number % 2, timestamp_ms=at)
    producer.flush()
    pipeline = parse(tmp_path, bootstrap=node.bootstrap)

    def rows():
        table = DeltaTable(str(tmp_path / "table"))
        return sorted(row["id"] for row in table.to_pyarrow_table().to_pylist())

    def fill(first, last):
        start, end = START + first * 1000, START + last * 1000
        return backfill.run(pipeline, spark, start_ms=start, end_ms=end)

    assert fill(50, 60) == 10
    good = [number for number in range(100) if number != 55]
    assert rows() == good[50:59]
    assert running._started(pipeline, spark).awaitTermination(600)
    assert rows() == good
    for _ in range(2):
        assert fill(40, 70) == 30
    assert rows() == good
    dead = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert {row["offset"] for row in dead} == {27}
    assert len({row["query"] for row in dead}) == len(dead) == 3
    assert fill(200, 300) == 0


@pytest.mark.long  # the test above has one after the other, and stays in ./test
@pytest.mark.spark
def test_a_backfill_beside_the_running_pipeline_doubles_nothing(spark, node, cluster, tmp_path):
    cluster.create_topic("beside", partitions=2, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    count = 3000
    for number in range(count):
        at = START + number * 1000
        producer.send("beside", None, b'{"id": %d}' % number, partition=0, timestamp_ms=at)
    producer.flush()
    text = FILE.replace('subscribe = "filled"', 'subscribe = "beside"')
    text = text.replace('"available now"', '"0 seconds"')
    pipeline = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
    query = running._started(pipeline, spark)
    try:
        for first in range(0, count, 500):
            times = {"start_ms": START + first * 1000, "end_ms": START + (first + 500) * 1000}
            assert backfill.run(pipeline, spark, **times) == 500
        query.processAllAvailable()
    finally:
        query.stop()
    table = DeltaTable(str(tmp_path / "table"))
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(count))
