"""A record as a page shows it: key, value and headers as text, JSON or hexadecimal digits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from sparkraft.client.decoders.batches import TIMESTAMP_TYPES
from sparkraft.client.decoders.internal_topics import DECODERS

if TYPE_CHECKING:
    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.records.record import Record

Json = dict[str, Any]

SHOWN_BYTES_MAX = 4_096
"""Of a key or value in a list; the page of the record shows `WHOLE_BYTES_MAX`."""

WHOLE_BYTES_MAX = 1 << 20

HEADERS_MAX = 100

_DECODERS = {choice.about: choice.decode for choice in DECODERS.values()}
"""By name of the topic."""

FORMS = ("auto", "text", "hex", "int")
"""Decoders that a page can choose: `auto` shows JSON and UTF-8 as text, and hex otherwise."""


def record_json(record: ConsumedRecord, *, form: str = "auto", size: int = SHOWN_BYTES_MAX) -> Json:
    """The record; records of Kafka's internal topics also with their decoded content.

    Args:
        record: the record.
        form: of `FORMS`, for key and value.
        size: bytes of key, value and each header that are shown.
    """
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TIMESTAMP_TYPES[record.timestamp_type],
        "leaderEpoch": record.leader_epoch,
        "key": part_json(record.key, form, size),
        "value": part_json(record.value, form, size),
        "headers": [[name, part_json(v, "auto", size)] for name, v in record.headers[:HEADERS_MAX]],
        "decoded": _decoded(record),
    }


def part_json(raw: bytes | None, form: str, size: int) -> Json:
    """A key, value or header value. `form` in the result is null, json, text, hex or int."""
    if raw is None:
        return {"form": "null", "text": "null", "size": 0, "isCut": False}
    raw = bytes(raw)
    if form == "int" and len(raw) in {1, 2, 4, 8}:
        return _shown("int", str(int.from_bytes(raw, "big", signed=True)), raw, is_cut=False)
    if form != "hex":
        text = _utf8(raw[:size], is_cut=len(raw) > size)
        if text is not None or form == "text":
            kind = "json" if form == "auto" and _is_json(raw) else "text"
            text = raw[:size].decode("utf-8", "replace") if text is None else text
            return _shown(kind, text, raw, is_cut=len(raw) > size)
    return _shown("hex", raw[: size // 2].hex(" "), raw, is_cut=len(raw) > size // 2)


def _shown(form: str, text: str, raw: bytes, *, is_cut: bool) -> Json:
    return {"form": form, "text": text, "size": len(raw), "isCut": is_cut}


def _utf8(raw: bytes, *, is_cut: bool) -> str | None:
    """The text, or None if it is not printable UTF-8. A cut may lie within a character."""
    for end in range(len(raw), max(-1, len(raw) - (4 if is_cut else 1)), -1):
        try:
            text = raw[:end].decode()
        except UnicodeDecodeError:
            continue
        return text if _is_printable(text) else None
    return None


def _is_printable(text: str) -> bool:
    return not any(ord(c) < ord(" ") and c not in "\n\r\t" for c in text)


def _is_json(raw: bytes) -> bool:
    """Whether it is a JSON object or array; a bare number or word is shown as text."""
    return raw[:1] in (b"{", b"[") and parsed(raw) is not None


def parsed(raw: bytes | None) -> Any:
    """The JSON value, or None."""
    if raw is None or len(raw) > WHOLE_BYTES_MAX:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _decoded(record: ConsumedRecord) -> Any:
    decode = _DECODERS.get(record.topic)
    if decode is None:
        return None
    key, value = decode(cast("Record", record))
    return {"key": key, "value": value}


def variables(record: ConsumedRecord) -> Json:
    """The variables of a filter; the names are those of kafbat's filters."""
    key, value = (_value(part) for part in (record.key, record.value))
    return {
        "record": {
            "key": key,
            "value": value,
            "keyAsText": _plain(record.key),
            "valueAsText": _plain(record.value),
            "headers": {name: _plain(part) for name, part in record.headers},
            "partition": record.partition,
            "offset": record.offset,
            "timestampMs": record.timestamp,
        }
    }


def _value(raw: bytes | None) -> Any:
    found = parsed(raw)
    return _plain(raw) if found is None else found


def _plain(raw: bytes | None) -> str | None:
    return None if raw is None else bytes(raw).decode("utf-8", "replace")
