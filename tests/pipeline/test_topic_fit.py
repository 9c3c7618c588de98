"""Rows that a topic sink cannot store: which they are, and where they go."""

import json
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline import sinks, spec, topic_fit
from sparkraft.pipeline.batch_figures import BatchFigures, SetAside
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.options import sink_options
from sparkraft.pipeline.topic_fit import TopicLimits, limits_of
from sparkraft.records.compression import Codec
from tests.pipeline.test_fetch_and_produce import everything, options_for, read
from tests.support.killed_batches import committed_values

FILE = """
name = "n"
checkpoint = "c"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "t"
[dead_letter]
kind = "delta"
path = "dead"
[[sink]]
kind = "topic"
topic = "${topic}"
on_error = "dead_letter"
"""
AVRO = """
[{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
"""
LIMITS = TopicLimits(topic="t", bytes_max=1000, needs_keys=False, partitions=1, codec=Codec.NONE)


def parsed(node, folder, topic, more=""):
    values = {"bootstrap": node.bootstrap, "topic": topic}
    return spec.parse(FILE + more, folder=folder, values=values)


@pytest.mark.real_clients
def test_the_limits_of_a_topic_are_looked_up(node, cluster):
    configs = {"max.message.bytes": "5000", "cleanup.policy": "compact,delete"}
    cluster.create_topic("limited", partitions=3, configs=configs)

    def found(topic):
        given = {"kafka.bootstrap.servers": node.bootstrap, "topic": topic}
        return limits_of(cluster, sink_options(given | {"kafka.compression.type": "lz4"}))

    assert found("limited") == TopicLimits(
        topic="limited", bytes_max=5000, needs_keys=True, partitions=3, codec=Codec.LZ4
    )
    new = found("new")
    assert (new.bytes_max, new.needs_keys, new.partitions) == (1_048_588, False, None)


def test_a_record_is_measured_with_the_header_of_its_batch():
    # 61 bytes of the batch, 9 of the record, and the value.
    fits = {"value": bytes(930)}
    assert topic_fit._why_too_large(fits, LIMITS) is None
    for large in ({"value": bytes(931)}, {"key": "k", "value": bytes(930)}):
        assert topic_fit._why_too_large(large, LIMITS) == (
            "the record has 1,001 bytes with the header of its batch, and topic t takes 1,000 "
            "(max.message.bytes)"
        )
    headers = [{"key": "h", "value": b"v" * 80}, None]
    assert topic_fit._why_too_large({"value": bytes(900), "headers": headers}, LIMITS)
    compressed = replace(LIMITS, codec=Codec.GZIP)
    assert topic_fit._why_too_large({"value": bytes(100_000)}, compressed) is None


def test_batches_of_several_records_stay_below_the_limit():
    assert LIMITS.batch_bytes_max * 2 + 61 < LIMITS.bytes_max
    assert replace(LIMITS, bytes_max=50).batch_bytes_max == 1


def test_the_official_connector_sets_no_rows_aside(node, tmp_path):
    values = {"bootstrap": "h:1", "topic": "t"}
    text = FILE.replace('name = "n"', 'name = "n"\nconnector = "official"')
    with pytest.raises(spec.SpecError, match="on_error of a topic sink needs connector"):
        spec.parse(text, folder=tmp_path, values=values)


@pytest.mark.spark
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_an_oversized_row_is_a_dead_letter(spark, node, cluster, tmp_path, delivery):
    topic = f"small-{delivery}"
    cluster.create_topic(topic, partitions=1, configs={"max.message.bytes": "2000"})
    pipeline = parsed(node, tmp_path, topic, f'delivery = "{delivery}"')
    # Together the rows that fit are larger than the limit, and so are two of them.
    rows = spark.range(0, 20, numPartitions=2).selectExpr(
        "id", "repeat('x', if(id = 7, 3000, 1200)) AS text", "cast(id AS INT) AS partition"
    )
    figures = BatchFigures()
    write = sinks.in_order(pipeline, figures=figures)
    for _ in range(2 if delivery == "exactly_once" else 1):
        write(rows, QueryBatch("q", 3))
    stored = sorted(json.loads(each)["id"] for each in committed_values(cluster, topic, 1))
    assert stored == [each for each in range(20) if each != 7]
    assert figures.take_set_aside(3) == SetAside(misfits=1, dead_letters=1)
    (letter,) = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert json.loads(letter["value"])["id"] == 7
    assert (letter["batch"], letter["partition"], letter["stage"]) == (3, 7, "TASK_PUT")
    assert "takes 2,000 (max.message.bytes)" in letter["error"]


@pytest.mark.spark
def test_a_row_that_the_schema_refuses_is_dropped_and_counted(spark, node, cluster, tmp_path):
    cluster.create_topic("typed", partitions=1)
    avro = {"type": "record", "name": "r", "fields": json.loads(AVRO)}
    more = f"avro = {{ schema = {json.dumps(json.dumps(avro))} }}"
    pipeline = parsed(node, tmp_path, "typed", more)
    dropping = replace(pipeline.sinks[0], on_error="drop")
    figures = BatchFigures()
    write = sinks.in_order(replace(pipeline, sinks=(dropping,)), figures=figures)
    rows = spark.range(0, 100, numPartitions=2).selectExpr(
        "if(id % 10 = 3, NULL, id) AS id", "concat('t', id) AS text"
    )
    write(rows, QueryBatch("q", 0))
    assert len(committed_values(cluster, "typed", 1)) == 90
    assert figures.take_set_aside(0) == SetAside(misfits=10)


@pytest.mark.spark
def test_what_a_broker_would_refuse_is_found_before(spark, node, cluster, tmp_path):
    cluster.create_topic("keyed", partitions=2, configs={"cleanup.policy": "compact"})
    pipeline = parsed(node, tmp_path, "keyed")
    header = "named_struct('key', {}, 'value', cast('v' AS BINARY))"
    rows = spark.sql(
        f"""SELECT key, 'v' AS value, partition, array({header.format("header")}) AS headers
        FROM VALUES ('a', 0, 'h'), (NULL, 0, 'h'), ('c', 2, 'h'), ('d', NULL, NULL), ('e', 1, 'h')
        AS t(key, partition, header)"""
    )
    sinks.in_order(pipeline)(rows, QueryBatch("q", 0))
    found = read(cluster, everything(cluster, "keyed"), options_for(node))
    assert sorted(each["key"] for each in found) == [b"a", b"e"]
    letters = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert sorted(each["error"] for each in letters) == [
        "a header has no key",
        "the row has no key, and topic keyed is compacted",
        "topic keyed has 2 partitions, none is 2",
    ]


@pytest.mark.spark
def test_without_on_error_the_broker_s_refusal_stops_the_batch(spark, node, cluster, tmp_path):
    cluster.create_topic("strict", partitions=1, configs={"max.message.bytes": "2000"})
    pipeline = parsed(node, tmp_path, "strict")
    stopping = replace(pipeline.sinks[0], on_error="stop")
    rows = spark.range(1).selectExpr("repeat('x', 3000) AS value")
    with pytest.raises((KafkaError, Exception), match="MESSAGE_TOO_LARGE"):
        sinks.in_order(replace(pipeline, sinks=(stopping,)))(rows, QueryBatch("q", 0))
