"""Avro values as columns: equal to fastavro's, by any schema; damaged ones are found."""

import io
import json
import random
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from sparkraft.pipeline.avro_columns import arrow_type, schema_of
from sparkraft.pipeline.avro_encode import encode
from sparkraft.pipeline.avro_values import decode, plan_of
from sparkraft.pipeline.spec import SpecError
from sparkraft.schemas.avro_schema import AvroSchemaError, parse
from tests.support.avro_cases import Generator, as_column, encoded


def plan(writer, reader=None):
    reader = writer if reader is None else reader
    return plan_of(parse(json.dumps(writer)), parse(json.dumps(reader)))


def decoded(raw, plan):
    found, reasons = decode(pa.array(raw, pa.binary()), plan)
    found.validate(full=True)
    return found, reasons


def read_by_fastavro(raw, schema):
    """Whether fastavro reads a value of a parsed schema to its end."""
    reader = io.BytesIO(raw)
    try:
        fastavro.schemaless_reader(reader, schema, None)
    except Exception:  # whatever it raises at damage
        return False
    return reader.tell() == len(raw)


def check_schemas(seed, count, rows):
    """Compare values of generated schemas; return their number."""
    cases = Generator(seed)
    for _ in range(count):
        schema = cases.record()
        values = [cases.value(schema) for _ in range(rows)]
        found, reasons = decoded(encoded(schema, values), plan(schema))
        assert not any(reasons)
        assert found.type == arrow_type(parse(json.dumps(schema)))
        assert found.to_pylist() == [as_column(schema, each) for each in values], schema
        check_encoded(found, schema)
    return count * rows


def check_encoded(column, schema):
    """Check that fastavro and our decoder read the same from what is written of a column."""
    of = parse(json.dumps(schema))
    raw = encode(column, of)
    again, _ = decoded(raw.to_pylist(), plan(schema))
    assert again.equals(column), schema
    parsed = fastavro.parse_schema(schema)
    assert all(read_by_fastavro(each, parsed) for each in raw.to_pylist()[:50])
    assert encode(column.slice(3, 5), of).equals(raw.slice(3, 5))


def test_values_of_generated_schemas_equal_those_of_fastavro():
    check_schemas(1, 40, 30)


@pytest.mark.long  # the test above stays in ./test
def test_a_million_values_equal_those_of_fastavro():
    assert check_schemas(2, 1_000, 1_000) == 1_000_000


def test_cut_and_longer_values_are_damaged():
    cases = Generator(3)
    for _ in range(15):
        schema = cases.record()
        (raw,) = encoded(schema, [cases.value(schema)])
        changed = [raw[:size] for size in range(len(raw))] + [raw + b"\0"]
        _, reasons = decoded(changed, plan(schema))
        parsed = fastavro.parse_schema(schema)
        for value, reason in zip(changed, reasons, strict=True):
            assert (reason is None) == read_by_fastavro(value, parsed), (schema, value, reason)


def test_any_bytes_are_values_or_damaged():
    cases, dice = Generator(4), random.Random(4)
    for _ in range(40):
        schema = cases.record()
        sound = encoded(schema, [cases.value(schema) for _ in range(5)])
        noise = [dice.randbytes(dice.randrange(60)) for _ in range(40)]
        mixed = [each for pair in zip(noise, sound * 8, strict=True) for each in pair]
        found, reasons = decoded(mixed, plan(schema))
        # A damaged value changes nothing of its neighbors.
        alone, _ = decoded(sound * 8, plan(schema))
        assert reasons[1::2] == [None] * 40
        assert found.take(pa.array(range(1, 80, 2))).equals(alone)


def record(**fields):
    given = [
        {"name": name, "type": kind} if not isinstance(kind, tuple)
        else {"name": name, "type": kind[0], **kind[1]}
        for name, kind in fields.items()
    ]  # fmt: skip
    return {"type": "record", "name": "r", "fields": given}


def raw_values(schema, values):
    parsed = fastavro.parse_schema(schema)
    found = []
    for value in values:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, value)
        found.append(written.getvalue())
    return found


ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B", "NEW"]}
OLD_ENUM = {"type": "enum", "name": "e", "symbols": ["B", "A"], "default": "A"}

EVOLUTIONS = {
    "fields in another order, one less, one new": (
        record(a="int", gone={"type": "array", "items": "string"}, b="string"),
        record(b="string", new=("long", {"default": 7}), a="int"),
        [{"a": 1, "gone": ["x"], "b": "y"}],
        [{"b": "y", "new": 7, "a": 1}],
    ),
    "promoted numbers and texts": (
        record(a="int", b="int", c="long", d="float", e="string", f="bytes"),
        record(a="long", b="double", c="float", d="double", e="bytes", f="string"),
        [{"a": -5, "b": 3, "c": 1 << 40, "d": 1.5, "e": "ü", "f": b"ab"}],
        [{"a": -5, "b": 3.0, "c": float(1 << 40), "d": 1.5, "e": "ü".encode(), "f": "ab"}],
    ),
    "a field that may be null now, and one that may not be now": (
        record(a="int", b=["null", "int"]),
        record(a=["null", "long"], b="int"),
        [{"a": 1, "b": 2}],
        [{"a": 1, "b": 2}],
    ),
    "a new name": (
        record(old="int"),
        record(new=("int", {"aliases": ["old"]})),
        [{"old": 1}],
        [{"new": 1}],
    ),
    "symbols by name, and the default for an unknown one": (
        record(e=ENUM),
        record(e=OLD_ENUM),
        [{"e": "A"}, {"e": "B"}, {"e": "NEW"}],
        [{"e": "A"}, {"e": "B"}, {"e": "A"}],
    ),
    "defaults of each kind": (
        record(),
        record(
            a=("bytes", {"default": "\u00ff"}),
            b=({"type": "array", "items": "int"}, {"default": [1, 2]}),
            c=({"type": "map", "values": "string"}, {"default": {"k": "v"}}),
            d=(["null", "int"], {"default": None}),
            e=({"type": "long", "logicalType": "timestamp-millis"}, {"default": 1000}),
            f=({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
               {"default": "\u0001\u0000"}),
            g=(record(x=("int", {"default": 3})) | {"name": "s"}, {"default": {}}),
            h=(["string", "int", "boolean"], {"default": "t"}),
        ),
        [{}],
        [
            {
                "a": b"\xff", "b": [1, 2], "c": [("k", "v")], "d": None,
                "e": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "f": Decimal("2.56"),
                "g": {"x": 3}, "h": {"member0": "t", "member1": None, "member2": None},
            }
        ],
    ),
    "a longer union": (
        record(u=["int", "string"]),
        record(u=["null", "string", "long"]),
        [{"u": 4}, {"u": "x"}],
        [{"u": {"member0": None, "member1": 4}}, {"u": {"member0": "x", "member1": None}}],
    ),
    "milliseconds read as microseconds": (
        record(t={"type": "long", "logicalType": "timestamp-millis"}),
        record(t={"type": "long", "logicalType": "timestamp-micros"}),
        [{"t": datetime(2026, 1, 1, tzinfo=UTC)}],
        [{"t": datetime(2026, 1, 1, tzinfo=UTC)}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_values_of_an_earlier_schema_are_read(name):
    writer, reader, values, expected = EVOLUTIONS[name]
    found, reasons = decoded(raw_values(writer, values), plan(writer, reader))
    assert reasons == [None] * len(values)
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("writer", "reader", "values", "reason"),
    [
        (record(a=["null", "int"]), record(a="int"), [{"a": None}], "a type that the schema lacks"),
        (
            record(e=ENUM),
            record(e={"type": "enum", "name": "e", "symbols": ["A"]}),
            [{"e": "B"}],
            "field e has a symbol that the schema lacks",
        ),
        (record(a="bytes"), record(a="string"), [{"a": b"\xff"}], "field a is not UTF-8"),
    ],
)
def test_a_value_that_the_schema_cannot_have_is_damaged(writer, reader, values, reason):
    _, reasons = decoded(raw_values(writer, values), plan(writer, reader))
    assert reason in reasons[0]


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "int", "the value is string, not int"),
        (record(), record(a="int"), "field a is missing without a default"),
        (record(a="string"), record(a="int"), "field a is string, not int"),
        (record(a="long"), record(a="int"), "field a is long, not int"),
        (
            record(),
            record(a=("int", {"default": "x"})),
            "default 'x' is not of type int",
        ),
    ],
)
def test_schemas_that_do_not_fit_are_named(writer, reader, message):
    with pytest.raises(AvroSchemaError, match=message):
        plan(writer, reader)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('"unknown"', "has no type unknown"),
        ('{"type": "array"}', "has no type"),
        ('["int", ["null"]]', "union"),
        ('{"type": "fixed", "name": "f"}', "f has no size"),
        ('{"type": "record", "fields": []}', "has no name"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}',
            "recursive: r contains itself",
        ),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, '
            '{"name": "a", "type": "int"}]}',
            "two fields of one name",
        ),
    ],
)
def test_invalid_schemas_are_refused(text, message):
    with pytest.raises(AvroSchemaError, match=message):
        parse(text)


def test_long_arrays_and_blocks_with_sizes():
    schema = record(a={"type": "array", "items": "long"})
    # A block of three with its size in bytes, one of two, and the end.
    raw = bytes([5, 6, 2, 4, 6, 4, 8, 10, 0])
    found, reasons = decoded([raw, *raw_values(schema, [{"a": list(range(5000))}])], plan(schema))
    assert reasons == [None, None]
    assert found.to_pylist() == [{"a": [1, 2, 3, 4, 5]}, {"a": list(range(5000))}]


ROWS = pa.table(
    {
        "id": pa.array([1, None], pa.int64()),
        "small": pa.array([-1, 2], pa.int16()),
        "name": ["a", None],
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("-1.25"), Decimal("0.00")], pa.decimal128(10, 2)),
        "nested": [{"x": 1, "y": [1.5, None]}, None],
        "map": pa.array([[("k", True)], []], pa.map_(pa.string(), pa.bool_())),
    }
)


def test_a_schema_follows_from_columns():
    text = schema_of(ROWS.schema, "some-topic-value")
    (rows,) = ROWS.to_struct_array().chunks
    raw = encode(rows, parse(text)).to_pylist()
    schema = fastavro.parse_schema(json.loads(text))
    assert schema["name"] == "some_topic_value"
    found = [fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in raw]
    expected = rows.to_pylist()
    expected[0]["map"], expected[1]["map"] = {"k": True}, {}
    assert found == expected


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (pa.array([1, None]), "long", "column a is null, and its Avro type is not"),
        (
            pa.array(["C"]),
            {"type": "enum", "name": "e", "symbols": ["A"]},
            "e does not have",
        ),
        (pa.array([b"abc"]), {"type": "fixed", "name": "f", "size": 2}, "not the 2 bytes"),
        (pa.array([1 << 40]), "int", "not in range"),
        (pa.array(["x"]), "int", "which is not Avro's"),
        (
            pa.array([1], pa.timestamp("us", "UTC")),
            {"type": "long", "logicalType": "timestamp-millis"},
            "column a has microseconds",
        ),
    ],
)
def test_values_that_the_schema_cannot_have_are_refused(column, kind, message):
    rows = pa.StructArray.from_arrays([column], names=["a"])
    with pytest.raises(SpecError, match=message):
        encode(rows, parse(json.dumps(record(a=kind))))


@pytest.mark.parametrize(("name", "kind"), [("a-b", pa.int64()), ("a", pa.uint64())])
def test_columns_without_an_avro_type_are_named(name, kind):
    with pytest.raises(AvroSchemaError, match=r"cannot be the name|no type for uint64"):
        schema_of(pa.schema([pa.field(name, kind)]), "t")
