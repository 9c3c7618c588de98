"""Protobuf messages, as Google's runtime writes them, with a schema and without one."""

import json
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.schemas.errors import SchemaError, UndecodableError
from sparkraft.schemas.protobuf_schema import ProtobufSchema, parse_protobuf
from sparkraft.schemas.protobuf_value import decode_protobuf, message_indexes
from sparkraft.schemas.protobuf_wire import decode_wire

SCALARS = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", None,
    None, "bytes", "uint32", None, "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""By number of the type in a descriptor, minus 1."""

TEXT = """
// A file of proto3.
syntax = "proto3";
package a.b;
import "other.proto";
import "google/protobuf/timestamp.proto";
option java_package = "x.y";
/* A message
   of all types. */
message All {
  double f_double = 1; float f_float = 2; int64 f_int64 = 3; uint64 f_uint64 = 4;
  int32 f_int32 = 5; fixed64 f_fixed64 = 6; fixed32 f_fixed32 = 7; bool f_bool = 8;
  string f_string = 9; bytes f_bytes = 12; uint32 f_uint32 = 13; sfixed32 f_sfixed32 = 15;
  sfixed64 f_sfixed64 = 16; sint32 f_sint32 = 17; sint64 f_sint64 = 18;
  reserved 100 to 199, 300; reserved "old";
  option deprecated = false;
  enum Kind { option allow_alias = true; NONE = 0; SOME = 1; SAME = 1; NEGATIVE = -5; }
  Kind kind = 20;
  repeated int32 packed = 21;
  repeated int32 apart = 22 [packed = false];
  repeated string names = 23;
  message Inner { int32 n = 1; Inner inner = 2; }
  Inner inner = 24;
  repeated Inner inners = 25;
  map<string, int64> counts = 26;
  map<int32, Inner> by_number = 27 [(custom.option) = { a: 1 }];
  oneof choice { string left = 28; Inner right = 29; }
  optional int32 maybe = 30;
  google.protobuf.Timestamp at = 31;
  other.Place place = 32;
  map<bool, Kind> kinds = 33;
  missing.Type unknown = 34;
}
message Second { All.Kind kind = 1; message Deep { message Deeper { string s = 1; } } }
service Ignored { rpc Do(All) returns (Second) { option (x) = "y"; } }
"""
OTHER = 'syntax = "proto3"; package other; enum Place { JFK = 0; EWR = 1; }'


def schema_of(text: str = TEXT) -> ProtobufSchema:
    return parse_protobuf(text, imported=[("other.proto", OTHER)])


def message_type() -> Any:
    """The same message for Google's runtime, described without its compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="a.b", syntax="proto3")
    message = file.message_type.add(name="All")

    def add(name: str, number: int, kind: int, *, into: Any = message, **others: Any) -> None:
        label = others.pop("label", 1)
        into.field.add(name=name, number=number, type=kind, label=label, **others)

    for number, name in enumerate(SCALARS, 1):
        if name:
            add(f"f_{name}", number, number)
    kind = message.enum_type.add(name="Kind")
    for name, number in (("NONE", 0), ("SOME", 1), ("NEGATIVE", -5)):
        kind.value.add(name=name, number=number)
    inner = message.nested_type.add(name="Inner")
    add("n", 1, 5, into=inner)
    add("inner", 2, 11, into=inner, type_name=".a.b.All.Inner")
    add("kind", 20, 14, type_name=".a.b.All.Kind")
    add("packed", 21, 5, label=3)
    add("apart", 22, 5, label=3, options=descriptor_pb2.FieldOptions(packed=False))
    add("names", 23, 9, label=3)
    add("inner", 24, 11, type_name=".a.b.All.Inner")
    add("inners", 25, 11, label=3, type_name=".a.b.All.Inner")
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add("key", 1, 9, into=entry)
    add("value", 2, 3, into=entry)
    add("counts", 26, 11, label=3, type_name=".a.b.All.CountsEntry")
    other = message.nested_type.add(name="ByNumberEntry")
    other.options.map_entry = True
    add("key", 1, 5, into=other)
    add("value", 2, 11, into=other, type_name=".a.b.All.Inner")
    add("by_number", 27, 11, label=3, type_name=".a.b.All.ByNumberEntry")
    message.oneof_decl.add(name="choice")
    add("left", 28, 9, oneof_index=0)
    add("right", 29, 11, oneof_index=0, type_name=".a.b.All.Inner")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("a.b.All"))


ALL = message_type()
DEFAULTS = {
    **{f"f_{name}": 0 for name in SCALARS if name}, "f_bool": False, "f_string": "",
    "f_bytes": {"base64": ""}, "kind": "NONE", "packed": [], "apart": [], "names": [], "inners": [],
    "counts": {}, "by_number": {}, "kinds": {}, "place": "JFK",
}  # fmt: skip


def decoded(raw: bytes, **options: Any) -> dict[str, Any]:
    return decode_protobuf(raw, schema_of(), "a.b.All", **options)


def test_a_message_without_fields_has_the_defaults_of_proto3():
    assert decoded(b"") == DEFAULTS


def test_a_message_of_all_types():
    given = ALL(
        f_double=-2.5, f_float=0.5, f_int64=-(2**63), f_uint64=2**64 - 1, f_int32=-(2**31),
        f_fixed64=2**64 - 1, f_fixed32=2**32 - 1, f_bool=True, f_string="é", f_bytes=b"\x00\xff",
        f_uint32=2**32 - 1, f_sfixed32=-1, f_sfixed64=-(2**63), f_sint32=-(2**31),
        f_sint64=-(2**63), kind=-5, packed=[1, -1, 300], apart=[4, 5], names=["", "x"],
        inner={"n": 7, "inner": {"n": 8}}, inners=[{"n": 1}, {}], counts={"a": 2**63 - 1, "b": 0},
        by_number={-1: {"n": 2}, 0: {}}, right={"n": 3},
    )  # fmt: skip
    raw = given.SerializeToString()
    found = decoded(raw)
    assert found == {
        **DEFAULTS, "f_double": -2.5, "f_float": 0.5, "f_int64": -(2**63), "f_uint64": 2**64 - 1,
        "f_int32": -(2**31), "f_fixed64": 2**64 - 1, "f_fixed32": 2**32 - 1, "f_bool": True,
        "f_string": "é", "f_bytes": {"base64": "AP8="}, "f_uint32": 2**32 - 1, "f_sfixed32": -1,
        "f_sfixed64": -(2**63), "f_sint32": -(2**31), "f_sint64": -(2**63), "kind": "NEGATIVE",
        "packed": [1, -1, 300], "apart": [4, 5], "names": ["", "x"],
        "inner": {"n": 7, "inner": {"n": 8}}, "inners": [{"n": 1}, {"n": 0}],
        "counts": {"a": 2**63 - 1, "b": 0}, "by_number": {"-1": {"n": 2}, "0": {"n": 0}},
        "right": {"n": 3},
    }  # fmt: skip
    json.dumps(found, allow_nan=False)


def test_parts_of_a_message_are_merged():
    one, two = ALL(inner={"n": 1}, left="x", f_int32=1), ALL(inner={"inner": {"n": 2}}, f_int32=2)
    two.right.n = 4
    raw = one.SerializeToString() + two.SerializeToString()
    found = decoded(raw)
    assert (found["inner"], found["f_int32"]) == ({"n": 1, "inner": {"n": 2}}, 2)
    assert (found.get("left"), found["right"]) == (None, {"n": 4})
    merged = ALL.FromString(raw)
    assert (merged.WhichOneof("choice"), merged.inner.n) == ("right", 1)


def test_packed_numbers_may_come_apart_and_the_other_way():
    raw = ALL(packed=[1, 2]).SerializeToString() + b"\xa8\x01\x03" + b"\xb2\x01\x02\x04\x05"
    assert (decoded(raw)["packed"], decoded(raw)["apart"]) == ([1, 2, 3], [4, 5])
    assert list(ALL.FromString(raw).packed) == [1, 2, 3]


def test_unknown_fields_are_shown_by_number_unless_they_are_left_out():
    raw = ALL(f_int32=5).SerializeToString() + b"\xc0\x3e\x07\xc2\x3e\x03abc" + b"\x2d\1\0\0\0"
    found = decoded(raw)
    assert (found["f_int32"], found["1000"], found["5"]) == (5, [7, "abc"], ["0x00000001"])
    assert set(decoded(raw, has_unknown=False)) == set(DEFAULTS)


def test_types_of_files_that_are_missing_are_decoded_without_a_schema():
    assert decoded(b"\x92\x02\x02\x08\x01")["unknown"] == {"1": 1}


def test_optional_fields_and_imported_types():
    found = decoded(b"\xf0\x01\x00" + b"\xfa\x01\x02\x08\x05" + b"\x80\x02\x01")
    assert (found["maybe"], found["place"]) == (0, "EWR")
    assert found["at"] == {"seconds": 5, "nanos": 0}


def test_proto2_has_presence_groups_and_extensions():
    text = """
        syntax = "proto2";
        message M {
          required string name = 1; optional int32 n = 2 [default = 7];
          repeated group Part = 3 { optional int32 x = 1; }
          extensions 100 to max;
        }
        extend M { optional int32 more = 100; }
    """
    schema = parse_protobuf(text)
    raw = b"\x0a\x02ab" + b"\x1b\x08\x01\x1c" + b"\x1b\x1c" + b"\xa0\x06\x09"
    expected = {"name": "ab", "part": [{"x": 1}, {}], "100": [9]}
    assert decode_protobuf(raw, schema, "M") == expected


def test_a_message_is_found_by_its_place_and_by_its_name():
    schema = schema_of()
    assert schema.message_at([0]) == "a.b.All"
    assert schema.message_at([1, 0, 0]) == "a.b.Second.Deep.Deeper"
    assert (schema.message_named(""), schema.message_named("Deeper")) == (
        "a.b.All", "a.b.Second.Deep.Deeper",
    )  # fmt: skip
    for wrong in ([2], [0, 5], [-1]):
        with pytest.raises(SchemaError, match="the schema has no message number"):
            schema.message_at(wrong)
    with pytest.raises(SchemaError, match="the schema has no message Nothing"):
        schema.message_named("Nothing")
    assert message_indexes(b"frame\x00rest", 5) == ([0], 6)
    assert message_indexes(b"\x06\x02\x00\x00rest", 0) == ([1, 0, 0], 4)
    with pytest.raises(UndecodableError, match="a message has 65 indexes"):
        message_indexes(b"\x82\x01", 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M {", "the Protobuf schema ends too early"),
        ("message M { int32 a = 0; }", "a field with number 0"),
        ("message M { int32 a = x; }", "x in place of a number"),
        ("message M { int32 a = 1; int32 b = 1; }", "M has two fields with number 1"),
        ("message M { int32 a = 1; int32 a = 2; }", "M has two fields of the name a"),
        ("message M {} message M {}", "the Protobuf schema defines M twice"),
        ("int32 a = 1;", "int32 in place of a definition"),
        ("message M { int32 a = 1 ~ }", "an error at '~ }'"),
        ("message M {" * 60, "more than 50 nested messages"),
    ],
)
def test_what_is_not_a_schema_has_a_reason(text: str, reason: str):
    with pytest.raises(SchemaError, match=reason):
        parse_protobuf(text)


def test_fields_may_have_the_names_of_keywords():
    schema = parse_protobuf(
        'syntax = "proto3"; message M { int32 message = 1; string option = 2; '
        "M oneof = 3; repeated M enum = 4; }"
    )
    names = [each.name for each in schema.messages["M"].fields.values()]
    assert names == ["message", "option", "oneof", "enum"]


def test_a_message_without_a_schema():
    given = ALL(f_int64=-1, f_string="word", f_bytes=b"\xff\x00", f_double=1.0, f_fixed32=1,
                inner={"n": 7, "inner": {"n": 8}}, packed=[1, 2], names=["a", "b"])  # fmt: skip
    assert decode_wire(given.SerializeToString()) == {
        "1": "0x3ff0000000000000", "3": -1, "7": "0x00000001", "9": "word",
        "12": {"base64": "/wA="}, "21": {"base64": "AQI="}, "23": ["a", "b"],
        "24": {"1": 7, "2": {"1": 8}},
    }  # fmt: skip
    assert decode_wire(b"\x0b\x08\x01\x0c") == {"1": {"1": 1}}
    for wrong in (b"\x0b\x08\x01", b"\x00", b"\x0c", b"\x0f", b"\x08"):
        with pytest.raises(UndecodableError):
            decode_wire(wrong)


def test_depth_and_values_are_bounded():
    raw = b""
    for _ in range(200):
        size = len(raw)
        prefix = bytes([0x0A, size]) if size < 128 else bytes([0x0A, size & 0x7F | 0x80, size >> 7])
        raw = prefix + raw
    found = decode_wire(raw)
    assert json.dumps(found).count("{") <= 66
    nested = parse_protobuf("message N { optional N n = 1; }")
    with pytest.raises(UndecodableError, match="more than 64 nested values"):
        decode_protobuf(raw, nested, "N")
    with pytest.raises(UndecodableError, match="more than 100,000 values"):
        decode_wire(b"\x08\x01" * 100_001)
    wide = "".join(f"int32 f{n} = {n};" for n in range(1, 2000))
    schema = parse_protobuf(f'syntax = "proto3"; message W {{ {wide} repeated W w = 5000; }}')
    with pytest.raises(UndecodableError, match="more than 100,000 values"):
        decode_protobuf(b"\xc2\xb8\x02\x00" * 1000, schema, "W")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_have_a_reason(raw: bytes):
    schema = schema_of()
    for read in (decode_wire, lambda data: decode_protobuf(data, schema, "a.b.All")):
        with suppress(UndecodableError):
            json.dumps(read(raw), allow_nan=False)
