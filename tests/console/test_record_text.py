"""Records as a page shows them."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkraft.client.reading import ConsumedRecord
from sparkraft.console.json_text import json_text
from sparkraft.console.message_config import MessageConfig
from sparkraft.console.record_text import Forms, RecordText, part_json

TEXT = RecordText(MessageConfig())


def record(key: bytes | None, value: bytes | None, topic: str = "t") -> ConsumedRecord:
    return ConsumedRecord(topic, 1, 5, 1_700_000_000_000, 0, key, value, [("h", b"x")], 3)


def test_json_keeps_every_digit():
    text = b'{"id": 12345678901234567890, "price": 1.10}'
    assert part_json(text, "auto", 100) == {
        "form": "json", "text": text.decode(), "size": len(text), "isCut": False, "isExact": True,
        "note": "",
    }  # fmt: skip


def test_half_of_a_pair_of_surrogates_is_escaped():
    assert json_text({"é": ["\ud800", 1 << 60]}) == '{"\\u00e9":["\\ud800","1152921504606846976"]}'
    assert json_text({"é": 1}) == '{"é":1}'


def test_forms():
    assert part_json(None, "auto", 100)["form"] == "null"
    assert part_json(b"plain", "auto", 100)["form"] == "text"
    assert part_json(b'"word"', "auto", 100)["form"] == "text"
    assert part_json(b'{"a":1}', "text", 100)["form"] == "text"
    assert part_json(b"\x00\xff", "auto", 100)["text"] == "00 ff"
    assert part_json(b"ab", "hex", 100)["text"] == "61 62"
    assert part_json(b"\xff\xff\xff\xfe", "int", 100)["text"] == "-2"
    assert part_json(b"abc", "int", 100)["form"] == "text"
    assert part_json(b"\xff", "text", 100)["text"] == "\ufffd"


def test_a_cut_within_a_character_is_still_text():
    shown = part_json("é".encode() * 50, "auto", 51)
    assert (shown["form"], shown["text"], shown["isCut"]) == ("text", "é" * 25, True)


def test_only_what_has_all_bytes_can_be_sent_again():
    exact = [(None, "auto"), (b"", "auto"), (b"a\r\n", "text"), (b"\xff", "hex"), (b"{}", "auto")]
    assert all(part_json(raw, form, 100)["isExact"] for raw, form in exact)
    # The last one has as many bytes as the character that replaces it.
    others = [(b"\xff", "text"), (b"1234", "int"), (b"\xf0\x9f\x98", "text"), (b"a" * 101, "auto")]
    assert not any(part_json(raw, form, 100)["isExact"] for raw, form in others)
    many = replace(record(b"k", b"v"), headers=[("h", b"x")] * 101)
    shown = TEXT.record_json(many, Forms())
    assert (len(shown["headers"]), shown["headerCount"]) == (100, 101)


@given(st.binary(max_size=300), st.integers(2, 64), st.sampled_from(["auto", "text", "hex", "int"]))
def test_any_bytes_are_shown_within_the_bound(raw: bytes, size: int, form: str):
    shown = part_json(raw, form, size)
    assert shown["size"] == len(raw)
    assert len(shown["text"].encode(errors="replace")) <= max(3 * size, 20)
    assert (
        shown["isCut"]
        or form != "auto"
        or shown["form"] != "text"
        or (shown["text"].encode() == raw)
    )
    json.dumps(shown)


def test_records_of_internal_topics_are_decoded():
    key = b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x02"
    shown = TEXT.record_json(record(key, None, "__consumer_offsets"), Forms())
    assert shown["decoded"]["key"]["data"] == {"group": "g", "topic": "t", "partition": 2}
    assert TEXT.record_json(record(b"k", b"v"), Forms())["decoded"] is None


def test_a_filter_sees_json_and_text():
    found = TEXT.variables(record(b"k", b'{"a": [1]}'), Forms())["record"]
    assert (found["key"], found["value"], found["valueAsText"]) == ("k", {"a": [1]}, '{"a": [1]}')
    assert found["headers"] == {"h": "x"}
    assert TEXT.variables(record(None, None), Forms())["record"]["value"] is None
