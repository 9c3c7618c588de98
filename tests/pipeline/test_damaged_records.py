"""Records damaged in many ways, among good ones: good and dead together are all that were read."""

import logging
import time
from datetime import datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparkraft.pipeline import encode, json_values, progress, query, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.produce import Producer
from tests.pipeline.test_fetch_and_produce import everything, options_for
from tests.pipeline.test_fetch_and_produce import read as read_topic

pytestmark = pytest.mark.spark

log = logging.getLogger(__name__)

WAYS = [
    b"not json",
    b"",
    b"null",
    b'[{"id":%d}]',
    b'{"id":%d} {"id":%d}',
    b'{"id":%d}}',
    b'{"id":%d}]} {"id":%d}',
    b'{"id":%d},"x":%d',
    b'{"id":%d},{"id":%d}',
    b'{"id":%d',
    b'{"id":"a%d"}',
    b'{"id":1%d0000000000000000000}',
    b'{"id":%d,"at":"yesterday"}',
    b'{"id":%d,"s":"\xff"}',
]
EVERY = 100

FILE = """
name = "damaged"
checkpoint = "checkpoint"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "TOPIC"
startingOffsets = "earliest"
[source.json]
schema = "id BIGINT, at TIMESTAMP, s STRING"
on_error = "dead_letter"
[transform]
sql = "SELECT partition, offset, value.id AS id FROM source"
[dead_letter]
DEAD
[[sink]]
kind = "delta"
path = "good"
"""


def value_of(number):
    if number % EVERY:
        return b'{"id":%d,"at":"2026-01-01T00:00:00Z","s":"%d"}' % (number, number)
    way = WAYS[number // EVERY % len(WAYS)]
    return way % ((number,) * way.count(b"%d"))


def fill(cluster, topic, count):
    cluster.create_topic(topic, partitions=4, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for start in range(0, count, 10_000):
        numbers = range(start, min(start + 10_000, count))
        columns = [
            pa.array([b"%d" % number for number in numbers], pa.binary()),
            pa.array([value_of(number) for number in numbers], pa.binary()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=["key", "value"])
        producer.send_rows(topic, encode.rows_of(batch), timestamp_ms=1_700_000_000_000)
    producer.flush()


def dead_in_table(path):
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert {row["stage"] for row in rows} == {"VALUE_CONVERTER"}
    assert all(row["error"] for row in rows)
    return [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows]


def dead_in_topic(node, cluster, topic):
    rows = read_topic(cluster, everything(cluster, topic), options_for(node))
    found = []
    for row in rows:
        headers = {each["key"]: each["value"] for each in row["headers"]}
        place = [int(headers[f"__connect.errors.{name}"]) for name in ("partition", "offset")]
        found.append((*place, row["key"], row["value"]))
    return found


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("topic", 3_000),
        ("delta", 3_000),
        pytest.param("delta", 1_000_000, marks=pytest.mark.long),
    ],
)
def test_good_and_dead_records_are_all_records(spark, node, cluster, tmp_path, kind, count):
    topic = f"damaged-{kind}-{count}"
    fill(cluster, topic, count)
    dead = (
        f'kind = "topic"\ntopic = "{topic}-dead"'
        if kind == "topic"
        else 'kind = "delta"\npath = "dead"'
    )
    text = FILE.replace("TOPIC", topic).replace("DEAD", dead)
    pipeline = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
    begun = time.monotonic()
    query = running._started(pipeline, spark)
    assert query.awaitTermination(1800)
    log.info("%d records in %.1f s", count, time.monotonic() - begun)
    expected = {b"%d" % number: value_of(number) for number in range(0, count, EVERY)}
    assert sum(each.damaged for each in progress.reports(query)) == len(expected)

    letters = (
        dead_in_topic(node, cluster, f"{topic}-dead")
        if kind == "topic"
        else dead_in_table(tmp_path / "dead")
    )
    assert {key: value for _, _, key, value in letters} == expected
    good = DeltaTable(str(tmp_path / "good")).to_pyarrow_table()
    assert set(good.column("id").to_pylist()) == {n for n in range(count) if n % EVERY}
    places = list(zip(good["partition"].to_pylist(), good["offset"].to_pylist(), strict=True))
    places += [(partition, offset) for partition, offset, _, _ in letters]
    assert len(places) == len(set(places)) == count


def test_dead_letters_are_not_lost_if_the_table_has_their_batch(spark, node, cluster, tmp_path):
    """The driver is killed after the sink's commit, before the dead letters are written."""
    fill(cluster, "killed-dead", 300)
    text = FILE.replace("TOPIC", "killed-dead").replace("DEAD", 'kind = "delta"\npath = "dead"')
    pipeline = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
    assert running._started(pipeline, spark).awaitTermination(600)
    first = sorted(dead_in_table(tmp_path / "dead"))
    (tmp_path / "dead").rename(tmp_path / "lost")
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    assert running._started(pipeline, spark).awaitTermination(600)
    assert sorted(dead_in_table(tmp_path / "dead")) == first
    assert DeltaTable(str(tmp_path / "good")).to_pyarrow_table().num_rows == 297


FRAME = b"\0\0\0\0\7"


def test_framed_values_are_read_without_their_frame(spark, tmp_path):
    text = FILE.replace("TOPIC", "t").replace("DEAD", 'kind = "delta"\npath = "dead"')
    text = text.replace("[source.json]", '[source.json]\nframing = "confluent"')
    (source,) = spec.parse(text, folder=tmp_path, values={"bootstrap": "h:1"}).sources
    values = [FRAME + b'{"id":1}', None, b'{"id":2}', FRAME[:4], FRAME + b'{"id":"x"}', FRAME]
    rows = [(b"k", each, "t", 0, at, datetime(2026, 1, 1)) for at, each in enumerate(values)]  # noqa: DTZ001
    names = (
        "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
    )
    records = spark.createDataFrame(rows, names)
    found = query.decoded(source, records).collect()
    assert [(row.offset, row.value and row.value.id, row.tombstone) for row in found] == [
        (0, 1, False),
        (1, None, True),
    ]
    letters = json_values.damaged_records(records, source)
    assert [(each.offset, each.value) for each in letters] == list(enumerate(values))[2:]
    assert [each.error for each in letters] == [
        "the value does not begin with the id of a schema",
        "the value does not begin with the id of a schema",
        "a field of the value does not fit the schema",
        "the value is not one JSON object: Expecting value: line 1 column 1 (char 0)",
    ]
