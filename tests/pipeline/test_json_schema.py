"""JSON values as columns of a JSON Schema: equal to generated ones; others are damaged.

`jsonschema`, the reference, accepts the same values, and all that are written. The cases below have
what it does not check: texts that are date-times or base64, and the bounds of columns.
"""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from jsonschema import Draft7Validator

from sparkraft.pipeline.file_fields import SpecError
from sparkraft.pipeline.json_schema_columns import arrow_type, schema_for
from sparkraft.pipeline.json_schema_encode import encode
from sparkraft.pipeline.json_schema_values import decode
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.json_schema import parse_json_schema
from tests.support.json_schema_cases import Generator


def parsed(schema, **others):
    return parse_json_schema(json.dumps(schema), **others)


def decoded(texts, of):
    found, reasons = decode(pa.array(texts, pa.binary()), of)
    found.validate(full=True)
    return found, reasons


def reference(schema):
    """The validator of `jsonschema` that Confluent's serializers use by default."""
    return Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)


def check_schemas(seed, count, rows):
    """Compare values of generated schemas; return their number."""
    cases = Generator(seed)
    for _ in range(count):
        schema = cases.schema()
        of, accepts = parsed(schema), reference(schema).is_valid
        values = [cases.value(schema) for _ in range(rows)]
        found, reasons = decoded([json.dumps(value).encode() for value, _ in values], of)
        assert reasons == [None] * rows, schema
        assert found.type == arrow_type(of)
        assert found.to_pylist() == [column for _, column in values], schema
        written = encode(found, of)
        again, reasons = decoded(written.to_pylist(), of)
        assert reasons == [None] * rows, (schema, written)
        assert again.equals(found), schema
        assert all(accepts(json.loads(each)) for each in written.to_pylist()), schema
        assert encode(found.slice(1, 2), of).equals(written.slice(1, 2))
    return count * rows


def test_values_of_generated_schemas_are_their_columns():
    check_schemas(1, 80, 30)


@pytest.mark.long  # the test above stays in ./test
def test_a_million_values_of_generated_schemas_are_their_columns():
    assert check_schemas(2, 1_000, 1_000) == 1_000_000


def check_verdicts(seed, count, rows):
    """Compare which values of generated schemas are accepted; return how many are not."""
    cases, refused = Generator(seed, damage=0.05), 0
    for _ in range(count):
        schema = cases.schema()
        values = [cases.value(schema)[0] for _ in range(rows)]
        _, reasons = decoded([json.dumps(each).encode() for each in values], parsed(schema))
        accepts = reference(schema).is_valid
        for value, reason in zip(values, reasons, strict=True):
            assert accepts(value) is (reason is None), (schema, value, reason)
        refused += rows - reasons.count(None)
    return refused


def test_jsonschema_accepts_the_same_values():
    assert 400 < check_verdicts(3, 60, 30) < 1200


@pytest.mark.long  # the test above stays in ./test
def test_jsonschema_accepts_the_same_of_a_million_values():
    assert 200_000 < check_verdicts(4, 1_000, 1_000) < 700_000


ROW = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "kind": {"enum": ["A", "B"]},
        "count": {"type": "integer", "enum": [1, 2]},
        "any": {},
        "free": {"type": "object"},
        "list": {"type": "array", "items": {"properties": {"x": {"type": "string"}}}},
        "names": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["id"],
}  # fmt: skip
NULLS = dict.fromkeys(ROW["properties"])


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('{"id": 1, "id": 2}', {"id": 2}),
        ('{"id": 1e3}', {"id": 1000}),
        ('{"id": 0e999999999}', {"id": 0}),
        ('{"id": 9007199254740993.0}', {"id": 2**53 + 1}),
        ('{"id": 9.223372036854775807e18}', {"id": 2**63 - 1}),
        ('{"id": -9223372036854775808, "price": null}', {"id": -(2**63)}),
        (
            '{"id": 1, "at": "2026-01-02t03:04:05.1234567+01:00"}',
            {"id": 1, "at": datetime(2026, 1, 2, 2, 4, 5, 123456, UTC)},
        ),
        ('{"id": 1, "day": "2024-02-29"}', {"id": 1, "day": date(2024, 2, 29)}),
        ('{"id": 1, "count": 2.0}', {"id": 1, "count": 2}),
        ('{"id": 1, "any": {"b": [1, "ü"]}}', {"id": 1, "any": '{"b":[1,"ü"]}'}),
        ('{"id": 1, "any": null, "free": {}}', {"id": 1, "free": "{}"}),
        ('{"id": 1, "any": 1e400}', {"id": 1, "any": "1e400"}),
        (
            '{"id": 1, "any": {"b": [0.12345678901234567890, 1.10, 2.5]}, "price": 0.10}',
            {"id": 1, "any": '{"b":[0.12345678901234567890,1.10,2.5]}', "price": 0.1},
        ),
        ('{"id": 1, "any": "\\ud800"}', {"id": 1, "any": '"\\ud800"'}),
        (
            '{"id": 1, "list": [{}, {"x": "y", "z": 1}]}',
            {"id": 1, "list": [{"x": None}, {"x": "y"}]},
        ),
    ],
)
def test_values_and_their_columns(text, columns):
    found, reasons = decoded([text.encode()], parsed(ROW))
    assert reasons == [None]
    assert found.to_pylist() == [NULLS | columns]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "the value is not one JSON document: "),
        (b'{"id": 1} {}', "the value is not one JSON document: Extra data"),
        (b'{"id": 1, "any": "\xff"}', "the value is not UTF-8: byte 18 is invalid"),
        (b"[1]", "the value is an array, not an object"),
        (b"null", "the value is null, not an object"),
        (b"{}", "field id is missing, and is required"),
        (b'{"id": null}', "field id is null, not integer"),
        (b'{"id": 1.5}', "field id is the number 1.5, not integer"),
        (b'{"id": true}', "field id is a boolean, not integer"),
        (b'{"id": 1.00000000000000000001}', "is the number 1.00000000000000000001, not integer"),
        (b'{"id": 9.223372036854775808e18}', "field id is the number 9.2"),
        (b'{"id": 1e999999999999}', "field id is the number 1e999999999999, not integer"),
        (b'{"id": 1e-999999999}', "field id is the number 1e-999999999, not integer"),
        (b'{"id": 1e-99999999999999999999}', "not integer"),
        (b'{"id": 9223372036854775808}', "field id is the number 9223372036854775808, not integer"),
        (b'{"id": 1, "price": "1"}', 'field price is "1", not number'),
        (b'{"id": 1, "price": 1e999}', "field price is the number 1e999, not number"),
        (b'{"id": 1, "price": NaN}', "NaN is not a number of JSON"),
        (
            b'{"id": 1, "at": "2026-01-02T03:04:05"}',
            'field at is "2026-01-02T03:04:05", not date-time',
        ),
        (b'{"id": 1, "at": "2026-02-30T03:04:05Z"}', "not date-time"),
        (b'{"id": 1, "at": "0001-01-01T00:00:00+01:00"}', "not date-time"),
        (b'{"id": 1, "day": "2026-W01-1"}', 'field day is "2026-W01-1", not date'),
        (b'{"id": 1, "raw": "a"}', 'field raw is "a", not base64'),
        (b'{"id": 1, "kind": "C"}', "field kind is not one of the values in enum"),
        (b'{"id": 1, "count": true}', "field count is not one of the values in enum"),
        (b'{"id": 1, "free": [1]}', "field free is an array, not an object"),
        (b'{"id": 1, "list": [{}, 1]}', "an item of field list is the number 1, not an object"),
        (b'{"id": 1, "list": [{"x": "\\ud800"}]}', "field an item of field list.x is"),
        (b'{"id": 1, "names": {"a": null}}', "an entry of field names is null, not boolean"),
        (b'{"id": 1, "any": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too many nested arrays"),
    ],
)
def test_a_value_that_does_not_fit_is_damaged(text, reason):
    found, reasons = decoded([b'{"id": 7}', text, b'{"id": 8}'], parsed(ROW))
    assert reasons[0] is None
    assert reason in reasons[1]
    assert reasons[2] is None
    assert [found[n].as_py()["id"] for n in (0, 2)] == [7, 8]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "the JSON schema is not JSON"),
        ({"type": "integr"}, 'has no type "integr", as the value has'),
        ({"type": ["integer", "string"]}, "several types for the value: integer, string"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "several types in anyOf"),
        ({"type": "array", "items": [{}]}, "a type for each item of the value"),
        ({"allOf": [{}, {}]}, "several types in allOf"),
        ({"type": "object", "patternProperties": {}}, "patternProperties for the value"),
        ({"$ref": "#/definitions/x"}, "refers to #/definitions/x, which it lacks"),
        ({"$ref": "other.json"}, "refers to other.json, which is not known"),
        ({"$ref": "#"}, "recursive: # contains itself"),
        ({"properties": {"a": {"$ref": "#"}}}, "recursive: # contains itself"),
        ({"properties": {"a": {}}, "required": ["b"]}, "requires properties of the value that it"),
        ({"properties": {"a": False}}, "no type for field a: false"),
        ({"enum": [[1]]}, "values in enum that are not single"),
    ],
)
def test_schemas_without_columns_are_refused(schema, message):
    with pytest.raises(SchemaError, match=message):
        parse_json_schema(schema if isinstance(schema, str) else json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "is_allowed"),
    [
        ({"anyOf": [{"type": "null"}, {"type": ["integer", "null"]}]}, True),
        ({"oneOf": [{"type": "null"}, {"type": ["integer", "null"]}]}, False),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, True),
        ({"oneOf": [{"type": ["integer", "null"]}]}, True),
        ({"oneOf": [{"type": "null"}, {"type": "null"}, {"type": "integer"}]}, False),
        ({"oneOf": [{"type": "null"}, {}]}, False),
    ],
)
def test_a_null_fits_one_branch_of_one_of(schema, is_allowed):
    properties = {"properties": {"a": schema}}
    of = parsed(properties)
    _, (reason,) = decoded([b'{"a": null}'], of)
    assert (reason is None) is reference(properties).is_valid({"a": None}) is is_allowed


def test_a_schema_refers_to_others():
    schema = {"properties": {"a": {"$ref": "place.json#/$defs/code"}, "b": {"$ref": "place.json"}}}
    place = {"type": "string", "$defs": {"code": {"type": "integer"}}}
    of = parsed(schema, references=[("place.json", json.dumps(place))])
    assert arrow_type(of) == pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": None}], "column id is null, and its JSON schema has integer"),
        ([{"id": 1, "price": float("nan")}], "column price is nan, which is not a number of JSON"),
        ([{"id": 1, "kind": "C"}], "column kind is C, which enum of its JSON schema lacks"),
        ([{"id": 1, "any": "{"}], "column any is the text of any JSON"),
        ([{"id": 1, "any": "NaN"}], "column any is the text of any JSON.*NaN is not a number of"),
        ([{"id": 1, "any": "[" * 100_000}], "column any is the text of any JSON.*recursion"),
        ([{"id": 1, "day": 2_932_897}], "column day is not in the years 1 to 9999, as .* date is"),
        ([{"id": 1, "day": -719_163}], "column day is not in the years 1 to 9999"),
        ([{"id": 1, "at": 253_402_300_800_000_000}], "column at is not in the years 1 to 9999"),
        ([{"id": 1, "free": "[]"}], "column free is not an object"),
        ([{"id": 1, "names": [("a", None)]}], "an entry of column names is null"),
    ],
)
def test_values_that_the_schema_cannot_have_are_refused(rows, message):
    values = pa.array([NULLS | each for each in rows], arrow_type(parsed(ROW)))
    with pytest.raises(SpecError, match=message):
        encode(values, parsed(ROW))


def test_a_null_is_written_as_null_or_left_out():
    row = NULLS | {"id": 1, "any": '{"a": 1}'}
    values = pa.array([row], arrow_type(parsed(ROW)))
    assert encode(values, parsed(ROW)).to_pylist() == [b'{"id":1,"price":null,"any":{"a":1}}']


def test_the_text_of_any_json_keeps_its_digits():
    row = NULLS | {"id": 1, "any": '{"a": [1e400, 0.12345678901234567890, "\\ud800", "ü"]}'}
    written = encode(pa.array([row], arrow_type(parsed(ROW))), parsed(ROW)).to_pylist()
    assert written == [
        b'{"id":1,"price":null,"any":{"a":[1e400,0.12345678901234567890,"\\ud800","\\u00fc"]}}'
    ]


def test_integers_with_a_fraction_have_all_digits_without_any_json():
    of = parsed({"properties": {"id": {"type": "integer"}, "x": {"type": "number"}}})
    found, reasons = decoded([b'{"id": 9007199254740993.0, "x": 0.10}', b'{"id": 1.5}'], of)
    assert found[0].as_py() == {"id": 2**53 + 1, "x": 0.1}
    assert reasons == [None, "field id is the number 1.5, not integer"]


@pytest.mark.parametrize("day", [-719_162, 2_932_896])
def test_dates_and_times_of_the_first_and_the_last_year_are_read_again(day):
    row = NULLS | {"id": 1, "day": day, "at": day * 86_400_000_000}
    values = pa.array([row], arrow_type(parsed(ROW)))
    found, reasons = decoded(encode(values, parsed(ROW)).to_pylist(), parsed(ROW))
    assert reasons == [None]
    assert found.equals(values)


def test_a_schema_follows_from_columns():
    rows = pa.table(
        {
            "id": pa.array([1, None], pa.int64()),
            "name": ["a", None],
            "at": pa.array([datetime(2026, 1, 1, 0, 0, 0, 5, UTC)] * 2, pa.timestamp("us", "UTC")),
            "day": [date(2026, 1, 1), None],
            "raw": [b"\0\xff", None],
            "nested": [{"x": 1, "y": [1.5, None]}, None],
            "map": pa.array([[("k", True)], []], pa.map_(pa.string(), pa.bool_())),
        }
    )
    of = parse_json_schema(schema_for(rows.schema, "t"))
    (values,) = rows.to_struct_array().chunks
    raw = encode(values, of).to_pylist()
    assert json.loads(raw[0])["at"] == "2026-01-01T00:00:00.000005Z"
    assert decoded(raw, of)[0].to_pylist() == values.to_pylist()


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.map_(pa.int64(), pa.int64())])
def test_columns_without_a_json_type_are_named(kind):
    with pytest.raises(SchemaError, match=r"JSON (Schema has no exact type|has no maps)"):
        schema_for(pa.schema([pa.field("a", kind)]), "t")
