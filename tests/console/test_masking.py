"""Rules of masking: paths, actions, and what is hidden if a rule cannot be applied."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import InputError
from sparkraft.client.reading import ConsumedRecord
from sparkraft.console.message_config import MessageConfig, load_message_config, parse_path
from sparkraft.console.record_text import FORMS, Forms, RecordText

SECRET = "4111-secret-1111"
SCHEMA = {"type": "record", "name": "P", "fields": [{"name": "card", "type": "string"}]}
PROTO = 'syntax = "proto3"; message P { string card = 1; string note = 2; }'


def config(folder: Path, text: str) -> MessageConfig:
    path = folder / "console.toml"
    path.write_text(text)
    return load_message_config(path)


def rules(folder: Path, *fields: str, action: str = "mask", more: str = "") -> RecordText:
    text = f'[[mask]]\ntopic = "pay.*"\nfields = {json.dumps(fields)}\naction = "{action}"\n{more}'
    return RecordText(config(folder, text))


def record(
    value: Any, key: Any = b"k", topic: str = "payments", **headers: bytes
) -> ConsumedRecord:
    raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return ConsumedRecord(topic, 1, 5, 1, 0, key, raw, list(headers.items()), 3)


def safe(text: RecordText, given: ConsumedRecord) -> ConsumedRecord:
    return asyncio.run(text.safe([given]))[0]


def masked(text: RecordText, value: Any) -> Any:
    found = safe(text, record(value)).value
    assert found is not None
    return found.decode() if found == b"***" else json.loads(found)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("value.a", {"a": 1, "b": 2}, {"a": "***", "b": 2}),
        ("value.a", {"a": None}, {"a": "***"}),
        ("value.a", {"a": {"x": [1]}}, {"a": "***"}),
        ("value.a", {"A": 1}, {"A": 1}),
        ("value.a.b", {"a": {"b": 1, "c": 2}}, {"a": {"b": "***", "c": 2}}),
        ("value.a.b", {"a": [{"b": 1}, {"c": 2}, [{"b": 3}]]}, None),
        ("value.a[*].b", {"a": [{"b": 1}]}, {"a": [{"b": "***"}]}),
        ("value.b", [{"b": 1}, {"c": 2}], [{"b": "***"}, {"c": 2}]),
        ("value.a.b", {"a": "b=1"}, {"a": "***"}),
        ("value.a.b", {"a": ["b=1", 5]}, {"a": ["***", "***"]}),
        ("value.a.b", {"a": None}, {"a": None}),
        ("value.*.b", {"a": {"b": 1}, "c": {"b": 2}}, {"a": {"b": "***"}, "c": {"b": "***"}}),
        ("value.**.b", {"b": 1, "a": {"c": [{"b": {"b": 2}}]}}, None),
        ("value.**.a.b", {"x": {"a": {"b": 1}}, "a": {"b": 2, "c": 3}}, None),
        ('value."a.b"', {"a.b": 1, "a": {"b": 2}}, {"a.b": "***", "a": {"b": 2}}),
        ("value", {"a": 1}, "***"),
        ("value.a", 5, "***"),
        ("value.a", "text", "***"),
        ("value.a", b"a=1", "***"),
        ("value.a", b"\xff\x00", "***"),
        ("value.a", b'{"a": 1', "***"),
        ("value.a", b"[" * 5_000 + b"]" * 5_000, "***"),
        ("value.a", b'{"a": 1, "b": "\\ud800"}', {"a": "***", "b": "\ud800"}),
    ],
)
def test_paths(tmp_path: Path, path: str, value: Any, expected: Any):
    if expected is None:
        expected = {
            "value.a.b": {"a": [{"b": "***"}, {"c": 2}, [{"b": "***"}]]},
            "value.**.b": {"b": "***", "a": {"c": [{"b": "***"}]}},
            "value.**.a.b": {"x": {"a": {"b": "***"}}, "a": {"b": "***", "c": 3}},
        }[path]
    assert masked(rules(tmp_path, path), value) == expected


def test_dropped_fields_leave_no_trace(tmp_path: Path):
    text = rules(tmp_path, "value.**.card", "headers.token", action="drop")
    assert masked(text, {"card": 1, "items": [{"card": 2, "n": 3}]}) == {"items": [{"n": 3}]}
    assert safe(text, record({}, token=b"x", other=b"y")).headers == [("other", b"y")]


def test_equal_values_have_equal_hashes(tmp_path: Path):
    (tmp_path / "key").write_text("0123456789abcdef\n")
    more = 'hash_key = "key"\n'
    path = tmp_path / "console.toml"
    path.write_text(f'{more}[[mask]]\ntopic = "pay.*"\nfields = ["value.a"]\naction = "hash"\n')
    one, two = (RecordText(load_message_config(path)) for _ in range(2))
    hashes = [masked(text, {"a": value})["a"] for text in (one, two) for value in (SECRET, "b")]
    assert hashes[:2] == hashes[2:]
    assert len(set(hashes)) == 2
    assert all(each.startswith("hash:") and len(each) == 37 for each in hashes)
    other = masked(rules(tmp_path, "value.a", action="hash"), {"a": SECRET})["a"]
    assert other != hashes[0], "without a key, each start has another one"


def test_headers_and_keys(tmp_path: Path):
    text = rules(tmp_path, "headers.token", "key.id")
    found = safe(text, record(b"plain", b'{"id": 1, "n": 2}', token=b"x", other=b"y"))
    assert found.headers == [("token", b"***"), ("other", b"y")]
    assert (json.loads(found.key or b""), found.value) == ({"id": "***", "n": 2}, b"plain")
    every = rules(tmp_path, "headers.*")
    assert safe(every, record({}, token=b"x", other=b"y")).headers == [
        ("token", b"***"), ("other", b"***"),
    ]  # fmt: skip


def test_nulls_and_other_topics_are_as_they_are(tmp_path: Path):
    text = rules(tmp_path, "value.a")
    assert safe(text, record(None)).value is None
    other = record({"a": 1}, topic="not-pay")
    assert safe(text, other) is other


def test_schemas_decide_what_a_field_is(tmp_path: Path):
    (tmp_path / "p.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "p.proto").write_text(PROTO)
    avro = '[[schema]]\ntopic = "pay.*"\nformat = "avro"\nfile = "p.avsc"\n'
    text = rules(tmp_path, "value.card", more=avro)
    raw = bytes([2 * len(SECRET)]) + SECRET.encode()
    assert masked(text, raw) == {"card": "***"}
    assert masked(text, {"other": 1}) == "***", "it is not of the schema"
    proto = '[[schema]]\ntopic = "pay.*"\nformat = "protobuf"\nfile = "p.proto"\n'
    text = rules(tmp_path, "value.card", more=proto)
    raw = b"\x0a\x01x" + b"\x12\x01y" + b"\x1a\x05extra"
    assert masked(text, raw) == {"card": "***", "note": "y"}, "unknown fields are left out"
    pack = '[[schema]]\ntopic = "pay.*"\nformat = "messagepack"\n'
    text = rules(tmp_path, "value.card.number", more=pack)
    assert masked(text, b"\x81\xa4card\xc4\x01x") == {"card": "***"}, "bytes have no fields"


def test_internal_topics_can_be_masked(tmp_path: Path):
    rule = '[[mask]]\ntopic = "__consumer_offsets"\nfields = ["key.data.group"]\naction = "mask"\n'
    text = RecordText(config(tmp_path, rule))
    key = b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x02"
    found = safe(text, record(None, key, "__consumer_offsets"))
    assert json.loads(found.key or b"")["data"] == {"group": "***", "topic": "t", "partition": 2}
    shown = text.record_json(found, Forms())
    assert (shown["decoded"], shown["isMasked"]) == (None, True)
    assert '"group":"***"' in shown["key"]["text"]


def test_numbers_of_a_masked_value_keep_their_digits(tmp_path: Path):
    found = safe(
        rules(tmp_path, "value.card"), record(b'{"card": 1, "n": [0.12345678901234567890]}')
    )
    assert found.value == b'{"card":"***","n":[0.12345678901234567890]}'


secrets = st.recursive(
    st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=5,
)


@given(value=secrets, form=st.sampled_from(FORMS), action=st.sampled_from(["mask", "hash", "drop"]))
def test_no_form_shows_a_masked_field(
    tmp_path_factory: pytest.TempPathFactory, value: Any, form: str, action: str
):
    text = rules(tmp_path_factory.mktemp("c"), "value.card", "headers.card", action=action)
    given_record = record({"n": 1, "card": value}, card=SECRET.encode())
    found = safe(text, given_record)
    forms = Forms(form, form)
    seen = [text.record_json(found, forms), text.variables(found, forms)]
    all_of_it = json.dumps(seen) + text.exported(found).decode()
    for hidden in (SECRET, SECRET.encode().hex(), SECRET.encode().hex(" ")):
        assert hidden not in all_of_it


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("value", ("value",)),
        ("value.a.b", ("value", "a", "b")),
        ("key.a[*].b[*]", ("key", "a", "b")),
        ('value."a.b"."c\\"d"', ("value", "a.b", 'c"d')),
        ("value.**.**.a", ("value", "**", "a")),
        ("headers.*", ("headers", "*")),
    ],
)
def test_paths_are_parsed(text: str, path: tuple[str, ...]):
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("card", "does not begin with key, value or headers"),
        ("", "does not begin with key, value or headers"),
        ("value..a", "is not the path of a field"),
        ("value.", "is not the path of a field"),
        ("value.a[0]", "is not the path of a field"),
        ("$.value", "does not begin with key, value or headers"),
        ("headers", "a header has a name"),
        ("headers.a.b", "a header has a name"),
        ("value.**", r"ends with \*\*"),
        ("value" + ".a" * 50, "at most 50 names"),
    ],
)
def test_what_is_not_a_path_is_refused(text: str, reason: str):
    with pytest.raises(InputError, match=reason):
        parse_path(text)


MASKED = '[[mask]]\ntopic = "a"\nfields = ["value.a"]\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("regstry = 'x'", "the file has no setting regstry"),
        ("registry = 5", "registry is not a text"),
        ("[mask]\ntopic = 'a'", r"mask is written as \[\[mask\]\]"),
        (f"{MASKED}action = 'hide'", "action is one of mask, hash, drop, not 'hide'"),
        (MASKED, "action is missing"),
        ("[[mask]]\ntopic = 'a'\nfields = []\naction = 'mask'", "fields of .* are 1 to"),
        ("[[mask]]\ntopic = 'a('\nfields = ['value']\naction = 'mask'", "not a regular expression"),
        (f"{MASKED}action = 'mask'\nfield = 'x'", r"\[\[mask\]\] has no setting field"),
        ("[[schema]]\ntopic = 'a'\nformat = 'avro'", "format avro needs a file"),
        ("[[schema]]\ntopic = 'a'\nformat = 'avro'\nfile = 'none'", "No such file"),
        ("[[schema]]\ntopic = 'a'\nformat = 'messagepack'\nfile = 'x'", "messagepack has no file"),
        ("[[schema]]\ntopic = 'a'\nformat = 'messagepack'\npart = 'all'", "part is one of key"),
        ("[[schema]]\ntopic = 'a'\nformat = 'avro'\nfile = 'bad'", "the Avro schema is not JSON"),
        ("[[schema]]\ntopic = 'a'\nformat = 'protobuf'\nfile = 'bad'", "in place of a definition"),
        ("hash_key = 'short'", "at least 16 characters"),
        ("x = ", "Invalid value"),
    ],
)
def test_mistakes_in_the_file_have_a_sentence(tmp_path: Path, text: str, reason: str):
    (tmp_path / "bad").write_text("not a schema")
    (tmp_path / "short").write_text("x")
    with pytest.raises(InputError, match=rf"^{tmp_path}.*{reason}"):
        config(tmp_path, text)
