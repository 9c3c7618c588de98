"""Single Avro values, as fastavro writes them."""

import io
import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.schemas import cursor
from sparkraft.schemas.avro_schema import AvroSchemaError, parse, parse_any
from sparkraft.schemas.avro_value import decode_avro
from sparkraft.schemas.errors import UndecodableError

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FLIGHT = {
    "type": "record", "name": "a.Flight", "fields": [
        {"name": "id", "type": "long"},
        {"name": "none", "type": "null"},
        {"name": "late", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "origin", "type": {"type": "enum", "name": "Place", "symbols": ["JFK", "EWR"]}},
        {"name": "to", "type": "Place"},
        {"name": "raw", "type": "bytes"},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": PRICE},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "id": 2**63 - 1, "none": None, "late": True, "ratio": 0.5, "delay": -2.25, "origin": "EWR",
    "to": "JFK", "raw": b"\x00\xff", "code": b"ab", "tags": ["x", "é"], "counts": {"a": -1},
    "price": Decimal("-1234567890.05"), "at": 1_700_000_000_123,
}  # fmt: skip
TREE = {
    "type": "record", "name": "Node", "fields": [
        {"name": "value", "type": "int"},
        {"name": "below", "type": {"type": "array", "items": "Node"}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}  # fmt: skip


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(schema: Any, raw: bytes) -> Any:
    return decode_avro(raw, parse_any(json.dumps(schema)))


def test_a_record_of_all_types():
    raw = written(FLIGHT, VALUE)
    expected = {
        **VALUE, "raw": {"base64": "AP8="}, "code": {"base64": "YWI="}, "price": "-1234567890.05",
    }  # fmt: skip
    assert read(FLIGHT, raw) == expected
    for end in range(len(raw)):
        with pytest.raises(UndecodableError):
            read(FLIGHT, raw[:end])
    with pytest.raises(UndecodableError, match="1 bytes follow the value"):
        read(FLIGHT, raw + b"\0")


def test_a_recursive_schema_has_values_but_no_columns():
    leaf = {"value": 3, "below": [], "next": None}
    value = {"value": 1, "below": [leaf, {**leaf, "value": 4}], "next": leaf}
    assert read(TREE, written(TREE, value)) == value
    with pytest.raises(AvroSchemaError, match="the Avro schema is recursive: Node contains itself"):
        parse(json.dumps(TREE))


def test_decimals_have_all_digits():
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}
    for text in ("0.001", "-0.001", "0.000", "12345678901234567890123456789012345.678"):
        assert read(schema, written(schema, Decimal(text))) == text
    whole = {**schema, "scale": 0}
    assert read(whole, written(whole, Decimal(-7))) == "-7"
    assert read(schema, b"\x28" + bytes(20)) == {"base64": "A" * 27 + "="}


def test_numbers_without_a_json_form_are_texts():
    assert read("double", written("double", float("nan"))) == "NaN"
    assert read("float", written("float", float("-inf"))) == "-Infinity"


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("boolean", b"\x02", "2 is not a boolean"),
        (["null", "int"], b"\x04", "a union has 2 choices, not number 2"),
        ("string", b"\x02\xff", "a text is not UTF-8"),
        ("string", b"\x01", "-1 bytes are expected"),
        ("long", b"\xff" * 11, "a number has more than 10 bytes"),
        ({"type": "map", "values": "null"}, b"\x04\x02a\x02a\x00", "a map has two equal keys"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f", "more than 100,000 values"),
        (TREE, b"\x00\x02" * 100, "more than 64 nested values"),
    ],
)
def test_damaged_values_have_a_reason(schema: Any, data: bytes, reason: str):
    with pytest.raises(UndecodableError, match=reason):
        read(schema, data)


def test_blocks_with_a_size_are_read():
    schema = {"type": "array", "items": "int"}
    assert read(schema, b"\x03\x04\x02\x04\x02\x06\x00") == [1, 2, 3]


def test_a_record_without_end_within_itself_is_refused():
    endless = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}
    with pytest.raises(UndecodableError, match="more than 64 nested values"):
        read(endless, b"")
    wide = {"type": "record", "name": "W0", "fields": [{"name": "n", "type": "null"}]}
    for level in range(1, 8):
        fields = [{"name": f"f{n}", "type": wide if n == 0 else f"W{level - 1}"} for n in range(10)]
        wide = {"type": "record", "name": f"W{level}", "fields": fields}
    with pytest.raises(UndecodableError, match=f"more than {cursor.VALUES_MAX:,} values"):
        read(wide, b"")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_have_a_reason(raw: bytes):
    for schema in (FLIGHT, TREE):
        with suppress(UndecodableError):
            json.dumps(read(schema, raw), allow_nan=False)
