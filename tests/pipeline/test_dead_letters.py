"""Dead letters: where they go, and that each has the bytes of its record and a reason."""

import base64
import json
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from sparkraft.pipeline import json_values
from sparkraft.pipeline.dead_letters import (
    BatchName,
    DeadLetter,
    DeadLetterTable,
    DeadLetterTopic,
)
from tests.pipeline.test_fetch_and_produce import everything, options_for, read

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
