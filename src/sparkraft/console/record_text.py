"""A record as a page shows it: key, value and headers as JSON, text or hexadecimal digits.

Everything here works on records without their masked fields (`masking`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.client.decoders.batches import TIMESTAMP_TYPES, header_json, sequence_of
from sparkraft.client.decoders.consumed import as_json
from sparkraft.console.masking import RecordMasks
from sparkraft.console.part_decoding import DECODED_FORMS, PartDecoder, decoded_internal, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.console.message_config import MessageConfig
    from sparkraft.console.part_decoding import Decoded

Json = dict[str, Any]

SHOWN_BYTES_MAX = 4_096
"""Of a key, a value or a header, in a list of records."""

WHOLE_BYTES_MAX = 1 << 20
"""The same of a single record."""

DECODED_CHARS_MAX = 16_384
"""Of the JSON text of a decoded key or value, in a list of records."""

HEADERS_MAX = 100

FORMS = ("auto", "text", "hex", "int", *DECODED_FORMS)
"""Decoders that a page can choose: `auto` uses the schemas of the console, and otherwise shows JSON
and UTF-8 as text, and hex otherwise."""

_INT_SIZES = frozenset({1, 2, 4, 8})

_JSON = "json"
"""The form of a part with masked fields, which is JSON already."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Of `FORMS`, for keys and values."""

    key: str = "auto"
    value: str = "auto"

    def of(self, part: str) -> str:
        """The form of a part."""
        return self.key if part == "key" else self.value


class RecordText:
    """Shows records of all topics, by the schemas and the masks of a configuration."""

    def __init__(self, config: MessageConfig) -> None:
        self._decoder = PartDecoder(config)
        self._masks = RecordMasks(config, self._decoder)

    async def safe(
        self, records: Sequence[ConsumedRecord], *, asks: bool = True
    ) -> list[ConsumedRecord]:
        """The records without the fields that are masked.

        Args:
            records: as they were read.
            asks: whether to request schemas that are not known yet from the registry.
        """
        if asks:
            await self._decoder.prepare(records)
        return [self._masks.safe(record) for record in records]

    def record_json(
        self, record: ConsumedRecord, forms: Forms, *, size: int = SHOWN_BYTES_MAX
    ) -> Json:
        """The record; records of Kafka's internal topics also with their decoded content.

        Args:
            record: one that `safe` returned.
            forms: for key and value.
            size: bytes of key, value and each header that are shown.
        """
        internal = None if self._masks.of(record.topic) else decoded_internal(record)
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": TIMESTAMP_TYPES[record.timestamp_type],
            "leaderEpoch": record.leader_epoch,
            "batch": None
            if record.batch is None
            else {
                **header_json(record.batch),
                "sequence": sequence_of(record.batch, record.offset),
            },
            "key": self._part(record, "key", record.key, forms, size),
            "value": self._part(record, "value", record.value, forms, size),
            "headers": [
                [name, part_json(v, "auto", size)] for name, v in record.headers[:HEADERS_MAX]
            ],
            "headerCount": len(record.headers),
            "decoded": None
            if internal is None
            else dict(zip(("key", "value"), internal, strict=True)),
            "isMasked": self._masks.of(record.topic) is not None,
        }

    def variables(self, record: ConsumedRecord, forms: Forms) -> Json:
        """The variables of a filter; the names are those of kafbat's filters."""
        return {
            "record": {
                "key": self._variable(record, "key", record.key, forms),
                "value": self._variable(record, "value", record.value, forms),
                "keyAsText": _plain(record.key),
                "valueAsText": _plain(record.value),
                "headers": {name: _plain(part) for name, part in record.headers},
                "partition": record.partition,
                "offset": record.offset,
                "timestampMs": record.timestamp,
            }
        }

    def exported(self, record: ConsumedRecord) -> bytes:
        """The line of an export."""
        return as_json(record)

    def _form(self, topic: str, part: str, forms: Forms) -> str:
        masks = self._masks.of(topic)
        return _JSON if masks is not None and part in masks.parts else forms.of(part)

    def _decoded(
        self, record: ConsumedRecord, part: str, raw: bytes, forms: Forms
    ) -> Decoded | None:
        form = self._form(record.topic, part, forms)
        if form != "auto" and form not in DECODED_FORMS:
            return None
        return self._decoder.decode(record.topic, part, raw, form)

    def _part(
        self, record: ConsumedRecord, part: str, raw: bytes | None, forms: Forms, size: int
    ) -> Json:
        form = self._form(record.topic, part, forms)
        if raw is None or form not in {"auto", *DECODED_FORMS}:
            return part_json(raw, "auto" if form == _JSON else form, size)
        raw = bytes(raw)
        decoded = self._decoded(record, part, raw, forms)
        if decoded is None:
            return part_json(raw, "auto", size)
        if not decoded.form:
            return {**part_json(raw, "auto", size), "note": decoded.note}
        text = decoded.text or json.dumps(decoded.value, ensure_ascii=False)
        chars_max = max(DECODED_CHARS_MAX, size)
        is_cut = len(text) > chars_max
        shown = _shown(decoded.form, text[:chars_max], raw, is_cut=is_cut, is_exact=False)
        return {**shown, "note": decoded.note}

    def _variable(self, record: ConsumedRecord, part: str, raw: bytes | None, forms: Forms) -> Any:
        if raw is None:
            return None
        raw = bytes(raw)
        decoded = self._decoded(record, part, raw, forms)
        if decoded is not None and decoded.form:
            return decoded.value
        if self._form(record.topic, part, forms) == "int" and len(raw) in _INT_SIZES:
            return int.from_bytes(raw, "big", signed=True)
        found = parsed(raw)
        return _plain(raw) if found is None else found


def part_json(raw: bytes | None, form: str, size: int) -> Json:
    """A key, value or header value. `form` in the result is null, json, text, hex or int.

    If `isExact` is true, the text has all bytes, and a record can be sent again as shown.
    """
    if raw is None:
        return _shown("null", "null", b"", is_cut=False)
    raw = bytes(raw)
    if form == "int" and len(raw) in _INT_SIZES:
        number = str(int.from_bytes(raw, "big", signed=True))
        return _shown("int", number, raw, is_cut=False, is_exact=False)
    if form != "hex":
        text = _utf8(raw[:size], is_cut=len(raw) > size)
        if text is not None or form == "text":
            kind = "json" if form == "auto" and _is_json(raw) else "text"
            text = raw[:size].decode("utf-8", "replace") if text is None else text
            is_exact = text.encode() == raw
            return _shown(kind, text, raw, is_cut=len(raw) > size, is_exact=is_exact)
    return _shown("hex", raw[: size // 2].hex(" "), raw, is_cut=len(raw) > size // 2)


def _shown(form: str, text: str, raw: bytes, *, is_cut: bool, is_exact: bool = True) -> Json:
    return {
        "form": form,
        "text": text,
        "size": len(raw),
        "isCut": is_cut,
        "isExact": is_exact and not is_cut,
        "note": "",
    }


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


def _plain(raw: bytes | None) -> str | None:
    return None if raw is None else bytes(raw).decode("utf-8", "replace")
