"""Protobuf messages as columns: equal to those of Google's runtime, by any schema."""

import random
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from sparkraft.pipeline.file_fields import SpecError
from sparkraft.pipeline.protobuf_columns import arrow_type, misfit, schema_for, shape_of
from sparkraft.pipeline.protobuf_encode import encode
from sparkraft.pipeline.protobuf_values import Message
from sparkraft.pipeline.value_cursor import Cursor
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.protobuf_schema import parse_protobuf
from sparkraft.schemas.protobuf_value import decode_protobuf
from tests.support.protobuf_cases import (
    DamagedError,
    Generator,
    as_column,
    comparable,
    message_class,
    proto_text,
)


def shape(text, message=""):
    schema = parse_protobuf(text)
    return shape_of(schema, schema.message_named(message))


def decoded(raw, of):
    cursor = Cursor.of(pa.array(raw, pa.binary()), 0)
    found = Message(of).read(cursor)
    found.validate(full=True)
    return found, [cursor.reasons[each] or None for each in cursor.reason]


def by_google(kind, raw):
    """The column of a message; None if it is damaged."""
    try:
        return comparable(as_column(kind.FromString(raw)))
    except (DecodeError, DamagedError, UnicodeDecodeError):
        return None


def check_schemas(seed, count, rows, syntax="proto3"):
    """Compare messages of generated schemas; return their number."""
    cases = Generator(seed, syntax)
    for _ in range(count):
        file = cases.file()
        kind, text = message_class(file), proto_text(file)
        of = shape(text)
        messages = [cases.message(kind) for _ in range(rows)]
        raw = [each.SerializeToString() for each in messages]
        found, reasons = decoded(raw, of)
        assert not any(reasons), text
        assert found.type == arrow_type(of)
        assert comparable(found.to_pylist()) == [by_google(kind, each) for each in raw], text
        written = encode(found, of).to_pylist()
        assert [kind.FromString(each) for each in written] == messages, text
        assert encode(found.slice(1, 2), of).to_pylist() == written[1:3]
    return count * rows


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_messages_of_generated_schemas_equal_those_of_google(syntax):
    check_schemas(1, 40, 30, syntax)


@pytest.mark.long  # the test above stays in ./test
@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_a_million_messages_equal_those_of_google(syntax):
    assert check_schemas(2, 500, 1_000, syntax) == 500_000


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_parts_of_messages_are_merged_as_by_google(syntax):
    """Two messages one after another are one, by Protobuf's encoding: the parts are merged."""
    cases = Generator(3, syntax)
    for _ in range(40):
        file = cases.file()
        kind, of = message_class(file), shape(proto_text(file))
        raw = [cases.message(kind).SerializeToString() for _ in range(30)]
        joined = [first + second for first, second in pairwise(raw)] + raw
        found, reasons = decoded(joined, of)
        assert not any(reasons)
        assert comparable(found.to_pylist()) == [by_google(kind, each) for each in joined]


def test_fields_in_any_order_and_unknown_ones_are_read_as_by_google():
    """Fields of one message, shuffled, and read by a schema that lacks some of them."""
    cases, dice = Generator(4), random.Random(4)
    for _ in range(30):
        file = cases.file()
        kind = message_class(file)
        fields = list(file.message_type[0].field)
        raw = []
        for _ in range(20):
            parts = []
            for field in kind.DESCRIPTOR.fields:
                one = cases.message(kind)
                for other in kind.DESCRIPTOR.fields:
                    if other is not field:
                        one.ClearField(other.name)
                parts.append(one.SerializeToString())
            dice.shuffle(parts)
            raw.append(b"".join(parts))
        del file.message_type[0].field[:]
        kept = [each for each in fields if each.HasField("oneof_index") or dice.random() < 0.6]
        file.message_type[0].field.extend(kept)
        kind, of = message_class(file), shape(proto_text(file))
        found, reasons = decoded(raw, of)
        assert not any(reasons)
        assert comparable(found.to_pylist()) == [by_google(kind, each) for each in raw]


def test_any_bytes_are_messages_or_damaged_as_by_google():
    # Of a map's entry with unknown fields, Google's runtimes differ: this one drops the entry.
    cases, dice = Generator(5, has_maps=False), random.Random(5)
    for _ in range(60):
        file = cases.file()
        kind, of = message_class(file), shape(proto_text(file))
        sound = [cases.message(kind).SerializeToString() for _ in range(20)]
        changed = []
        for each in sound:
            raw = bytearray(each)
            for _ in range(dice.randrange(1, 4)):
                if raw:
                    raw[dice.randrange(len(raw))] = dice.randrange(256)
            changed.append(bytes(raw))
        cut = [each[: dice.randrange(len(each) + 1)] for each in sound]
        noise = [dice.randbytes(dice.randrange(40)) for _ in range(20)]
        mixed = [raw for four in zip(changed, sound, cut, noise, strict=True) for raw in four]
        found, reasons = decoded(mixed, of)
        expected = [by_google(kind, each) for each in mixed]
        for raw, column, reason, wanted in zip(
            mixed, found.to_pylist(), reasons, expected, strict=True
        ):
            assert (reason is None) == (wanted is not None), (raw, reason, proto_text(file))
            assert reason is not None or comparable(column) == wanted, (raw, proto_text(file))
        # A damaged value changes nothing of its neighbors.
        assert reasons[1::4] == [None] * 20


def test_the_console_reads_the_same():
    """`schemas.protobuf_value` reads single messages; numbers and texts are the same."""
    text = """
        syntax = "proto3";
        message M {
          int64 a = 1; repeated sint32 b = 2; string c = 3; optional bool d = 4;
          map<string, int32> e = 5; M2 f = 6; enum K { NONE = 0; SOME = 1; } repeated K g = 7;
        }
        message M2 { uint32 x = 1; }
    """
    raw = bytes.fromhex("08051203010203 1a0178 2a050a016b1007 32020809 3a020105")
    found, reasons = decoded([raw], shape(text))
    assert reasons == [None]
    expected = decode_protobuf(raw, parse_protobuf(text), "M")
    column = found.to_pylist()[0]
    assert column == {
        **expected, "d": None, "e": list(expected["e"].items()), "g": ["SOME", "5"],
    }  # fmt: skip


ALL = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message M {
  google.protobuf.Timestamp at = 1;
  uint64 wide = 2;
  enum Kind { option allow_alias = true; NONE = 0; NULL = 0; SOME = 1; }
  Kind kind = 3;
  oneof choice { string left = 4; int32 right = 5; }
  google.protobuf.StringValue note = 6;
  uint32 small = 7;
  int32 plain = 8;
  repeated int32 many = 9;
  map<string, string> names = 10;
}
"""


def test_a_timestamp_is_cut_to_microseconds_and_must_be_one():
    found, reasons = decoded(
        [b"\x0a\x03\x10\xe7\x07", b"\x0a\x0b\x08" + b"\xff" * 9 + b"\1"], shape(ALL)
    )
    assert found[0].as_py()["at"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert reasons == [None, None]
    assert found[1].as_py()["at"] == datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    _, reasons = decoded([b"\x0a\x0b\x10" + b"\xff" * 9 + b"\1"], shape(ALL))
    assert reasons == ["field at is not a valid Timestamp"]


def test_names_of_enums_that_have_several_are_written():
    rows = [{"kind": each, "wide": 0, "small": 0, "plain": 0} for each in ("NULL", "SOME", "9")]
    values = pa.array(rows, arrow_type(shape(ALL)))
    assert encode(values, shape(ALL)).to_pylist() == [b"", b"\x18\x01", b"\x18\x09"]


ROW = {"wide": 0, "kind": "NONE", "small": 0, "plain": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "OTHER"}, "column kind is OTHER, which M.Kind does not have"),
        ({"left": "a", "right": 1}, "the row has several values of the oneof choice: left, right"),
        ({"plain": None}, "column plain is null, and its Protobuf field has no presence"),
        ({"small": -1}, "column small has a number that is not one of Protobuf's uint32"),
        ({"wide": Decimal(-1)}, "column wide has a number that is not one of 64 bits"),
        ({"many": [1, None]}, "an item of column many is null"),
        ({"names": [("a", None)]}, "an entry of column names is null"),
        ({"at": 253_402_300_800_000_000}, "column at is not in the years 1 to 9999"),
        ({"at": -62_135_596_800_000_001}, "column at is not in the years 1 to 9999"),
    ],
)
def test_values_that_the_schema_cannot_have_are_refused(change, message):
    values = pa.array([ROW | change], arrow_type(shape(ALL)))
    with pytest.raises(SpecError, match=message):
        encode(values, shape(ALL))


def test_columns_of_another_type_are_cast_or_refused():
    rows = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    of = shape('syntax = "proto3"; message M { int64 a = 1; }')
    assert encode(rows, of).to_pylist() == [b"\x08\x01"]
    of = shape('syntax = "proto3"; message M { bytes a = 1; }')
    with pytest.raises(SpecError, match="which is not Protobuf's struct<a: binary>"):
        encode(rows, of)


def test_a_required_field_must_be_there():
    of = shape('syntax = "proto2"; message M { required int32 a = 1; optional int32 b = 2; }')
    found, reasons = decoded([b"\x08\x01", b"\x10\x01"], of)
    assert reasons == [None, "field a is missing, and is required"]
    assert found[0].as_py() == {"a": 1, "b": None}
    with pytest.raises(SpecError, match="column a is null, and its Protobuf field is required"):
        encode(pa.array([{"a": None, "b": 1}], arrow_type(of)), of)


def test_groups_are_read_and_written():
    of = shape('syntax = "proto2"; message M { repeated group Part = 3 { optional int32 x = 1; } }')
    raw = [b"\x1b\x08\x01\x1c\x1b\x1c", b""]
    found, reasons = decoded([*raw, b"\x1b\x08\x01", b"\x1c"], of)
    assert found.to_pylist()[:2] == [{"part": [{"x": 1}, {"x": None}]}, {"part": []}]
    assert reasons[2:] == ["field part: group 3 does not end", "the value has an invalid tag"]
    assert encode(found.slice(0, 2), of).to_pylist() == raw


def test_long_arrays():
    of = shape('syntax = "proto3"; message M { repeated int64 a = 1; repeated string b = 2; }')
    rows = [{"a": list(range(-2500, 2500)), "b": []}, {"a": [], "b": [str(n) for n in range(999)]}]
    raw = encode(pa.array(rows, arrow_type(of)), of)
    assert decoded(raw.to_pylist(), of)[0].to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message M { M m = 1; }", "recursive: M contains itself"),
        (
            "message M { Missing m = 1; }",
            "has no Missing, the type of M.m; imports names the files",
        ),
        (
            'syntax = "proto3"; import "google/protobuf/struct.proto"; '
            "message M { google.protobuf.Struct s = 1; }",
            "recursive: google.protobuf.Struct contains itself",
        ),
        (
            'edition = "2023"; message M { int32 a = 1 [features.field_presence = IMPLICIT]; }',
            "sets features.field_presence, which is not supported",
        ),
    ],
)
def test_messages_without_columns_are_refused(text, message):
    with pytest.raises(SchemaError, match=message):
        shape(text)


def evolution(written, read):
    schema = parse_protobuf(f'syntax = "proto3"; {written}')
    return misfit(shape(f'syntax = "proto3"; {read}'), schema, schema.first[0])


@pytest.mark.parametrize(
    ("written", "read", "reason"),
    [
        ("message M { int32 a = 1; }", "message M { int64 b = 1; string c = 2; }", None),
        ("message M { int64 a = 1; }", "message M { int32 a = 1; }", "field a is int64, not int32"),
        ("message M { string a = 1; }", "message M { bytes a = 1; }", None),
        (
            "message M { string a = 1; }",
            "message M { int32 a = 1; }",
            "field a is string, not int32",
        ),
        ("message M { bool a = 1; }", "message M { uint32 a = 1; }", None),
        (
            "message M { sint32 a = 1; }",
            "message M { int32 a = 1; }",
            "field a is sint32, not int32",
        ),
        (
            "message M { repeated int32 a = 1; }",
            "message M { int32 a = 1; }",
            "field a is repeated",
        ),
        ("message M { int32 a = 1; }", "message M { repeated int32 a = 1; }", None),
        (
            "message M { N n = 1; message N { int32 x = 1; } }",
            "message M { N n = 1; message N { string x = 1; } }",
            "field n.x is int32, not string",
        ),
        (
            "message M { map<string, int32> a = 1; }",
            "message M { map<string, string> a = 1; }",
            "field a.value is int32, not string",
        ),
        (
            "message M { map<string, int32> a = 1; }",
            "message M { int32 a = 1; }",
            "field a is a map, not int32",
        ),
        (
            "message M { E a = 1; enum E { A = 0; } }",
            "message M { int32 a = 1; }",
            None,
        ),
        (
            "message M { int32 a = 1; }",
            "message M { E a = 1; enum E { A = 0; } }",
            "field a is int32, not M.E",
        ),
    ],
)
def test_messages_of_an_earlier_schema_are_read_if_no_value_changes(written, read, reason):
    assert evolution(written, read) == reason


def test_a_schema_follows_from_columns():
    rows = pa.table(
        {
            "id": pa.array([1, None], pa.int64()),
            "small": pa.array([-1, 2], pa.int16()),
            "name": ["a", None],
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
            "nested": [{"x": 1, "y": [1.5]}, None],
            "list": [[{"z": b"\0"}], []],
            "map": pa.array([[("k", True)], []], pa.map_(pa.string(), pa.bool_())),
        }
    )
    text = schema_for(rows.schema, "some-topic-value")
    assert text.splitlines()[2] == "message some_topic_value {"
    (values,) = rows.to_struct_array().chunks
    found, _ = decoded(encode(values, shape(text)).to_pylist(), shape(text))
    assert found.to_pylist() == values.to_pylist()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("a-b", pa.int64(), "a-b cannot be the name of a Protobuf field"),
        ("a", pa.decimal128(10, 2), "Protobuf has no type for decimal"),
        ("a", pa.list_(pa.list_(pa.int64())), "Protobuf has no type for list"),
        ("a", pa.map_(pa.float64(), pa.int64()), "Protobuf has no maps by double"),
    ],
)
def test_columns_without_a_protobuf_type_are_named(name, kind, message):
    with pytest.raises(SchemaError, match=message):
        schema_for(pa.schema([pa.field(name, kind)]), "t")
