"""`format("sparkraft")` in a real Spark: batch, stream, sink, and a pipeline from its file."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext

import pyarrow
import pyspark
import pytest

from sparkraft.cli import main as cli
from sparkraft.pipeline import batch_log, progress, spec, status, topic_records
from sparkraft.pipeline import run as running
from sparkraft.pipeline.batch_figures import BatchFigures
from sparkraft.pipeline.produce import Producer
from tests.pipeline.test_fetch_and_produce import everything, fill

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark, node):
    def read(streaming=False, **options):
        reader = (spark.readStream if streaming else spark.read).format("sparkraft")
        return reader.options(**{"kafka.bootstrap.servers": node.bootstrap, **options}).load()

    return read


def finished_batches(query):
    """How many records each batch had of a query that ends by itself.

    Spark also tells of a look that found nothing, where there was nothing for 10 s.
    """
    assert query.awaitTermination(600)
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def test_a_batch_query_has_the_official_columns_and_every_record(frame, cluster):
    fill(cluster, "batch", 1000)
    found = frame(subscribe="batch", includeHeaders="true")
    assert found.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    assert found.count() == 1000
    assert found.select("partition", "offset").distinct().count() == 1000
    row = found.where("timestamp = timestamp_millis(1700000000001)").first()
    assert (row.key, row.value, row.topic, row.timestampType) == (b"key-1", b"1:v", "batch", 0)
    assert [(each.key, each.value) for each in row.headers] == [("n", b"1")]


def test_a_batch_query_reads_from_and_to_given_offsets_and_times(frame, cluster):
    fill(cluster, "bounds", 300, partitions=2)
    starting = json.dumps({"bounds": {"0": 5, "1": -2}})
    ending = json.dumps({"bounds": {"0": 9, "1": 3}})
    found = frame(subscribe="bounds", startingOffsets=starting, endingOffsets=ending)
    rows = sorted((row.partition, row.offset) for row in found.collect())
    assert rows == [(0, 5), (0, 6), (0, 7), (0, 8), (1, 0), (1, 1), (1, 2)]
    by_time = frame(
        subscribePattern="bou.*", startingTimestamp="1700000000100", endingTimestamp="1700000000200"
    )
    times = [int(row.timestamp.timestamp() * 1000) for row in by_time.collect()]
    assert sorted(times) == list(range(1_700_000_000_100, 1_700_000_000_200))
    assert frame(assign='{"bounds":[1]}').select("partition").distinct().count() == 1


def test_filters_and_columns_leave_out_what_is_not_needed(frame, cluster):
    fill(cluster, "narrow", 400, partitions=8)

    def tasks(where, **options):
        options |= {"maxRecordsPerPartition": "10", "pushDownFilters": "true"}
        rows = frame(subscribe="narrow", **options).where(where)
        return rows.count(), rows.rdd.getNumPartitions()

    whole, all_tasks = tasks("true")
    assert whole == 400
    found, few = tasks("partition = 3")
    assert found == sum(each.size for each in everything(cluster, "narrow") if each.partition == 3)
    assert few <= all_tasks / 4
    assert tasks("partition = 9") == (0, 1)
    assert tasks("offset >= 5 AND offset < 15")[0] == 80
    # Timestamps rise by 1 ms a record over all partitions.
    assert tasks("timestamp >= timestamp_millis(1700000000300)")[0] == 100
    assert tasks("timestamp >= timestamp_millis(1700000000300)")[1] <= all_tasks / 3
    # Spark keeps the ranges of pushed filters: without the option, none are pushed.
    shared = frame(subscribe="narrow")
    assert [shared.where("partition = 3").count(), shared.count()] == [found, 400]
    named = frame(subscribe="narrow", columns="offset,value")
    assert named.columns == ["value", "offset"]
    rows = frame(subscribe="narrow").select("value", "offset")
    assert Counter(named.collect()) == Counter(rows.collect())


def test_mistakes_reach_the_user_in_words(frame):
    for options, words in (
        ({"subscribe": "t", "startingoffset": "x"}, "did you mean startingOffsets?"),
        ({"subscribe": "nowhere"}, "topic nowhere, which subscribe names, does not exist"),
        ({"subscribe": "t", "kafka.ssl.provider": "x"}, "is not supported by sparkraft"),
    ):
        with pytest.raises(Exception, match="OptionError") as failed:
            frame(**options).count()
        assert words in str(failed.value)


def test_a_stream_resumes_where_it_was_and_keeps_the_official_offset_json(
    frame, spark, cluster, tmp_path
):
    fill(cluster, "stream", 500, partitions=2)

    def run():
        query = (
            frame(
                True,
                subscribe="stream",
                startingOffsets="earliest",
                maxOffsetsPerTrigger="200",
                publishGroupId="stream-group",
            )
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        return finished_batches(query)

    assert run() == [200, 200, 100]
    end = json.loads((tmp_path / "checkpoint/offsets/2").read_text().splitlines()[-1])
    assert set(end) == {"stream"}
    assert sum(end["stream"].values()) == 500
    producer = Producer(cluster)
    for number in range(50):
        producer.send("stream", None, b"more", timestamp_ms=1 + number)
    producer.flush()
    assert sum(run()) == 50
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 550
    # Spark tells a source of a batch's end when it plans the next one.
    assert sum(cluster.group_offsets("stream-group").values()) >= 500


def test_a_batch_is_bounded_by_bytes(frame, cluster, tmp_path):
    cluster.create_topic("heavy", partitions=2, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for number in range(200):
        size = 1000 if number % 2 else 10_000
        producer.send("heavy", None, b"x" * size, partition=number % 2, timestamp_ms=1 + number)
    producer.flush()
    stream = frame(True, subscribe="heavy", startingOffsets="earliest", maxBytesPerTrigger="300k")
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    batches = finished_batches(query)
    assert sum(batches) == 200
    # 100 records of 10 kB and 100 of 1 kB are 1.1 MB: four batches of 300 kB.
    assert batches[0] == pytest.approx(55, abs=4)
    assert len(batches) == 4


def test_a_sink_writes_keys_partitions_and_headers(frame, spark, node, cluster):
    cluster.create_topic("sunk", partitions=3)
    rows = spark.sql(
        "SELECT concat('k', id) key, CAST(IF(id % 4 = 0, NULL, concat('v', id)) AS BINARY) value, "
        "CAST(id % 3 AS INT) partition, "
        "array(struct('h' AS key, CAST('x' AS BINARY) AS value)) headers FROM range(100)"
    )
    options = {
        "kafka.bootstrap.servers": node.bootstrap,
        "topic": "sunk",
        "kafka.compression.type": "lz4",
    }
    rows.write.format("sparkraft").options(**options).mode("append").save()
    back = frame(subscribe="sunk", includeHeaders="true").collect()
    assert len(back) == 100
    for row in back:
        number = int(row.key[1:])
        assert row.value == (None if number % 4 == 0 else b"v%d" % number)
        assert row.partition == number % 3
        assert [(each.key, each.value) for each in row.headers] == [("h", b"x")]


def test_a_sink_without_a_value_or_topic_is_refused(spark, node):
    writer = spark.sql("SELECT 'x' AS v").write.format("sparkraft")
    writer = writer.option("kafka.bootstrap.servers", node.bootstrap).mode("append")
    with pytest.raises(Exception, match="needs a column value"):
        writer.option("topic", "t").save()
    writer = spark.sql("SELECT 'x' AS value").write.format("sparkraft")
    writer = writer.option("kafka.bootstrap.servers", node.bootstrap).mode("append")
    with pytest.raises(Exception, match="where to write"):
        writer.save()
    writer = spark.sql("SELECT 'x' AS value, array('h') AS headers").write.format("sparkraft")
    writer = writer.option("kafka.bootstrap.servers", node.bootstrap).mode("append")
    with pytest.raises(Exception, match=r"column headers is array<string>; a sink takes array<st"):
        writer.option("topic", "t").save()


PIPELINE = """
name = "by-third"
checkpoint = "checkpoint"
trigger = "available now"
group = "by-third"
metrics = "127.0.0.1:0"
batches_topic = "piped-batches"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "piped"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 250
[transform]
function = "change.py:change"
[[sink]]
kind = "delta"
path = "table"
keys = ["partition", "offset"]
[[sink]]
kind = "topic"
topic = "piped-out"
keys = ["partition", "offset"]
[[sink]]
kind = "parquet"
path = "files"
"""


@pytest.fixture
def pipeline(tmp_path, node, cluster):
    fill(cluster, "piped", 600, partitions=2)
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "change.py").write_text(
        "def change(records):\n"
        "    return records.selectExpr('partition', 'offset', 'length(value) AS size')\n"
    )

    def run(*extra):
        return subprocess.run(
            [
                sys.executable, "-m", "sparkraft.cli.main", "pipeline", "run",
                str(tmp_path / "pipeline.toml"), "--set", f"bootstrap={node.bootstrap}",
                "--master", "local[1]", *extra,
            ],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    return run


def test_a_pipeline_from_a_file(pipeline, tmp_path, frame, cluster, spark, node):
    from deltalake import DeltaTable

    done = pipeline()
    assert done.returncode == 0, done.stderr
    assert "250 records" in done.stderr
    assert "lag         0" in done.stderr
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 600
    assert spark.read.parquet(str(tmp_path / "files")).count() == 600
    out = frame(subscribe="piped-out").collect()
    assert len(out) == 600
    assert set(json.loads(out[0].value)) == {"partition", "offset", "size"}
    assert sum(cluster.group_offsets("by-third").values()) == 600
    batches = batch_log.Reader(str(tmp_path / "checkpoint")).new()
    assert [each["batch"] for each in batches] == list(range(len(batches)))
    assert sum(each["records"] for each in batches) == 600
    assert batches[-1]["lag"] == 0
    sent = [json.loads(row.value) for row in frame(subscribe="piped-batches").collect()]
    assert sent == batches
    assert status.read(str(tmp_path / "checkpoint"))["metrics_port"] > 0
    file = tmp_path / "pipeline.toml"
    again = running._started(spec.load(file, {"bootstrap": node.bootstrap}), spark)
    assert finished_batches(again) == []
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 600


LAGGING = """
name = "lagging"
checkpoint = "checkpoint"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "lagging"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 100
[[sink]]
kind = "console"
rows = 1
"""


def test_the_lag_is_right_after_a_restart_that_repeats_a_batch(spark, node, cluster, tmp_path):
    read = spec.parse(LAGGING, folder=tmp_path, values={"bootstrap": node.bootstrap})
    fill(cluster, "lagging", 100, partitions=2)
    assert running._started(read, spark).awaitTermination(600)
    # As if the driver had been killed before Spark's own commit of the batch.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    producer = Producer(cluster)
    for number in range(250):
        producer.send("lagging", None, b"more", partition=number % 2, timestamp_ms=1 + number)
    producer.flush()
    figures = BatchFigures()
    again = running._started(read, spark, None, figures)
    assert again.awaitTermination(600)
    reports = [progress.with_lag(read, each) for each in progress.reports(again) if each.is_batch]
    assert [(each.batch_id, each.lag) for each in reports][:2] == [(0, 250), (1, 150)]
    assert (reports[0].lag_seconds, reports[-1].lag_seconds) == (
        pytest.approx(time.time(), rel=0.1),
        0,
    )
    found = [running._with_figures(each, figures, spark) for each in reports]
    assert {each.retries for each in found} == {0}


@pytest.mark.long  # the test above has a restart, and stays in ./test
def test_the_lag_is_right_over_20_restarts(spark, node, cluster, tmp_path):
    text = LAGGING.replace('subscribe = "lagging"', 'subscribe = "restarted"')
    read = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
    cluster.create_topic("restarted", partitions=2, configs={"retention.ms": "-1"})
    dice, written = random.Random(20), 0
    producer = Producer(cluster)
    for _ in range(20):
        count = dice.randrange(1, 350)
        for number in range(count):
            producer.send("restarted", None, b"v", partition=number % 2, timestamp_ms=1)
        producer.flush()
        written += count
        query = running._started(read, spark)
        assert query.awaitTermination(600)
        found = [progress.with_lag(read, each) for each in progress.reports(query)]
        batches = [each for each in found if each.is_batch]
        assert [each.lag for each in batches] == [
            written - sum(each.end.values()) for each in batches
        ]
        assert batches[-1].lag == 0
        if dice.random() < 0.5:
            # As if the driver had been killed before Spark's own commit of the batch.
            for name in (f"{batches[-1].batch_id}", f".{batches[-1].batch_id}.crc"):
                (tmp_path / "checkpoint" / "commits" / name).unlink()


GOOD_VALUES = {"a": b'{"id":1}', "b": b' {"id":2,"at":"2026-01-01T00:00:00Z"}\n', "c": b"{}"}
DAMAGED_VALUES = [
    b"not json", b'{"id":"abc"}', b"", b"null", b'[{"id":1},{"id":2}]', b'{"id":1} xyz',
    b'{"id":1}{"id":2}', b'{"id":1', b'{"id":99999999999}', b'{"id":1,"at":"yesterday"}',
    b'{"id":1,"s":"\xff"}', b"5",
]  # fmt: skip

JSON_PIPELINE = """
name = "json"
checkpoint = "CHECKPOINT"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "json"
startingOffsets = "earliest"
[source.json]
schema = "id INT, at TIMESTAMP, s STRING"
on_error = "ON_ERROR"
[transform]
sql = "SELECT key, value.id AS id, tombstone FROM source WHERE"
[[sink]]
kind = "delta"
path = "json-table"
keys = ["key"]
[[sink]]
kind = "topic"
topic = "json-out"
keys = ["key"]
"""


def test_no_json_value_is_lost_in_silence(spark, node, cluster, frame, tmp_path):
    from deltalake import DeltaTable

    for topic in ("json", "json-out"):
        cluster.create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
    producer = Producer(cluster)

    def send(key, value):
        producer.send("json", key.encode(), value, timestamp_ms=1)

    def start(on_error, where="value.id IS NULL OR value.id < 99"):
        text = JSON_PIPELINE.replace("ON_ERROR", on_error).replace("CHECKPOINT", f"c-{on_error}")
        text = text.replace("WHERE", f"WHERE {where}")
        read = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
        return running._started(read, spark)

    for key, value in GOOD_VALUES.items():
        send(key, value)
    for number, value in enumerate(DAMAGED_VALUES):
        send(f"damaged-{number}", value)
    producer.flush()
    dropping = start("drop")
    assert dropping.awaitTermination(600)
    assert [each.damaged for each in progress.reports(dropping)] == [len(DAMAGED_VALUES)]
    sent = {**GOOD_VALUES, **{f"damaged-{n}": value for n, value in enumerate(DAMAGED_VALUES)}}
    size = sum(len(key) + len(value) for key, value in sent.items())
    assert [each.bytes for each in progress.reports(dropping)] == [size]
    send("a", None)
    producer.flush()
    assert start("drop").awaitTermination(600)
    rows = DeltaTable(str(tmp_path / "json-table")).to_pyarrow_table().to_pylist()
    assert sorted(row["key"] for row in rows) == ["b", "c"]
    assert set(rows[0]) == {"key", "id"}
    out = [(row.key, row.value) for row in frame(subscribe="json-out").collect()]
    assert len(out) == 4
    assert (b"a", None) in out
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as stopped:
        start("stop", where="value.id > 0").awaitTermination(600)
    assert running.cause_of(stopped.value) == (
        "[source.json]: the value of json-0 at offset 3 does not fit the schema; "
        'on_error = "drop" leaves such records out'
    )


def test_a_pipelines_mistakes_end_in_a_sentence(
    pipeline, tmp_path, spark, node, monkeypatch, capsys
):
    (tmp_path / "change.py").write_text("def chance(records):\n    return records\n")
    done = pipeline()
    assert done.returncode == 1
    assert done.stderr.strip().endswith("change.py does not define change")
    (tmp_path / "change.py").write_text(
        "def change(records):\n    return records.selectExpr('nosuchcolumn')\n"
    )
    done = pipeline()
    assert done.returncode == 1
    assert "nosuchcolumn" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    monkeypatch.setattr(running, "_scratch_spark", lambda *_: nullcontext(spark))
    file = tmp_path / "checked.toml"
    sql = 'sql = "SELECT nosuchcolumn FROM source"'
    file.write_text(PIPELINE.replace('function = "change.py:change"', sql))
    values = ("--set", f"bootstrap={node.bootstrap}")
    assert cli.main(["pipeline", "run", str(file), *values, "--check"]) == 1
    assert "nosuchcolumn" in capsys.readouterr().err.strip().splitlines()[-1]


OWN_JOB = """
import sys
from pyspark.sql import SparkSession
import sparkraft.pipeline

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
sparkraft.pipeline.register(spark)
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "own-job"}
print("records:", spark.read.format("sparkraft").options(**options).load().count())
"""


def test_a_job_of_ones_own_runs_its_workers_with_its_own_python(node, cluster, tmp_path):
    fill(cluster, "own-job", 10)
    # The python3 of an environment that is not activated: one without any package.
    stub = tmp_path / "bin" / "python3"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    stub.chmod(0o755)
    job = tmp_path / "job.py"
    job.write_text(OWN_JOB)
    known = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    path = f"{stub.parent}:{known['PATH']}"
    done = subprocess.run(
        [sys.executable, str(job), node.bootstrap],
        env=known | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert "records: 10" in done.stdout, done.stderr[-3000:]


def test_workers_import_the_installed_pyspark(spark):
    def imported(batches):
        yield from (pyarrow.RecordBatch.from_pydict({"file": [pyspark.__file__]}) for _ in batches)

    found = spark.range(1).mapInArrow(imported, "file string").first()
    assert found.file == pyspark.__file__


def test_a_master_that_is_none_ends_in_a_sentence(pipeline):
    done = pipeline("--master", "nobody")
    assert done.returncode == 1
    told = done.stderr.strip().splitlines()[-1]
    assert "Spark did not start on nobody" in told
    assert "Master must" in told
    assert "Traceback" not in done.stderr


def test_rows_with_different_key_columns_have_different_keys(spark):
    values = [
        ("a", "b"),
        ("a|b", ""),
        ("a", "|b"),
        ("a\\", "b"),
        ("a", None),
        (None, "a"),
        ("a", ""),
    ]
    values += [(None, None), ("\\N", "\\N"), ("", "")]
    rows = spark.createDataFrame(values, "a STRING, b STRING")
    keys = [row.key for row in topic_records.as_records(rows, ["a", "b"]).collect()]
    assert keys[:5] == ["a|b", "a\\|b|", "a|\\|b", "a\\\\|b", "a|\\N"]
    assert len(set(keys)) == len(values)
    alone = topic_records.as_records(rows, ["a"]).collect()
    assert [row.key for row in alone] == [a for a, _ in values]
