"""A join of two streams, described in one file: orders, sent twice, and their payments."""

import json

import pytest
from deltalake import DeltaTable

from sparkraft.pipeline import progress, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.produce import Producer
from tests.pipeline.test_fetch_and_produce import everything, options_for
from tests.pipeline.test_fetch_and_produce import read as read_topic

pytestmark = pytest.mark.spark

FILE = """
name = "paid"
checkpoint = "checkpoint"
trigger = "available now"
[[source]]
name = "orders"
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "joined-orders"
startingOffsets = "earliest"
[source.json]
schema = "id INT, amount INT"
on_error = "drop"
[source.watermark]
event_time = "timestamp"
delay = "10 seconds"
deduplicate_by = ["value.id"]
[[source]]
name = "payments"
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "joined-payments"
startingOffsets = "earliest"
[source.json]
schema = "order_id INT"
[source.watermark]
event_time = "timestamp"
delay = "10 seconds"
[[transform]]
name = "joined"
sql = '''SELECT o.value.id AS id, o.value.amount AS amount, p.value.order_id IS NOT NULL AS paid
         FROM orders o LEFT JOIN payments p ON o.value.id = p.value.order_id
         AND p.event_time BETWEEN o.event_time AND o.event_time + INTERVAL 60 SECONDS'''
[[transform]]
name = "shaped"
function = "shape.py:shape"
[[sink]]
kind = "delta"
path = "table"
[[sink]]
kind = "topic"
topic = "joined-out"
keys = ["id"]
"""
TESTS = """
[[test]]
name = "an order is paid or not, and counted once"
input.orders = [
    { value = '{"id": 1, "amount": 5}' }, { value = '{"id": 1, "amount": 5}' },
    { value = '{"id": 2, "amount": 7}' }, { value = "damaged" },
]
input.payments = [{ value = '{"order_id": 2}' }]
expected = [{ id = 1, cents = 500, paid = false }, { id = 2, cents = 700, paid = true }]
damaged = 1
[[test]]
name = "a row that is not there"
input.orders = [{ value = '{"id": 1, "amount": 5}' }]
input.payments = []
expected = [{ id = 1, cents = 5, paid = false }]
"""

SHAPE = """
def shape(joined):
    return joined.selectExpr("id", "amount * 100 AS cents", "paid")
"""


@pytest.fixture
def pipeline(tmp_path, node):
    (tmp_path / "shape.py").write_text(SHAPE)
    return spec.parse(FILE + TESTS, folder=tmp_path, values={"bootstrap": node.bootstrap})


def test_a_join_from_a_file(spark, node, cluster, tmp_path, pipeline):
    orders, start = 40, 1_700_000_000_000
    for topic in ("joined-orders", "joined-payments", "joined-out"):
        cluster.create_topic(topic, partitions=2, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for number in range(orders):
        at = start + number * 10
        for _ in range(1 + number % 2):
            value = b'{"id": %d, "amount": 1}' % number
            producer.send("joined-orders", None, value, partition=number % 2, timestamp_ms=at)
        if number % 4:
            value = b'{"order_id": %d}' % number
            producer.send("joined-payments", None, value, partition=0, timestamp_ms=at + 5)
    # Later records move the watermarks past the orders that are not paid.
    for partition in (0, 1):
        late = start + 10_000_000
        producer.send("joined-orders", None, b'{"id": -1}', partition=partition, timestamp_ms=late)
        producer.send(
            "joined-payments", None, b'{"order_id": -2}', partition=partition, timestamp_ms=late
        )
    producer.flush()
    query = running._started(pipeline, spark)
    assert query.awaitTermination(600)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    found = {row["id"]: row["paid"] for row in rows}
    assert len(rows) == len(found) == orders
    assert found == {number: bool(number % 4) for number in range(orders)}
    copies = read_topic(cluster, everything(cluster, "joined-out"), options_for(node))
    written = [json.loads(each["value"]) for each in copies]
    assert {row["id"]: row["paid"] for row in written} == found
    assert [each["key"] for each in copies] == [b"%d" % row["id"] for row in written]
    assert len(written) == orders
    assert len(FILE.strip().splitlines()) <= 40
    last = [each for each in progress.reports(query) if each.is_batch][-1]
    assert last.lag == 0
    assert {topic for topic, _ in last.end} == {"joined-orders", "joined-payments"}


def test_the_tests_in_the_file(spark, pipeline):
    from sparkraft.pipeline import cases

    results = [cases.failure(pipeline, case, spark, running.cause_of) for case in pipeline.cases]
    assert results[0] is None
    assert results[1] == (
        "missing:    cents = 5, id = 1, paid = False\nunexpected: cents = 500, id = 1, paid = False"
    )
