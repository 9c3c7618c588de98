"""Dead letters: where they go, and that each has the bytes of its record and a reason."""

import base64
import json
import re
from collections import Counter
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline import check, json_values, sinks, spec
from sparkraft.pipeline.dead_letters import (
    BatchName,
    DeadLetter,
    DeadLetterTable,
    DeadLetterTopic,
)
from tests.pipeline.test_fetch_and_produce import everything, options_for, read
from tests.support.killed_batches import committed_values

NAME = BatchName("p", "query-id", 3)
LETTERS = [
    DeadLetter("t", 0, 7, 1_700_000_000_123, b"k", b"\xff", "why"),
    DeadLetter("t", 1, 9, 1_700_000_000_000, None, b"", "why not"),
]


def test_a_table_takes_the_letters_of_a_batch_once(tmp_path):
    table = DeadLetterTable(str(tmp_path / "dead"))
    for _ in range(2):
        table.write(LETTERS, NAME)
    table.write(LETTERS[:1], BatchName("p", "query-id", 4))
    rows = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().sort_by("batch").to_pylist()
    assert [row["batch"] for row in rows] == [3, 3, 4]
    (first,) = (row for row in rows[:2] if row["partition"] == 0)
    assert first == {
        "query": "query-id", "batch": 3, "topic": "t", "partition": 0, "offset": 7,
        "timestamp": datetime.fromtimestamp(1_700_000_000.123, UTC), "key": b"k",
        "value": b"\xff", "error": "why", "stage": "VALUE_CONVERTER",
    }  # fmt: skip


@pytest.mark.real_clients
def test_a_topic_has_the_bytes_of_each_record_and_connects_headers(node, cluster):
    cluster.create_topic("dead", partitions=1)
    servers = {"kafka.bootstrap.servers": node.bootstrap, "topic": "dead"}
    DeadLetterTopic(servers).write(LETTERS, NAME)
    rows = read(cluster, everything(cluster, "dead"), options_for(node))
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b"\xff"), (None, b"")]
    assert {each["key"]: each["value"] for each in rows[0]["headers"]} == {
        "__connect.errors.topic": b"t",
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"7",
        "__connect.errors.connector.name": b"p",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.exception.message": b"why",
        "sparkraft.errors.timestamp": b"1700000000123",
        "sparkraft.errors.query": b"query-id",
        "sparkraft.errors.batch": b"3",
    }
    # With the record's own timestamp, retention could delete the dead letter at once.
    assert rows[0]["timestamp"].timestamp() > 1_750_000_000


def once(node, topic):
    return DeadLetterTopic(
        {
            "kafka.bootstrap.servers": node.bootstrap,
            "topic": topic,
            "transactionalIdPrefix": f"p.{topic}",
        }
    )


@pytest.mark.real_clients
def test_an_exactly_once_topic_takes_each_part_of_a_batch_once(node, cluster):
    """Another process repeats the batch, as after a crash before Spark's own commit of it."""
    cluster.create_topic("once", partitions=1)
    for batch in (3, 4):
        for letters in (once(node, "once"), once(node, "once")):
            for part in (":tables/a", ":tables/b", ""):
                letters.write(LETTERS, BatchName("p", "query-id", batch, part))
    assert committed_values(cluster, "once", 1) == [b"\xff", b""] * 6


@pytest.mark.real_clients
def test_dead_letters_that_cannot_be_stored_leave_no_open_transaction(node, cluster):
    cluster.create_topic("small", partitions=1, configs={"max.message.bytes": "1000"})
    letters = once(node, "small")
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        letters.write([LETTERS[0]._replace(value=bytes(2000))], NAME)
    assert committed_values(cluster, "small", 1) == []
    letters.write(LETTERS, NAME)
    assert committed_values(cluster, "small", 1) == [b"\xff", b""]


FILE = """
name = "n"
checkpoint = "c"
[source]
"kafka.bootstrap.servers" = "h:1"
subscribe = "t"
[source.json]
schema = "id INT"
on_error = "dead_letter"
[dead_letter]
kind = "topic"
topic = "dead"
delivery = "exactly_once"
[[sink]]
kind = "delta"
path = "table"
on_error = "dead_letter"
[[sink]]
kind = "iceberg"
path = "warehouse"
table = "ns.t"
[[sink]]
kind = "topic"
topic = "copies"
delivery = "exactly_once"
"""


def test_each_part_has_a_prefix_which_a_reset_knows(tmp_path):
    pipeline = spec.parse(FILE, folder=tmp_path, values={})
    prefixes = [each.transactional_id_prefix for each in sinks.transactional_options(pipeline)]
    assert prefixes[:2] == ["n.copies", "n.dead"]
    assert len(prefixes) == 3
    assert re.fullmatch(r"n\.dead\.part-[0-9a-f]{8}", prefixes[2])


def test_exactly_once_dead_letters_need_a_topic_and_our_connector(tmp_path):
    official = FILE.replace('name = "n"', 'name = "n"\nconnector = "official"')
    official = official.removesuffix('delivery = "exactly_once"\n')
    for text, message in (
        (official, 'delivery = "exactly_once" needs connector'),
        (FILE.replace('"topic"\ntopic = "dead"', '"delta"\npath = "dead"'), "has no delivery"),
    ):
        with pytest.raises(spec.SpecError, match=message):
            spec.parse(text, folder=tmp_path, values={})


def test_a_transaction_of_dead_letters_lasts_for_ten_triggers(tmp_path):
    text = FILE.replace('name = "n"', 'name = "n"\ntrigger = "10 minutes"')
    text = text.removesuffix('delivery = "exactly_once"\n')
    pipeline = spec.parse(text, folder=tmp_path, values={})
    with pytest.raises(spec.SpecError, match=r"kafka.transaction.timeout.ms is 900000, below 10"):
        check.before_spark(pipeline)


@pytest.mark.real_clients
def test_a_backfill_does_not_fence_the_dead_letters_of_the_pipeline(node, cluster, tmp_path):
    cluster.create_topic("filled", partitions=1)
    text = FILE.partition("[[sink]]")[0].replace("h:1", node.bootstrap)
    text = text.replace('"dead"', '"filled"')
    text += '[[sink]]\nkind = "function"\nfunction = "f.py:f"'
    (tmp_path / "f.py").write_text("def f(batch, number): pass")
    pipeline = spec.parse(text, folder=tmp_path, values={})
    running = DeadLetterTopic(sinks.topic_options(pipeline.dead_letter, pipeline))
    for number in range(3):
        running.write(LETTERS[:1], BatchName("n", "query-id", number))
        sinks.write_once(pipeline, None, LETTERS[1:], "backfill-1")
    assert Counter(committed_values(cluster, "filled", 1)) == {b"\xff": 3, b"": 1}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a":"\xff"}', "the value is not UTF-8: byte 6 is invalid"),
        (b"not json", "the value is not one JSON object: Expecting value: line 1 column 1"),
        (b'{"a":1}{', "the value is not one JSON object: Extra data: line 1 column 8"),
        (b"", "the value is not one JSON object: Expecting value"),
        (b"[" * 100_000, "the value has too many nested arrays and objects"),
        (b"[1]", "the value is not a JSON object"),
        (b"null", "the value is not a JSON object"),
        (b'{"a":"x"}', "a field of the value does not fit the schema"),
    ],
)
def test_the_reason(value, why):
    assert json_values.why_damaged(value).startswith(why)


def test_letters_are_read_from_the_metrics_once_each():
    def found(offset, key, value):
        texts = [None if each is None else base64.b64encode(each).decode() for each in (key, value)]
        return {
            "topic": "t", "partition": 0, "offset": offset, "timestamp": 5, "key": texts[0],
            "value": texts[1],
        }  # fmt: skip

    letters = [found(9, b"k", b"x"), found(2, None, b"[]"), found(9, b"k", b"x")]
    metrics = json.dumps({"read": 10, "damaged": 3, "letters": letters})
    assert [letter[2:6] for letter in json_values.dead_letters(metrics)] == [
        (2, 5, None, b"[]"),
        (9, 5, b"k", b"x"),
    ]
