"""Debezium's change events and tombstones become the rows of a table with keys."""

import json
import random
import time

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from sparkraft.pipeline import check, json_values, query, sinks, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.produce import Producer

FILE = """
name = "n"
checkpoint = "c"
[source]
subscribe = "t"
[source.json]
schema = "id BIGINT, name STRING"
envelope = "debezium"
on_error = "drop"
[[sink]]
kind = "delta"
path = "table"
keys = ["id"]
order_by = "offset"
"""
RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"


def row(number, name):
    return {"id": number, "name": name}


def event(op, before=None, after=None, *, wrapped=False):
    found = {"op": op, "before": before, "after": after, "ts_ms": 1, "source": {"table": "t"}}
    return {"schema": {"type": "struct"}, "payload": found} if wrapped else found


EVENTS = [
    event("r", after=row(1, "one")),
    event("c", after=row(2, "two"), wrapped=True),
    event("c", after=row(3, "three")),
    event("u", row(1, "one"), row(1, "uno")),
    event("d", row(3, "three"), wrapped=True),
    None,  # the tombstone that follows, with the key of 3
    event("c", after=row(4, "four")),
    event("t"),  # the table is truncated: no change of a row
    event("u", row(2, "two")),
    {"id": 5, "name": "no envelope"},
    event("c", after={"id": "x", "name": 1}),
]
DAMAGED = 4


@pytest.mark.spark
def test_a_table_follows_the_events(spark, tmp_path):
    pipeline = spec.parse(FILE, folder=tmp_path, values={})
    (source,) = pipeline.sources
    write = sinks._delta(pipeline.sinks[0], pipeline)

    def put(events, batch):
        records = [
            (json.dumps(key).encode(), each and json.dumps(each).encode(), "t", 0, offset, None)
            for offset, (key, each) in enumerate(events)
        ]
        frame = spark.createDataFrame(records, RECORD)
        damaged = json_values.damaged_records(frame, source)
        rows = query.decoded(source, frame).selectExpr("value.*", "offset", "tombstone")
        write(rows, QueryBatch("q", batch))
        return [letter.offset for letter in damaged]

    def stored():
        rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
        return {each["id"]: each["name"] for each in rows}

    keyed = [({"id": 3}, each) for each in EVENTS]
    assert put(keyed, 0) == list(range(len(EVENTS) - DAMAGED, len(EVENTS)))
    assert stored() == {1: "uno", 2: "two", 4: "four"}
    # The log of a compacted topic may have no event before a tombstone.
    wrapped = {"schema": {"type": "struct"}, "payload": {"id": 2}}
    others = [("no object", None), ({"other": 3}, None), ({"payload": {}}, None)]
    assert put([({"id": 1}, None), (wrapped, None), *others], 1) == [2, 3, 4]
    assert stored() == {4: "four"}
    stops = spec.parse(FILE.replace("drop", "stop"), folder=tmp_path, values={}).sources[0]
    frame = spark.createDataFrame([(None, b'{"op":"t"}', "t", 0, 7, None)], RECORD)
    with pytest.raises(PySparkException, match="the value of t-0 at offset 7 does not fit"):
        query.decoded(stops, frame).collect()


STREAM = """
name = "customers"
checkpoint = "checkpoint"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "changes"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 100
[source.json]
schema = "id BIGINT, name STRING"
envelope = "debezium"
on_error = "dead_letter"
[transform]
sql = "SELECT value.*, offset, tombstone FROM source"
[dead_letter]
kind = "delta"
path = "dead"
[[sink]]
kind = "delta"
path = "table"
keys = ["id"]
order_by = "offset"
[[sink]]
kind = "iceberg"
path = "warehouse"
table = "ns.t"
keys = ["id"]
order_by = "offset"
"""


def history(count, seed):
    """Changes of 20 rows, as Debezium sends them, and the rows at the end."""
    dice, rows = random.Random(seed), {}
    for number in range(count):
        key = dice.randrange(20)
        known = rows.get(key)
        if known is not None and dice.random() < 0.3:
            del rows[key]
            yield key, event("d", row(key, known), wrapped=number % 2 == 0)
            yield key, None
        else:
            rows[key] = f"name {number}"
            before = known and row(key, known)
            yield key, event("u" if known else "c", before, row(key, rows[key]))
    yield -1, {"op": "t"}
    yield None, rows


@pytest.mark.spark
def test_tables_follow_a_topic_of_events(spark, node, cluster, tmp_path):
    cluster.create_topic("changes", partitions=2)
    producer = Producer(cluster)
    *events, (_, expected) = history(400, 7)
    for key, each in events:
        value = None if each is None else json.dumps(each).encode()
        name = json.dumps({"id": key}).encode()
        producer.send("changes", name, value, timestamp_ms=int(time.time() * 1000))
    producer.flush()
    pipeline = spec.parse(STREAM, folder=tmp_path, values={"bootstrap": node.bootstrap})
    assert running._started(pipeline, spark).awaitTermination(600)
    iceberg = IcebergSink(str(tmp_path / "warehouse"), "ns.t", "fail", {}).loaded()
    delta = DeltaTable(str(tmp_path / "table"))
    for found in (delta.to_pyarrow_table().to_pylist(), iceberg.scan().to_arrow().to_pylist()):
        assert len(found) == len(expected)
        assert {each["id"]: each["name"] for each in found} == expected
    assert delta.version() >= 4  # several batches, each with many keys twice
    (letter,) = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert letter["value"] == b'{"op": "t"}'


def test_a_result_without_the_column_of_deletes_is_noted(tmp_path):
    pipeline = spec.parse(FILE, folder=tmp_path, values={})
    columns = StructType().add("id", "long", nullable=False).add("offset", "long")
    (note,) = check.notes(pipeline, columns)
    assert note == (
        "[source] has deletes, and the result has no column tombstone: the delta sink keeps "
        "deleted rows"
    )
    assert check.notes(pipeline, columns.add("tombstone", "boolean")) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"debezium"', '"maxwell"', "envelope is one of none, debezium, not 'maxwell'"),
        ('order_by = "offset"', 'order_by = "id"', "order_by of the delta sink needs keys, and a"),
        ('keys = ["id"]', "", "order_by of the delta sink needs keys, and a column"),
        ('order_by = "offset"', "order_by = 1", "order_by of the delta sink must be a column"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    with pytest.raises(spec.SpecError, match=message):
        spec.parse(FILE.replace(old, new), folder=tmp_path, values={})
