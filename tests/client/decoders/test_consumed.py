"""Consumed records as lines and as JSON, without a cluster."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.client.decoders.consumed import Formatter, as_json
from sparkraft.client.reading import ConsumedRecord

ALL = {f"print.{name}": "true" for name in
       ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")}  # fmt: skip


def record(**parts) -> ConsumedRecord:
    values = {
        "topic": "t", "partition": 3, "offset": 7, "timestamp": 99, "timestamp_type": 0,
        "key": b"k", "value": b"v", "headers": [("h", b"x"), ("n", None)], "leader_epoch": 2,
    }  # fmt: skip
    return ConsumedRecord(**(values | parts))


def test_the_default_line_is_the_value():
    assert Formatter.of({}).format(record()) == b"v\n"


def test_every_column_in_kafkas_order():
    assert Formatter.of(ALL).format(record()) == (
        b"CreateTime:99\tPartition:3\tOffset:7\tEpoch:2\th:x,n:null\tk\tv\n"
    )


def test_nulls_and_separators_are_chosen():
    chosen = {
        "print.key": "true",
        "print.headers": "true",
        "key.separator": "|",
        "line.separator": ";",
        "null.literal": "-",
    }
    line = Formatter.of(chosen).format(record(key=None, value=None, headers=[]))
    assert line == b"NO_HEADERS|-|-;"


def test_numbers_are_deserialized_and_wrong_sizes_said():
    form = Formatter.of(
        {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"}
    )
    assert form.format(record(value=(-5).to_bytes(8, "big", signed=True))) == b"-5\n"
    with pytest.raises(DecodeError):
        form.format(record(value=b"abc"))


@given(st.none() | st.binary(), st.none() | st.binary())
def test_json_holds_any_bytes_on_one_line(key, value):
    line = as_json(record(key=key, value=value))
    assert line.count(b"\n") == 1
    data = json.loads(line)
    assert (data["topic"], data["offset"]) == ("t", 7)
    assert (data["key"] is None) == (key is None)
